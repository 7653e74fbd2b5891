/* attn_prefill.cu: attention of many tokens on Hopper: a page is decoded once to halves in shared memory for all the
 * query rows of a block, which multiplies with tensor cores.
 *
 * A block has 128 query rows: the heads of one KV head for the tokens of a tile, all in one page.  Four warps decode
 * pages into a ring of two stages, K as [key][value] and V as [value][key]; eight warps own 16 rows each.  First the
 * encoded pages with the rotated query; then the sums are un-rotated by one more product with the rotation's matrix
 * of signs; then the exact pages with the query as it is, into the same sums.  No row depends on another. */
#include "devices/cuda/attn_prefill.cuh"
#include "devices/cuda/attn_decode.cuh"
#include "devices/cuda/hopper.cuh"
#include "devices/cuda/prep.cuh"
#include "devices/cuda/tiles.cuh"

enum { ROWS = 128, KEYS = 64, STAGES = 2, RAW = 2, MAKERS = 128, USERS = 256, PAD = 8, V_LD = KEYS + PAD };
#define NOTHING (-1e30f)

static __host__ __device__ inline size_t stage_bytes(int width, int d)
{
    return ((size_t)KEYS * (width + PAD) + (size_t)d * V_LD) * 2;
}

static __host__ __device__ inline size_t shared_bytes(int width, int d)
{
    return 4096 + (size_t)ROWS * (width + PAD) * 2 + STAGES * stage_bytes(width, d);
}

/* Bytes of one head page of both sides, copied ahead of the makers. */
static __host__ __device__ inline size_t raw_bytes(const prefill_job &p)
{
    return p.k.s.head_bytes + p.v.s.head_bytes;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Where value e of V lies among the rows of its tile: the eight values e, e + 4, .. of 32 are one operand. */
static __device__ __forceinline__ int value_row(int e)
{
    return (e & ~31) + 8 * (e & 3) + ((e & 31) >> 2);
}

static __device__ __forceinline__ int value_of(int row)
{
    return (row & ~31) + 4 * (row & 7) + ((row & 31) >> 3);
}

/* ---- makers: a page to halves; m = 0 .. MAKERS-1 ---- */

typedef struct books {
    uint32_t pair[2][256]; /* K's and V's pairs of codes */
    uint16_t trellis[512];
    uint4 mirror[2];
} books;

static __device__ __forceinline__ uint32_t scaled(uint32_t pair, uint32_t scale)
{
    return times2(pair, scale);
}

static __device__ __forceinline__ uint32_t both(uint32_t x, int high)
{
    return permute(x, x, high ? 0x3232 : 0x1010);
}

/* The operands of a quad's four words. */
static __device__ __forceinline__ void quad_halves(uint32_t (*a)[4], const pack_shape &s, const uint8_t *block,
                                                   int quad, int lane, const uint32_t *book, const uint4 &mirror)
{
    uint32_t w[4];
    if (s.cls == PACK_LUT3) {
        const uint32_t *from = (const uint32_t *)block + quad * 96 + lane;
        w[0] = from[0];
        w[1] = from[32];
        w[2] = from[64];
        mirror_word3(a[3], w, mirror);
    } else {
        const uint4 v = ((const uint4 *)block)[quad * 32 + lane];
        w[0] = v.x;
        w[1] = v.y;
        w[2] = v.z;
        w[3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i == 3 && s.cls == PACK_SYM4)
            mirror_word4(a[3], w, mirror);
        else if (i < 3 || s.cls == PACK_LUT4) {
#pragma unroll
            for (int b = 0; b < 4; b++)
                a[i][b] = book[w[i] >> (8 * b) & 255];
        }
    }
}

static __device__ __forceinline__ uint32_t byte_halves(int cls, uint32_t word, int pair)
{
    uint32_t v;
    if (cls == PACK_FLOAT8) {
        asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}"
            : "=r"(v)
            : "r"(pair ? word >> 16 : word));
        return v;
    }
    v = permute(word ^ 0x80808080u, 0x64646464u, pair ? 0x4342u : 0x4140u);
    const __half2 x = __hsub2(*(const __half2 *)&v, __float2half2_rn(1152.0f));
    return *(const uint32_t *)&x;
}

static __device__ void make_k_lut(const prefill_side &side, const uint8_t *page, const uint32_t *book,
                                  const uint4 &mirror, uint16_t *to, int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4, tile = m / 32, ld = s.d + PAD;
    const uint8_t *block = page + tile / 2 * s.block_bytes;
#pragma unroll 2
    for (int i = 0; i < s.d / 64; i++) {
        uint32_t a[4][4];
        quad_halves(a, s, block, tile % 2 * (s.d / 64) + i, lane, book, mirror);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int c = 2 * i + j;
            const uint32_t scale = *(const uint32_t *)(block + s.code_bytes +
                                                       ((tile % 2 * 8 + g) * s.n_rec + c * 32 / s.rec) * 4);
#pragma unroll
            for (int hi = 0; hi < 2; hi++) {
                uint32_t v[4];
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[k] = scaled(a[2 * j + k / 2][k % 2 * 2 + hi], both(scale, hi));
                *(uint4 *)(to + (16 * tile + 8 * hi + g) * ld + 32 * c + 8 * t) = make_uint4(v[0], v[1], v[2], v[3]);
            }
        }
    }
}

static __device__ void make_v_lut(const prefill_side &side, const uint8_t *page, const uint32_t *book,
                                  const uint4 &mirror, uint16_t *to, int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4;
#pragma unroll 2
    for (int i = m / 32; i < s.d / 16; i += MAKERS / 32) {
        const int b = i % 2, c = i / 2;
        const uint8_t *block = page + b * s.block_bytes;
        const uint4 sc = *(const uint4 *)(block + s.code_bytes + (c * 32 / s.rec * 4 + t) * 16);
        const uint32_t scale[4] = { sc.x, sc.y, sc.z, sc.w };
        uint32_t a[4][4];
        quad_halves(a, s, block, c, lane, book, mirror);
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int sub = k / 2, kt = k % 2, p = j / 2, hi = j % 2;
                *(uint32_t *)(to + (32 * c + 8 * (2 * sub + hi) + g) * V_LD + 32 * b + 16 * kt + 8 * p +
                              2 * t) = scaled(a[k][j], scale[2 * kt + p]);
            }
    }
}

/* 8-bit codes; without records the scale is 1 (K: it is in the query). */
static __device__ void make_k_byte(const prefill_side &side, const uint8_t *page, uint16_t *to, int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4, tile = m / 32, ld = s.d + PAD;
    const uint8_t *block = page + tile / 2 * s.block_bytes;
    for (int c = 0; c < s.d / 32; c++) {
        const uint4 w = ((const uint4 *)block)[(tile % 2 * (s.d / 32) + c) * 32 + lane];
        const uint32_t word[4] = { w.x, w.y, w.z, w.w };
        const uint32_t scale = s.rec
                                   ? *(const uint32_t *)(block + s.code_bytes + ((tile % 2 * 8 + g) * s.n_rec + c) * 4)
                                   : 0x3c003c00u;
#pragma unroll
        for (int hi = 0; hi < 2; hi++) {
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = scaled(byte_halves(s.cls, word[k / 2 * 2 + hi], k % 2), both(scale, hi));
            *(uint4 *)(to + (16 * tile + 8 * hi + g) * ld + 32 * c + 8 * t) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
}

static __device__ void make_v_byte(const prefill_side &side, const uint8_t *page, uint16_t *to, int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4;
    const uint32_t whole = s.rec ? 0x3c003c00u : pack_halves(side_scale(side.s), side_scale(side.s));
    for (int i = m / 32; i < s.d / 8; i += MAKERS / 32) {
        const int c = i / 4, tile = i % 4, kt = tile % 2;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint4 w = ((const uint4 *)block)[(2 * c + kt) * 32 + lane];
        const uint32_t word[4] = { w.x, w.y, w.z, w.w };
        const uint2 sc = s.rec ? *(const uint2 *)(block + s.code_bytes + (c * 4 + t) * 16 + kt * 8)
                               : make_uint2(whole, whole);
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int p = 0; p < 2; p++)
                *(uint32_t *)(to + (32 * c + 8 * k + g) * V_LD + 16 * tile + 8 * p +
                              2 * t) = scaled(byte_halves(s.cls, word[k], p), p ? sc.y : sc.x);
    }
}

static __device__ __forceinline__ uint32_t window(uint32_t low, uint32_t high, int bit)
{
    return (bit < 32 ? __funnelshift_r(low, high, bit) : high >> (bit - 32)) & 511;
}

/* A thread takes the 32 states of (row, quarter), as packed for scores_trellis. */
static __device__ void make_k_trellis(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint16_t *to,
                                      int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4, tile = m / 32, ng = s.n_rec, ld = s.d + PAD;
    const uint8_t *block = page + tile / 2 * s.block_bytes;
    for (int i = 0; i < 2 * ng; i++) {
        const int hi = i % 2, c = i / 2, part = (tile % 2 * 2 + hi) * ng + c;
        const uint32_t *from = (const uint32_t *)block + part * 96 + lane;
        const uint32_t w[4] = { from[0], from[32], from[64],
                                t == 3 ? ((const uint16_t *)(block + 1536 * ng))[part * 8 + g] : from[1] };
        const __half2 scale = __half2half2(
            ((const __half *)(block + s.code_bytes))[((tile % 2 * 8 + g) * ng + c) * 2 + hi]);
        uint16_t *row = to + (16 * tile + 8 * hi + g) * ld + 128 * c + 32 * t;
#pragma unroll
        for (int e = 0; e < 32; e += 2) {
            const int a = 3 * e, b = 3 * e + 3;
            const uint32_t v = book[window(w[a / 32], w[a / 32 + 1], a % 32)] |
                               (uint32_t)book[window(w[b / 32], w[b / 32 + 1], b % 32)] << 16;
            *(uint32_t *)(row + e) = scaled(v, *(const uint32_t *)&scale);
        }
    }
}

static __device__ void make_v_trellis(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint16_t *to,
                                      int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4, tile = m / 32, ng = s.n_rec;
    const uint8_t *block = page + tile / 2 * s.block_bytes;
    for (int i = 0; i < 2 * ng; i++) {
        const int p = i % 2, c = i / 2, part = (c * 2 + tile % 2) * 2 + p;
        const uint32_t *from = (const uint32_t *)block + part * 96 + lane;
        const uint32_t first = from[0], x = from[32], y = from[64];
        const uint32_t next = g == 7 ? ((const uint32_t *)(block + 1536 * ng))[part * 4 + t] : from[4];
        const uint32_t scale = *(const uint32_t *)(block + s.code_bytes + (c * 4 + t) * 16 + tile % 2 * 8 + p * 4);
        const uint32_t low0 = permute(first, x, 0x5410), high0 = permute(x, next, 0x5432);
        const uint32_t low1 = permute(first, y, 0x5432), high1 = permute(y, next, 0x7632);
#pragma unroll
        for (int e = 0; e < 16; e++) {
            const uint32_t v = book[window(low0, high0, 3 * e)] | (uint32_t)book[window(low1, high1, 3 * e)] << 16;
            *(uint32_t *)(to + value_row(128 * c + 16 * g + e) * V_LD + 16 * tile + 8 * p + 2 * t) = scaled(v, scale);
        }
    }
}

/* Signs times the norm: +-norm; the query holds the constant. */
static __device__ void make_k_sign(const prefill_side &side, const uint8_t *page, uint16_t *to, int m)
{
    const pack_shape &s = side.shape;
    const int lane = m % 32, g = lane / 4, t = lane % 4, tile = m / 32, ld = 256 + PAD;
    const uint8_t *block = page + tile / 2 * s.block_bytes;
    const uint4 v = ((const uint4 *)block)[tile % 2 * 32 + lane];
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
    const uint32_t norms = ((const uint32_t *)(block + s.code_bytes))[tile % 2 * 8 + g];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint16_t norm = __half_as_ushort(
            __float2half_rn(__uint_as_float(k / 2 ? norms & 0xffff0000u : norms << 16)));
        uint16_t *row = to + (16 * tile + 8 * (k / 2) + g) * ld + 64 * t + 32 * (k % 2);
#pragma unroll 4
        for (int e = 0; e < 32; e += 2) {
            const uint32_t bits = ~(w[k] >> e);
            *(uint32_t *)(row + e) = ((uint32_t)norm | (uint32_t)norm << 16) ^ ((bits & 1) << 15 | (bits & 2) << 30);
        }
    }
}

/* f16 rows of d values. */
static __device__ void make_k_half(const uint8_t *rows, int d, uint16_t *to, int m)
{
    const int per = d / 8;
#pragma unroll 4
    for (int i = m; i < KEYS * per; i += MAKERS)
        *(uint4 *)(to + i / per * (d + PAD) + i % per * 8) = ((const uint4 *)rows)[i];
}

/* Keys from `live` on may hold anything, NaN too: they count as zeros. */
static __device__ void make_v_half(const uint8_t *rows, int d, int live, uint16_t *to, int m)
{
#pragma unroll 2
    for (int i = m; i < KEYS * (d / 8); i += MAKERS) {
        const int key = i % KEYS, e = i / KEYS * 8;
        const uint4 x = key < live ? *(const uint4 *)(rows + ((size_t)key * d + e) * 2) : make_uint4(0, 0, 0, 0);
        const uint32_t w[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
        for (int k = 0; k < 8; k++)
            to[value_row(e + k) * V_LD + key] = (uint16_t)(w[k / 2] >> (16 * (k % 2)));
    }
}

static __device__ __forceinline__ uint16_t any_half(const side_dev &s, const uint8_t *row, int e, float scale)
{
    return __half_as_ushort(__float2half_rn(fmt_value(s.fmt, row, e, scale)));
}

static __device__ void make_k_any(const prefill_side &side, int page, int kv, uint16_t *to, int m)
{
    for (int i = m; i < KEYS * side.width; i += MAKERS)
        to[i / side.width * (side.width + PAD) + i % side.width] = any_half(
            side.s, side_row(side.s, page, kv, i / side.width), i % side.width, 1.0f);
}

static __device__ void make_v_any(const prefill_side &side, int page, int kv, int live, uint16_t *to, int m)
{
    const float scale = side_scale(side.s);
    for (int i = m; i < KEYS * side.width; i += MAKERS) {
        const int key = i % KEYS, e = i / KEYS;
        to[value_row(e) * V_LD + key] = key < live ? any_half(side.s, side_row(side.s, page, kv, key), e, scale)
                                                   : (uint16_t)0;
    }
}

/* at: the head's page, in global memory or its copy. */
static __device__ void make_k(const prefill_side &side, const uint8_t *at, int page, int kv, const books &b,
                              uint16_t *to, int m)
{
    switch (side.cls) {
    case PACK_LUT4:
    case PACK_SYM4:
    case PACK_LUT3: make_k_lut(side, at, b.pair[0], b.mirror[0], to, m); break;
    case PACK_INT8:
    case PACK_FLOAT8: make_k_byte(side, at, to, m); break;
    case PACK_TRELLIS: make_k_trellis(side, at, b.trellis, to, m); break;
    case PACK_SIGN: make_k_sign(side, at, to, m); break;
    case PACK_HALF: make_k_half(at, side.width, to, m); break;
    default: make_k_any(side, page, kv, to, m); break;
    }
}

static __device__ void make_v(const prefill_side &side, const uint8_t *at, int page, int kv, const books &b, int live,
                              uint16_t *to, int m)
{
    switch (side.cls) {
    case PACK_LUT4:
    case PACK_SYM4:
    case PACK_LUT3: make_v_lut(side, at, b.pair[1], b.mirror[1], to, m); break;
    case PACK_INT8:
    case PACK_FLOAT8: make_v_byte(side, at, to, m); break;
    case PACK_TRELLIS: make_v_trellis(side, at, b.trellis, to, m); break;
    case PACK_HALF: make_v_half(at, side.width, live, to, m); break;
    default: make_v_any(side, page, kv, live, to, m); break;
    }
}

/* Exact rows of logical page j: the tail's, or f16 pages'; other pages without a tail are decoded. */
static __device__ bool tail_rows(const side_dev &s, const seqs_dev &q, int seq, int j, int h_kv, int kv,
                                 const uint8_t **out)
{
    if (!s.tail)
        return false;
    *out = (const uint8_t *)side_tail_row(s, q.tail_table[(size_t)seq * q.stride + j], h_kv, kv, 0);
    return true;
}

/* Sign of the inverse rotation's matrix: value i of the result from value j in acc space. */
static __device__ __forceinline__ float turn(int space, int i, int j)
{
    const float h = __popc(i & j) & 1 ? -1.0f : 1.0f;
    if (space == SPACE_P32)
        return i / 32 == j / 32 ? (__popc(i & j & 31) & 1 ? -1.0f : 1.0f) * space_signs32[i % 32] : 0.0f;
    return space == SPACE_R128 ? h * space_signs1[i] * space_signs2[j] : h;
}

static __device__ void make_turn(int space, int n, uint16_t *to, int m)
{
    for (int i = m; i < n * n; i += MAKERS)
        to[i / n * (n + PAD) + i % n] = __half_as_ushort(
            __float2half_rn(turn(space, value_of(i / n), value_of(i % n))));
}

static __device__ __forceinline__ float turn_factor(int space)
{
    return port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
}

/* ---- users: 16 query rows of a warp ---- */

static __device__ __forceinline__ void load4(uint32_t *r, uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Address of this lane's row for two operand columns of 8 rows, `ld` halves apart: rows n.., values 0..7 and 8..15. */
static __device__ __forceinline__ uint32_t pair_at(uint32_t base, int ld, int lane)
{
    return base + ((lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8) * 2;
}

template <int W>
static __device__ __forceinline__ void rows_scores(float (*s)[4], uint32_t q, uint32_t k, int width, int ldq, int lane)
{
    const uint32_t qa = q + ((lane % 16) * ldq + lane / 16 * 8) * 2, ka = pair_at(k, width + PAD, lane);
#pragma unroll
    for (int j = 0; j < 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
#pragma unroll 4
    for (int kt = 0; kt < width / 16; kt++) {
        uint32_t a[4];
        load4(a, qa + kt * 32);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b[4];
            load4(b, ka + (uint32_t)(16 * j * (width + PAD) + kt * 16) * 2);
            mma16816(s[2 * j], a, b[0], b[1]);
            mma16816(s[2 * j + 1], a, b[2], b[3]);
        }
    }
}

/* o += p v for A operands p of KEYS keys. */
template <int N, int STEPS>
static __device__ __forceinline__ void rows_sums(float (*o)[4], const uint32_t (*p)[4], uint32_t v, int ld, int lane)
{
    const uint32_t at = pair_at(v, ld, lane);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            uint32_t b[4];
            load4(b, at + (uint32_t)(16 * j * ld + i * 16) * 2);
            mma16816(o[2 * j], p[i], b[0], b[1]);
            mma16816(o[2 * j + 1], p[i], b[2], b[3]);
        }
}

template <int D> struct rows_state {
    float m[2], l[2], o[D / 8][4];
};

template <int D> static __device__ __forceinline__ void rows_raise(rows_state<D> &a, const float *top)
{
    float by[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float t = top[i];
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        t = t > a.m[i] + 8.0f ? t : a.m[i];
        by[i] = exp2_fast(a.m[i] - t);
        a.m[i] = t;
        a.l[i] *= by[i];
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        a.o[j][0] *= by[0];
        a.o[j][1] *= by[0];
        a.o[j][2] *= by[1];
        a.o[j][3] *= by[1];
    }
}

template <int D> static __device__ __forceinline__ void rows_softmax(rows_state<D> &a, float (*s)[4], uint32_t (*p)[4])
{
    float top[2] = { s[0][0], s[0][2] };
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            top[i / 2] = fmaxf(top[i / 2], s[j][i]);
    if (__any_sync(0xffffffffu, top[0] > a.m[0] + 8.0f || top[1] > a.m[1] + 8.0f))
        rows_raise<D>(a, top);
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[j][i] = exp2_fast(s[j][i] - a.m[i / 2]);
            a.l[i / 2] += s[j][i];
        }
        p[j / 2][j % 2 * 2] = pack_halves(s[j][0], s[j][1]);
        p[j / 2][j % 2 * 2 + 1] = pack_halves(s[j][2], s[j][3]);
    }
}

template <int D> static __device__ __forceinline__ void rows_norm(rows_state<D> &a)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a.l[i] += __shfl_xor_sync(0xffffffffu, a.l[i], 1);
        a.l[i] += __shfl_xor_sync(0xffffffffu, a.l[i], 2);
        a.l[i] = 1.0f / a.l[i];
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        a.o[j][0] *= a.l[0];
        a.o[j][1] *= a.l[0];
        a.o[j][2] *= a.l[1];
        a.o[j][3] *= a.l[1];
    }
}

/* The sums so far, divided by their weights, from acc space to real space; their weight moves into the maximum. */
template <int D>
static __device__ __forceinline__ void rows_turn(rows_state<D> &a, uint32_t matrix, float factor, int lane)
{
    constexpr int N = D < 128 ? D : 128;
    rows_norm<D>(a);
    a.m[0] -= log2f(a.l[0]); /* rows_norm left 1 / weight there */
    a.m[1] -= log2f(a.l[1]);
#pragma unroll
    for (int g = 0; g < D / N; g++) {
        float(*o)[4] = a.o + g * (N / 8);
        uint32_t p[N / 16][4];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            p[j / 2][j % 2 * 2] = pack_halves(o[j][0], o[j][1]);
            p[j / 2][j % 2 * 2 + 1] = pack_halves(o[j][2], o[j][3]);
            o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
        }
        rows_sums<N, N / 16>(o, p, matrix, N + PAD, lane);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[j][i] *= factor;
    }
    a.l[0] = a.l[1] = lane % 4 == 0 ? 1.0f : 0.0f;
}

/* The order of a block's tiles: encoded pages 0 .. encoded-1, the matrix (if they need one), exact pages to `now`. */
typedef struct plan {
    int encoded, turn, now, n;
} plan;

static __device__ __forceinline__ plan plan_of(const prefill_job &p, const tile &t)
{
    plan o;
    o.now = t.pos / KVANT_PAGE;
    o.encoded = o.now + 1;
    const bool tail = p.k.s.tail || p.v.s.tail;
    while (tail && o.encoded > 0 && o.now - o.encoded + 1 < p.tail_pages &&
           p.seqs.tail_table[(size_t)t.seq * p.seqs.stride + o.encoded - 1] >= 0)
        o.encoded--;
    o.turn = o.encoded > 0 && p.v.s.space != SPACE_REAL;
    o.n = o.now + 1 + o.turn;
    return o;
}

/* Copies of encoded pages in shared memory, `n` of them; bar: an mbarrier each. */
typedef struct raw_ring {
    uint8_t *at;
    uint32_t bar;
    int n, kv;
} raw_ring;

/* Tile `n` of the plan is an encoded page that is copied ahead. */
static __device__ __forceinline__ bool raw_has(const raw_ring &r, const plan &w, int n)
{
    return r.n > 0 && n < w.encoded;
}

static __device__ __forceinline__ void raw_ask(const prefill_job &p, const tile &t, const raw_ring &r, int n)
{
    const size_t page = (size_t)p.seqs.table[(size_t)t.seq * p.seqs.stride + n];
    const uint32_t to = shared_at(r.at + (size_t)(n % r.n) * raw_bytes(p)), bar = r.bar + n % r.n * 8;
    bulk_copy_two(to, p.k.s.pages + page * p.k.s.page_bytes + (size_t)r.kv * p.k.s.head_bytes,
                  (uint32_t)p.k.s.head_bytes, p.v.s.pages + page * p.v.s.page_bytes + (size_t)r.kv * p.v.s.head_bytes,
                  (uint32_t)p.v.s.head_bytes, bar);
}

static __device__ void make_tile(const prefill_job &p, const tile &t, const plan &w, int n, const raw_ring &raw,
                                 const books &b, uint16_t *k, uint16_t *v, int m)
{
    const int j = n < w.encoded ? n : n - w.turn, page = p.seqs.table[(size_t)t.seq * p.seqs.stride + j], kv = raw.kv;
    const int live = t.pos + t.count - j * KVANT_PAGE; /* keys that a query of this tile may see */
    const uint8_t *rows, *at_k = side_row(p.k.s, page, kv, 0), *at_v = side_row(p.v.s, page, kv, 0);
    if (w.turn && n == w.encoded) {
        make_turn(p.v.s.space, p.d < 128 ? p.d : 128, k, m);
        return;
    }
    if (raw_has(raw, w, n)) {
        at_k = raw.at + (size_t)(n % raw.n) * raw_bytes(p);
        at_v = at_k + p.k.s.head_bytes;
        bar_wait(raw.bar + n % raw.n * 8, n / raw.n & 1);
    }
    if (n >= w.encoded && tail_rows(p.k.s, p.seqs, t.seq, j, p.h_kv, kv, &rows))
        make_k_half(rows, p.d, k, m);
    else
        make_k(p.k, at_k, page, kv, b, k, m);
    if (n >= w.encoded && tail_rows(p.v.s, p.seqs, t.seq, j, p.h_kv, kv, &rows))
        make_v_half(rows, p.d, live, v, m);
    else
        make_v(p.v, at_v, page, kv, b, live, v, m);
}

static __device__ void load_rows(const prefill_job &p, const tile &t, int kv_tile, const uint16_t *from, int width,
                                 uint16_t *to, int ld, int first, int lane)
{
    const int group = p.h / p.h_kv;
    for (int r = first; r < first + 16; r++) {
        const int i = r / p.heads, g = kv_tile % p.head_tiles * p.heads + r % p.heads;
        const bool live = i < t.count && g < group && r < p.tokens * p.heads;
        const int64_t head = (int64_t)(t.first + (live ? i : 0)) * p.h + kv_tile / p.head_tiles * group +
                             (live ? g : 0);
        for (int e = lane * 8; e < width; e += 256)
            *(uint4 *)(to + r * ld + e) = live ? *(const uint4 *)(from + head * width + e) : make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

template <int D>
static __device__ __forceinline__ void rows_write(const prefill_job &p, const tile &t, int kv_tile,
                                                  const rows_state<D> &a, int first, int lane)
{
    const int group = p.h / p.h_kv;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = first + 8 * half + lane / 4, i = r / p.heads, g = kv_tile % p.head_tiles * p.heads + r % p.heads;
        if (i >= t.count || g >= group || r >= p.tokens * p.heads)
            continue;
        float *to = p.out + (int64_t)(t.first + i) * p.ldo + (int64_t)(kv_tile / p.head_tiles * group + g) * D +
                    lane % 4 * 8;
#pragma unroll
        for (int c = 0; c < D / 32; c++)
#pragma unroll
            for (int x = 0; x < 2; x++)
                *(float4 *)(to + 32 * c + 4 * x) = make_float4(a.o[4 * c][2 * half + x], a.o[4 * c + 1][2 * half + x],
                                                               a.o[4 * c + 2][2 * half + x],
                                                               a.o[4 * c + 3][2 * half + x]);
    }
}

template <int D>
static __device__ void use_tiles(const prefill_job &p, const tile &t, const plan &w, int kv_tile, uint16_t *q,
                                 uint8_t *stages, uint32_t full, uint32_t empty)
{
    const int lane = threadIdx.x % 32, first = (threadIdx.x - MAKERS) / 32 * 16, ldq = p.k.width + PAD;
    const size_t stage = stage_bytes(p.k.width, D);
    const uint32_t qa = shared_at(q) + (uint32_t)(first * ldq) * 2;
    rows_state<D> a;
    int pos[2];

    a.m[0] = a.m[1] = NOTHING;
    a.l[0] = a.l[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        a.o[j][0] = a.o[j][1] = a.o[j][2] = a.o[j][3] = 0.0f;
    pos[0] = t.pos + (first + lane / 4) / p.heads;
    pos[1] = t.pos + (first + 8 + lane / 4) / p.heads;
    if (w.encoded > 0 || !p.k.s.tail)
        load_rows(p, t, kv_tile, p.qp, p.k.width, q, ldq, first, lane);
    for (int n = 0; n < w.n; n++) {
        const uint32_t k = shared_at(stages + n % STAGES * stage), v = k + KEYS * (p.k.width + PAD) * 2;
        const bool exact = n >= w.encoded && p.k.s.tail;
        const int width = exact ? D : p.k.width;
        if (n == w.encoded + w.turn && p.k.s.tail)
            load_rows(p, t, kv_tile, p.qraw, D, q, ldq, first, lane);
        bar_wait(full + n % STAGES * 8, n / STAGES & 1);
        if (w.turn && n == w.encoded)
            rows_turn<D>(a, k, turn_factor(p.v.s.space), lane);
        else {
            float s[8][4];
            uint32_t pr[4][4];
            const int key = (n < w.encoded ? n : n - w.turn) * KVANT_PAGE;
            rows_scores<D>(s, qa, k, width, ldq, lane);
            if (key + KEYS - 1 > t.pos) {
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (key + 8 * j + lane % 4 * 2 + i % 2 > pos[i / 2])
                            s[j][i] = -INFINITY;
            }
            rows_softmax<D>(a, s, pr);
            rows_sums<D, 4>(a.o, pr, v, V_LD, lane);
        }
        __syncwarp();
        if (lane == 0)
            bar_arrive(empty + n % STAGES * 8);
    }
    rows_norm<D>(a);
    rows_write<D>(p, t, kv_tile, a, first, lane);
}

#endif

template <int D> static __global__ void __launch_bounds__(MAKERS + USERS, 1) prefill_kernel(prefill_job p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[2 * STAGES + RAW];
    books &b = *(books *)smem;
    uint16_t *q = (uint16_t *)(smem + 4096);
    uint8_t *stages = smem + 4096 + (size_t)ROWS * (p.k.width + PAD) * 2;
    const uint32_t full = shared_at(bars), empty = full + STAGES * 8;
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    tile t;

    /* the last tiles of a sequence see most keys: they start first */
    if (!tile_at(p.seqs, p.tokens, p.n_tiles - 1 - ti, &t))
        return;
    if (p.many && p.seqs.q0[t.seq + 1] - p.seqs.q0[t.seq] == 1)
        return;
    if (threadIdx.x < STAGES) {
        bar_init(full + threadIdx.x * 8, MAKERS);
        bar_init(empty + threadIdx.x * 8, USERS / 32);
    }
    if (threadIdx.x < RAW) {
        bar_init(full + (2 * STAGES + threadIdx.x) * 8, 1);
        bar_publish();
    }
    for (int i = threadIdx.x; i < 512; i += MAKERS + USERS) {
        const prefill_side &s = i < 256 ? p.k : p.v;
        const int bits = s.cls == PACK_LUT3 ? 3 : 4;
        b.pair[i / 256][i % 256] = pack_halves(lut_value(s.s.fmt, i % 256), lut_value(s.s.fmt, i % 256 >> bits));
        b.trellis[i] = __half_as_ushort(__float2half_rn(fmt_c_tcq[i]));
        if (i < 32) {
            const prefill_side &from = i < 16 ? p.k : p.v;
            ((uint8_t *)b.mirror)[i] = mirror_byte(from.s.fmt, from.cls == PACK_LUT3 ? 3 : 4, i % 16);
        }
    }
    __syncthreads();
    const plan w = plan_of(p, t);
    if (threadIdx.x < MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        const size_t stage = stage_bytes(p.k.width, D);
        const raw_ring raw = { stages + STAGES * stage, full + 2 * STAGES * 8, p.n_raw, kv_tile / p.head_tiles };
        for (int n = 0; n < raw.n && threadIdx.x == 0 && raw_has(raw, w, n); n++)
            raw_ask(p, t, raw, n);
        for (int n = 0; n < w.n; n++) {
            uint16_t *k = (uint16_t *)(stages + n % STAGES * stage);
            if (n >= STAGES)
                bar_wait(empty + n % STAGES * 8, (n / STAGES - 1) & 1);
            make_tile(p, t, w, n, raw, b, k, k + KEYS * (p.k.width + PAD), threadIdx.x);
            bar_arrive(full + n % STAGES * 8);
            if (raw_has(raw, w, n + raw.n)) {
                asm volatile("bar.sync 1, 128;" ::: "memory"); /* the makers have read the copy */
                if (threadIdx.x == 0)
                    raw_ask(p, t, raw, n + raw.n);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        use_tiles<D>(p, t, w, kv_tile, q, stages, full, empty);
    }
#endif
}

/* ---- queries to halves ---- */

/* A warp per head, where the rotation is one of warp_rotate's. */
template <int V> static __global__ void __launch_bounds__(128) prefill_prep_warp(prefill_job p)
{
    const int i = (int)blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= p.seqs.n_tokens * p.h)
        return;
    const float by = p.scale * PREP_LOG2E;
    warp_prep<V>(p.k.s.space, p.q + (int64_t)(i / p.h) * p.ldq + (int64_t)(i % p.h) * p.gq, by, by * side_scale(p.k.s),
                 p.qraw + (size_t)i * p.d, p.qp + (size_t)i * p.d, threadIdx.x % 32);
}

static __global__ void prefill_prep(prefill_job p)
{
    __shared__ float x[KVANT_MAX_HEAD_DIM], y[2 * KVANT_MAX_HEAD_DIM];
    const float *from = p.q + (int64_t)(blockIdx.x / p.h) * p.ldq + (int64_t)(blockIdx.x % p.h) * p.gq;
    const float by = p.scale * PREP_LOG2E;
    const float by_k = by * (p.k.cls == PACK_SIGN ? port_bits(0x3ba06c99u) : side_scale(p.k.s));
    for (int j = threadIdx.x; j < p.d; j += blockDim.x) {
        x[j] = from[j];
        p.qraw[(size_t)blockIdx.x * p.d + j] = query_half(x[j] * by);
    }
    space_prep(p.k.s, x, y);
    for (int j = threadIdx.x; j < p.k.width; j += blockDim.x)
        p.qp[(size_t)blockIdx.x * p.k.width + j] = query_half(y[j] * by_k);
}

/* ---- the host's side ---- */

static bool side_fits(const side_dev &s, int role, int d, prefill_side *out)
{
    out->s = s;
    out->width = s.sdim;
    out->cls = PACK_NONE;
    memset(&out->shape, 0, sizeof out->shape);
    if (s.d != d || s.dp != d || (role == PACK_V && s.sdim != d) || s.sdim > 256)
        return false;
    if (cuda_pack_class(s.fmt) == PACK_HALF)
        out->cls = PACK_HALF;
    else if (s.layout) {
        if (!cuda_pack_shape(&s, role, &out->shape))
            return false;
        out->cls = out->shape.cls;
    }
    return out->cls == PACK_NONE || !((s.page_bytes | s.head_bytes | (uintptr_t)s.pages) & 15);
}

bool prefill_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, prefill_job *p)
{
    memset(p, 0, sizeof *p);
    if (d->major != 9 || a->compute == KVANT_COMPUTE_F32 || a->d_k != a->d_v || ((uintptr_t)a->out & 15) || a->ldo % 4)
        return false;
    p->d = a->d_k;
    if ((p->d != 64 && p->d != 128 && p->d != 256) || !side_fits(k, PACK_K, p->d, &p->k) ||
        !side_fits(v, PACK_V, p->d, &p->v))
        return false;
    const int group = a->h / a->h_kv;
    p->seqs = cuda_seqs(&a->seqs);
    p->q = a->q;
    p->out = a->out;
    p->ldq = a->ldq;
    p->gq = a->gq;
    p->ldo = a->ldo;
    p->h = a->h;
    p->h_kv = a->h_kv;
    p->heads = group < 16 ? group : 16;
    p->head_tiles = (group + p->heads - 1) / p->heads;
    p->tokens = KVANT_PAGE;
    while (p->tokens * p->heads > ROWS)
        p->tokens /= 2;
    const int64_t n = a->seqs.n_tokens, most = n / p->tokens + 2 * (int64_t)a->seqs.n_seqs;
    p->n_tiles = (int)(n < most ? n : most);
    p->tail_pages = a->tail_pages;
    p->scale = a->scale;
    const size_t used = shared_bytes(p->k.width, p->d);
    if (used > d->smem_max)
        return false;
    const bool copies = p->k.cls != PACK_NONE && p->v.cls != PACK_NONE; /* value by value reads rows in place */
    const size_t fit = (d->smem_max - used - 256) / raw_bytes(*p);
    p->n_raw = !copies || d->smem_max < used + 256 ? 0 : fit < RAW ? (int)fit : RAW;
    return true;
}

size_t prefill_scratch(const prefill_job &p)
{
    const size_t heads = (size_t)p.seqs.n_tokens * p.h;
    return cuda_aligned(heads * p.k.width * 2) + cuda_aligned(heads * p.d * 2);
}

void prefill_run(cuda_device *d, prefill_job p, unsigned char *scratch)
{
    const unsigned heads = (unsigned)(p.seqs.n_tokens * (int64_t)p.h),
                   blocks = (unsigned)(p.n_tiles * p.h_kv * p.head_tiles);
    const size_t bytes = shared_bytes(p.k.width, p.d) + (size_t)p.n_raw * raw_bytes(p);
    void (*const kernel)(prefill_job) = p.d == 64    ? prefill_kernel<64>
                                        : p.d == 128 ? prefill_kernel<128>
                                                     : prefill_kernel<256>;
    p.qp = (uint16_t *)scratch;
    p.qraw = (uint16_t *)(scratch + cuda_aligned((size_t)heads * p.k.width * 2));
    if (p.k.s.space == SPACE_SKETCH)
        prefill_prep<<<heads, 64, 0, d->stream>>>(p);
    else if (p.d == 64)
        prefill_prep_warp<2><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    else if (p.d == 128)
        prefill_prep_warp<4><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    else
        prefill_prep_warp<8><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    cuda_smem(kernel, bytes);
    kernel<<<blocks, MAKERS + USERS, bytes, d->stream>>>(p);
}
