/* tile_try.cuh: which scale the encoder `best` takes for a unit of a tile: the one of several fixed scales whose
 * nearest codes err least.  Records of 32 values: the scales; the rest is tile_record.cuh.
 *
 * The errors of a value at sixteen scales are one table entry of 16 bytes, by the value's magnitude in 256 bins
 * (q4_polar_r: by the value).  Products of tensor cores with a matrix of zeros and ones add them over the four lanes of
 * a unit.  Each scale has its own unit.  The bins reach to where all scales take the outermost level; beyond it errors
 * differ by what is linear in the value, which is summed apart.
 *
 * The scales were searched for: those of 48 with which rows (Gaussian, Laplace, log-normal, with an outlier; rotated)
 * err least when the unbiased scale is stored, and for records those that bound the loss of single rows.  The mean
 * error is that of seven scales and a refit (search.c), or less. */
#ifndef KVANT_CUDA_TILE_TRY_CUH
#define KVANT_CUDA_TILE_TRY_CUH

#include "devices/cuda/encode_search.cuh"
#include "devices/cuda/tile_codes.cuh"

enum { TRY_LINE = 128, TRY_BYTES = 16, TRY_MOST = 16 };

#define TRY_RESIDUAL 0x1.6a09e6p-5f        /* 0x3d3504f3: what q4_polar_r adds to a level or takes from it */

struct try_scales {
    int n;
    float at[TRY_MOST];
};

template <int F> static constexpr try_scales try_scales_of()
{
    switch (F) {
    case FMT_q4_0: return { 8, { 0.892f, 0.9235f, 0.9445f, 0.9655f, 0.9865f, 1.018f, 1.102f, 1.144f } };
    case FMT_tbq4_0:
    case FMT_turbo4: return { 8, { 0.68f, 0.74f, 0.8f, 0.865f, 0.935f, 1.015f, 1.13f, 1.3f } };
    case FMT_tbq3_0: return { 8, { 0.72f, 0.81f, 0.89f, 0.97f, 1.055f, 1.15f, 1.26f, 1.4f } };
    case FMT_turbo3:
        return { 16, { 0.66f, 0.747f, 0.805f, 0.8485f, 0.8775f, 0.9065f, 0.9355f, 0.9645f, 0.9935f, 1.0225f, 1.066f,
                       1.1095f, 1.153f, 1.1965f, 1.24f, 1.298f } };
    case FMT_q4_polar_r:
        return { 16, { 0.722f, 0.766f, 0.799f, 0.832f, 0.854f, 0.876f, 0.898f, 0.92f, 0.942f, 0.964f, 0.986f, 1.008f,
                       1.052f, 1.096f, 1.162f, 1.25f } };
    default:
        return { 16, { 0.689f, 0.747f, 0.776f, 0.8195f, 0.8485f, 0.8775f, 0.9065f, 0.9355f, 0.9645f, 0.9935f, 1.0225f,
                       1.0515f, 1.095f, 1.153f, 1.211f, 1.3f } };
    }
}

/* Levels and boundaries for values of mean square 1 (q4_0: for values up to 8). */
template <int F> static constexpr float try_unit()
{
    return tile_format<F>::kind == ENC_NORM128 ? 11.3137085f : 1.0f;
}

template <int F> static constexpr float try_level(int code)
{
    return F == FMT_q4_0 ? (float)(code - 8) : try_unit<F>() * tile_centroid<F>(code);
}

template <int F> static constexpr float try_boundary(int m)
{
    return F == FMT_q4_0 ? (float)m - 7.5f : try_unit<F>() * tile_boundary<F>(m);
}

template <int F> struct tile_try {
    static constexpr bool two = F == FMT_q4_polar_r;
    static constexpr int levels = tile_format<F>::levels;
    static constexpr try_scales scales = try_scales_of<F>();
    static constexpr int most = 255;        /* of an entry */
    static constexpr float residual = two ? TRY_RESIDUAL : 0.0f;
    static constexpr float top = try_level<F>(levels - 1);
    static constexpr float reach = scales.at[scales.n - 1] * (try_boundary<F>(levels - 2) + residual);
    /* Where the first bin begins, and how wide they are. */
    static constexpr int bins = 256;
    static constexpr float from = two ? reach * -256.0f / 255.0f : 0.0f;
    static constexpr float step = two ? reach * 2.0f / 255.0f : reach / 256.0f;
    /* In shared memory, and the table of levels (tile_best.cuh); the entry beyond the table is at 0. */
    static constexpr int line = two ? 2 * TRY_LINE : TRY_LINE, at = two ? 65536 : 32768;
    static constexpr int levels_at = two ? 0 : 65536, all = 131072, bytes = bins * line;
};

template <int F> struct __align__(16) try_entry {
    uint32_t w[tile_try<F>::line / 32];
};

/* cost of a scale: unit * its sum - beyond * what its values are beyond the table. */
typedef struct __align__(16) try_cost {
    float unit, beyond, scale, none;
} try_cost;

template <int F> struct try_data {
    try_entry<F> e[tile_try<F>::bins + 1];  /* the last one: at the table's end */
    try_cost cost[TRY_MOST];
};

/* Squared errors at one scale: means over the bins, and the one at the table's end. */
template <int BINS> struct try_errors {
    float at[BINS + 1], most;
};

template <int F> static constexpr try_errors<tile_try<F>::bins> try_errors_of(float scale, float residual)
{
    typedef tile_try<F> is;
    try_errors<is::bins> e = {};
    int code = 0;
    for (int i = 0; i <= 4 * is::bins; i++) {
        const float y = is::from + is::step * ((float)i + (i == 4 * is::bins ? 0.0f : 0.5f)) / 4.0f;
        while (code < is::levels - 1 && y >= scale * (try_boundary<F>(code) + residual))
            code++;
        const float d = y - scale * (try_level<F>(code) + residual);
        e.at[i / 4] += (i == 4 * is::bins ? 1.0f : 0.25f) * d * d;
    }
    for (int i = 0; i <= is::bins; i++)
        e.most = e.at[i] > e.most ? e.at[i] : e.most;
    return e;
}

template <int F> static constexpr try_data<F> try_data_of()
{
    typedef tile_try<F> is;
    try_data<F> t = {};
    const int n = is::scales.n, bits = 128 / n, each = 32 / bits;
    for (int s = 0; s < (is::two ? 2 * n : n); s++) {
        const float scale = is::scales.at[s % n];
        const try_errors<is::bins> e = try_errors_of<F>(scale, s < n ? is::residual : -is::residual);
        t.cost[s % n] = { e.most / (float)is::most, 2.0f * scale * is::top, scale, 0.0f };
        for (int i = 0; i <= is::bins; i++)
            t.e[i].w[s / each] |= (uint32_t)(e.at[i] * ((float)is::most / e.most) + 0.5f) << bits * (s % each);
    }
    return t;
}

template <int F> static __device__ const try_data<F> try_table = try_data_of<F>();

/* ---- sums ---- */

static __device__ __forceinline__ uint4 try_read4(uint32_t at)
{
    uint4 e;
    asm("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(e.x), "=r"(e.y), "=r"(e.z), "=r"(e.w) : "r"(at));
    return e;
}

/* The entry that the lower bits of x say; base: of this lane's copies. */
template <int F> static __device__ __forceinline__ uint4 try_read(uint32_t base, uint32_t x)
{
    return try_read4((x & 0xff80u) + base);
}

/* The bits of 1 - 2^-9 + 2^-9 p, p: y's place in the table, 0 to 1.  1, of which the lower bits are zero, is the entry
 * beyond; the others have bit 15.  by: 1/scale of y. */
template <int F> static __device__ __forceinline__ uint32_t try_place(float y, float by)
{
    return __float_as_uint(__saturatef(fmaf(fabsf(y), by * (0x1p-9f / tile_try<F>::reach), 1.0f - 0x1p-9f)));
}

/* The scale with the least cost so far. */
typedef struct trial {
    float cost, scale;
} trial;

static __device__ __forceinline__ void trial_better(trial *a, float cost, float scale)
{
    const bool better = cost < a->cost;
    a->cost = better ? cost : a->cost;
    a->scale = better ? scale : a->scale;
}

/* What the values are beyond the table, from their places and the sum of their magnitudes. */
template <int F> static __device__ __forceinline__ float try_over(uint32_t places, float all, float by)
{
    const float within = 32.0f - 0x1p-15f * (float)(32u * 0x3f800000u - places);
    return fmaf(all, by, -tile_try<F>::reach * within);
}

/* C += A B: rows 0 to 7 of C are scales, columns are units.  A lane's eight bytes of B are the errors of one value at
 * eight scales; a[0] and a[1] pick those of this lane's row. */
static __device__ __forceinline__ void try_product(int *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(0), "r"(a[1]), "r"(0), "r"(b0), "r"(b1));
}

/* Sums of this lane's scales, lane / 4 and 8 more, of two units: in the first two of c[0] and c[1].  Two signs: those
 * of the other one are in c[2] and c[3]; it is the scale's sign. */
template <int F> static __device__ __forceinline__ float try_pick_wide(const int (*c)[4], float over)
{
    const int lane = threadIdx.x % 32, q = lane % 4;
    trial best[2] = { { INFINITY, 1.0f }, { INFINITY, 1.0f } };
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const try_cost by = try_table<F>.cost[8 * s + lane / 4];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const float beyond = __shfl_sync(0xffffffffu, over, 8 * q + 4 * u) * -by.beyond;
            trial_better(&best[u], fmaf((float)c[s][u], by.unit, beyond), by.scale);
            if (tile_try<F>::two)
                trial_better(&best[u], fmaf((float)c[2 + s][u], by.unit, beyond), -by.scale);
        }
    }
    /* From here on a lane has one unit: 2 q, with bit 2 of the lane 2 q + 1. */
    const bool odd = lane & 4;
    trial mine = odd ? best[1] : best[0];
    const trial give = odd ? best[0] : best[1];
#pragma unroll
    for (int m = 4; m < 32; m *= 2) {
        const trial send = m == 4 ? give : mine;
        const float cost = __shfl_xor_sync(0xffffffffu, send.cost, m);
        trial_better(&mine, cost, __shfl_xor_sync(0xffffffffu, send.scale, m));
    }
    return __shfl_sync(0xffffffffu, mine.scale, lane / 8 + (lane & 4));
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

/* What picks the bytes of this lane's row. */
typedef struct try_row {
    uint32_t a[2];
} try_row;

static __device__ __forceinline__ try_row try_row_of(void)
{
    const int row = threadIdx.x % 32 / 4;
    return { { row < 4 ? 1u << 8 * row : 0, row < 4 ? 0 : 1u << 8 * (row - 4) } };
}

template <int F> static __device__ __forceinline__ float try_unit128(uint32_t base, const float *y, float by)
{
    const try_row row = try_row_of();
    int c[2][4] = {};
    uint32_t places = 0;
    float all[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++) {
        const uint32_t x = try_place<F>(y[k], by);
        const uint4 e = try_read<F>(base, x);
        places += x;
        all[k % 2] += fabsf(y[k]);
        try_product(c[0], row.a, e.x, e.y);
        try_product(c[1], row.a, e.z, e.w);
    }
    return try_pick_wide<F>(c, tile_lanes<F>(try_over<F>(places, all[0] + all[1], by)));
}

/* Both signs of the residual, by the value; the scale is negative where the residual is.  What lies beyond the table
 * counts the same for both. */
template <int F> static __device__ __forceinline__ float try_residuals(uint32_t base, const float *y, float by)
{
    typedef tile_try<F> is;
    const try_row row = try_row_of();
    int c[4][4] = {};
    float over[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++) {
        const float up = fmaf(y[k], by, is::reach), part = __saturatef(up * (0.5f / is::reach));
        const uint32_t at = __float_as_uint(fmaf(part, 255.0f, ENC_MAGIC)) * is::line + base;
        const uint4 plus = try_read4(at), minus = try_read4(at + TRY_LINE);
        over[k % 2] += fabsf(fmaf(part, -2.0f * is::reach, up));
        try_product(c[0], row.a, plus.x, plus.y);
        try_product(c[1], row.a, plus.z, plus.w);
        try_product(c[2], row.a, minus.x, minus.y);
        try_product(c[3], row.a, minus.z, minus.w);
    }
    return try_pick_wide<F>(c, tile_lanes<F>(over[0] + over[1]));
}

/* The scale of y, relative to by's inverse. */
template <int F> static __device__ __forceinline__ float try_best(uint32_t base, const float *y, float by)
{
    if constexpr (tile_try<F>::two)
        return try_residuals<F>(base, y, by);
    else
        return try_unit128<F>(base, y, by);
}

#endif
