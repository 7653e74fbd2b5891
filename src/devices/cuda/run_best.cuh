/* run_best.cuh: the encoder `best` (formats/search.c) for tiles of formats of 128 values, 32 values to a lane, apart
 * (encode_run.cuh): codes and the scale that is stored, at the scale that run_try.cuh takes.  Upstream's codes are no
 * candidate of their own: a scale of 1 is among those tried, to 2 %, and whatever the codes, the scale is the unbiased
 * one.
 *
 * The rotation is four steps by tensor cores, in tf32 (what of a value is cut off moves codes at a boundary only), with
 * the values as they were read, and three steps in registers: nothing else passes between lanes.
 *
 * A code is found by one table entry of 4 bytes, the nearest level to the value's bin and, in its lowest bits, the
 * code's complement.  The bins end where boundaries lie next to the edges between them: what values beside a boundary
 * lose is .12 % of the squared error or less. */
#ifndef KVANT_CUDA_RUN_BEST_CUH
#define KVANT_CUDA_RUN_BEST_CUH

#include "devices/cuda/run_try.cuh"

enum { NEAR_CODE = 15 };

/* ---- tables ---- */

/* Values of mean square 1 from -reach to reach have the bins. */
template <int F> struct best_near {
    static constexpr int bins = F == FMT_turbo3 ? 126 : 254;
    static constexpr float reach = F == FMT_turbo3 ? 1.91314f : F == FMT_turbo4_66 ? 2.53068f : 2.57571f;
    static constexpr float half = -0.5f / reach;
};

/* What signs of values do to the words of codes of a unit's lanes. */
struct __align__(16) best_flips {
    uint32_t w[4][4];
};

/* signs: what a lane's values are multiplied by, apart: the first signs, times what tf32 cuts off on the mean;
 * q4_polar_r: the residual's. */
template <int F> struct __align__(16) best_consts {
    float signs[4][32];
    best_flips flips;
    uint32_t near[best_near<F>::bins];
};

/* Code n of a lane's 32 in words: 4 bits each; turbo3: 2 bits each, and the third bits in word 2. */
template <int F> static constexpr void best_flip(uint32_t *word, int n)
{
    if (F == FMT_turbo3) {
        word[n / 16] |= 3u << 2 * (n % 16);
        word[2] |= 1u << n;
    } else {
        word[n / 8] |= 15u << 4 * (n % 8);
    }
}

template <int F> static constexpr best_consts<F> best_consts_of()
{
    constexpr float first[128] = { ROTATE_SIGNS1 }, second[128] = { ROTATE_SIGNS2 }, residual[128] = { POLAR_SIGNS };
    constexpr bool polar = best_format<F>::polar;
    best_consts<F> t = {};
    for (int q = 0; q < 4; q++)
        for (int n = 0; n < 32; n++) {
            const int at = n / 8 * 32 + 8 * q + n % 8;
            t.signs[q][n] = polar ? residual[at] : first[at] * 1.00034f;
            if ((polar ? residual : second)[at] < 0.0f)
                best_flip<F>(t.flips.w[q], n);
        }
    int code = tile_format<F>::levels - 1;
    for (int i = 0; i < best_near<F>::bins; i++) {      /* from the top */
        const float y = best_near<F>::reach * (1.0f - 2.0f * (float)i / (float)(best_near<F>::bins - 1));
        while (code > 0 && y < best_boundary<F>(code - 1))
            code--;
        t.near[i] = (__builtin_bit_cast(uint32_t, tile_centroid<F>(code)) & ~(uint32_t)NEAR_CODE) |
                    (uint32_t)(tile_format<F>::levels - 1 - code);
    }
    return t;
}

template <int F> static __device__ const best_consts<F> best_consts_table = best_consts_of<F>();

/* The block's copies: of a level one for each lane. */
template <int F> struct best_room {
    best_tries<F> tries;
    uint8_t near[best_near<F>::bins * (int)BEST_LINE];
    float signs[4][RUN_SIGNS / 4];
    best_flips flips;
};

/* near: what a lane adds to the bits of a bin, times a line, for the address of its level. */
typedef struct best_books {
    best_where tries;
    uint32_t near;
    const float4 *signs;
    const uint4 *flip;
} best_books;

/* The copy's reads are under way from load on. */
template <int F, int THREADS> struct best_copy {
    static constexpr int all = best_near<F>::bins * 8, each = (all + THREADS - 1) / THREADS;
    best_tries_copy<F, THREADS> tries;
    uint32_t w[each];
    float4 rest;

    __device__ __forceinline__ void load(void)
    {
        tries.load();
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < all)
                w[k] = best_consts_table<F>.near[(THREADS * k + threadIdx.x) / 8];
        rest = ((const float4 *)&best_consts_table<F>)[threadIdx.x % 36];
    }

    __device__ __forceinline__ best_books store(best_room<F> *room)
    {
        const int t = threadIdx.x, lane = t % 32, q = t % 4;
        const best_where where = tries.store(&room->tries);
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + t < all)
                ((uint4 *)room->near)[THREADS * k + t] = make_uint4(w[k], w[k], w[k], w[k]);
        if (t < 32)
            *(float4 *)&room->signs[t / 8][t % 8 * 4] = rest;
        else if (t < 36)
            ((float4 *)&room->flips)[t - 32] = rest;
        return { where, shared_at(room->near) + 4 * lane, (const float4 *)room->signs[q],
                 (const uint4 *)room->flips.w[q] };
    }
};

/* ---- the rotation ---- */

/* C += A B: A, four values of each of a warp's lanes, has a row for two values of a unit, one of each parity. */
static __device__ __forceinline__ void best_product(float *c, const float *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(b0), "r"(b1));
}

/* The steps between lanes and those of 2 and 4, of 8 values: b0 and b1 are 1 or -1.  Then that of 1. */
static __device__ __forceinline__ void best_eight(float *v, uint32_t b0, uint32_t b1)
{
    constexpr uint32_t minus = 0x80000000u;
    float c[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        best_product(c[h], v, b0, b1);
        best_product(c[h], v + 4, h ? b0 ^ minus : b0, h ? b1 ^ minus : b1);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float even = c[i / 2][i % 2], odd = c[i / 2][2 + i % 2];
        v[2 * i] = even + odd;
        v[2 * i + 1] = even - odd;
    }
}

/* Unnormalised Hadamard over the 128 values of four lanes. */
static __device__ __forceinline__ void best_rotate(float *v)
{
    constexpr uint32_t one = 0x3f800000u;
    const uint32_t row = threadIdx.x % 4, column = threadIdx.x % 32 / 4;
    const uint32_t odd = __popc(row & column >> 1) & 1u;
    const uint32_t b0 = one | odd << 31, b1 = one | (odd ^ (column & 1u)) << 31;
#pragma unroll
    for (int k = 0; k < 32; k += 8)
        best_eight(v + k, b0, b1);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float w[4] = { v[i], v[8 + i], v[16 + i], v[24 + i] };
        lane_steps<4>(w);
        v[i] = w[0], v[8 + i] = w[1], v[16 + i] = w[2], v[24 + i] = w[3];
    }
}

static __device__ __forceinline__ void best_signs(const best_books &b, float *v)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float4 s = b.signs[k];
        v[4 * k] *= s.x, v[4 * k + 1] *= s.y, v[4 * k + 2] *= s.z, v[4 * k + 3] *= s.w;
    }
}

/* ---- codes ---- */

/* A unit: norm and its inverse, as enc_unit_root has them. */
typedef struct best_unit {
    float norm, by;
} best_unit;

/* What is found: the complements of codes, the scale as it is stored, whether the residual is added. */
typedef struct best_found {
    uint32_t word[4];
    uint16_t scale;
    bool up;
} best_found;

/* Entries of the 8 values from y on; all beyond the bins is at their ends, NaN at the top.  2^21's last bit is a
 * quarter. */
template <int F>
static __device__ __forceinline__ void best_nearest(const best_books &b, const float *y, float by, float add,
                                                    uint32_t *e)
{
    uint32_t at[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float part = __saturatef(fmaf(y[i], by, add));
        at[i] = __float_as_uint(fmaf(part, (float)(best_near<F>::bins - 1) / 4.0f, 0x1p21f)) * BEST_LINE + b.near;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(e[i]) : "r"(at[i]));
}

/* One more code, n, after those before it; turbo3's third bits, the levels' signs, in reverse. */
template <int F> static __device__ __forceinline__ void best_word(uint32_t *word, int n, uint32_t e)
{
    if (F == FMT_turbo3) {
        word[n / 16] = __funnelshift_r(word[n / 16], e, 2);
        word[2] = __funnelshift_l(e, word[2], 1);
    } else {
        word[n / 8] = __funnelshift_r(word[n / 8], e, 4);
    }
}

/* Codes nearest to y inv, and the sum of y times what they decode to at scale 1. */
template <int F>
static __device__ __forceinline__ float best_assign(const best_books &b, const float *y, float inv, float residual,
                                                    best_found *o)
{
    constexpr float half = best_near<F>::half;
    float yv[2] = { 0.0f, 0.0f }, sum[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        uint32_t e[8];
        best_nearest<F>(b, y + k, inv * half, best_format<F>::two ? fmaf(residual, -half, 0.5f) : 0.5f, e);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            best_word<F>(o->word, k + i, e[i]);
            yv[i % 2] = fmaf(y[k + i], __uint_as_float(e[i]), yv[i % 2]);
            sum[i % 2] += best_format<F>::two ? y[k + i] : 0.0f;
        }
    }
    return enc_sum<4>(fmaf(residual, sum[0] + sum[1], yv[0] + yv[1]));
}

/* The rotation y is sqrt(128) times what it should be; for polar formats less what tf32 cuts off. */
template <int F>
static __device__ __forceinline__ best_found best_find(const best_books &b, const float *y, const best_unit &u)
{
    constexpr float yy = best_format<F>::unit == 1.0f ? 128.0f * 0.99966f : best_format<F>::unit;
    const bool any = u.by > 0.0f && u.norm > 1e-8f && u.norm <= 1e30f;  /* else the least scale of a half is too much */
    const float found = best_search<F>(b.tries, y, u.by);
    const uint16_t near = enc_storable(fabsf(found) * u.norm), upstream = enc_half(u.norm);
    const float inv = any ? u.by * __fdividef(u.norm, enc_value(near)) : u.by;
    best_found o = { { 0, 0, 0, 0 }, (uint16_t)(upstream == 0x7c00 ? 0x7bff : upstream), found > 0.0f };
    const float residual = found < 0.0f ? -best_format<F>::residual : best_format<F>::residual;
    const float fit = best_assign<F>(b, y, inv, residual, &o);
    if (any)
        o.scale = enc_unbiased_scale(u.norm * __fdividef(yy * u.norm, fit), near);
    return o;
}

/* ---- packing ---- */

/* The residual's bit of a row of nearly nothing. */
static constexpr bool best_zero_of(void)
{
    constexpr float signs[128] = { POLAR_SIGNS };
    float sum = 0.0f;
    for (float s : signs)
        sum += s;
    return sum < 0.0f;
}

struct best_zero {
    static constexpr bool bit = best_zero_of();
};

/* Signs of codes; zeros, NaN and Inf, by 0 or NaN, have none. */
static __device__ __forceinline__ void best_turn(uint32_t *word, const uint4 &flip, float by)
{
    const uint32_t mask = by > 0.0f ? 0xffffffffu : 0;
    word[0] ^= flip.x & mask, word[1] ^= flip.y & mask, word[2] ^= flip.z & mask, word[3] ^= flip.w & mask;
}

static __device__ __forceinline__ void best_put3(const best_found &o, uint8_t *row)
{
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        enc_put(row + 14 * k + 2 + 2 * q, (uint16_t)(~o.word[k / 2] >> 16 * (k % 2)));
        row[14 * k + 10 + q] = (uint8_t)(~o.word[2] >> 8 * k);
    }
    enc_put(row + 14 * q, o.scale);
}

template <int F> static __device__ __forceinline__ void best_put4(const best_found &o, const best_unit &u, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    const bool bit = u.by > 0.0f ? o.up : best_zero::bit && u.norm < INFINITY;
#pragma unroll
    for (int k = 0; k < 4; k++)
        tile_put(row + 2 + 16 * k + 4 * q, ~o.word[k]);
    if (best_format<F>::polar)
        tile_put(row + 66 + 4 * q, best_format<F>::two && q == 0 && bit);
    if (q == 0)
        enc_put(row, o.scale);
}

/* A lane's values; `out`: units one behind the other. */
template <int F> static __device__ __forceinline__ void best_encode(const best_books &b, float *v, uint8_t *out)
{
    uint8_t *row = out + threadIdx.x % 32 / 4 * tile_format<F>::unit_bytes;
    float p[2] = { 0.0f, 0.0f };
    best_unit u;
#pragma unroll
    for (int k = 0; k < 32; k++)
        p[k % 2] = fmaf(v[k], v[k], p[k % 2]);
    u.norm = enc_unit_root(tile_sum(p), &u.by);
    if (!best_format<F>::polar)
        best_signs(b, v);
    best_rotate(v);
    if (best_format<F>::two)            /* then they are all alike */
        best_signs(b, v);
    best_found o = best_find<F>(b, v, u);
    if (F == FMT_turbo3)
        o.word[2] = __brev(o.word[2]);
    if (F != FMT_q4_polar)
        best_turn(o.word, *b.flip, u.by);
    if constexpr (F == FMT_turbo3)
        best_put3(o, row);
    else
        best_put4<F>(o, u, row);
}

#endif
