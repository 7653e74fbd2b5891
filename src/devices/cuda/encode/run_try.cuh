/* run_try.cuh: which scale the encoder `best` takes for a unit of 128 values of a tile: of several scales (q4_polar_r:
 * and signs of the residual) the one whose nearest codes err least.
 *
 * The scales lie about a centre that follows the unit's largest value, which says most of what can be known of the
 * best scale without a trial: six about it err as little as fifteen fixed ones.  The errors of a value at all scales
 * are one table entry, 8 bits each in one unit, by the value's magnitude (q4_polar_r: by the value) over the centre.
 * Tensor cores add them over the four lanes of a unit: products with zeros and ones, A of which is entries as they were
 * read.
 *
 * Centres and scales were searched for, with rows that are Gaussian, Laplace, log-normal or have an outlier, rotated:
 * squared error when the unbiased scale is stored.  It is that of seven scales and a refit (search.c), or less.  Two
 * scales far above the centre, but for turbo3, are for rows whose values are all alike but for their signs: rotated,
 * those are multiples of one, and the levels in the middle too. */
#ifndef KVANT_CUDA_RUN_TRY_CUH
#define KVANT_CUDA_RUN_TRY_CUH

#include "devices/cuda/encode/encode_run.cuh"
#include "devices/cuda/encode/encode_search.cuh"

enum { BEST_LINE = 128 };

#define BEST_RESIDUAL 0x1.6a09e6p-5f       /* 0x3d3504f3: what q4_polar_r adds to a level or takes from it */

/* Values, levels and boundaries for a unit of mean square 1: no value is beyond 11.33. */
template <int F> struct best_format {
    static constexpr bool polar = tile_format<F>::kind == ENC_POLAR, two = F == FMT_q4_polar_r;
    static constexpr int levels = tile_format<F>::levels;
    static constexpr float unit = polar ? 1.0f : 11.3137085f, residual = two ? BEST_RESIDUAL : 0.0f;
    /* Bytes of an entry: a scale each, those with the residual taken away last.  Entries: from -end to end, or from
     * 0. */
    static constexpr int scales = 8, bytes = two ? 2 * scales : scales;
    static constexpr int end = two ? 127 : 255, entries = two ? 2 * end + 1 : end + 1;
    /* The centre: `first` and so many times the largest value.  Errors end at `most`, where nobody takes the scale. */
    static constexpr float first = F == FMT_turbo3 ? 0.25f : two ? 0.067f : 0.04f;
    static constexpr float times = F == FMT_turbo3 ? 0.27f : two ? 0.315f : 0.33f;
    static constexpr float most = F == FMT_turbo3 ? 1.5f : two ? 0.4f : 0.25f;
    static constexpr float width = 11.33f / (first + times * 11.33f) / (float)end;
};

template <int F> static constexpr float best_level(int code)
{
    return best_format<F>::unit * tile_centroid<F>(code);
}

template <int F> static constexpr float best_boundary(int m)
{
    return best_format<F>::unit * tile_boundary<F>(m);
}

/* ---- two values in a word ---- */

/* 2^10, whose halves end in the integer that is added. */
#define BEST_MAGIC 1024.0f

/* x as half, of an ordinary one. */
static __host__ __device__ constexpr uint32_t best_half(float x)
{
    const uint32_t u = __builtin_bit_cast(uint32_t, x), a = u & 0x7fffffffu;
    return (u >> 16 & 0x8000u) | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
}

static __host__ __device__ constexpr uint32_t best_twice(float x)
{
    return best_half(x) * 0x10001u;
}

static __device__ __forceinline__ uint32_t best_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

/* The same from 0 to 1. */
static __device__ __forceinline__ uint32_t best_fma_part(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.sat.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

static __device__ __forceinline__ uint32_t best_abs(uint32_t a)
{
    uint32_t y;
    asm("abs.f16x2 %0, %1;" : "=r"(y) : "r"(a));
    return y;
}

/* x twice. */
static __device__ __forceinline__ uint32_t best_pair(float x)
{
    const __half2 h = __float2half2_rn(x);
    return *(const uint32_t *)&h;
}

/* Of what has an ordinary one: no choice, as division has. */
static __device__ __forceinline__ float best_inverse(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* What the first bits of two bins (less than 512, and BEST_MAGIC) are added to for the addresses of their lines. */
typedef struct best_at {
    uint32_t low, high;
} best_at;

static __device__ __forceinline__ best_at best_at_of(uint32_t first)
{
    constexpr uint32_t bits = best_half(BEST_MAGIC);
    return { first - bits * BEST_LINE, first - bits * BEST_LINE - (bits >> 9) };
}

static __device__ __forceinline__ void best_addresses(const best_at &b, uint32_t bins, uint32_t *at)
{
    at[0] = __dp2a_lo(bins, (uint32_t)BEST_LINE, b.low);
    at[1] = (bins >> 9) + b.high;
}

/* ---- tables ---- */

/* Scales over the centre, as 256 (scale - 1/2). */
struct best_scales {
    uint8_t at[8];
};

template <int F> static constexpr best_scales best_scales_of()
{
    switch (F) {
    case FMT_turbo3: return { { 83, 100, 111, 120, 131, 141, 153, 170 } };
    case FMT_turbo4_66: return { { 106, 116, 125, 132, 142, 154, 195, 230 } };
    case FMT_q4_polar: return { { 105, 113, 122, 129, 138, 149, 195, 230 } };
    default: return { { 104, 114, 122, 131, 140, 152, 195, 230 } };
    }
}

template <int F> struct __align__(best_format<F>::bytes) best_entry {
    uint32_t w[best_format<F>::bytes / 4];
};

/* Of the scales whose sums a lane of a unit has: what a sum, times 512, is added to; 256 where the residual is. */
struct __align__(16) best_names {
    uint32_t of[4];
};

template <int F> struct best_data {
    best_entry<F> e[best_format<F>::entries];
    best_names names[4];
};

/* The byte of an entry whose sum comes to be c[j] of a unit's lane q. */
template <int F> static constexpr int best_byte(int q, int j)
{
    return (best_format<F>::two ? q / 2 * 8 : 0) + j / 2 * 4 + q % 2 * 2 + j % 2;
}

/* Byte s of all entries: mean errors over what an entry is for. */
template <int F> static constexpr void best_errors(best_data<F> *t, int s)
{
    typedef best_format<F> has;
    const float scale = 0.5f + (float)best_scales_of<F>().at[s % has::scales] / 256.0f;
    const float residual = s < has::scales ? has::residual : -has::residual;
    int code = 0;
    for (int i = 0; i < has::entries; i++) {
        float sum = 0.0f;
        for (int k = 0; k < 4; k++) {
            const float y = has::width * ((float)(has::two ? i - has::end : i) + ((float)k - 1.5f) / 4.0f);
            while (code < has::levels - 1 && y >= scale * (best_boundary<F>(code) + residual))
                code++;
            const float d = y - scale * (best_level<F>(code) + residual);
            sum += 0.25f * d * d;
        }
        t->e[i].w[s / 4] |= (sum < has::most ? (uint32_t)(sum * (255.0f / has::most) + 0.5f) : 255u) << 8 * (s % 4);
    }
}

template <int F> static constexpr best_data<F> best_data_of()
{
    typedef best_format<F> has;
    best_data<F> t = {};
    for (int s = 0; s < has::bytes; s++)
        best_errors<F>(&t, s);
    for (int n = 0; n < 16; n++) {
        const int s = best_byte<F>(n / 4, n % 4);
        t.names[n / 4].of[n % 4] = best_scales_of<F>().at[s % has::scales] + (s < has::scales ? 0u : 256u);
    }
    return t;
}

template <int F> static __device__ const best_data<F> best_table = best_data_of<F>();

/* ---- a block's copy ---- */

template <int F> struct __align__(128) best_tries {
    uint8_t e[best_format<F>::entries * (int)BEST_LINE];
    best_names names[4];
};

/* LINES entries, each 16 bytes eight times side by side, by a block's last BEST_FILL threads, which do not meet in a
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

/* An entry as often as it fits in 16 bytes. */
template <int F> static __device__ __forceinline__ uint4 best_repeated(int i)
{
    const uint32_t *w = best_table<F>.e[i].w;
    return best_format<F>::two ? *(const uint4 *)w : make_uint4(w[0], w[1], w[0], w[1]);
}

template <int F> struct best_tries_copy {
    best_lines<best_format<F>::entries> lines;
    uint4 names;

    __device__ __forceinline__ void load(void)
    {
        lines.load(best_repeated<F>);
        names = ((const uint4 *)best_table<F>.names)[threadIdx.x % 4];
    }

    __device__ __forceinline__ void store(best_tries<F> *room) const
    {
        const int t = threadIdx.x % BEST_FILL;
        lines.store(room->e);
        if (t < 4)
            ((uint4 *)room->names)[t] = names;
    }
};

/* What a lane keeps for all tiles.  at: where its copies are; pick: what picks bytes. */
typedef struct best_where {
    best_at at;
    uint32_t pick[2];
    const best_names *names;
} best_where;

template <int F> static __device__ __forceinline__ best_where best_where_of(const best_tries<F> *room)
{
    constexpr int bytes = best_format<F>::bytes;
    constexpr bool two = best_format<F>::two;
    const uint32_t lane = threadIdx.x % 32, row = lane / 4, pick = 1u << 8 * (row % 4);
    return { best_at_of(shared_at(room->e) + lane % (BEST_LINE / bytes) * bytes),
             { two && row >= 4 ? 0 : pick, two && row < 4 ? 0 : pick }, &room->names[lane % 4] };
}

/* ---- the centre ---- */

/* The larger of magnitudes, NaN aside. */
static __device__ __forceinline__ uint32_t best_larger(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("max.f16x2 %0, %1, %2;" : "=r"(y) : "r"(best_abs(a)), "r"(best_abs(b)));
    return y;
}

static __device__ __forceinline__ float best_widest(const uint32_t *y)
{
    uint32_t m[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        m[i] = best_larger(y[i], y[8 + i]);
#pragma unroll
    for (int n = 4; n > 0; n /= 2)
#pragma unroll
        for (int i = 0; i < n; i++)
            m[i] = best_larger(m[i], m[n + i]);
#pragma unroll
    for (int n = 1; n < 4; n *= 2)
        m[0] = best_larger(m[0], __shfl_xor_sync(0xffffffffu, m[0], n));
    const __half2 h = *(const __half2 *)&m[0];
    return __half2float(__hmax(__low2half(h), __high2half(h)));
}

/* ---- sums ---- */

/* An entry; in this order, those of some values under way before the first is used. */
template <int BYTES> static __device__ __forceinline__ void best_read(uint32_t at, uint32_t *e)
{
    if constexpr (BYTES == 8)
        asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(e[0]), "=r"(e[1]) : "r"(at));
    else
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(e[0]), "=r"(e[1]), "=r"(e[2]), "=r"(e[3]) : "r"(at));
}

/* C += A B: rows r and r + 8 of A are words 0 and 2, 1 and 3 of the four lanes of unit r; an entry, or those of two
 * values. */
static __device__ __forceinline__ void best_sum(int *c, const uint32_t *e, const uint32_t *pick)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(e[0]), "r"(e[1]), "r"(e[2]), "r"(e[3]), "r"(pick[0]), "r"(pick[1]));
}

/* The name of the scale with the least sum; a lane has those of four. */
template <int F> static __device__ __forceinline__ uint32_t best_pick(const best_where &b, const int (*c)[4])
{
    const best_names name = *b.names;
    uint32_t least = UINT32_MAX;
#pragma unroll
    for (int j = 0; j < 4; j++)
        least = min(least, ((uint32_t)(c[0][j] + c[1][j]) << 9) + name.of[j]);
#pragma unroll
    for (int m = 1; m < (best_format<F>::two ? 4 : 2); m *= 2)
        least = min(least, __shfl_xor_sync(0xffffffffu, least, m));
    return least & 511u;
}

/* The entries of two values; by: one over an entry's width. */
template <int F> static __device__ __forceinline__ uint32_t best_place(uint32_t y, uint32_t by)
{
    typedef best_format<F> has;
    return best_fma(has::two ? y : best_abs(y), by, best_twice(BEST_MAGIC + (has::two ? (float)has::end : 0.0f)));
}

/* The scale of y, of mean square 1; negative where the residual is. */
template <int F> static __device__ __forceinline__ float best_search(const best_where &b, const uint32_t *y)
{
    typedef best_format<F> has;
    constexpr int each = has::bytes / 4, some = 4;
    const float centre = fmaf(best_widest(y), has::times, has::first);
    const uint32_t by = best_pair(1.0f / has::width * best_inverse(centre));
    int c[2][4] = {};
#pragma unroll
    for (int k = 0; k < 16; k += some) {
        uint32_t at[2 * some], e[2 * some * each];
#pragma unroll
        for (int i = 0; i < some; i++)
            best_addresses(b.at, best_place<F>(y[k + i], by), at + 2 * i);
#pragma unroll
        for (int i = 0; i < 2 * some; i++)
            best_read<has::bytes>(at[i], e + each * i);
#pragma unroll
        for (int i = 0; i < 2 * some * each; i += 4)
            best_sum(c[i / 4 % 2], e + i, b.pick);
    }
    const uint32_t name = best_pick<F>(b, c);
    const float scale = centre * fmaf(__uint_as_float(0x4b000000u | (name & 255u)), 1.0f / 256.0f, 0.5f - 0x1p15f);
    return has::two && (name & 256u) ? -scale : scale;
}

#endif
