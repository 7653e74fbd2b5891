/* run_best.cuh: the encoder `best` (formats/search.c) for tiles of formats of 128 values, 32 values to a lane, its own
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

/* The words of codes of a unit's lanes: zeros where signs turn a code. */
struct __align__(16) best_flips {
    uint32_t w[4][4];
};

/* minus: which of a lane's values change signs, by bits: by the first signs; q4_polar_r: the residual's. */
template <int F> struct __align__(16) best_consts {
    uint32_t minus[4];
    best_flips flips;
    uint32_t near[best_near<F>::bins];
};

/* Code n of a lane's 32 in words: 4 bits each; turbo3: 2 bits each, and the third bits in word 2. */
template <int F> static constexpr void best_flip(uint32_t *word, int n)
{
    if (F == FMT_turbo3) {
        word[n / 16] &= ~(3u << 2 * (n % 16));
        word[2] &= ~(1u << n);
    } else {
        word[n / 8] &= ~(15u << 4 * (n % 8));
    }
}

template <int F> static constexpr best_consts<F> best_consts_of()
{
    constexpr float first[128] = { ROTATE_SIGNS1 }, second[128] = { ROTATE_SIGNS2 }, residual[128] = { POLAR_SIGNS };
    constexpr bool polar = best_format<F>::polar;
    best_consts<F> t = {};
    for (int q = 0; q < 4; q++) {
        for (int k = 0; k < 4; k++)
            t.flips.w[q][k] = ~0u;
        for (int n = 0; n < 32; n++) {
            const int at = 32 * q + n;
            t.minus[q] |= (uint32_t)((polar ? residual : first)[at] < 0.0f) << n;
            if ((polar ? residual : second)[at] < 0.0f)
                best_flip<F>(t.flips.w[q], n);
        }
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
    best_flips flips;
};

/* near: what a lane adds to the bits of a bin, times a line, for the address of its level. */
typedef struct best_books {
    best_where tries;
    uint32_t near, minus;
    const uint4 *same;
} best_books;

/* By a block's last BEST_FILL threads; reads are under way from load on. */
template <int F> struct best_copy {
    best_tries_copy<F> tries;
    best_lines<best_near<F>::bins> near;
    uint4 flips;

    __device__ __forceinline__ void load(void)
    {
        tries.load();
        near.load([](int i) {
            const uint32_t w = best_consts_table<F>.near[i];
            return make_uint4(w, w, w, w);
        });
        flips = ((const uint4 *)&best_consts_table<F>.flips)[threadIdx.x % 4];
    }

    __device__ __forceinline__ void store(best_room<F> *room) const
    {
        const int t = threadIdx.x % BEST_FILL;
        tries.store(&room->tries);
        near.store(room->near);
        if (t < 4)
            ((uint4 *)&room->flips)[t] = flips;
    }
};

template <int F> static __device__ __forceinline__ best_books best_books_of(const best_room<F> *room)
{
    const int lane = threadIdx.x % 32;
    return { best_where_of<F>(&room->tries), shared_at(room->near) + 4 * lane, best_consts_table<F>.minus[lane % 4],
             (const uint4 *)room->flips.w[lane % 4] };
}

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

/* Signs of four values, by bits: the predicates by one instruction. */
static __device__ __forceinline__ void best_four_signs(uint32_t minus, float *v)
{
    asm("{.reg .pred p<4>; .reg .b32 t<4>;\n\t"
        "and.b32 t0, %4, 1; setp.ne.u32 p0, t0, 0; and.b32 t1, %4, 2; setp.ne.u32 p1, t1, 0;\n\t"
        "and.b32 t2, %4, 4; setp.ne.u32 p2, t2, 0; and.b32 t3, %4, 8; setp.ne.u32 p3, t3, 0;\n\t"
        "@p0 neg.f32 %0, %0; @p1 neg.f32 %1, %1; @p2 neg.f32 %2, %2; @p3 neg.f32 %3, %3;}"
        : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]) : "r"(minus));
}

static __device__ __forceinline__ void best_signs(const best_books &b, float *v)
{
#pragma unroll
    for (int k = 0; k < 32; k += 4)
        best_four_signs(b.minus >> k, v + k);
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

/* Of what has an ordinary one: no choice, as division has. */
static __device__ __forceinline__ float best_inverse(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The rotation y is sqrt(128) times what it should be; less what tf32 cuts off. */
template <int F>
static __device__ __forceinline__ best_found best_find(const best_books &b, const float *y, const best_unit &u)
{
    constexpr float yy = 0.99966f * (best_format<F>::unit == 1.0f ? 128.0f : best_format<F>::unit);
    const bool any = u.by > 0.0f && u.norm > 1e-8f && u.norm <= 1e30f;  /* else the least scale of a half is too much */
    const float found = best_search<F>(b.tries, y, u.by);
    const uint16_t near = enc_storable(fabsf(found) * u.norm), upstream = enc_half(u.norm);
    const float inv = u.by * (any ? u.norm * best_inverse(enc_value(near)) : 1.0f);
    best_found o = { { 0, 0, 0, 0 }, (uint16_t)(upstream == 0x7c00 ? 0x7bff : upstream), found > 0.0f };
    const float residual = found < 0.0f ? -best_format<F>::residual : best_format<F>::residual;
    const float fit = best_assign<F>(b, y, inv, residual, &o);
    const uint16_t unbiased = enc_unbiased_scale(u.norm * (yy * u.norm * best_inverse(fit)), near);
    o.scale = any ? unbiased : o.scale;
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

/* Codes of their complements, with their signs; zeros, NaN and Inf, by 0 or NaN, have none. */
template <int F> static __device__ __forceinline__ void best_turn(uint32_t *word, const uint4 *same, float by)
{
    const bool turn = F != FMT_q4_polar && by > 0.0f;
    const uint4 s = turn ? *same : make_uint4(~0u, ~0u, ~0u, ~0u);
    word[0] ^= s.x, word[1] ^= s.y, word[2] ^= s.z, word[3] ^= s.w;
}

/* Words of a lane one behind the other, `before` before them; even: two bytes of each in the next one. */
template <int N>
static __device__ __forceinline__ void best_put(uint8_t *to, uint32_t before, const uint32_t *word, bool odd)
{
    const uint32_t select = odd ? 0x7654u : 0x5432u;
#pragma unroll
    for (int n = 0; n < N; n++)
        ((uint32_t *)to)[n] = __byte_perm(n ? word[n - 1] : before, word[n], select);
}

/* A record of 14 bytes to a lane: every other one begins between words. */
static __device__ __forceinline__ void best_put3(const best_found &o, uint8_t *out)
{
    const int lane = threadIdx.x % 32, odd = lane % 2;
    best_put<3>(out + 14 * lane + 2 * odd, (uint32_t)o.scale << 16, o.word, odd);
    enc_put(out + 14 * lane + (odd ? 0 : 12), odd ? o.scale : (uint16_t)(o.word[2] >> 16));
}

/* 16 bytes of a unit to a lane; every other unit begins between words, and its scale is in one with the end of the unit
 * before. */
template <int F> static __device__ __forceinline__ void best_put4(const best_found &o, const best_unit &u, uint8_t *out)
{
    const int lane = threadIdx.x % 32, q = lane % 4;
    const bool odd = lane & 4, bit = u.by > 0.0f ? o.up : best_zero::bit && u.norm < INFINITY;
    uint8_t *row = out + lane / 4 * tile_format<F>::unit_bytes + (odd ? 2 : 0);
    const uint32_t before = __shfl_up_sync(0xffffffffu, o.word[3], 1), last = best_format<F>::polar ? 0 : before;
    best_put<4>(row + 16 * q, q ? before : (uint32_t)o.scale << 16, o.word, odd);
    if (odd && q == 0)
        *(uint32_t *)(row - 4) = __byte_perm(last, o.scale, 0x5432);
    if (best_format<F>::polar) {
        const uint32_t up = best_format<F>::two && bit, end = odd ? up : o.word[3] >> 16 | up << 16;
        *(uint32_t *)(row + 64 + (4 * q + 4) % 16) = q == 3 ? end : 0;
    }
}

/* A lane's values; `out`: units one behind the other.  No branches: steps of one part run beside those of the next. */
template <int F> static __device__ __forceinline__ void best_encode(const best_books &b, float *v, uint8_t *out)
{
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
    best_turn<F>(o.word, b.same, u.by);
    if constexpr (F == FMT_turbo3)
        best_put3(o, out);
    else
        best_put4<F>(o, u, out);
}

#endif
