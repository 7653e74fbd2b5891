/* run_try.cuh: which scale the encoder `best` takes for a unit of 128 values of a tile: the one of several fixed scales
 * (q4_polar_r: and signs of the residual) whose nearest codes err least.
 *
 * The errors of a value at all scales are one table entry, 8 bits each, by the value's magnitude (q4_polar_r: by the
 * value) in bins over all that a value of a unit can be.  Tensor cores add them over the four lanes of a unit:
 * products with zeros and ones, A of which is an entry as it was read, or the bytes of a few.  Each scale has its own
 * unit.  From best_reach on all scales take the outermost level; there errors differ by what is linear in the value, a
 * byte of its own.
 *
 * The scales were searched for: those of 48 with which rows (Gaussian, Laplace, log-normal, with an outlier; rotated)
 * err least when the unbiased scale is stored.  The mean error is that of seven scales and a refit (search.c). */
#ifndef KVANT_CUDA_RUN_TRY_CUH
#define KVANT_CUDA_RUN_TRY_CUH

#include "devices/cuda/encode_run.cuh"
#include "devices/cuda/encode_search.cuh"

enum { BEST_LINE = 128, BEST_BYTES = 16, BEST_SCALES = BEST_BYTES - 1 };

#define BEST_RESIDUAL 0x1.6a09e6p-5f       /* 0x3d3504f3: what q4_polar_r adds to a level or takes from it */

/* Values, levels and boundaries for a unit of mean square 1: no value is beyond 11.33. */
template <int F> struct best_format {
    static constexpr bool polar = tile_format<F>::kind == ENC_POLAR, two = F == FMT_q4_polar_r;
    static constexpr int levels = tile_format<F>::levels;
    /* A line: an entry, eight times side by side, and for q4_polar_r another one for the other sign.  So many entries'
     * bytes may be added as they are. */
    static constexpr int bins = two ? 448 : 384, line = two ? 2 * BEST_LINE : BEST_LINE;
    static constexpr int add = F == FMT_turbo3 ? 4 : F == FMT_q4_polar ? 3 : 1, most = 255 / add;
    /* Errors end there, so the others have finer steps: the small scales' are large where nobody takes those. */
    static constexpr float cap = polar ? 0.6f : 9.0f;
    static constexpr float unit = polar ? 1.0f : 11.3137085f, residual = two ? BEST_RESIDUAL : 0.0f;
    /* q4_polar_r: beyond 5.5 as 5.5; the scale is the largest there, if one value decides. */
    static constexpr float widest = two ? 5.5f : 11.33f, from = two ? -widest : 0.0f;
    static constexpr float width = (widest - from) / (float)bins;
};

template <int F> static constexpr float best_level(int code)
{
    return best_format<F>::unit * tile_centroid<F>(code);
}

template <int F> static constexpr float best_boundary(int m)
{
    return best_format<F>::unit * tile_boundary<F>(m);
}

/* ---- tables ---- */

/* Scales as 256 (scale - 1/2): what the last bits of a cost say. */
struct best_scales {
    uint8_t at[BEST_SCALES];
};

template <int F> static constexpr best_scales best_scales_of()
{
    switch (F) {
    case FMT_turbo3: return { { 67, 78, 85, 93, 100, 108, 115, 122, 130, 137, 148, 159, 174, 189, 208 } };
    case FMT_turbo4_66: return { { 52, 67, 78, 85, 93, 100, 108, 115, 122, 133, 145, 159, 171, 185, 208 } };
    default: return { { 56, 67, 78, 85, 93, 100, 108, 115, 122, 130, 141, 156, 167, 185, 208 } };
    }
}

template <int F> static constexpr float best_scale(int s)
{
    return 0.5f + (float)best_scales_of<F>().at[s] / 256.0f;
}

template <int F> struct best_reach {
    static constexpr int levels = best_format<F>::levels;
    static constexpr float top = best_level<F>(levels - 1);
    static constexpr float at = best_scale<F>(BEST_SCALES - 1) *
                                (best_boundary<F>(levels - 2) + best_format<F>::residual);
    static constexpr float beyond = (best_format<F>::widest - at) / (float)best_format<F>::most;   /* of its byte */
};

template <int F> struct __align__(16) best_entry {
    uint32_t w[best_format<F>::two ? 8 : 4];
};

/* Of the scales whose sums a lane of a unit has: the cost is unit * sum - beyond * what is beyond.  scale: as above.
 * The last lane's last sum is that of what is beyond. */
struct __align__(16) best_cost {
    float unit[4], beyond[4];
    uint32_t scale[4];
};

/* Mean squared errors at one scale over the bins, and the largest. */
template <int F> struct best_errors {
    float at[best_format<F>::bins], most;
};

template <int F> static constexpr best_errors<F> best_errors_of(float scale, float residual)
{
    typedef best_format<F> has;
    best_errors<F> e = {};
    int code = 0;
    for (int i = 0; i < 4 * has::bins; i++) {
        const float all = has::from + has::width * ((float)i + 0.5f) / 4.0f, reach = best_reach<F>::at;
        const float y = all > reach ? reach : all < -reach ? -reach : all;
        while (code < has::levels - 1 && y >= scale * (best_boundary<F>(code) + residual))
            code++;
        const float d = y - scale * (best_level<F>(code) + residual);
        e.at[i / 4] += 0.25f * d * d;
    }
    for (float one : e.at)
        e.most = one > e.most ? one : e.most;
    e.most = e.most < has::cap ? e.most : has::cap;
    return e;
}

/* The byte of an entry whose sum comes to be c[j] of a unit's lane q. */
static constexpr int best_byte(int q, int j)
{
    return q / 2 * 8 + j / 2 * 4 + q % 2 * 2 + j % 2;
}

template <int F> struct best_data {
    best_entry<F> e[best_format<F>::bins];
    best_cost cost[4];
};

/* One of `most` steps. */
static constexpr uint32_t best_step(float part, int most)
{
    return part < 1.0f ? (uint32_t)(part * (float)most + 0.5f) : (uint32_t)most;
}

template <int F> static constexpr void best_add_scale(best_data<F> *t, int s, bool minus)
{
    typedef best_format<F> has;
    const float scale = best_scale<F>(s);
    const best_errors<F> e = best_errors_of<F>(scale, minus ? -has::residual : has::residual);
    for (int i = 0; i < has::bins; i++)
        t->e[i].w[s / 4 + (minus ? 4 : 0)] |= best_step(e.at[i] / e.most, has::most) << 8 * (s % 4);
    for (int n = 0; n < 16; n++)
        if (best_byte(n / 4, n % 4) == s) {
            best_cost &c = t->cost[n / 4];
            c.unit[n % 4] = e.most / (float)has::most;
            c.beyond[n % 4] = 2.0f * scale * best_reach<F>::top * best_reach<F>::beyond;
            c.scale[n % 4] = best_scales_of<F>().at[s];
        }
}

template <int F> static constexpr best_data<F> best_data_of()
{
    typedef best_format<F> has;
    best_data<F> t = {};
    for (int s = 0; s < BEST_SCALES; s++) {
        best_add_scale<F>(&t, s, false);
        if (has::two)
            best_add_scale<F>(&t, s, true);
    }
    for (int i = 0; i < has::bins; i++) {
        const float y = has::from + has::width * ((float)i + 0.5f), far = (y < 0.0f ? -y : y) - best_reach<F>::at;
        t.e[i].w[3] |= far > 0.0f ? (uint32_t)(far / best_reach<F>::beyond + 0.5f) << 24 : 0;
    }
    return t;
}

template <int F> static __device__ const best_data<F> best_table = best_data_of<F>();

/* ---- a block's copy ---- */

/* The table lies in the block's first 64 KiB (q4_polar_r: 128), which the block has: whatever a value is, it is read
 * there. */
template <int F> struct __align__(128) best_tries {
    uint8_t e[best_format<F>::bins * best_format<F>::line];
    best_cost cost[4];
};

/* LINES entries of 16 bytes, each eight times side by side, by a block's last BEST_FILL threads, which do not meet in a
 * bank; their reads are under way from load on. */
enum { BEST_FILL = 256 };

template <int LINES> struct best_lines {
    static constexpr int each = (LINES + BEST_FILL - 1) / BEST_FILL;
    uint4 e[each];

    template <typename FROM> __device__ __forceinline__ void load(FROM from)
    {
#pragma unroll
        for (int k = 0, i = threadIdx.x % BEST_FILL; k < each; k++, i += BEST_FILL)
            if (i < LINES)
                e[k] = from(i);
    }

    __device__ __forceinline__ void store(uint8_t *to) const
    {
#pragma unroll
        for (int k = 0, i = threadIdx.x % BEST_FILL; k < each; k++, i += BEST_FILL)
#pragma unroll
            for (int c = 0; i < LINES && c < 8; c++)
                *(uint4 *)(to + BEST_LINE * i + 16 * ((c + threadIdx.x) % 8)) = e[k];
    }
};

template <int F> struct best_tries_copy {
    best_lines<best_format<F>::bins * best_format<F>::line / BEST_LINE> lines;
    uint4 cost;

    __device__ __forceinline__ void load(void)
    {
        lines.load([](int i) { return ((const uint4 *)best_table<F>.e)[i]; });
        cost = ((const uint4 *)best_table<F>.cost)[threadIdx.x % BEST_FILL % 12];
    }

    __device__ __forceinline__ void store(best_tries<F> *room) const
    {
        const int t = threadIdx.x % BEST_FILL;
        lines.store(room->e);
        if (t < 12)
            ((uint4 *)room->cost)[t] = cost;
    }
};

/* What a lane keeps for all tiles.  zero: what a bin, in bytes, is added to for bits that end in its entry's address;
 * copy: the lane's; pick: what picks bytes. */
typedef struct best_where {
    float zero;
    uint32_t copy, pick[2];
    const best_cost *cost;
} best_where;

template <int F> static __device__ __forceinline__ best_where best_where_of(const best_tries<F> *room)
{
    const uint32_t lane = threadIdx.x % 32, row = lane / 4, pick = 1u << 8 * (row % 4);
    return { RUN_MAGIC + (float)shared_at(room->e), lane % (BEST_LINE / BEST_BYTES) * BEST_BYTES,
             { row < 4 ? pick : 0, row < 4 ? 0 : pick }, &room->cost[lane % 4] };
}

/* ---- sums ---- */

typedef struct best_words {
    uint32_t w[4];
} best_words;

/* In this order, all of them under way before the first is used. */
static __device__ __forceinline__ void best_read(uint32_t at, best_words *e)
{
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(e->w[0]), "=r"(e->w[1]), "=r"(e->w[2]), "=r"(e->w[3]) : "r"(at));
}

/* C += A B: rows r and r + 8 of A are words 0 and 2, 1 and 3 of the four lanes of unit r. */
static __device__ __forceinline__ void best_sum(int *c, const best_words &e, const uint32_t *pick)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(e.w[0]), "r"(e.w[1]), "r"(e.w[2]), "r"(e.w[3]), "r"(pick[0]), "r"(pick[1]));
}

/* A cost that ends in the number of its scale. */
static __device__ __forceinline__ float best_key(int sum, float unit, float less, uint32_t scale)
{
    return __uint_as_float((__float_as_uint(fmaf((float)sum, unit, less)) & ~511u) | scale);
}

/* The least of a lane's costs; last: c[3] is no scale's. */
static __device__ __forceinline__ float best_least(const best_cost &by, const int *c, float over, uint32_t sign,
                                                   bool last)
{
    float k[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        k[j] = best_key(c[j], by.unit[j], over * by.beyond[j], by.scale[j] | sign);
    const float three = fminf(fminf(k[0], k[1]), k[2]);
    return last ? three : fminf(three, k[3]);
}

/* The scale of the least cost; negative where the residual is.  What is beyond counts the same for both. */
template <int F> static __device__ __forceinline__ float best_pick(const best_where &b, const int (*c)[4])
{
    const int lane = threadIdx.x % 32;
    const bool last = lane % 4 == 3;
    const float over = -(float)__shfl_sync(0xffffffffu, c[0][3], lane | 3);
    const best_cost by = *b.cost;
    float least = best_least(by, c[0], over, 0, last);
    if (best_format<F>::two)
        least = fminf(least, best_least(by, c[1], over, 256, last));
#pragma unroll
    for (int m = 1; m < 4; m *= 2)
        least = fminf(least, __shfl_xor_sync(0xffffffffu, least, m));
    const uint32_t found = __float_as_uint(least);
    const float scale = fmaf((float)(found & 255u), 1.0f / 256.0f, 0.5f);
    return best_format<F>::two && (found & 256u) ? -scale : scale;
}

/* To the first of n entries. */
static __device__ __forceinline__ void best_add(best_words *e, int n)
{
#pragma unroll
    for (int i = 1; i < n; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            e[0].w[j] += e[i].w[j];
}

/* Its bits end in the address of y's bin, but for what is below a line. */
template <int F> static __device__ __forceinline__ float best_place(float y, float fine, float zero)
{
    typedef best_format<F> has;
    if (has::two)
        return fmaf(__saturatef(fmaf(y, fine, 0.5f)), (float)(has::bins * has::line - 1), zero);
    return fmaf(fabsf(y), fine, zero);
}

/* Entries of N values from y on, added. */
template <int F, int N>
static __device__ __forceinline__ void best_try(const best_where &b, const float *y, float fine, int (*c)[4])
{
    typedef best_format<F> has;
    constexpr uint32_t mask = (has::two ? 0x20000u : 0x10000u) - has::line;
    uint32_t at[N];
    best_words e[N], minus[has::two ? N : 1];
#pragma unroll
    for (int i = 0; i < N; i++)
        at[i] = tile_bits(__float_as_uint(best_place<F>(y[i], fine, b.zero)), mask, b.copy);
#pragma unroll
    for (int i = 0; i < N; i++) {
        best_read(at[i], &e[i]);
        if (has::two)
            best_read(at[i] + BEST_LINE, &minus[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i += has::add) {
        const int n = has::add < N - i ? has::add : N - i;
        best_add(e + i, n);
        best_sum(c[has::two ? 0 : i / has::add % 2], e[i], b.pick);
        if (has::two) {
            best_add(minus + i, n);
            best_sum(c[1], minus[i], b.pick);
        }
    }
}

/* The scale of y, relative to by's inverse; y by has mean square 1. */
template <int F> static __device__ __forceinline__ float best_search(const best_where &b, const float *y, float by)
{
    typedef best_format<F> has;
    constexpr int some = has::add == 3 ? 6 : 4;
    const float fine = by * (has::two ? 0.5f / has::widest : (float)has::line / has::width);
    int c[2][4] = {};
#pragma unroll
    for (int k = 0; k + some <= 32; k += some)
        best_try<F, some>(b, y + k, fine, c);
    if constexpr (32 % some != 0)
        best_try<F, 32 % some>(b, y + 32 / some * some, fine, c);
#pragma unroll
    for (int j = 0; !has::two && j < 4; j++)
        c[0][j] += c[1][j];
    return best_pick<F>(b, c);
}

#endif
