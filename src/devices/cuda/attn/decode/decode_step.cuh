/* decode_step.cuh: one step of attn_decode.cu's warps: scores of its tokens, softmax, weighted sums.
 * A step is 64 tokens of one KV head (32 at head_dim 256); the functions here take a block of PACK_BLOCK tokens. */
#ifndef KVANT_CUDA_DECODE_STEP_CUH
#define KVANT_CUDA_DECODE_STEP_CUH

#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/attn/decode/decode_codes.cuh"
#include "devices/cuda/attn/softmax_state.cuh"

/* A step is STEP tokens, copied and given back in blocks of PACK_BLOCK. */
template <int D, int MAKE = ARCH_90> struct shape {
    static constexpr int STEP = D == 256 || MAKE == ARCH_80 ? 32 : 64, TILES = STEP / 16, PER_PAGE = KVANT_PAGE / STEP;
    static constexpr int BLOCKS = STEP / PACK_BLOCK;
};

/* A lane of a unit carries this: m and l of its two heads, and the sums, values x heads. */
template <int D> struct state : softmax_state<D / 16> {};

/* ---- scores: s[tile of 16 tokens][4], in log2 units ---- */

template <int N> static __device__ __forceinline__ void load_scales(uint32_t *to, const uint8_t *from)
{
    if (N == 1)
        to[0] = *(const uint32_t *)from;
    else if (N == 2) {
        const uint2 v = *(const uint2 *)from;
        to[0] = v.x;
        to[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const uint4 v = ((const uint4 *)from)[i / 4];
            to[i] = v.x;
            to[i + 1] = v.y;
            to[i + 2] = v.z;
            to[i + 3] = v.w;
        }
    }
}

static __device__ __forceinline__ void add_scaled(float *s, const float *acc, uint32_t scale)
{
    s[0] = fmaf(acc[0], low_half(scale), s[0]);
    s[1] = fmaf(acc[1], low_half(scale), s[1]);
    s[2] = fmaf(acc[2], high_half(scale), s[2]);
    s[3] = fmaf(acc[3], high_half(scale), s[3]);
}

/* As add_scaled, with residuals: r is minus their sum of each head, times the queries. */
static __device__ __forceinline__ void add_signed(float *s, const float *acc, uint32_t scale, const uint32_t *r)
{
    const float a = low_half(scale), b = high_half(scale), x = __uint_as_float(r[0]), y = __uint_as_float(r[1]);
    s[0] = fmaf(acc[0], fabsf(a), fmaf(x, a, s[0]));
    s[1] = fmaf(acc[1], fabsf(a), fmaf(y, a, s[1]));
    s[2] = fmaf(acc[2], fabsf(b), fmaf(x, b, s[2]));
    s[3] = fmaf(acc[3], fabsf(b), fmaf(y, b, s[3]));
}

/* SIGNED: what add_signed takes lies behind the queries. */
template <int D, int MAKE, int BOOK, int REC, bool SIGNED = false>
static __device__ __forceinline__ void scores_lut(float (*s)[4], const uint8_t *block, const uint32_t *q,
                                                  uint32_t table, uint32_t mirror_at, int lane)
{
    const uint4 mirror = load_mirror(mirror_at);
    constexpr int NREC = D / REC, CODES = 32 * (BOOK == BOOK3_MIRROR ? D / 8 * 3 : D / 2), QUADS = D / 64;
    uint32_t scale[2][NREC];
    float acc[2][4];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        load_scales<NREC>(scale[m], block + CODES + (m * 8 + lane / 4) * NREC * 4);
        s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        uint32_t w[2][4];
        lut_words<BOOK>(w[0], block, i, lane);
        lut_words<BOOK>(w[1], block, QUADS + i, lane);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int kt = 4 * i + k;
#pragma unroll
            for (int m = 0; m < 2; m++) { /* two chains of sums that do not wait for each other */
                uint32_t a[4];
                if (kt % (REC / 16) == 0)
                    acc[m][0] = acc[m][1] = acc[m][2] = acc[m][3] = 0.0f;
                lut_word<BOOK, MAKE>(a, w[m], k, table, mirror);
                mma16816(acc[m], a, q[2 * kt], q[2 * kt + 1]);
                if ((kt + 1) % (REC / 16) != 0)
                    continue;
                if (SIGNED)
                    add_signed(s[m], acc[m], scale[m][kt / (REC / 16)], q + D / 8 + kt / (REC / 16) * 2);
                else
                    add_scaled(s[m], acc[m], scale[m][kt / (REC / 16)]);
            }
        }
    }
}

template <int D, bool FLOAT8>
static __device__ __forceinline__ void scores_byte(float (*s)[4], const uint8_t *block, const uint32_t *q, int lane)
{
    constexpr int NREC = FLOAT8 ? 0 : D / 32, CODES = 32 * D;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint32_t scale[D / 32];
        if (!FLOAT8)
            load_scales<D / 32>(scale, block + CODES + (m * 8 + lane / 4) * NREC * 4);
        s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            uint32_t a[2][4];
            float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            byte_operands<FLOAT8>(a, ((const uint4 *)block)[(m * (D / 32) + c) * 32 + lane]);
            float *to = FLOAT8 ? s[m] : acc;
            mma16816(to, a[0], q[4 * c], q[4 * c + 1]);
            mma16816(to, a[1], q[4 * c + 2], q[4 * c + 3]);
            if (!FLOAT8)
                add_scaled(s[m], acc, scale[c]);
        }
    }
}

/* Lane t of a row has its states 32t .. 32t + 31: three words of the stream and the next lane's first. */
template <int D, bool TWO, int MAKE>
static __device__ __forceinline__ void scores_trellis(float (*s)[4], const uint8_t *block, const uint32_t *q,
                                                      uint32_t table, int lane)
{
    constexpr int NG = D / 128, CODES = 1600 * NG;
    const int g = lane / 4, t = lane % 4;
    const uint32_t *own = (const uint32_t *)block + g + 8 * t;
    const uint8_t *next = t == 3 ? block + 384 + g * 2 : (const uint8_t *)(own + 72);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint32_t scale[NG];
        load_scales<NG>(scale, block + CODES + (m * 8 + g) * NG * 4);
        s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < NG; c++) {
            uint32_t w[2][4];
            float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
            for (int hi = 0; hi < 2; hi++) {
                const int row = (m * 2 + hi) * NG + c;
                w[hi][0] = own[row * 100 + 64];
                w[hi][1] = own[row * 100];
                w[hi][2] = own[row * 100 + 32];
                w[hi][3] = *(const uint16_t *)(next + row * 400);
            }
#pragma unroll
            for (int kt = 0; kt < 8; kt++) {
                uint32_t a[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int state = 4 * kt + i / 2 * 2;
                    a[i] = trellis_pair(trellis_value<TWO, MAKE>(w[i % 2], state, table),
                                        trellis_value<TWO, MAKE>(w[i % 2], state + 1, table));
                }
                mma16816(acc, a, q[2 * (8 * c + kt)], q[2 * (8 * c + kt) + 1]);
            }
            add_scaled(s[m], acc, scale[c]);
        }
    }
}

/* Signs of a 256-wide sketch, 64 of a row in a lane, against the bits of the queries' values: counts of common bits,
 * a column for each bit and head.  q: the bits' words (EVEN: of up to 4 heads; the odd bits are columns 4 .. 7), twice
 * the heads' units and minus their sums. */
template <bool EVEN>
static __device__ __forceinline__ void scores_sign(float (*s)[4], const uint8_t *block, const uint32_t *q, int lane)
{
    constexpr int CODES = 1024, COUNTS = EVEN ? SKETCH_BITS / 2 : SKETCH_BITS, NEXT = EVEN ? 4 : 2;
    const float *unit = (const float *)(q + 2 * SKETCH_BITS);
    const int top = EVEN && lane % 4 < 2 ? NEXT : -NEXT; /* the last bit counts negative */
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint4 v = ((const uint4 *)block)[m * 32 + lane];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w }, scale = ((const uint32_t *)(block + CODES))[m * 8 + lane / 4];
        int sum[4];
#pragma unroll
        for (int b = COUNTS - 1; b >= 0; b--) {
            int count[4] = { 0, 0, 0, 0 };
            mma168256(count, a, q[2 * b], q[2 * b + 1]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i] = b == COUNTS - 1 ? count[i] : sum[i] * (b == COUNTS - 2 ? top : NEXT) + count[i];
        }
        const float norm[2] = { __uint_as_float(scale << 16), __uint_as_float(scale & 0xffff0000u) };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int all = EVEN ? sum[i] + 2 * __shfl_xor_sync(0xffffffffu, sum[i], 2) : sum[i];
            s[m][i] = fmaf((float)all, unit[i & 1], unit[2 + (i & 1)]) * norm[i / 2];
        }
    }
}

/* Rows of halves, or (two parts) of bf16. */
template <int PARTS>
static __device__ __forceinline__ void mma_rows(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    if (PARTS == 2)
        mma_bf16(c, a, b0, b1);
    else
        mma16816(c, a, b0, b1);
}

/* 32 values of 16 rows: lane l has eight of rows l/4 (x) and l/4 + 8 (y); q: four words of each part of the queries. */
template <int PARTS>
static __device__ __forceinline__ void scores_quad(float *s, const uint4 &x, const uint4 &y, const uint32_t *q)
{
    const uint32_t a[4] = { x.x, y.x, x.y, y.y }, b[4] = { x.z, y.z, x.w, y.w };
#pragma unroll
    for (int i = 0; i < 4 * PARTS; i += 4) {
        mma_rows<PARTS>(s, a, q[i], q[i + 1]);
        mma_rows<PARTS>(s, b, q[i + 2], q[i + 3]);
    }
}

/* TILES tiles of rows of 16-bit values, D apart, in shared or global memory. */
template <int D, int TILES, int PARTS>
static __device__ __forceinline__ void scores_rows(float (*s)[4], const uint8_t *rows, const uint32_t *q, int lane)
{
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        const uint8_t *low = rows + (16 * m + lane / 4) * 2 * D + lane % 4 * 16;
        s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < D / 32; c++)
            scores_quad<PARTS>(s[m], *(const uint4 *)(low + 64 * c), *(const uint4 *)(low + 16 * D + 64 * c),
                               q + 4 * PARTS * c);
    }
}

/* ---- sums: o[value tile][4] += V^T p ---- */

/* SIGNED: of a record (scales of two k-tiles, v; probabilities w) their sum for each head, t += sign w. */
static __device__ __forceinline__ void residual_sums(float *t, const uint4 &v, const uint32_t (*w)[2])
{
    const uint32_t scale[4] = { v.x, v.y, v.z, v.w };
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = (scale[i] & 0x80008000u) ^ 0xbc00bc00u; /* +-1, in every row of the product */
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t a[4] = { x[2 * k], x[2 * k], x[2 * k + 1], x[2 * k + 1] };
        mma16816(t, a, w[k][0], w[k][1]);
    }
}

/* Those sums, of each record, to the values. */
template <int D> static __device__ __forceinline__ void residual_add(float (*o)[4], const float (*t)[4], int lane)
{
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        const float x = RESIDUAL * t[c / 4][0], y = RESIDUAL * t[c / 4][1];
        const uint32_t signs = residual_signs(c % 4) >> lane / 4 * 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o[2 * c + i / 2][i % 2 * 2] += residual_turn(x, signs, i);
            o[2 * c + i / 2][i % 2 * 2 + 1] += residual_turn(y, signs, i);
        }
    }
}

template <int D, int MAKE, int BOOK, int REC, bool SIGNED = false>
static __device__ __forceinline__ void sums_lut(float (*o)[4], const uint8_t *block, const uint32_t (*p)[2],
                                                uint32_t table, uint32_t mirror_at, int lane, float (*t)[4] = NULL)
{
    constexpr uint32_t SIZE = SIGNED ? 0x7fff7fffu : 0xffffffffu;
    const uint4 mirror = load_mirror(mirror_at);
    constexpr int NREC = D / REC, CODES = 32 * (BOOK == BOOK3_MIRROR ? D / 8 * 3 : D / 2);
    uint32_t w[2][2];
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        uint32_t code[4], a[4];
        if (c % (D / 32 / NREC) == 0) {
            const uint4 v = *(const uint4 *)(block + CODES + (c / (REC / 32) * 4 + lane % 4) * 16);
            w[0][0] = times2(p[0][0], v.x & SIZE);
            w[0][1] = times2(p[0][1], v.y & SIZE);
            w[1][0] = times2(p[1][0], v.z & SIZE);
            w[1][1] = times2(p[1][1], v.w & SIZE);
            if (SIGNED)
                residual_sums(t[c / (REC / 32)], v, w);
        }
        lut_words<BOOK>(code, block, c, lane);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            lut_word<BOOK, MAKE>(a, code, i, table, mirror);
            mma16816(o[2 * c + i / 2], a, w[i % 2][0], w[i % 2][1]);
        }
    }
}

template <int D, bool FLOAT8>
static __device__ __forceinline__ void sums_byte(float (*o)[4], const uint8_t *block, const uint32_t (*p)[2], int lane)
{
    constexpr int CODES = 32 * D;
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t a[2][4], w[2] = { p[k][0], p[k][1] };
            if (!FLOAT8) {
                const uint2 v = *(const uint2 *)(block + CODES + (c * 4 + lane % 4) * 16 + k * 8);
                w[0] = times2(w[0], v.x);
                w[1] = times2(w[1], v.y);
            }
            byte_operands<FLOAT8>(a, ((const uint4 *)block)[(2 * c + k) * 32 + lane]);
            mma16816(o[2 * c], a[0], w[0], w[1]);
            mma16816(o[2 * c + 1], a[1], w[0], w[1]);
        }
    }
}

/* Lane g of a token has its states 16g .. 16g + 15, for two tokens at a time. */
template <int D, bool TWO, int MAKE>
static __device__ __forceinline__ void sums_trellis(float (*o)[4], const uint8_t *block, const uint32_t (*p)[2],
                                                    uint32_t table, int lane)
{
    constexpr int NG = D / 128, CODES = 1600 * NG;
    const int t = lane % 4;
#pragma unroll
    for (int c = 0; c < NG; c++) {
        const uint4 *from = (const uint4 *)block + c * 100 + lane;
        const uint4 y4 = from[0], z4 = from[32], f4 = from[64], n4 = from[68];
        const uint32_t ys[4] = { y4.x, y4.y, y4.z, y4.w }, zs[4] = { z4.x, z4.y, z4.z, z4.w };
        const uint32_t fs[4] = { f4.x, f4.y, f4.z, f4.w }, ns[4] = { n4.x, n4.y, n4.z, n4.w };
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint2 v = *(const uint2 *)(block + CODES + (c * 4 + t) * 16 + k * 8);
            const uint32_t w[2] = { times2(p[k][0], v.x), times2(p[k][1], v.y) };
            uint32_t x[4][2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t y = ys[2 * k + i], z = zs[2 * k + i], first = fs[2 * k + i], next = ns[2 * k + i];
                x[2 * i][0] = permute(first, y, 0x5410);
                x[2 * i][1] = permute(y, next, 0x5432);
                x[2 * i + 1][0] = permute(first, z, 0x5432);
                x[2 * i + 1][1] = permute(z, next, 0x7632);
            }
#pragma unroll
            for (int mt = 0; mt < 8; mt++) {
                uint32_t a[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[i] = trellis_pair(trellis_value<TWO, MAKE>(x[i / 2 * 2], 2 * mt + i % 2, table),
                                        trellis_value<TWO, MAKE>(x[i / 2 * 2 + 1], 2 * mt + i % 2, table));
                mma16816(o[8 * c + mt], a, w[0], w[1]);
            }
        }
    }
}

/* 32 values of 16 rows: lane l has four of rows t, t + 1 (x) and t + 8, t + 9 (y), t = l % 4 * 2; p: of each part. */
template <int PARTS>
static __device__ __forceinline__ void sums_quad(float (*o)[4], const uint2 *x, const uint2 *y, const uint32_t (*p)[2])
{
    const uint32_t a[4] = { permute(x[0].x, x[1].x, 0x5410), permute(x[0].x, x[1].x, 0x7632),
                            permute(y[0].x, y[1].x, 0x5410), permute(y[0].x, y[1].x, 0x7632) };
    const uint32_t b[4] = { permute(x[0].y, x[1].y, 0x5410), permute(x[0].y, x[1].y, 0x7632),
                            permute(y[0].y, y[1].y, 0x5410), permute(y[0].y, y[1].y, 0x7632) };
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        mma_rows<PARTS>(o[0], a, p[i][0], p[i][1]);
        mma_rows<PARTS>(o[1], b, p[i][0], p[i][1]);
    }
}

/* Rows from `live` on may hold anything, NaN too: they count as zeros. */
template <int D, int TILES, int PARTS>
static __device__ __forceinline__ void sums_rows(float (*o)[4], const uint8_t *rows, const uint32_t (*p)[2], int live,
                                                 int lane)
{
    const uint2 none = make_uint2(0, 0);
#pragma unroll
    for (int k = 0; k < TILES; k++) {
        const int t = 16 * k + 2 * (lane % 4);
        const uint8_t *at = rows + t * 2 * D + lane / 4 * 8;
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            const uint2 x[2] = { t < live ? *(const uint2 *)(at + 64 * c) : none,
                                 t + 1 < live ? *(const uint2 *)(at + 2 * D + 64 * c) : none };
            const uint2 y[2] = { t + 8 < live ? *(const uint2 *)(at + 16 * D + 64 * c) : none,
                                 t + 9 < live ? *(const uint2 *)(at + 18 * D + 64 * c) : none };
            sums_quad<PARTS>(o + 2 * c, x, y, p + PARTS * k);
        }
    }
}

/* ---- softmax of a step ---- */

/* Largest value that a V scale may have with the lazy maximum's 2^8; beyond it the maximum is kept exact. */
template <int D> static __device__ __forceinline__ void raise_max(state<D> &a, float top0, float top1, float slack)
{
#pragma unroll
    for (int m = 4; m <= 16; m *= 2) {
        top0 = fmaxf(top0, __shfl_xor_sync(0xffffffffu, top0, m));
        top1 = fmaxf(top1, __shfl_xor_sync(0xffffffffu, top1, m));
    }
    top0 = top0 > a.m[0] + slack ? top0 : a.m[0]; /* one head never depends on another */
    top1 = top1 > a.m[1] + slack ? top1 : a.m[1];
    const float by0 = exp2_fast(a.m[0] - top0), by1 = exp2_fast(a.m[1] - top1);
    a.m[0] = top0;
    a.m[1] = top1;
    a.l[0] *= by0;
    a.l[1] *= by1;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        a.o[i][0] *= by0;
        a.o[i][1] *= by1;
        a.o[i][2] *= by0;
        a.o[i][3] *= by1;
    }
}

/* Caps a step's scores where the call has a cap; hides its keys behind key `last` and before that one's window. */
template <int TILES>
static __device__ __forceinline__ void mask_step(const attn_call &c, float (*s)[4], int last, int lane)
{
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int back = last - (16 * m + 8 * (i / 2) + lane / 4);
            s[m][i] = c.cap > 0.0f ? score_capped(c, s[m][i]) : s[m][i];
            if (back < 0 || back >= c.window)
                s[m][i] = -INFINITY;
        }
}

/* A lane's largest scores of its two heads. */
template <int TILES> static __device__ __forceinline__ float2 top_of(const float (*s)[4])
{
    float2 top = make_float2(s[0][0], s[0][1]);
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        top.x = fmaxf(top.x, fmaxf(s[m][0], s[m][2]));
        top.y = fmaxf(top.y, fmaxf(s[m][1], s[m][3]));
    }
    return top;
}

static __device__ __forceinline__ void probability_parts(uint32_t (*p)[2], const float *e)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        p[0][i] = transpose8(pack_tops(e[2 * i], e[2 * i + 1]));
        p[1][i] = transpose8(pack_tops(split_rest(e[2 * i]), split_rest(e[2 * i + 1])));
    }
}

/* Scores to probabilities as B operands p, PARTS of each tile; slack: how far a score may exceed the kept maximum;
 * last: the step's last key that is not hidden.  These, windows and caps are rare, so one branch asks for them all. */
template <int D, int TILES, int PARTS>
static __device__ __forceinline__ void softmax_step(const attn_call &c, state<D> &a, float (*s)[4], uint32_t (*p)[2],
                                                    float slack, int last, int lane)
{
    const bool masked = last < 16 * TILES - 1 || last >= c.window || c.cap > 0.0f;
    float2 top = top_of<TILES>(s);
    if (__any_sync(0xffffffffu, top.x > a.m[0] + slack || top.y > a.m[1] + slack || masked)) {
        if (masked) {
            mask_step<TILES>(c, s, last, lane);
            top = top_of<TILES>(s);
        }
        raise_max<D>(a, top.x, top.y, slack);
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        float e[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            e[i] = exp2_fast(s[m][i] - a.m[i & 1]);
            a.l[i & 1] += e[i];
        }
        if (PARTS == 2) {
            probability_parts(p + 2 * m, e);
            continue;
        }
        p[m][0] = transpose8(pack_halves(e[0], e[1]));
        p[m][1] = transpose8(pack_halves(e[2], e[3]));
    }
}

#endif
