/* tile_best.cuh: the encoder `best` (formats/search.c) for tiles (tile_codes.cuh).
 *
 * All seven scales are judged by one table: entry i has, for each of them, what a value of magnitude i of 180 steps
 * adds to the two sums of least squares, y v and v v, 16 bits each; the eighth pair is the start's.  180 steps reach
 * the magnitude from which on all scales take the outermost level; what lies beyond adds the same to all.  A step is
 * 1/64 of a record's mean: rows have 0.2 % more squared error than by exact sums at most, in the mean (q4_polar_r, with
 * steps of 1/32: 0.9 %).  The refit and the codes use exact levels.  All is relative to the start's scale. */
#ifndef KVANT_CUDA_TILE_BEST_CUH
#define KVANT_CUDA_TILE_BEST_CUH

#include "devices/cuda/encode_search.cuh"
#include "devices/cuda/tile_codes.cuh"

enum { SCALES = 7, TRY_LINE = 256, TRY_TOGETHER = 8 };

#define TILE_RESIDUAL 0x1.6a09e6p-5f       /* 0x3d3504f3: what q4_polar_r adds to a level or takes from it */

template <int F> static constexpr float tile_last_boundary()
{
    return tile_format<F>::kind == ENC_INT ? 1.0f : tile_boundary<F>(tile_format<F>::levels - 2);
}

template <int F> static constexpr float tile_top()
{
    return tile_format<F>::kind == ENC_INT ? 0.0f : tile_centroid<F>(tile_format<F>::levels - 1);
}

template <int F> struct tile_search {
    /* Codes that are not symmetric: both signs of the scale (q4_0), or of the residual, with entries from -reach on. */
    static constexpr bool two = F == FMT_q4_0 || F == FMT_q4_polar_r, book = F != FMT_q8_0;
    static constexpr float unit = tile_format<F>::kind == ENC_NORM128 ? 11.3137085f : 1.0f; /* values of mean 1 */
    static constexpr float residual = F == FMT_q4_polar_r ? TILE_RESIDUAL : 0.0f;
    static constexpr float top = tile_top<F>();             /* the outermost level */
    static constexpr float reach = F == FMT_q4_0 ? 8.0f : 1.1701f * (tile_last_boundary<F>() + residual);
    static constexpr int steps = F == FMT_q4_0 ? 256 : 180, bias = two ? 8 : 0;
    /* Fixed point: the sums of TRY_TOGETHER values stay below 65536: no level is above 2.76 (q4_0: 8), no value above
     * `reach` of it. */
    static constexpr float fixed = F == FMT_q4_0 ? 127.0f : 1000.0f;
    static constexpr int table_bytes = book ? (steps + 1) * TRY_LINE : 0;
};

typedef struct __align__(16) try_entry {
    uint32_t w[8];
} try_entry;

template <int N> struct try_entries {
    try_entry e[N];
};

/* The level nearest to t. */
template <int F> static constexpr float try_level(float t)
{
    if (F == FMT_q4_0) {
        int v = -8;
        while (v < 7 && t >= (float)v + 0.5f)
            v++;
        return (float)v;
    }
    int code = 0;
    while (code < tile_format<F>::levels - 1 && t >= tile_boundary<F>(code))
        code++;
    return tile_centroid<F>(code);
}

template <int F> static constexpr try_entries<tile_search<F>::steps + 1> try_entries_of()
{
    typedef tile_search<F> is;
    constexpr float factors[SCALES + 1] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f, 1.0f };
    constexpr float k = is::unit * is::unit * is::fixed;
    try_entries<is::steps + 1> t = {};
    for (int i = 0; i <= is::steps; i++)
        for (int f = 0; f <= SCALES; f++) {
            const float part = (float)i / (float)is::steps, y = is::reach * (is::two ? 2.0f * part - 1.0f : part);
            const float v = try_level<F>(y / factors[f] - is::residual) + is::residual;
            t.e[i].w[f] = (uint32_t)(k * y * v + (float)is::bias + 0.5f) | (uint32_t)(k * v * v + 0.5f) << 16;
        }
    return t;
}

template <int F> static __device__ const try_entries<tile_search<F>::steps + 1> try_table = try_entries_of<F>();

/* As tile_copy: a line has 8 copies of each half of an entry. */
template <int F, bool BEST, int THREADS> struct try_copy {
    static constexpr int all = BEST && tile_search<F>::book ? (tile_search<F>::steps + 1) * 16 : 0;
    static constexpr int each = all > 0 ? (all + THREADS - 1) / THREADS : 1;
    uint4 e[each];

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int k = 0; k < each; k++) {
            const int i = THREADS * k + (int)threadIdx.x;
            if constexpr (all > 0)
                if (i < all)
                    e[k] = ((const uint4 *)try_table<F>.e[i / 16].w)[i / 8 % 2];
        }
    }

    __device__ __forceinline__ uint32_t store(uint8_t *table)
    {
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < all)
                ((uint4 *)table)[THREADS * k + threadIdx.x] = e[k];
        return shared_at(table) + threadIdx.x % 8 * 16 - 0x4b400000u * TRY_LINE;
    }
};

/* What the sums of a scale say. */
typedef struct trial {
    float gain, scale;
} trial;

/* The first of equals; less than nothing: scale 1. */
static __device__ __forceinline__ trial trial_of(float yv, float vv)
{
    const float s = vv > 0.0f ? __fdividef(yv, vv) : 0.0f;
    return { yv * s, s };
}

static __device__ __forceinline__ void trial_better(trial *a, const trial &b)
{
    const bool better = b.gain > a->gain;
    a->gain = better ? b.gain : a->gain;
    a->scale = better ? b.scale : a->scale;
}

/* Sums over the lanes of a unit, four of them or one. */
template <int F, typename T> static __device__ __forceinline__ T tile_lanes(T s)
{
    if constexpr (!tile_format<F>::records) {
        s += __shfl_xor_sync(0xffffffffu, s, 1);
        s += __shfl_xor_sync(0xffffffffu, s, 2);
    }
    return s;
}

/* Sums of the table's words: y v and v v of all scales, 32 bits each. */
typedef struct try_sums {
    uint32_t yv[8], vv[8];
} try_sums;

/* Adds words of 16 bits each. */
static __device__ __forceinline__ void try_add(try_sums *s, const uint32_t *w)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        s->yv[i] = __dp2a_lo(w[i], 0x0001u, s->yv[i]);
        s->vv[i] = __dp2a_lo(w[i], 0x0100u, s->vv[i]);
    }
}

template <int F> static __device__ __forceinline__ trial try_fit(uint32_t yv, uint32_t vv, float beyond)
{
    return trial_of(fmaf((float)yv, 1.0f / tile_search<F>::fixed, beyond), (float)vv * (1.0f / tile_search<F>::fixed));
}

/* The start's codes under its scale as stored, or what the norm of their levels makes of it.  It wins as scale 0. */
template <int F>
static __device__ __forceinline__ trial try_start(uint32_t yv, uint32_t vv, float beyond, float stored)
{
    if (F == FMT_q4_polar_r)            /* its start has codes without the residual: take the scale between instead */
        return try_fit<F>(yv, vv, beyond);
    const float p = fmaf((float)yv, 1.0f / tile_search<F>::fixed, beyond);
    const float q = (float)vv * (1.0f / tile_search<F>::fixed);
    if (tile_format<F>::kind == ENC_NORM128)
        stored = q > 0.0f ? tile_search<F>::unit * rsqrtf(q) : 0.0f;
    return { stored * (2.0f * p - stored * q), 0.0f };
}

/* One step of the sum over the lanes of a unit that leaves lane q with the sums of scales 2 q, 2 q + 1. */
template <int H> static __device__ __forceinline__ void try_fold(uint32_t *x)
{
    const bool upper = threadIdx.x & (H / 2);
#pragma unroll
    for (int i = 0; i < H; i++)
        x[i] = (upper ? x[i + H] : x[i]) + __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + H], H / 2);
}

/* The best of the scales by their sums, relative to the start's. */
template <int F> static __device__ __forceinline__ trial try_pick(try_sums *s, float beyond, float stored)
{
    trial best = { 0.0f, 1.0f };
    if constexpr (tile_format<F>::records) {
#pragma unroll
        for (int i = 0; i < SCALES; i++)
            trial_better(&best, try_fit<F>(s->yv[i], s->vv[i], beyond));
        if (stored != 0.0f)
            trial_better(&best, try_start<F>(s->yv[SCALES], s->vv[SCALES], beyond, stored));
    } else {
        try_fold<4>(s->yv), try_fold<4>(s->vv);
        try_fold<2>(s->yv), try_fold<2>(s->vv);
        trial_better(&best, try_fit<F>(s->yv[0], s->vv[0], beyond));
        trial_better(&best, threadIdx.x % 4 == 3 ? try_start<F>(s->yv[1], s->vv[1], beyond, stored)
                                                 : try_fit<F>(s->yv[1], s->vv[1], beyond));
#pragma unroll
        for (int m = 1; m < 4; m *= 2) {
            const trial o = { __shfl_xor_sync(0xffffffffu, best.gain, m), __shfl_xor_sync(0xffffffffu, best.scale, m) };
            if (o.gain > best.gain || (o.gain == best.gain && (threadIdx.x & m)))
                best = o;
        }
    }
    return best;
}

static __device__ __forceinline__ void try_read(uint32_t at, uint32_t *w)
{
    asm("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at));
    asm("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4+128];" : "=r"(w[4]), "=r"(w[5]), "=r"(w[6]), "=r"(w[7]) : "r"(at));
}

/* x, minus where bit k of neg says so. */
static __device__ __forceinline__ float tile_signed(float x, uint32_t neg, int k)
{
    return __uint_as_float(__float_as_uint(x) ^ (neg << (31 - k) & 0x80000000u));
}

/* Magnitudes: no codebook but those with `two` minds signs. */
template <int F>
static __device__ __forceinline__ float try_scales(uint32_t base, const float *u, float stored)
{
    typedef tile_search<F> is;
    try_sums sums = {};
    float all[2] = { 0.0f, 0.0f }, within[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int from = 0; from < 32; from += TRY_TOGETHER) {
        uint32_t sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
#pragma unroll
        for (int k = from; k < from + TRY_TOGETHER; k += 2) {
            uint32_t w[2][8];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float part = __saturatef(fabsf(u[k + j]) * (1.0f / is::reach));
                all[j] += fabsf(u[k + j]);
                within[j] += part;
                try_read(__float_as_uint(fmaf(part, (float)is::steps, ENC_MAGIC)) * TRY_LINE + base, w[j]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] += w[0][i] + w[1][i];
        }
        try_add(&sums, sum);
    }
    const float over = fmaf(-is::reach, within[0] + within[1], all[0] + all[1]);
    return try_pick<F>(&sums, tile_lanes<F>(over) * (is::unit * is::unit * is::top), stored).scale;
}

/* Both signs; bit k of neg: minus for value k under the first.  *flip: -1 where the other one is better, else 1. */
template <int F>
static __device__ __forceinline__ float try_signs(uint32_t base, const float *u, uint32_t neg, float stored,
                                                  float *flip)
{
    typedef tile_search<F> is;
    constexpr uint32_t zero = 0x4b400000u * TRY_LINE;
    constexpr float none = -(float)is::bias * (tile_format<F>::records ? 32.0f : 128.0f) / is::fixed;
    try_sums sums[2] = {};
    float over = 0.0f;
#pragma unroll
    for (int from = 0; from < 32; from += TRY_TOGETHER) {
        uint32_t sum[2][8] = {};
#pragma unroll
        for (int k = from; k < from + TRY_TOGETHER; k++) {
            uint32_t w[8];
            const float by = F == FMT_q4_0 ? 0.5f / is::reach : tile_signed(0.5f / is::reach, neg, k);
            const float part = __saturatef(fmaf(u[k], by, 0.5f));
            const uint32_t at = __float_as_uint(fmaf(part, (float)is::steps, ENC_MAGIC)) * TRY_LINE;
            if (F != FMT_q4_0)
                over += fmaxf(fabsf(u[k]) - is::reach, 0.0f);
            try_read(at + base, w);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[0][i] += w[i];
            try_read(2 * zero + is::steps * TRY_LINE - at + base, w);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[1][i] += w[i];
        }
        try_add(&sums[0], sum[0]);
        try_add(&sums[1], sum[1]);
    }
    const float beyond = tile_lanes<F>(over) * is::top + none;
    trial best = try_pick<F>(&sums[0], beyond, stored);
    const trial other = try_pick<F>(&sums[1], beyond, 0.0f);
    *flip = other.gain > best.gain ? -1.0f : 1.0f;
    trial_better(&best, other);
    return best.scale;
}

/* A scale that values are measured with, and its inverse. */
typedef struct measure {
    float scale, inv;
} measure;

/* One value's level at a scale, and its code in front of the others. */
template <int F, int BITS>
static __device__ __forceinline__ float tile_level(uint32_t book, float y, const measure &m, uint32_t neg, int k,
                                                   uint32_t *codes)
{
    if constexpr (F == FMT_q4_0) {
        const float v = enc_clamped<F>(y * m.inv);
        *codes = *codes << 4 | (__float_as_uint(ENC_MAGIC + 7.0f - v) & 15u);
        return v;
    } else if constexpr (F == FMT_q4_polar_r) {
        const float off = tile_signed(TILE_RESIDUAL, neg, k);
        return tile_code<F, true, BITS>(book, y * m.inv - off, codes) + off;
    } else {
        const tile_hit h = tile_look<F, true>(book, tile_bin_at<F>(y, m.inv));
        const float from = fmaf(h.mid, -m.scale, y);
        *codes = (*codes << BITS) + h.above + (__float_as_uint(from) >> 31);
        return from < 0.0f ? h.low : h.high;
    }
}

/* The sums of a refit. */
template <int F>
static __device__ __forceinline__ trial tile_refit(uint32_t book, const float *u, const measure &m, uint32_t neg)
{
    float yv[2] = { 0.0f, 0.0f }, vv[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++) {
        uint32_t code = 0;
        const float v = tile_level<F, 4>(book, u[k], m, neg, k, &code);
        yv[k % 2] = fmaf(u[k], v, yv[k % 2]);
        vv[k % 2] = fmaf(v, v, vv[k % 2]);
    }
    return trial_of(tile_lanes<F>(yv[0] + yv[1]), tile_lanes<F>(vv[0] + vv[1]));
}

/* h over the guess. */
static __device__ __forceinline__ measure measure_of(uint16_t h, float guess)
{
    const float s = enc_value(h);
    return { __fdividef(s, guess), guess / s };
}

/* The scale that the values, relative to guess, settle at: as stored. */
template <int F>
static __device__ __forceinline__ uint16_t tile_settle(const tile_books &b, const float *u, float s, float guess,
                                                       uint32_t neg)
{
    const trial refit = tile_refit<F>(b.codes, u, measure_of(enc_storable(s * guess), guess), neg);
    return enc_storable((refit.scale > 0.0f ? refit.scale : s) * guess);
}

/* Complements of the codes, BITS each and 8 to a word, and the scale.  HALVES: tile_nibble_of's order.  guess: the
 * start's scale, upstream: as it would be stored; yy: the sum of squares over guess. */
template <int F, int BITS, bool HALVES>
static __device__ __forceinline__ uint16_t tile_best(const tile_books &b, const float *u, float guess,
                                                     uint16_t upstream, float yy, uint32_t *word)
{
    const bool any = guess > 0.0f && guess <= 1e30f;        /* else nothing to search */
    const float start = enc_value(upstream), stored = any ? start / guess : 0.0f;
    const float s = try_scales<F>(b.tries, u, stored);
    const bool take = any && (s > 0.0f || !(start > 0.0f && start < INFINITY));
    const uint16_t h = tile_settle<F>(b, u, s > 0.0f ? s : 1.0f, guess, 0);
    const measure one = { 1.0f, 1.0f }, m = take ? measure_of(h, guess) : one;
    float yv = 0.0f;
#pragma unroll
    for (int n = 31; n >= 0; n--) {
        const float y = u[HALVES ? tile_nibble_of(n) : n];
        yv = fmaf(y, tile_level<F, BITS>(b.codes, y, m, 0, n, &word[n / 8]), yv);
    }
    return enc_unbiased_scale(yy / tile_lanes<F>(yv), take ? h : upstream);
}

/* The same for codes with two signs.  *flip: as try_signs has it; 0: nothing was searched and nothing is written. */
template <int F, bool HALVES>
static __device__ __forceinline__ uint16_t tile_best_two(const tile_books &b, float *u, float guess, uint16_t upstream,
                                                         float yy, uint32_t neg, uint32_t *word, float *flip)
{
    const bool any = fabsf(guess) > 0.0f && fabsf(guess) <= 1e30f;
    const float start = enc_value(upstream), stored = F == FMT_q4_0 && any ? start / guess : 0.0f;
    const float s = try_signs<F>(b.tries, u, neg, fabsf(start) < INFINITY ? stored : 0.0f, flip);
    float yv = 0.0f;
    if (F == FMT_q4_0) {
        guess *= *flip;
        yy *= *flip;
#pragma unroll
        for (int k = 0; k < 32; k++)
            u[k] *= *flip;
    } else {
        neg = *flip < 0.0f ? ~neg : neg;
    }
    const uint16_t h = tile_settle<F>(b, u, s > 0.0f ? s : 1.0f, guess, neg);
    const bool take = s > 0.0f;
    const measure one = { 1.0f, 1.0f }, m = take ? measure_of(h, guess) : one;
#pragma unroll
    for (int n = 31; n >= 0; n--) {
        const int k = HALVES ? tile_nibble_of(n) : n;
        yv = fmaf(u[k], tile_level<F, 4>(b.codes, u[k], m, neg, k, &word[n / 8]), yv);
    }
    *flip = any ? *flip : 0.0f;
    return enc_unbiased_scale(yy / tile_lanes<F>(yv), take ? h : upstream);
}

#endif
