/* encode_tries.cuh: which scale the encoder `best` takes for a record or a unit of a tile: of eight scales (with a
 * residual: and its signs) the one whose nearest codes err least.
 *
 * The scales lie about a centre that follows the largest value, which says most of what can be known of the best scale
 * without a trial (q4_0: about the scale of upstream, which does the same).  The errors of a value at all scales are
 * one table entry, 8 bits each in one unit, by the value's magnitude (where levels are not symmetric: by the value)
 * over the centre.  Tensor cores add them over the values: products with zeros and ones, A of which is entries as they
 * were read.
 *
 * Centres and scales (the cards have them) were searched for, with rows that are Gaussian, Laplace, log-normal or have
 * an outlier, rotated: squared error when the unbiased scale is stored (docs/formats/encoders.md). */
#ifndef KVANT_CUDA_ENCODE_TRIES_CUH
#define KVANT_CUDA_ENCODE_TRIES_CUH

#include "devices/cuda/encode/encode_format.cuh"

/* Values and levels in root mean squares (q4_0: in steps of upstream's scale); no value is beyond `top`. */
template <int F> struct enc_best {
    typedef card<F> of;
    typedef enc_format<F> format;
    static constexpr bool residual = format::residual, turned = format::signs || residual;
    static constexpr bool largest = of::norm == CARD_LARGEST, sided = residual || largest;
    static constexpr float unit = of::norm == CARD_CORRECTED ? 11.3137085f : 1.0f;
    static constexpr float top = largest ? 8.03f : format::lanes == 4 ? 11.33f : 5.66f;
    static constexpr float offset = residual ? of::residual : 0.0f;
    /* Bytes of an entry: a scale each, those with the residual taken away last.  Entries: from -end to end, or from
     * 0. */
    static constexpr int scales = 8, bytes = residual ? 2 * scales : scales;
    static constexpr int end = sided ? 127 : 255, entries = sided ? 2 * end + 1 : end + 1;
    static constexpr float width = top / (of::first + of::times * top) / (float)end;
};

/* ---- two values in a word ---- */

/* 2^10, whose halves end in the integer that is added. */
#define ENC_HALF_MAGIC 1024.0f

/* x as half, of an ordinary one. */
static __host__ __device__ constexpr uint32_t enc_half_bits(float x)
{
    const uint32_t u = __builtin_bit_cast(uint32_t, x), a = u & 0x7fffffffu;
    return (u >> 16 & 0x8000u) | (a == 0 ? 0 : (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
}

static __host__ __device__ constexpr uint32_t enc_twice(float x)
{
    return enc_half_bits(x) * 0x10001u;
}

static __device__ __forceinline__ uint32_t enc_fma2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

/* As enc_fma2, limited to 0 .. 1. */
static __device__ __forceinline__ uint32_t enc_part2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.sat.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

static __device__ __forceinline__ uint32_t enc_abs2(uint32_t a)
{
    uint32_t y;
    asm("abs.f16x2 %0, %1;" : "=r"(y) : "r"(a));
    return y;
}

/* x twice. */
static __device__ __forceinline__ uint32_t enc_pair(float x)
{
    const __half2 h = __float2half2_rn(x);
    return *(const uint32_t *)&h;
}

/* Inverts a value that has an ordinary inverse: no choice, as division has. */
static __device__ __forceinline__ float enc_inverse(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The first bits of two bins (less than 512, and ENC_HALF_MAGIC) are added to these to address their lines. */
typedef struct enc_at {
    uint32_t low, high;
} enc_at;

static __device__ __forceinline__ enc_at enc_at_of(uint32_t first)
{
    constexpr uint32_t bits = enc_half_bits(ENC_HALF_MAGIC);
    return { first - bits * ENC_LINE, first - bits * ENC_LINE - (bits >> 9) };
}

static __device__ __forceinline__ void enc_addresses(const enc_at &b, uint32_t bins, uint32_t *at)
{
    at[0] = __dp2a_lo(bins, (uint32_t)ENC_LINE, b.low);
    at[1] = (bins >> 9) + b.high;
}

/* ---- tables ---- */

/* Scale s of an entry over the centre. */
template <int F> static constexpr float enc_try(int s)
{
    return 0.5f + (float)card<F>::tries[s % enc_best<F>::scales] / 256.0f;
}

/* Byte s of entry i: the mean error over what the entry is for; `code`: at least the code of its first value. */
template <int F> static constexpr uint32_t enc_error(int s, int i, int *code)
{
    typedef enc_best<F> has;
    const float scale = enc_try<F>(s), offset = s < has::scales ? has::offset : -has::offset;
    float sum = 0.0f;
    for (int k = 0; k < 4; k++) {
        const float y = has::width * ((float)(has::sided ? i - has::end : i) + ((float)k - 1.5f) / 4.0f);
        while (*code < card<F>::n_levels - 1 && y >= scale * (has::unit * card<F>::boundary[*code] + offset))
            ++*code;
        const float d = y - scale * (has::unit * card<F>::level[*code] + offset);
        sum += 0.25f * d * d;
    }
    return sum < card<F>::most ? (uint32_t)(sum * (255.0f / card<F>::most) + 0.5f) : 255u;
}

/* Entries as often as they fit in a line's 16 bytes. */
template <int F> static constexpr void enc_tries_lines(enc_word4 *line)
{
    typedef enc_best<F> has;
    for (int s = 0; s < has::bytes; s++) {
        int code = 0;
        for (int i = 0; i < has::entries; i++) {
            const uint32_t e = enc_error<F>(s, i, &code) << 8 * (s % 4);
            for (int w = s / 4; w < 4; w += has::bytes / 4)
                line[i].w[w] |= e;
        }
    }
}

/* Returns the name of the j-th scale whose sum lane q of a unit has, to which the sum, times 512, is added; 256 more
 * where the residual is taken away. */
template <int F> static constexpr uint32_t enc_name(int q, int j)
{
    typedef enc_best<F> has;
    const int s = (has::residual ? q / 2 * 8 : 0) + j / 2 * 4 + q % 2 * 2 + j % 2;
    return (uint32_t)card<F>::tries[s % has::scales] + (s < has::scales ? 0u : 256u);
}

/* A lane keeps this for all tiles.  at: the place of its copies; pick: the factor that picks bytes (in two products
 * where each lane has a record of its own). */
typedef struct enc_tries {
    enc_at at;
    uint32_t pick[2][2];
} enc_tries;

template <int F> static __device__ __forceinline__ enc_tries enc_tries_of(uint32_t first)
{
    typedef enc_best<F> has;
    const uint32_t lane = threadIdx.x % 32, column = lane / 4, pick = 1u << 8 * (column % 4);
    enc_tries b = { enc_at_of(first + lane % (ENC_LINE / has::bytes) * has::bytes), {} };
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool mine = has::format::lanes == 1 ? lane % 4 == 2 * i + column / 4
                              : has::residual         ? column / 4 == half
                                                      : true;
            b.pick[i][half] = mine ? pick : 0;
        }
    return b;
}

/* ---- the centre ---- */

/* The larger of magnitudes, NaN aside. */
static __device__ __forceinline__ uint32_t enc_larger(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("max.f16x2 %0, %1, %2;" : "=r"(y) : "r"(enc_abs2(a)), "r"(enc_abs2(b)));
    return y;
}

template <int LANES> static __device__ __forceinline__ float enc_widest(const uint32_t *y)
{
    uint32_t m[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        m[i] = enc_larger(y[i], y[8 + i]);
#pragma unroll
    for (int n = 4; n > 0; n /= 2)
#pragma unroll
        for (int i = 0; i < n; i++)
            m[i] = enc_larger(m[i], m[n + i]);
#pragma unroll
    for (int n = 1; n < LANES; n *= 2)
        m[0] = enc_larger(m[0], __shfl_xor_sync(0xffffffffu, m[0], n));
    const __half2 h = *(const __half2 *)&m[0];
    return __half2float(__hmax(__low2half(h), __high2half(h)));
}

/* ---- sums ---- */

/* An entry; in this order, those of some values under way before the first is used. */
template <int BYTES> static __device__ __forceinline__ void enc_read(uint32_t at, uint32_t *e)
{
    if constexpr (BYTES == 8)
        asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(e[0]), "=r"(e[1]) : "r"(at));
    else
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(e[0]), "=r"(e[1]), "=r"(e[2]), "=r"(e[3]) : "r"(at));
}

/* C += A B: rows r and r + 8 of A are words 0 and 2, 1 and 3 of the four lanes of unit r: an entry, or those of two
 * values. */
static __device__ __forceinline__ void enc_add_entries(int *c, const uint32_t *e, const uint32_t *pick)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(e[0]), "r"(e[1]), "r"(e[2]), "r"(e[3]), "r"(pick[0]), "r"(pick[1]));
}

/* The name of the scale with the least of this lane's four sums and its neighbours'. */
template <int F> static __device__ __forceinline__ uint32_t enc_least_sum(const uint4 &names, const int *c)
{
    uint32_t least = min(min(((uint32_t)c[0] << 9) + names.x, ((uint32_t)c[1] << 9) + names.y),
                         min(((uint32_t)c[2] << 9) + names.z, ((uint32_t)c[3] << 9) + names.w));
#pragma unroll
    for (int m = 1; m < (enc_best<F>::residual ? 4 : 2); m *= 2)
        least = min(least, __shfl_xor_sync(0xffffffffu, least, m));
    return least & 511u;
}

/* A unit's sums are of two halves of its values; with four records, lanes 0 and 1 have the sums of records 0 and 2,
 * lanes 2 and 3 of 1 and 3. */
template <int F> static __device__ __forceinline__ uint32_t enc_least_of(const uint4 &names, const int (*c)[4])
{
    const int lane = threadIdx.x % 32, from = (lane & 28) + (lane & 1) * 2;
    if constexpr (enc_format<F>::lanes == 4) {
        const int sum[4] = { c[0][0] + c[1][0], c[0][1] + c[1][1], c[0][2] + c[1][2], c[0][3] + c[1][3] };
        return enc_least_sum<F>(names, sum);
    } else {
        const uint32_t a = __shfl_sync(0xffffffffu, enc_least_sum<F>(names, c[0]), from);
        const uint32_t b = __shfl_sync(0xffffffffu, enc_least_sum<F>(names, c[1]), from);
        return lane & 2 ? b : a;
    }
}

/* The scale of y; negative where the residual is taken away. */
template <int F>
static __device__ __forceinline__ float enc_search(const enc_tries &b, const uint4 &names, const uint32_t *y)
{
    typedef enc_best<F> has;
    constexpr int each = has::bytes / 4, some = 4;
    constexpr uint32_t first = enc_twice(ENC_HALF_MAGIC + (has::sided ? (float)has::end : 0.0f));
    float centre = card<F>::first;
    if (card<F>::times != 0.0f)
        centre = fmaf(enc_widest<enc_format<F>::lanes>(y), card<F>::times, centre);
    const uint32_t by = enc_pair(1.0f / has::width * enc_inverse(centre));
    int c[2][4] = {};
#pragma unroll
    for (int k = 0; k < 16; k += some) {
        uint32_t at[2 * some], e[2 * some * each];
#pragma unroll
        for (int i = 0; i < some; i++)
            enc_addresses(b.at, enc_fma2(has::sided ? y[k + i] : enc_abs2(y[k + i]), by, first), at + 2 * i);
#pragma unroll
        for (int i = 0; i < 2 * some; i++)
            enc_read<has::bytes>(at[i], e + each * i);
#pragma unroll
        for (int i = 0; i < 2 * some * each; i += 4)
            if (enc_format<F>::lanes == 1) {
                enc_add_entries(c[0], e + i, b.pick[0]);
                enc_add_entries(c[1], e + i, b.pick[1]);
            } else {
                enc_add_entries(c[i / 4 % 2], e + i, b.pick[0]);
            }
    }
    const uint32_t name = enc_least_of<F>(names, c);
    const float scale = centre * fmaf(__uint_as_float(0x4b000000u | (name & 255u)), 1.0f / 256.0f, 0.5f - 0x1p15f);
    return has::residual && (name & 256u) ? -scale : scale;
}

#endif
