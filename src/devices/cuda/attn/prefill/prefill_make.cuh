/* prefill_make.cuh: the makers of attn_prefill.cu: a page of keys to halves in shared memory.
 *
 * K and V of a tile are KEYS rows of halves each, in panels of 64 columns: rows of 128 bytes whose 16-byte cells are
 * permuted by the row's number, as wgmma's 128-byte swizzle has them.  So K is a K-major operand and V an MN-major one,
 * and f16 rows are copied as they are.  bf16 rows of V too, as an operand of bf16; those of K become halves times a
 * power of two, each row its own, which scores are multiplied by. */
#ifndef KVANT_CUDA_PREFILL_MAKE_CUH
#define KVANT_CUDA_PREFILL_MAKE_CUH

#include "devices/cuda/attn/prefill/attn_prefill.cuh"
#include "devices/cuda/attn/decode/decode_codes.cuh"
#include "devices/cuda/core/halves.cuh"
#include "devices/cuda/core/page.cuh"
#include "devices/cuda/attn/prep.cuh"
#include "devices/cuda/core/tiles.cuh"

enum { KEYS = 64, STAGES = 3 }; /* keys of a tile, most tiles of a ring */

/* Kernels are compiled for these, a bit each: K's pages are bf16 rows, V's are, both have residuals (CODES_SIGNED), K's
 * or V's are of page scope (PACK_PAGE), which no others have: it would cost their makers registers. */
enum { BF16_K = 1, BF16_V = 2, RESIDUALS = 4, SCOPED = 8 };

/* Bytes of one head page of both sides, copied ahead of the makers. */
static __host__ __device__ inline size_t raw_bytes(const prefill_job &p)
{
    return p.k.s.head_bytes + p.v.s.head_bytes;
}

/* Offset of a value of a tile of `rows` rows. */
static __device__ __forceinline__ uint32_t cell(int rows, int row, int column)
{
    return (uint32_t)(column / 64 * rows * 128 + row * 128 + ((column / 8 % 8 ^ row % 8) << 4) + column % 8 * 2);
}

static __device__ __forceinline__ void put4(uint8_t *to, int row, int column, const uint32_t *v)
{
    *(uint4 *)(to + cell(KEYS, row, column)) = make_uint4(v[0], v[1], v[2], v[3]);
}

/* Four values of two keys, row and row + 1; v: pairs of keys. */
static __device__ __forceinline__ void put_keys(uint8_t *to, int row, int column, const uint32_t *v)
{
    *(uint2 *)(to + cell(KEYS, row, column)) = make_uint2(permute(v[0], v[1], 0x5410), permute(v[2], v[3], 0x5410));
    *(uint2 *)(to + cell(KEYS, row + 1, column)) = make_uint2(permute(v[0], v[1], 0x7632), permute(v[2], v[3], 0x7632));
}

/* The threads that make a tile: this one's number, how many; what the tile's keys are multiplied by (of bf16). */
typedef struct maker {
    int m, n;
    float *scale;
} maker;

typedef struct books {
    union {
        uint32_t pair[256]; /* of codes */
        uint16_t trellis[512];
    } side[2]; /* K's and V's */
    uint4 mirror[2];
    float scale[STAGES][KEYS];
} books;

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
    if (cls == PACK_FLOAT8)
        return e4m3_halves(word, pair);
    const uint32_t v = permute(word ^ 0x80808080u, 0x64646464u, pair ? 0x4342u : 0x4140u);
    const __half2 x = __hsub2(*(const __half2 *)&v, __float2half2_rn(1152.0f));
    return *(const uint32_t *)&x;
}

/* residual_signs of a word that only the run knows. */
static __device__ __forceinline__ uint32_t own_signs(int word)
{
    return word & 2 ? (word & 1 ? residual_signs(3) : residual_signs(2))
                    : word & 1 ? residual_signs(1) : residual_signs(0);
}

/* The halves +-1 of minus the sign of a packed scale times the signs (1: negative) of two values, times a residual. */
static __device__ __forceinline__ uint32_t residual_pair(uint32_t scale, uint32_t first, uint32_t second)
{
    const uint32_t size = pack_halves(-RESIDUAL, -RESIDUAL);
    return size ^ (scale & 0x80008000u) ^ ((first & 1) << 15 | second << 31);
}

/* Two codes' values with their residuals, times their scales without sign. */
static __device__ __forceinline__ uint32_t residual_times(uint32_t a, uint32_t residual, uint32_t scale)
{
    const __half2 v = __hadd2(*(const __half2 *)&a, *(const __half2 *)&residual);
    return times2(*(const uint32_t *)&v, scale & 0x7fff7fffu);
}

template <bool SIGNED>
static __device__ void make_k_lut(const prefill_side &side, const uint8_t *page, const uint32_t *book,
                                  const uint4 &mirror, uint8_t *to, const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int n = w.m / 32; n < s.d / 16; n += w.n / 32) {
        const int tile = n % 4, i = n / 4;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
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
                for (int k = 0; k < 4; k++) {
                    const uint32_t code = a[2 * j + k / 2][k % 2 * 2 + hi], by = both(scale, hi);
                    const uint32_t signs = SIGNED ? own_signs(c % 4) >> (8 * t + 2 * k) : 0;
                    v[k] = SIGNED ? residual_times(code, residual_pair(by, signs, signs >> 1), by) : times2(code, by);
                }
                put4(to, 16 * tile + 8 * hi + g, 32 * c + 8 * t, v);
            }
        }
    }
}

template <bool SIGNED>
static __device__ void make_v_lut(const prefill_side &side, const uint8_t *page, const uint32_t *book,
                                  const uint4 &mirror, uint8_t *to, const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int i = w.m / 32; i < s.d / 16; i += w.n / 32) {
        const int b = i % 2, c = i / 2;
        const uint8_t *block = page + b * s.block_bytes;
        const uint4 sc = *(const uint4 *)(block + s.code_bytes + (c * 32 / s.rec * 4 + t) * 16);
        const uint32_t scale[4] = { sc.x, sc.y, sc.z, sc.w };
        uint32_t a[4][4];
        quad_halves(a, s, block, c, lane, book, mirror);
#pragma unroll
        for (int kt = 0; kt < 2; kt++)
#pragma unroll
            for (int p = 0; p < 2; p++) {
                uint32_t v[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const uint32_t code = a[k / 2 * 2 + kt][2 * p + k % 2], by = scale[2 * kt + p];
                    const uint32_t sign = SIGNED ? own_signs(c % 4) >> (4 * g + k) : 0;
                    v[k] = SIGNED ? residual_times(code, residual_pair(by, sign, sign), by) : times2(code, by);
                }
                put_keys(to, 32 * b + 16 * kt + 8 * p + 2 * t, 32 * c + 4 * g, v);
            }
    }
}

/* 8-bit codes; without records the scale is 1 (K: it is in the query). */
static __device__ void make_k_byte(const prefill_side &side, const uint8_t *page, uint8_t *to, const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4;
    for (int n = w.m / 32; n < s.d / 8; n += w.n / 32) {
        const int tile = n % 4, c = n / 4;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint4 x = ((const uint4 *)block)[(tile % 2 * (s.d / 32) + c) * 32 + lane];
        const uint32_t word[4] = { x.x, x.y, x.z, x.w };
        const uint32_t scale = s.rec
                                   ? *(const uint32_t *)(block + s.code_bytes + ((tile % 2 * 8 + g) * s.n_rec + c) * 4)
                                   : 0x3c003c00u;
#pragma unroll
        for (int hi = 0; hi < 2; hi++) {
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = times2(byte_halves(s.cls, word[k / 2 * 2 + hi], k % 2), both(scale, hi));
            put4(to, 16 * tile + 8 * hi + g, 32 * c + 8 * t, v);
        }
    }
}

static __device__ void make_v_byte(const prefill_side &side, const uint8_t *page, uint8_t *to, const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4;
    const uint32_t whole = s.rec ? 0x3c003c00u : pack_halves(side_scale(side.s), side_scale(side.s));
    for (int i = w.m / 32; i < s.d / 8; i += w.n / 32) {
        const int c = i / 4, tile = i % 4, kt = tile % 2;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint4 x = ((const uint4 *)block)[(2 * c + kt) * 32 + lane];
        const uint32_t word[4] = { x.x, x.y, x.z, x.w };
        const uint2 sc = s.rec ? *(const uint2 *)(block + s.code_bytes + (c * 4 + t) * 16 + kt * 8)
                               : make_uint2(whole, whole);
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = times2(byte_halves(s.cls, word[k], p), p ? sc.y : sc.x);
            put_keys(to, 16 * tile + 8 * p + 2 * t, 32 * c + 4 * g, v);
        }
    }
}

static __device__ __forceinline__ uint32_t window(uint32_t low, uint32_t high, int bit)
{
    return (bit < 32 ? __funnelshift_r(low, high, bit) : high >> (bit - 32)) & 511;
}

/* The value of the state at a bit of a stream's words. */
static __device__ __forceinline__ float book_value(const uint16_t *book, const uint32_t *x, int bit)
{
    const uint32_t state = bit % 32 > 32 - PAGE_STATE_BITS
                               ? __funnelshift_r(x[bit / 32], x[bit / 32 + 1], bit % 32) : x[bit / 32] >> bit % 32;
    return __half2float(__ushort_as_half(book[state & (PAGE_STATES - 1)]));
}

/* Signed bytes 2 pair and 2 pair + 1 of a word. */
static __device__ __forceinline__ float2 mean_pair(uint32_t word, int pair)
{
    const uint32_t v = byte_pair<false>(word, pair);
    return make_float2(low_half(v), high_half(v));
}

/* A thread takes the 32 states of (row, quarter), as packed for scores_trellis. */
static __device__ void make_k_trellis(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint8_t *to,
                                      const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4, ng = s.n_rec;
    for (int n = w.m / 32; n < 8 * ng; n += w.n / 32) {
        const int tile = n % 4, hi = n / 4 % 2, c = n / 8, part = (tile % 2 * 2 + hi) * ng + c;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint32_t *from = (const uint32_t *)block + part * 100, *own = from + g + 8 * t;
        const uint32_t x[4] = { own[64], own[0], own[32], t == 3 ? ((const uint16_t *)(from + 96))[g] : own[72] };
        const uint16_t one = ((const uint16_t *)(block + s.code_bytes))[((tile % 2 * 8 + g) * ng + c) * 2 + hi];
        const uint32_t scale = one | (uint32_t)one << 16;
#pragma unroll
        for (int h = 0; h < 4; h++) {
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int a = 3 * (8 * h + 2 * k), b = a + 3;
                v[k] = times2(book[window(x[a / 32], x[a / 32 + 1], a % 32)] |
                                  (uint32_t)book[window(x[b / 32], x[b / 32 + 1], b % 32)] << 16,
                              scale);
            }
            put4(to, 16 * tile + 8 * hi + g, 128 * c + 32 * t + 8 * h, v);
        }
    }
}

static __device__ void make_v_trellis(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint8_t *to,
                                      const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4, ng = s.n_rec;
    for (int n = w.m / 32; n < 8 * ng; n += w.n / 32) {
        const int tile = n % 4, p = n / 4 % 2, c = n / 8, part = (c * 2 + tile % 2) * 2 + p;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint32_t *from = (const uint32_t *)block + c * 400 + lane * 4 + part % 4;
        const uint32_t x = from[0], y = from[128], first = from[256], next = from[272];
        const uint32_t scale = *(const uint32_t *)(block + s.code_bytes + (c * 4 + t) * 16 + tile % 2 * 8 + p * 4);
        const uint32_t low0 = permute(first, x, 0x5410), high0 = permute(x, next, 0x5432);
        const uint32_t low1 = permute(first, y, 0x5432), high1 = permute(y, next, 0x7632);
#pragma unroll
        for (int h = 0; h < 4; h++) {
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int bit = 3 * (4 * h + k);
                v[k] = times2(book[window(low0, high0, bit)] | (uint32_t)book[window(low1, high1, bit)] << 16, scale);
            }
            put_keys(to, 16 * tile + 8 * p + 2 * t, 128 * c + 16 * g + 4 * h, v);
        }
    }
}

/* A thread takes 32 values of a row of a page of page scope; K and V alike. */
template <int K>
static __device__ void make_page(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint8_t *to,
                                 const maker &w)
{
    const int lane = w.m % 32, t = lane % 4;
    for (int n = w.m / 32; n < side.width / 16; n += w.n / 32) {
        const int row = n % 8 * 8 + lane / 4, c = n / 8;
        const uint8_t *codes = page + c * (2 * page_codes(K) + PAGE_REST), *rest = codes + 2 * page_codes(K);
        const uint32_t steps = __ballot_sync(0xffffffffu, rest[PAGE_START + lane] >> 7);
        const float step = __half2float(__ushort_as_half((unsigned short)steps));
        const float scale = __half2float(((const __half *)rest)[row]);
        uint32_t x[K + 1];
        page_words_k(x + 1, codes + row * 16 * K, t, K);
        const uint32_t before = __shfl_up_sync(0xffffffffu, x[K], 1);
        x[0] = t == 0 ? page_start(K, rest[PAGE_START + row]) : before;
#pragma unroll
        for (int h = 0; h < 4; h++) {
            const uint2 mean = ((const uint2 *)(rest + PAGE_MEAN))[4 * t + h];
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int a = page_bit(K, 8 * h + 2 * k), b = page_bit(K, 8 * h + 2 * k + 1);
                const float2 y = mean_pair(k < 2 ? mean.x : mean.y, k % 2);
                v[k] = pack_halves(fmaf(book_value(book, x, a), scale, y.x * step),
                                   fmaf(book_value(book, x, b), scale, y.y * step));
            }
            put4(to, row, PAGE_GROUP * c + 32 * t + 8 * h, v);
        }
    }
}

/* Signs times the norm: +-norm; the query holds the constant.  Four lanes have a row's words, two each.  SHARED: of one
 * word after the other they write eight neighbours each; else each its own words, which takes fewer registers. */
template <bool SHARED>
static __device__ void make_k_sign(const prefill_side &side, const uint8_t *page, uint8_t *to, const maker &w)
{
    const pack_shape &s = side.shape;
    const int lane = w.m % 32, g = lane / 4, t = lane % 4;
    for (int n = w.m / 32; n < 8; n += w.n / 32) {
        const int tile = n % 4, hi = n / 4;
        const uint8_t *block = page + tile / 2 * s.block_bytes;
        const uint32_t *words = (const uint32_t *)block + (tile % 2 * 32 + lane) * 4 + hi;
        const uint32_t own[2] = { words[0], words[2] };
        const uint32_t norms = ((const uint32_t *)(block + s.code_bytes))[tile % 2 * 8 + g];
        const uint32_t norm = __half_as_ushort(
            __float2half_rn(__uint_as_float(hi ? norms & 0xffff0000u : norms << 16)));
#pragma unroll
        for (int e = 0; e < 64; e += 8) {
            const uint32_t word = SHARED ? ~__shfl_sync(0xffffffffu, own[e / 8 % 2], lane - t + e / 16) >> 8 * t
                                         : ~(words[e / 32 * 2] >> e % 32);
            uint32_t v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = (norm | norm << 16) ^ ((word >> 2 * k & 1) << 15 | (word >> 2 * k & 2) << 30);
            put4(to, 16 * tile + 8 * hi + g, SHARED ? 4 * e + 8 * t : 64 * t + e, v);
        }
    }
}

/* Asks for rows of d 16-bit values; rows from `live` on count as zeros: they may hold anything, NaN too. */
static __device__ void make_half(const uint8_t *rows, int d, int live, uint8_t *to, const maker &w)
{
    const int per = d / 8;
    const uint32_t at = shared_at(to);
    for (int i = w.m; i < KEYS * per; i += w.n)
        async_copy16(at + cell(KEYS, i / per, i % per * 8), rows + (size_t)i * 16, i / per < live);
}

/* bf16 rows of d values to halves.  The greatest value of a row gets an exponent of 14: so what is lost is below 2^-39
 * of that one.  Infinities and NaN stay what they are. */
static __device__ void make_k_bf16(const uint8_t *rows, int d, uint8_t *to, const maker &w)
{
    enum { AT_ONCE = 4, EXPONENT = 14 };
    const int per = d / 8, step = w.n / per, lane = w.m % per;
#pragma unroll 1
    for (int first = w.m / per; first < KEYS; first += AT_ONCE * step) {
        uint4 x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k * step < KEYS)
                x[k] = ((const uint4 *)rows)[(first + k * step) * per + lane];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int row = first + k * step;
            if (row >= KEYS)
                break;
            const uint32_t word[4] = { x[k].x, x[k].y, x[k].z, x[k].w };
            uint32_t top = 15, v[4]; /* no less: powers of two are normal numbers then */
#pragma unroll
            for (int i = 0; i < 4; i++)
                top = max(top, max(word[i] >> 7 & 255, word[i] >> 23 & 255));
            for (int m = 1; m < per; m *= 2)
                top = max(top, __shfl_xor_sync(0xffffffffu, top, m));
            const float by = __uint_as_float((254 + EXPONENT - top) << 23);
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = pack_halves(__uint_as_float(word[i] << 16) * by, __uint_as_float(word[i] & 0xffff0000u) * by);
            put4(to, row, 8 * lane, v);
            if (lane == 0)
                w.scale[row] = __uint_as_float((top - EXPONENT) << 23);
        }
    }
}

/* Rows of d 16-bit values to a tile in global memory; from `live` on zeros. */
static __device__ void make_plain(const uint8_t *rows, int d, int live, uint8_t *to, const maker &w)
{
    const int per = d / 8;
    for (int i = w.m; i < KEYS * per; i += w.n)
        *(uint4 *)(to + cell(KEYS, i / per, i % per * 8)) = i / per < live ? ((const uint4 *)rows)[i]
                                                                           : make_uint4(0, 0, 0, 0);
}

static __device__ void make_any(const prefill_side &side, int page, int kv, float scale, int live, uint8_t *to,
                                const maker &w)
{
    for (int i = w.m; i < KEYS * side.width; i += w.n) {
        const int key = i / side.width, e = i % side.width;
        const uint8_t *row = side_row(side.s, page, kv, key);
        const float x = key < live ? fmt_value(side.s.fmt, row, e, scale) : 0.0f;
        *(__half *)(to + cell(KEYS, key, e)) = __float2half_rn(x);
    }
}

static __device__ void make_pages(const prefill_side &side, const uint8_t *page, const uint16_t *book, uint8_t *to,
                                  const maker &w)
{
    switch (page_bits(side.s)) {
    case 2: make_page<2>(side, page, book, to, w); break;
    case 3: make_page<3>(side, page, book, to, w); break;
    default: make_page<4>(side, page, book, to, w); break;
    }
}

/* A side's encoded page; at: the head's page, in global memory or its copy; SIGNED: with residuals; SHARED: of signs;
 * PAGED: perhaps of page scope.  True: copies are under way. */
template <bool SIGNED, bool SHARED = true, bool PAGED = false>
static __device__ bool make_coded(const prefill_side &side, bool is_v, const uint8_t *at, int page, int kv,
                                  const books &b, int live, uint8_t *to, const maker &w)
{
    switch (side.cls) {
    case PACK_LUT4:
    case PACK_SYM4:
    case PACK_LUT3:
        if (is_v)
            make_v_lut<SIGNED>(side, at, b.side[1].pair, b.mirror[1], to, w);
        else
            make_k_lut<SIGNED>(side, at, b.side[0].pair, b.mirror[0], to, w);
        return false;
    case PACK_INT8:
    case PACK_FLOAT8:
        if (is_v)
            make_v_byte(side, at, to, w);
        else
            make_k_byte(side, at, to, w);
        return false;
    case PACK_TRELLIS:
        if (is_v)
            make_v_trellis(side, at, b.side[1].trellis, to, w);
        else
            make_k_trellis(side, at, b.side[0].trellis, to, w);
        return false;
    case PACK_SIGN: make_k_sign<SHARED>(side, at, to, w); return false;
    case PACK_PAGE:
        if (PAGED)
            make_pages(side, at, b.side[is_v].trellis, to, w);
        return false;
    case PACK_HALF: make_half(at, side.width, is_v ? live : KEYS, to, w); return true;
    default: make_any(side, page, kv, is_v ? side_scale(side.s) : 1.0f, is_v ? live : KEYS, to, w); return false;
    }
}

/* Sign of the inverse rotation's matrix: value i of the result from value j in acc space. */
static __device__ __forceinline__ float turn(int space, int i, int j)
{
    const float h = __popc(i & j) & 1 ? -1.0f : 1.0f;
    if (space == SPACE_P32)
        return i / 32 == j / 32 ? (__popc(i & j & 31) & 1 ? -1.0f : 1.0f) * space_signs32[i % 32] : 0.0f;
    return space == SPACE_R128 ? h * space_signs1[i] * space_signs2[j] : h;
}

static __device__ __forceinline__ float turn_factor(int space)
{
    return port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
}

/* The matrix as a K-major operand: n rows i of n columns j. */
static __device__ void make_turn(int space, int n, uint8_t *to, const maker &w)
{
    for (int i = w.m; i < n * n; i += w.n)
        *(__half *)(to + cell(n, i / n, i % n)) = __float2half_rn(turn(space, i / n, i % n));
}

/* The order of a block's n tiles: `encoded` encoded pages from page `first` on, which is the first that its first row
 * sees; the matrix (turn: if they need one), exact pages to page `now`. */
typedef struct tile_plan {
    int first, encoded, turn, now, n;
} tile_plan;

static __device__ __forceinline__ tile_plan plan_of(const prefill_job &p, const tile &t)
{
    tile_plan o;
    o.now = t.pos / KVANT_PAGE;
    o.first = attn_first(p, t.pos) / KVANT_PAGE;
    o.encoded = o.now + 1;
    const bool tail = p.k.s.tail || p.v.s.tail;
    while (tail && o.encoded > 0 && o.now - o.encoded + 1 < p.tail_pages &&
           p.seqs.tail_table[(size_t)t.seq * p.seqs.stride + o.encoded - 1] >= 0)
        o.encoded--;
    o.encoded = max(o.encoded - o.first, 0);
    o.turn = o.encoded > 0 && p.v.s.space != SPACE_REAL;
    o.n = o.now + 1 - o.first + o.turn;
    return o;
}

/* The page of tile n, unless that is the matrix. */
static __device__ __forceinline__ int page_of(const tile_plan &w, int n)
{
    return w.first + (n < w.encoded ? n : n - w.turn);
}

/* Copies of encoded pages in shared memory, `n` of them; bar: an mbarrier each. */
typedef struct raw_ring {
    uint8_t *at;
    uint32_t bar;
    int n, kv;
} raw_ring;

/* Tile `n` of the plan is an encoded page that is copied ahead. */
static __device__ __forceinline__ bool raw_has(const raw_ring &r, const tile_plan &w, int n)
{
    return r.n > 0 && n < w.encoded;
}

static __device__ __forceinline__ void raw_ask(const prefill_job &p, const tile &t, const tile_plan &w,
                                               const raw_ring &r, int n)
{
    const size_t page = (size_t)p.seqs.table[(size_t)t.seq * p.seqs.stride + page_of(w, n)];
    const uint32_t to = shared_at(r.at + (size_t)(n % r.n) * raw_bytes(p)), bar = r.bar + n % r.n * 8;
    bulk_copy_two(to, p.k.s.pages + page * p.k.s.page_bytes + (size_t)r.kv * p.k.s.head_bytes,
                  (uint32_t)p.k.s.head_bytes, p.v.s.pages + page * p.v.s.page_bytes + (size_t)r.kv * p.v.s.head_bytes,
                  (uint32_t)p.v.s.head_bytes, bar);
}

/* A side (V: i is 1) of tile n of the plan, number j of its sequence; from: its page's head, where it is encoded.
 * True: copies are under way. */
template <int PAGES>
static __device__ __forceinline__ bool make_side(const prefill_job &p, const tile &t, const tile_plan &w, int n, int j,
                                                 int i, const uint8_t *from, int page, int kv, const books &b,
                                                 uint8_t *to, const maker &who)
{
    const prefill_side &side = i ? p.v : p.k;
    const size_t at = (size_t)t.seq * p.seqs.stride + j;
    const int live = t.pos + t.count - j * KVANT_PAGE; /* keys that a query of this tile may see */
    if (n >= w.encoded && side.s.tail) {
        make_half((const uint8_t *)side_tail_row(side.s, p.seqs.tail_table[at], p.h_kv, kv, 0), p.d, i ? live : KEYS,
                  to, who);
        return true;
    }
    if ((PAGES & BF16_K) && i == 0) {
        make_k_bf16(from, p.d, to, who);
        return false;
    }
    if ((PAGES & BF16_V) && i == 1) {
        make_half(from, p.d, live, to, who);
        return true;
    }
    return make_coded<(PAGES & RESIDUALS) != 0, (PAGES & ~SCOPED) != 0, (PAGES & SCOPED) != 0>(side, i, from, page, kv,
                                                                                              b, live, to, who);
}

/* Tile n of the plan.  True: copies are under way. */
template <int PAGES>
static __device__ bool make_tile(const prefill_job &p, const tile &t, const tile_plan &w, int n, const raw_ring &raw,
                                 const books &b, uint8_t *k, uint8_t *v, const maker &who)
{
    const int j = page_of(w, n), kv = raw.kv;
    const size_t at = (size_t)t.seq * p.seqs.stride + j;
    if (w.turn && n == w.encoded) {
        make_turn(p.v.s.space, p.d < 128 ? p.d : 128, k, who);
        return false;
    }
    const int page = p.seqs.table[at];
    const uint8_t *from[2] = { side_row(p.k.s, page, kv, 0), side_row(p.v.s, page, kv, 0) };
    if (raw_has(raw, w, n)) {
        from[0] = raw.at + (size_t)(n % raw.n) * raw_bytes(p);
        from[1] = from[0] + p.k.s.head_bytes;
        bar_wait(raw.bar + n % raw.n * 8, n / raw.n & 1);
    }
    bool under_way = false;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (make_side<PAGES>(p, t, w, n, j, i, from[i], page, kv, b, i ? v : k, who))
            under_way = true;
    return under_way;
}

#endif
