/* encode_run.cuh: the formats of 128 values, upstream, many rows: a tile of 8 units to a warp, 32 values to a lane.
 *
 * Two arrangements of a unit over its four lanes: "own", lane q has values 32 q .. 32 q + 31, for the norm and five
 * steps of the rotation; "apart", 32 k + 8 q + i (tile_codes.cuh), for its last two steps, codes and packing.  Values
 * pass from one to the other through the shared memory they came to.  There chunk c of 16 bytes of line q is kept at
 * c ^ (2 q + the unit's parity): neither arrangement meets a bank twice, and lines arrive whole.
 *
 * Signs cost nothing: s a + t b is s (a + s t b), one rounding, so a step multiplies b by the product of two signs, and
 * the sign before the parentheses waits for the next step; the second rotation's signs are in the factor that finds
 * the bin, a power of two.  That changes no bit, so what is compared is the value before it is scaled, with the least
 * number whose product reaches the book's boundary.  Sums are added in the order of encode.cuh: the bytes are the same.
 *
 * A bin holds one boundary, and bin n, counted from the top, the n-th: a code's complement is the bin, or one more
 * below the boundary.  Values beyond the boundaries have the first bin or the last. */
#ifndef KVANT_CUDA_ENCODE_RUN_CUH
#define KVANT_CUDA_ENCODE_RUN_CUH

#include "devices/cuda/encode/tile_codes.cuh"

enum {
    RUN_LINE = 128, RUN_UNIT = 4 * RUN_LINE, RUN_STAGE = TILE_UNITS * RUN_UNIT,     /* bytes */
    RUN_SIGNS = 128 + 16            /* bytes of one lane's signs, to the next lane's */
};

template <int F> struct run_format {
    static constexpr bool polar = tile_format<F>::kind == ENC_POLAR;
    static constexpr int bins = tile_format<F>::levels - 1, lines = bins + tile_format<F>::levels;
    static constexpr float scale = polar ? 1.0f : 0x1.6a09e6p-4f;       /* 1/sqrt(128), 0x3db504f3 */
    static constexpr float by = polar ? 0.23419204f : 0.25f;            /* (bins - 1) / by: bins to 1 before scaling */
};

/* ---- tables ---- */

/* The least y with y * scale >= `mid`, rounded. */
static constexpr float run_least(float mid, float scale)
{
    float y = mid / scale;
    if (mid == 0.0f)
        return 0.0f;
    const uint32_t up = y > 0.0f ? 1 : 0xffffffffu;
    while ((float)((double)y * scale) >= mid)
        y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, y) - up);
    while ((float)((double)y * scale) < mid)
        y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, y) + up);
    return y;
}

/* The boundary of bin n, before scaling. */
template <int F> static constexpr float run_boundary(int n)
{
    const float mid = tile_boundary<F>(run_format<F>::bins - 1 - n);
    return run_format<F>::polar ? mid : run_least(mid, run_format<F>::scale);
}

/* The n-th boundary is in bin n, a fiftieth of a bin or more from its ends: the roundings are far less. */
template <int F> static constexpr bool run_bins_fit(void)
{
    constexpr int last = run_format<F>::bins - 1;
    for (int n = 0; n <= last; n++) {
        const float at = (0.5f - run_boundary<F>(n) * run_format<F>::by) * (float)last - (float)n;
        if ((n > 0 && at < -0.48f) || (n < last && at > 0.48f))
            return false;
    }
    return true;
}

/* Squares in 2^-28 of eight levels: of code n, or of magnitude n where there are 16.  Byte b of four of them. */
template <int F> static constexpr uint32_t run_squares(int b, int from)
{
    uint32_t w = 0;
    for (int i = 0; i < 4; i++) {
        const double c = (double)tile_centroid<F>(tile_format<F>::levels - 8 + from + i);
        w |= ((uint32_t)(c * c * 268435456.0 + 0.5) >> 8 * b & 255u) << 8 * i;
    }
    return w;
}

template <int F> struct run_square_bytes {
    static constexpr uint32_t high[3] = { run_squares<F>(0, 4), run_squares<F>(1, 4), run_squares<F>(2, 4) };
};

/* book: minus the bins' boundaries as codes compare them (but for polar times `by`), then the levels by complements.
 * step[q][n]: the sign product of the step that joins values n and n less its lowest bit, of those of lane q.  last[q]:
 * of lane q's values apart, the second signs, with the one that the first rotation left, times `by`; polar: the
 * residual's signs.  low: run_squares of the first four. */
struct __align__(16) run_consts {
    float step[4][32], last[4][32];
    uint32_t low[4];
    float book[32];
};

template <int F> static constexpr run_consts run_consts_of(void)
{
    constexpr float first[128] = { ROTATE_SIGNS1 }, second[128] = { ROTATE_SIGNS2 }, residual[128] = { POLAR_SIGNS };
    constexpr int bins = run_format<F>::bins;
    constexpr float by = run_format<F>::by;
    static_assert(run_bins_fit<F>());
    run_consts t = {};
    for (int q = 0; q < 4; q++)
        for (int n = 0; n < 32; n++) {
            const int at = n / 8 * 32 + 8 * q + n % 8;
            t.step[q][n] = first[32 * q + n] * first[32 * q + (n & (n - 1))];
            t.last[q][n] = run_format<F>::polar ? residual[at] : second[at] * first[0] * by;
        }
    for (int b = 0; b < 3; b++)
        t.low[b] = run_squares<F>(b, 0);
    for (int n = 0; n < bins; n++)          /* never -0: zeros are above it */
        t.book[n] = 0.0f - run_boundary<F>(n) * (run_format<F>::polar ? 1.0f : by);
    for (int n = 0; n <= bins; n++)
        t.book[bins + n] = tile_centroid<F>(bins - n);
    return t;
}

template <int F> static __device__ const run_consts run_table = run_consts_of<F>();

/* The block's copy of the tables; a word of the book is a line, so that lanes do not meet in a bank. */
template <int F> struct __align__(128) run_room {
    float signs[8][RUN_SIGNS / 4];          /* step, last */
    uint32_t low[4], book[run_format<F>::lines][32];
};

/* What a lane keeps for all tiles: where it reads; the compiler must not know `low`, or makes it for every use. */
typedef struct run_books {
    uint32_t codes;                         /* what to add to a bin's bits, times a line */
    const float4 *step, *last;
    const uint4 *low;
} run_books;

/* 2^23, whose bits end in the bin that is added; their sum in a word of eight codes, each shifted by four more. */
#define RUN_MAGIC 8388608.0f
enum { RUN_BITS = 0x4b000000 };
static const uint32_t run_rest = 0xfb000000u;

/* The copy's reads are under way from load on. */
template <int F> struct run_copy {
    static constexpr int lines = run_format<F>::lines;
    float4 s;
    uint32_t e;

    __device__ __forceinline__ void load(void)
    {
        s = ((const float4 *)&run_table<F>)[threadIdx.x % 65];
        e = ((const uint32_t *)run_table<F>.book)[threadIdx.x % 32];
    }

    __device__ __forceinline__ run_books store(run_room<F> *room)
    {
        const int i = threadIdx.x, lane = i % 32, q = i % 4;
        for (int k = i / 32; k < lines; k += (int)blockDim.x / 32)
            room->book[k][lane] = __shfl_sync(0xffffffffu, e, k);
        if (i < 64)
            *(float4 *)&room->signs[i / 8][i % 8 * 4] = s;
        if (i == 64)
            *(float4 *)room->low = s;
        return { shared_at(&room->book[0][lane]) - (uint32_t)RUN_BITS * TILE_LINE, (const float4 *)room->signs[q],
                 (const float4 *)room->signs[4 + q], (const uint4 *)room->low };
    }
};

/* x, in a register: the compiler does not compute it anew for every tile. */
static __device__ __forceinline__ uint32_t run_kept(uint32_t x)
{
    return __shfl_sync(0xffffffffu, x, threadIdx.x % 32);
}

/* ---- the rotation ---- */

static __device__ __forceinline__ void run_read(uint32_t at, float *v)
{
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void run_write(uint32_t at, const float *v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};"
                 ::"r"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}

/* Where chunk c of a line of unit r is. */
static __device__ __forceinline__ uint32_t run_chunk(uint32_t stage, int r, int line, int c)
{
    return stage + RUN_UNIT * r + RUN_LINE * line + 16 * (c ^ (2 * line + r % 2));
}

/* This lane's values of unit lane / 4: apart, and its own. */
static __device__ __forceinline__ void run_read_apart(uint32_t stage, float *v)
{
    const int lane = threadIdx.x % 32;
    const uint32_t at = run_chunk(stage, lane / 4, 0, 2 * (lane % 4));
#pragma unroll
    for (int i = 0; i < 8; i++)
        run_read((at ^ 16 * i) + RUN_LINE * (i / 2), v + 4 * i);
}

static __device__ __forceinline__ uint32_t run_own(uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    return run_chunk(stage, lane / 4, lane % 4, 0);
}

static __device__ __forceinline__ void run_read_own(uint32_t own, float *v)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        run_read(own ^ 16 * i, v + 4 * i);
}

/* The last two steps; the sign of a line of 32 is that of its first value. */
template <int F> static __device__ __forceinline__ void run_last_steps(float *v)
{
    constexpr float first[128] = { ROTATE_SIGNS1 };
    constexpr bool polar = run_format<F>::polar;
    constexpr float s01 = polar ? 1.0f : first[0] * first[32], s23 = polar ? 1.0f : first[64] * first[96];
    constexpr float s02 = polar ? 1.0f : first[0] * first[64];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float b = s01 < 0.0f ? -v[8 + i] : v[8 + i], d = s23 < 0.0f ? -v[24 + i] : v[24 + i];
        const float e = v[i] + b, f = v[i] - b, g = v[16 + i] + d, h = v[16 + i] - d;
        const float u = s02 < 0.0f ? -g : g, w = s02 < 0.0f ? -h : h;
        v[i] = e + u, v[16 + i] = e - u, v[8 + i] = f + w, v[24 + i] = f - w;
    }
}

/* The norm of four lanes' unit, and its inverse, as enc_norm has them. */
static __device__ __forceinline__ float run_norm(const float *v, float *inverse)
{
    float p[8];
#pragma unroll
    for (int i = 0; i < 32; i++)
        p[i / 4] = i % 4 ? fmaf(v[i], v[i], p[i / 4]) : v[i] * v[i];
    float s = tile_tree(p);
    s += __shfl_xor_sync(0xffffffffu, s, 1);
    s += __shfl_xor_sync(0xffffffffu, s, 2);
    return enc_unit_root(s, inverse);
}

/* The first five steps. */
template <int F> static __device__ __forceinline__ void run_first_steps(const run_books &b, float *v)
{
    constexpr bool polar = run_format<F>::polar;
    float step[32];
#pragma unroll
    for (int k = 0; k < (polar ? 0 : 8); k++) {
        const float4 s = b.step[k];
        step[4 * k] = s.x, step[4 * k + 1] = s.y, step[4 * k + 2] = s.z, step[4 * k + 3] = s.w;
    }
#pragma unroll
    for (int h = 1; h < 32; h *= 2)
#pragma unroll
        for (int k = 0; k < 32; k++)
            if (!(k & h)) {
                const float a = v[k], c = v[k + h], s = polar ? 1.0f : step[(k & -h) + h];
                v[k] = polar ? a + c : fmaf(c, s, a);
                v[k + h] = polar ? a - c : fmaf(c, -s, a);
            }
}

/* Own values of a tile, rotated, to apart, but for the last signs; its norms.  They pass through `stage`, of which
 * nothing is read before. */
template <int F> static __device__ __forceinline__ float run_turn_own(const run_books &b, uint32_t stage, float *v)
{
    const uint32_t own = run_own(stage);
    float inv;
    const float norm = run_norm(v, &inv);
#pragma unroll
    for (int k = 0; k < 32; k++)
        v[k] *= inv;
    run_first_steps<F>(b, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        run_write(own ^ 16 * i, v + 4 * i);
    __syncwarp();
    run_read_apart(stage, v);
    __syncwarp();
    run_last_steps<F>(v);
    return norm;
}

/* The same of a tile in `stage`.  Nothing reads it afterwards. */
template <int F> static __device__ __forceinline__ float run_rotate(const run_books &b, uint32_t stage, float *v)
{
    run_read_own(run_own(stage), v);
    return run_turn_own<F>(b, stage, v);
}

/* ---- codes ---- */

/* The complement of y's code, with RUN_BITS; `sign`: y's, times `by`. */
template <int F> static __device__ __forceinline__ uint32_t run_code(const run_books &b, float y, float sign)
{
    constexpr float by = run_format<F>::by;
    constexpr bool polar = run_format<F>::polar;
    const float t = __saturatef(polar ? fmaf(y, -by, 0.5f) : fmaf(y, -sign, 0.5f));     /* NaN: 0, the top */
    const uint32_t bin = __float_as_uint(fmaf(t, (float)(run_format<F>::bins - 1), RUN_MAGIC));
    float mid;
    asm("ld.shared.f32 %0, [%1];" : "=f"(mid) : "r"(bin * TILE_LINE + b.codes));
    return bin + (__float_as_uint(polar ? y + mid : fmaf(y, sign, mid)) >> 31);
}

/* The level of such a code. */
template <int F> static __device__ __forceinline__ float run_level(const run_books &b, uint32_t code)
{
    float level;
    asm("ld.shared.f32 %0, [%1];" : "=f"(level) : "r"(code * TILE_LINE + b.codes + run_format<F>::bins * TILE_LINE));
    return level;
}

/* This lane's codes of 32 k + 8 q + i: nibble i of word[k]; ODD: values of one parity of two k, in
 * word[k / 2 * 2 + i % 2]. */
template <int F, bool ODD>
static __device__ __forceinline__ void run_codes(const run_books &b, const float *v, uint32_t *word)
{
#pragma unroll
    for (int k = 7; k >= 0; k--) {
        const float4 s = b.last[k];
        const float sign[4] = { s.x, s.y, s.z, s.w };
#pragma unroll
        for (int i = 3; i >= 0; i--) {
            uint32_t *w = &word[ODD ? k / 4 * 2 + i % 2 : k / 2];
            *w = (*w << 4) + run_code<F>(b, v[4 * k + i], sign[i]);
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        word[k] = run_rest - 1 - word[k];
}

/* Sum of the squares of 8 levels (codes in nibbles) in 2^-28, as bytes of different weight: sum[b]. */
template <int F>
static __device__ __forceinline__ void run_add_squares(const uint4 &first, uint32_t word, uint32_t *sum)
{
    constexpr uint32_t high[3] = { run_square_bytes<F>::high[0], run_square_bytes<F>::high[1],
                                   run_square_bytes<F>::high[2] };
    const uint32_t low[3] = { first.x, first.y, first.z };
    const uint32_t mirror = tile_format<F>::levels == 16 ? (~word >> 3 & 0x11111111u) * 7 : 0;
    const uint32_t n = (word ^ mirror) & 0x77777777u;
#pragma unroll
    for (int b = 0; b < 3; b++) {
        sum[b] = __dp4a(__byte_perm(low[b], high[b], n), 0x01010101u, sum[b]);
        sum[b] = __dp4a(__byte_perm(low[b], high[b], n >> 16), 0x01010101u, sum[b]);
    }
}

static __device__ __forceinline__ uint16_t run_corrected(float norm, const uint32_t *sum)
{
    return enc_corrected(norm, enc_sum<4>((int)(sum[0] + (sum[1] << 8) + (sum[2] << 16))));
}

static __device__ __forceinline__ void run_turbo66(const run_books &b, const float *v, float norm, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    uint32_t word[4] = { 0, 0, 0, 0 }, sum[3] = { 0, 0, 0 };
    run_codes<FMT_turbo4_66, false>(b, v, word);
    const uint4 low = *b.low;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        run_add_squares<FMT_turbo4_66>(low, word[k], sum);
        tile_put(row + 2 + 16 * k + 4 * q, word[k]);
    }
    const uint16_t scale = run_corrected(norm, sum);
    if (q == 0)
        enc_put(row, scale);
}

/* Planes of the two low bits: 16 codes; the high ones: a byte for each k. */
static __device__ __forceinline__ void run_turbo3(const run_books &b, const float *v, float norm, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    uint32_t word[4] = { 0, 0, 0, 0 }, sum[3] = { 0, 0, 0 };
    run_codes<FMT_turbo3, true>(b, v, word);
    const uint4 low = *b.low;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const uint32_t even = word[k] & 0x77777777u, odd = word[k + 1] & 0x77777777u;
        run_add_squares<FMT_turbo3>(low, even, sum);
        run_add_squares<FMT_turbo3>(low, odd, sum);
        const uint32_t two = (even & 0x33333333u) | (odd << 2 & 0xccccccccu);
        const uint32_t high = tile_squeeze((even >> 2 & 0x11111111u) | (odd >> 1 & 0x22222222u));
        enc_put(row + 14 * k + 2 + 2 * q, (uint16_t)two);
        enc_put(row + 14 * k + 16 + 2 * q, (uint16_t)(two >> 16));
        row[14 * k + 10 + q] = (uint8_t)high;
        row[14 * k + 24 + q] = (uint8_t)(high >> 8);
    }
    enc_put(row + 14 * q, run_corrected(norm, sum));
}

template <int F>
static __device__ __forceinline__ void run_polar(const run_books &b, const float *v, float norm, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    uint32_t word[4] = { 0, 0, 0, 0 };
    float p[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float level[8];
#pragma unroll
        for (int i = 7; i >= 0; i--) {
            const uint32_t n = run_code<F>(b, v[8 * k + i], 1.0f);
            word[k] = (word[k] << 4) + n;
            level[i] = F == FMT_q4_polar_r ? run_level<F>(b, n) : 0.0f;
        }
        tile_put(row + 2 + 16 * k + 4 * q, run_rest - 1 - word[k]);
        if (F == FMT_q4_polar_r) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float4 s = b.last[2 * k + i];
                const float *y = v + 8 * k + 4 * i, *l = level + 4 * i;
                p[i] = fmaf(y[0] - l[0], s.x, p[i]);
                p[i] = fmaf(y[1] - l[1], s.y, p[i]);
                p[i] = fmaf(y[2] - l[2], s.z, p[i]);
                p[i] = fmaf(y[3] - l[3], s.w, p[i]);
            }
        }
    }
    const bool bit = F == FMT_q4_polar_r && tile_sum(p) > 0.0f;         /* NaN: not */
    tile_put(row + 66 + 4 * q, q == 0 && bit);
    if (q == 0)
        enc_put(row, enc_half(norm));
}

/* The tile's codes; `out`: units one behind the other. */
template <int F>
static __device__ __forceinline__ void run_encode(const run_books &b, const float *v, float norm, uint8_t *out)
{
    uint8_t *row = out + threadIdx.x % 32 / 4 * tile_format<F>::unit_bytes;
    if constexpr (F == FMT_turbo3)
        run_turbo3(b, v, norm, row);
    else if constexpr (F == FMT_turbo4_66)
        run_turbo66(b, v, norm, row);
    else
        run_polar<F>(b, v, norm, row);
}

#endif
