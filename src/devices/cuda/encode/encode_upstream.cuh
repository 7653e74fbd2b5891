/* encode_upstream.cuh: the encoder `upstream` for a tile: the published rules, as formats/<family>/<format>.c has them.
 * Rotations add in the references' order and give the same bits; norms and other sums are trees over values and lanes
 * where the references add one after another, so a code or a scale may differ where it lies at a boundary, within
 * rounding (class CODE).  NaN and Inf follow the references' comparisons: whatever a row holds, no byte is undefined.
 *
 * Signs cost nothing: s a + t b is s (a + s t b), one rounding, so a step multiplies b by the product of two signs, and
 * the sign before the parentheses waits for the next step; the second rotation's signs are in the factor that finds
 * the bin, a power of two.  That changes no bit, so what is compared is the value before it is scaled, with the least
 * number whose product reaches the boundary.
 *
 * A bin holds one boundary, and bin n, counted from the top, the n-th: a code's complement is the bin, or one more
 * below the boundary.  Values beyond the boundaries have the first bin or the last. */
#ifndef KVANT_CUDA_ENCODE_UPSTREAM_CUH
#define KVANT_CUDA_ENCODE_UPSTREAM_CUH

#include "devices/cuda/encode/encode_format.cuh"

/* ---- bins ---- */

/* The least y with y * scale >= `mid`, rounded. */
static constexpr float enc_least(float mid, float scale)
{
    float y = mid / scale;
    if (mid == 0.0f || scale == 1.0f)
        return mid;
    const uint32_t up = y > 0.0f ? 1 : 0xffffffffu;
    while ((float)((double)y * scale) >= mid)
        y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, y) - up);
    while ((float)((double)y * scale) < mid)
        y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, y) + up);
    return y;
}

/* The boundary of bin n as values are compared with it: R128's are 1 / sqrt(128) (0x3db504f3) too large. */
template <int F> static constexpr float enc_boundary(int n)
{
    return enc_least(card<F>::boundary[card<F>::n_levels - 2 - n], enc_format<F>::signs ? 0x1.6a09e6p-4f : 1.0f);
}

/* Returns true if the n-th boundary is in bin n, a fiftieth of a bin or more from its ends, with (bins - 1) by bins to
 * 1: the roundings are far less. */
template <int F> static constexpr bool enc_bins_fit(float by)
{
    constexpr int last = card<F>::n_levels - 2;
    for (int n = 0; n <= last; n++) {
        const float at = (0.5f - enc_boundary<F>(n) * by) * (float)last - (float)n;
        if ((n > 0 && at < -0.48f) || (n < last && at > 0.48f))
            return false;
    }
    return true;
}

template <int F> struct enc_bins {
    static constexpr int n = card<F>::n_levels - 1, last = n - 1;
    static constexpr float by = enc_bins_fit<F>(0.25f) ? 0.25f : 0.23419204f;
    static_assert(enc_bins_fit<F>(by));
};

/* ---- tables ---- */

/* Own lines: R128: 8 of the sign products of the steps in a lane, 8 of the signs behind the rotation, times `by`; a
 * residual: 8 of its signs.  And one of the signs of the steps between lanes.  Lines: minus the bins' boundaries (R128:
 * times `by`), then the levels by complements. */
template <int F> struct enc_upstream_table {
    static constexpr bool own = enc_format<F>::lanes == 4;
    static constexpr int steps = enc_format<F>::signs ? 8 : 0;
    static constexpr int last = enc_format<F>::signs || enc_format<F>::residual ? 8 : 0;
    static constexpr int bins = enc_bins<F>::n, levels = enc_format<F>::residual ? bins + 1 : 0;
    typedef enc_lines<own ? steps + last + 1 : 0, bins + levels> lines;
};

static constexpr uint32_t enc_bits(float v)
{
    return __builtin_bit_cast(uint32_t, v);
}

/* Lane q of a unit holds sums of step m of its lanes times the sign that the other lane of that step had. */
template <int F> static constexpr void enc_signs_of(typename enc_upstream_table<F>::lines *t)
{
    typedef enc_upstream_table<F> has;
    constexpr float first[128] = { ROTATE_SIGNS1 }, second[128] = { ROTATE_SIGNS2 };
    for (int q = 0; q < 4; q++) {
        const float f[4] = { first[0], first[32], first[64], first[96] };
        const float a = has::steps ? f[q] * f[q ^ 1] : 1.0f, b = has::steps ? f[q ^ 1] * f[q ^ 3] : 1.0f;
        t->own[has::steps + has::last][q].w[0] = enc_bits(q & 1 ? -a : a);
        t->own[has::steps + has::last][q].w[1] = enc_bits(q & 2 ? -b : b);
        for (int n = 0; n < 32 && has::last; n++) {
            const int at = 32 * q + n;
            if (has::steps)
                t->own[n / 4][q].w[n % 4] = enc_bits(first[at] * first[32 * q + (n & (n - 1))]);
            t->own[has::steps + n / 4][q].w[n % 4] =
                enc_bits(has::steps ? second[at] * f[q ^ 3] * enc_bins<F>::by : card<F>::sign[at]);
        }
    }
}

template <int F> static constexpr auto enc_upstream_lines(void)
{
    typedef enc_upstream_table<F> has;
    typename has::lines t = {};
    if constexpr (has::own)
        enc_signs_of<F>(&t);
    for (int n = 0; n < has::bins + has::levels; n++) {
        const float v = n < has::bins ? 0.0f - enc_boundary<F>(n) * (has::steps ? enc_bins<F>::by : 1.0f) /* never -0 */
                                      : card<F>::level[2 * has::bins - n];
        for (int i = 0; i < 4; i++)
            t.line[n].w[i] = enc_bits(v);
    }
    return t;
}

template <int F>
static __device__ const typename enc_upstream_table<F>::lines enc_upstream_data = enc_upstream_lines<F>();

/* A lane keeps this for all tiles: own lines; the addend of a bin's bits, times a line; the steps between lanes. */
typedef struct enc_upstream_books {
    const uint8_t *own;
    uint32_t codes;
    float cross[2];
} enc_upstream_books;

/* 2^23, whose bits end in the bin that is added. */
#define ENC_BIN_MAGIC 8388608.0f
enum { ENC_BIN_BITS = 0x4b000000 };

template <int F> static __device__ __forceinline__ enc_upstream_books enc_upstream_books_of(const uint8_t *room)
{
    typedef enc_upstream_table<F> has;
    const uint8_t *mine = room + ENC_LINE * has::lines::own_lines + threadIdx.x % 32 * 4;
    enc_upstream_books b = { room, shared_at(mine) - (uint32_t)ENC_BIN_BITS * ENC_LINE, { 0.0f, 0.0f } };
    if (has::own) {
        const uint4 cross = enc_own(room, has::steps + has::last);
        b.cross[0] = __uint_as_float(cross.x), b.cross[1] = __uint_as_float(cross.y);
    }
    return b;
}

/* Four of a lane's own numbers. */
static __device__ __forceinline__ void enc_four(const enc_upstream_books &b, int line, float *v)
{
    const uint4 u = enc_own(b.own, line);
    v[0] = __uint_as_float(u.x), v[1] = __uint_as_float(u.y), v[2] = __uint_as_float(u.z), v[3] = __uint_as_float(u.w);
}

/* ---- rotations ---- */

/* Over 128 values: five steps in a lane, two between lanes; R128: but for the last signs and the factor. */
template <int F> static __device__ __forceinline__ void enc_rotate128(const enc_upstream_books &b, float *v)
{
    constexpr bool signs = enc_format<F>::signs;
    float step[32];
#pragma unroll
    for (int k = 0; k < (signs ? 8 : 0); k++)
        enc_four(b, k, step + 4 * k);
#pragma unroll
    for (int h = 1; h < 32; h *= 2)
#pragma unroll
        for (int k = 0; k < 32; k++)
            if (!(k & h)) {
                const float a = v[k], c = v[k + h], s = signs ? step[(k & -h) + h] : 1.0f;
                v[k] = signs ? fmaf(c, s, a) : a + c;
                v[k + h] = signs ? fmaf(c, -s, a) : a - c;
            }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int k = 0; k < 32; k++)
            v[k] = fmaf(v[k], b.cross[m], __shfl_xor_sync(0xffffffffu, v[k], 1 << m));
}

/* Over 32 values, with their signs before. */
static __device__ __forceinline__ void enc_rotate32(float *v)
{
    constexpr float signs[32] = { ROTATE_SIGNS32 };
#pragma unroll
    for (int k = 0; k < 32; k++)
        v[k] = signs[k] < 0.0f ? -v[k] : v[k];
    lane_steps<32>(v);
}

static __device__ __forceinline__ void enc_times(float *v, float by)
{
#pragma unroll
    for (int k = 0; k < 32; k++)
        v[k] *= by;
}

/* A lane's values as the format has them, compared with its boundaries; their norm. */
template <int F> static __device__ __forceinline__ float enc_turn(const enc_upstream_books &b, float *v)
{
    float norm, inverse;
    if constexpr (card<F>::norm == CARD_RMS) {
        enc_rotate32(v);
        enc_times(v, port_bits(0x3e3504f3u));           /* 1 / sqrt(32) */
        enc_root(enc_squares(v) / 32.0f, &norm, &inverse);
        enc_times(v, inverse);
    } else {
        norm = enc_unit_root(enc_sum<4>(enc_squares(v)), &inverse);
        enc_times(v, inverse);
        enc_rotate128<F>(b, v);
    }
    return norm;
}

/* ---- codes ---- */

/* The complement of y's code, with ENC_BIN_BITS; `sign`: R128: y's, times `by`. */
template <int F>
static __device__ __forceinline__ uint32_t enc_code(const enc_upstream_books &b, float y, float sign)
{
    constexpr float by = enc_bins<F>::by;
    constexpr bool signs = enc_format<F>::signs;
    const float t = __saturatef(signs ? fmaf(y, -sign, 0.5f) : fmaf(y, -by, 0.5f));     /* NaN: 0, the top */
    const uint32_t bin = __float_as_uint(fmaf(t, (float)enc_bins<F>::last, ENC_BIN_MAGIC));
    float mid;
    asm("ld.shared.f32 %0, [%1];" : "=f"(mid) : "r"(bin * ENC_LINE + b.codes));
    return bin + (__float_as_uint(signs ? fmaf(y, sign, mid) : y + mid) >> 31);
}

/* The level of such a code. */
template <int F> static __device__ __forceinline__ float enc_level(const enc_upstream_books &b, uint32_t code)
{
    float level;
    asm("ld.shared.f32 %0, [%1];" : "=f"(level) : "r"((code + enc_bins<F>::n) * ENC_LINE + b.codes));
    return level;
}

/* Groups of codes; *up: on which side of its levels the unit lies along the residual's signs. */
template <int F>
static __device__ __forceinline__ void enc_codes(const enc_upstream_books &b, const float *v, uint32_t *word, bool *up)
{
    constexpr bool signs = enc_format<F>::signs, residual = enc_format<F>::residual;
    constexpr uint32_t rest = enc_eight<F>(card<F>::n_levels - 1);
    constexpr int bits = enc_format<F>::code_bits;
    uint32_t garbage = 0;
    float sign[32], sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < (signs || residual ? 8 : 0); k++)
        enc_four(b, enc_upstream_table<F>::steps + k, sign + 4 * k);
#pragma unroll
    for (int g = 0; g < 4; g++) {
        word[g] = 0;
#pragma unroll
        for (int i = 7; i >= 0; i--) {
            const int n = enc_value_at<F>(g, i);
            const uint32_t code = enc_code<F>(b, v[n], signs ? sign[n] : 0.0f);
            word[g] = (word[g] << bits) + code;
            if (residual)
                sum[g] = fmaf(v[n] - enc_level<F>(b, code), sign[n], sum[g]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        garbage += (uint32_t)ENC_BIN_BITS << bits * i;
#pragma unroll
    for (int g = 0; g < 4; g++)
        word[g] = rest + garbage - word[g];
    *up = residual && enc_sum<4>((sum[0] + sum[1]) + (sum[2] + sum[3])) > 0.0f;         /* NaN: not */
}

/* ---- the norm that R128 stores: of the row over that of its levels ---- */

/* Byte b of the squares in 2^-28 of four levels: of code n, or of magnitude n where there are 16. */
template <int F> static constexpr uint32_t enc_square_bytes(int b, int from)
{
    uint32_t w = 0;
    for (int i = 0; i < 4; i++) {
        const double c = (double)card<F>::level[card<F>::n_levels - 8 + from + i];
        w |= ((uint32_t)(c * c * 268435456.0 + 0.5) >> 8 * b & 255u) << 8 * i;
    }
    return w;
}

template <int F> struct enc_square_table {
    static constexpr uint32_t low[3] = { enc_square_bytes<F>(0, 0), enc_square_bytes<F>(1, 0),
                                         enc_square_bytes<F>(2, 0) };
    static constexpr uint32_t high[3] = { enc_square_bytes<F>(0, 4), enc_square_bytes<F>(1, 4),
                                          enc_square_bytes<F>(2, 4) };
};

/* sum[b] += byte b of the squares of 8 codes in nibbles. */
template <int F> static __device__ __forceinline__ void enc_add_squares(uint32_t word, uint32_t *sum)
{
    typedef enc_square_table<F> table;
    constexpr uint32_t low[3] = { table::low[0], table::low[1], table::low[2] };
    constexpr uint32_t high[3] = { table::high[0], table::high[1], table::high[2] };
    const uint32_t mirror = card<F>::n_levels == 16 ? (~word >> 3 & 0x11111111u) * 7 : 0;
    const uint32_t n = (word ^ mirror) & 0x77777777u;
#pragma unroll
    for (int b = 0; b < 3; b++) {
        sum[b] = __dp4a(__byte_perm(low[b], high[b], n), 0x01010101u, sum[b]);
        sum[b] = __dp4a(__byte_perm(low[b], high[b], n >> 16), 0x01010101u, sum[b]);
    }
}

/* Computes this sum in any order; never 0. */
template <int F> static __device__ __forceinline__ uint16_t enc_corrected(float norm, const uint32_t *word)
{
    uint32_t sum[3] = { 0, 0, 0 };
#pragma unroll
    for (int g = 0; g < 4; g++)
        enc_add_squares<F>(word[g], sum);
    const int square = enc_sum<4>((int)(sum[0] + (sum[1] << 8) + (sum[2] << 16)));
    return enc_half(norm * rsqrtf((float)square * 0x1p-28f));
}

/* ---- a tile ---- */

/* A lane's values; `out`: units one behind the other. */
template <int F>
static __device__ __forceinline__ void enc_book_upstream(const enc_upstream_books &b, float *v, uint8_t *out)
{
    uint32_t word[4];
    bool up;
    const float norm = enc_turn<F>(b, v);
    enc_codes<F>(b, v, word, &up);
    uint16_t scale = enc_half(norm);
    if constexpr (card<F>::norm == CARD_CORRECTED)
        scale = enc_corrected<F>(norm, word);
    if (card<F>::norm == CARD_RMS && norm == 0.0f)
        word[0] = word[1] = word[2] = word[3] = 0;
    enc_pack<F>(out, scale, word, up);
}

#endif
