/* tile_best.cuh: the encoder `best` (formats/search.c) for tiles (tile_codes.cuh).
 *
 * All seven scales are judged by one table: entry i has, for each of them, the level of a value of magnitude i of 255
 * steps, in 8 bits; the eighth is the start's.  The sums of least squares, y v and v v, are those of bytes, four values
 * at a time.  255 steps reach the magnitude from which on all scales take the outermost level; what lies beyond adds
 * the same to all.  Rows have 0.2 % more squared error than by exact sums at most, in the mean (q4_polar_r, whose
 * levels have 7 bits: 0.7 %).  The refit and the codes use exact levels.  All is relative to the start's scale. */
#ifndef KVANT_CUDA_TILE_BEST_CUH
#define KVANT_CUDA_TILE_BEST_CUH

#include "devices/cuda/encode_search.cuh"
#include "devices/cuda/tile_codes.cuh"

enum { SCALES = 7, TRY_LINE = 128, TRY_BYTES = 8 };

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
    static constexpr int steps = two ? 254 : 255;
    /* A level of 1 in the table; what its sums of y v and of v v are worth. */
    static constexpr float one = F == FMT_q4_0 ? 15.0f : (two ? 127.0f : 255.0f) / (top + residual);
    static constexpr float yv = unit * unit * reach * (two ? 2.0f : 1.0f) / ((float)steps * one);
    static constexpr float vv = unit * unit / (one * one);
    static constexpr int table_bytes = book ? (steps + 1) * TRY_LINE : 0;
};

typedef struct __align__(8) try_entry {
    uint32_t w[2];
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
    try_entries<is::steps + 1> t = {};
    for (int i = 0; i <= is::steps; i++)
        for (int f = 0; f <= SCALES; f++) {
            const float part = (float)i / (float)is::steps, y = is::reach * (is::two ? 2.0f * part - 1.0f : part);
            const float v = is::one * (try_level<F>(y / factors[f] - is::residual) + is::residual);
            t.e[i].w[f / 4] |= ((uint32_t)(int)(v < 0.0f ? v - 0.5f : v + 0.5f) & 255u) << 8 * (f % 4);
        }
    return t;
}

template <int F> static __device__ const try_entries<tile_search<F>::steps + 1> try_table = try_entries_of<F>();

/* As tile_copy: a line has 16 copies of an entry. */
template <int F, bool BEST, int THREADS> struct try_copy {
    static constexpr int copies = TRY_LINE / TRY_BYTES;
    static constexpr int all = BEST && tile_search<F>::book ? (tile_search<F>::steps + 1) * copies : 0;
    static constexpr int each = all > 0 ? (all + THREADS - 1) / THREADS : 1;
    uint2 e[each];

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int k = 0; k < each; k++) {
            const int i = THREADS * k + (int)threadIdx.x;
            if constexpr (all > 0)
                if (i < all)
                    e[k] = *(const uint2 *)try_table<F>.e[i / copies].w;
        }
    }

    /* With two signs, entries count from the middle one. */
    __device__ __forceinline__ uint32_t store(uint8_t *table)
    {
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < all)
                ((uint2 *)table)[THREADS * k + threadIdx.x] = e[k];
        const uint32_t middle = tile_search<F>::two ? tile_search<F>::steps / 2 * TRY_LINE : 0;
        return shared_at(table) + threadIdx.x % copies * TRY_BYTES + middle - 0x4b400000u * TRY_LINE;
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

/* Sums of y v and v v of all scales. */
typedef struct try_sums {
    int yv[8], vv[8];
} try_sums;

/* The lowest bytes of four words. */
static __device__ __forceinline__ uint32_t try_bytes(const uint32_t *w)
{
    return __byte_perm(__byte_perm(w[0], w[1], 0x0040), __byte_perm(w[2], w[3], 0x0040), 0x5410);
}

template <bool SIGNS> static __device__ __forceinline__ int try_dot(uint32_t a, uint32_t b, int sum)
{
    return SIGNS ? __dp4a((int)a, (int)b, sum) : (int)__dp4a(a, b, (uint32_t)sum);
}

/* Adds four values, a byte of y each, with their entries. */
template <bool SIGNS> static __device__ __forceinline__ void try_add(try_sums *s, uint32_t y, const uint32_t (*w)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t a = __byte_perm(w[0][h], w[1][h], 0x5140), b = __byte_perm(w[2][h], w[3][h], 0x5140);
        const uint32_t c = __byte_perm(w[0][h], w[1][h], 0x7362), d = __byte_perm(w[2][h], w[3][h], 0x7362);
        const uint32_t v[4] = { __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x5410),
                                __byte_perm(c, d, 0x7632) };
#pragma unroll
        for (int f = 0; f < 4; f++) {
            s->yv[4 * h + f] = try_dot<SIGNS>(v[f], y, s->yv[4 * h + f]);
            s->vv[4 * h + f] = try_dot<SIGNS>(v[f], v[f], s->vv[4 * h + f]);
        }
    }
}

template <int F> static __device__ __forceinline__ trial try_fit(int yv, int vv, float beyond)
{
    return trial_of(fmaf((float)yv, tile_search<F>::yv, beyond), (float)vv * tile_search<F>::vv);
}

/* The start's codes under its scale as stored, or what the norm of their levels makes of it.  It wins as scale 0. */
template <int F>
static __device__ __forceinline__ trial try_start(int yv, int vv, float beyond, float stored)
{
    if (F == FMT_q4_polar_r)            /* its start has codes without the residual: take the scale between instead */
        return try_fit<F>(yv, vv, beyond);
    const float p = fmaf((float)yv, tile_search<F>::yv, beyond), q = (float)vv * tile_search<F>::vv;
    if (tile_format<F>::kind == ENC_NORM128)
        stored = q > 0.0f ? tile_search<F>::unit * rsqrtf(q) : 0.0f;
    return { stored * (2.0f * p - stored * q), 0.0f };
}

/* One step of the sum over the lanes of a unit that leaves lane q with the sums of scales 2 q, 2 q + 1. */
template <int H> static __device__ __forceinline__ void try_fold(int *x)
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
    asm("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(at));
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
    for (int from = 0; from < 32; from += 4) {
        uint32_t w[4][2], y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float part = __saturatef(fabsf(u[from + j]) * (1.0f / is::reach));
            all[j % 2] += fabsf(u[from + j]);
            within[j % 2] += part;
            y[j] = __float_as_uint(fmaf(part, (float)is::steps, ENC_MAGIC));
            try_read(y[j] * TRY_LINE + base, w[j]);
        }
        try_add<false>(&sums, try_bytes(y), w);
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
    try_sums sums[2] = {};
    float over = 0.0f;
#pragma unroll
    for (int from = 0; from < 32; from += 4) {
        uint32_t w[2][4][2], y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = from + j;
            const float by = F == FMT_q4_0 ? 0.5f / is::reach : tile_signed(0.5f / is::reach, neg, k);
            const float part = __saturatef(fmaf(u[k], by, 0.5f));
            if (F != FMT_q4_0)
                over += fmaxf(fabsf(u[k]) - is::reach, 0.0f);
            y[j] = __float_as_uint(fmaf(part, (float)is::steps, ENC_MAGIC - (float)(is::steps / 2)));
            try_read(y[j] * TRY_LINE + base, w[0][j]);
            try_read(2 * zero - y[j] * TRY_LINE + base, w[1][j]);
        }
        try_add<true>(&sums[0], try_bytes(y), w[0]);
        try_add<true>(&sums[1], try_bytes(y), w[1]);
    }
#pragma unroll
    for (int f = 0; f < 8; f++)
        sums[1].yv[f] = -sums[1].yv[f];         /* of -y */
    const float beyond = tile_lanes<F>(over) * is::top;
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

/* ---- q8_0: errors, since the sums of least squares hide them in f32 ---- */

/* The sums of e e, e v and v v, with e = u - scale v. */
typedef struct tile_errors {
    float ee, ev, vv;
} tile_errors;

/* The level of u, which is at most 127.  CLIP: its inverse scale may be above 1.  As what adding ENC_MAGIC leaves. */
template <bool CLIP> static __device__ __forceinline__ float tile_rounded8(float u, float inv)
{
    if (!CLIP)
        return fmaf(u, inv, ENC_MAGIC);
    return fmaf(__saturatef(fmaf(u, inv * (1.0f / 254.0f), 0.5f)), 254.0f, ENC_MAGIC - 127.0f);
}

template <bool CLIP>
static __device__ __forceinline__ tile_errors tile_errors8(const float *u, float scale, float inv)
{
    tile_errors s[2] = {};
#pragma unroll
    for (int k = 0; k < 32; k++) {
        const float v = tile_rounded8<CLIP>(u[k], inv) - ENC_MAGIC, e = fmaf(v, -scale, u[k]);
        s[k % 2].ee = fmaf(e, e, s[k % 2].ee);
        s[k % 2].ev = fmaf(e, v, s[k % 2].ev);
        s[k % 2].vv = fmaf(v, v, s[k % 2].vv);
    }
    return { s[0].ee + s[1].ee, s[0].ev + s[1].ev, s[0].vv + s[1].vv };
}

/* The scale of least squares at one of the seven, if its error is less than *least.  yy / scale^2 stands for v v. */
template <bool CLIP>
static __device__ __forceinline__ void tile_try8(const float *u, float scale, float yy, float *least, float *best)
{
    const float inv = 1.0f / scale, by = scale * scale / yy;
    const tile_errors s = tile_errors8<CLIP>(u, scale, inv);
    const float error = fmaf(-s.ev * s.ev, by, s.ee);
    *best = error < *least ? fmaf(s.ev, by, scale) : *best;
    *least = fminf(*least, error);
}

/* A record of u times d, at most 127 d, with yy the sum of their squares: codes and scale. */
static __device__ __forceinline__ uint16_t tile_best8(const float *u, float d, float yy, uint32_t *word)
{
    const uint16_t upstream = enc_half(d);
    const tile_errors start = tile_errors8<false>(u, 1.0f, 1.0f);
    const float off = enc_value(upstream) / d - 1.0f;
    const float before = fmaf(off, fmaf(off, start.vv, -2.0f * start.ev), start.ee);
    float least = INFINITY, best = 1.0f, yv = 0.0f;
    tile_try8<true>(u, 0.78f, yy, &least, &best);
    tile_try8<true>(u, 0.84f, yy, &least, &best);
    tile_try8<true>(u, 0.9f, yy, &least, &best);
    tile_try8<true>(u, 0.96f, yy, &least, &best);
    tile_try8<false>(u, 1.02f, yy, &least, &best);
    tile_try8<false>(u, 1.09f, yy, &least, &best);
    tile_try8<false>(u, 1.17f, yy, &least, &best);
    const measure first = measure_of(enc_storable(best * d), d);
    const tile_errors refit = tile_errors8<true>(u, first.scale, first.inv);
    const uint16_t h = enc_storable((first.scale + refit.ev / refit.vv) * d);
    const measure found = measure_of(h, d);
    const bool take = tile_errors8<true>(u, found.scale, found.inv).ee < before;
    const float inv = take ? found.inv : 1.0f;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t c[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float v = tile_rounded8<true>(u[4 * n + k], inv);
            yv = fmaf(u[4 * n + k], v - ENC_MAGIC, yv);
            c[k] = __float_as_uint(v);
        }
        word[n] = __byte_perm(__byte_perm(c[0], c[1], 0x0040), __byte_perm(c[2], c[3], 0x0040), 0x5410);
    }
    return enc_unbiased_scale(yy * d / yv, take ? h : upstream);
}

#endif
