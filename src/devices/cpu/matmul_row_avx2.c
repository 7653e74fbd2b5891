/* matmul_row_avx2.c: matmul with 8-bit activations on AVX2, few rows: one row, one panel, straight from the packed
 * bytes, codes as the unsigned side. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc sees integer vector additions as plain arithmetic: it regroups a chain of them (reassoc) or puts it off to the
 * use of the sum (ter), and so keeps all products alive, far more than there are registers: 3x slower. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul_codes_avx2.h"

/* Integer sums of both halves of a panel. */
typedef struct dots {
    __m256i a, c;
} dots;

static inline __m256i widen(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

static inline dots dots_zero(void)
{
    return (dots){ _mm256_setzero_si256(), _mm256_setzero_si256() };
}

static inline dots dots_widen(dots sum, dots p)
{
    return (dots){ _mm256_add_epi32(sum.a, widen(p.a)), _mm256_add_epi32(sum.c, widen(p.c)) };
}

/* Pairs of products in i16: unsigned codes of two halves times the row's four bytes. */
static inline dots pairs(__m256i w0, __m256i w1, const int8_t *x)
{
    __m256i v = broadcast4(x);

    return (dots){ _mm256_maddubs_epi16(w0, v), _mm256_maddubs_epi16(w1, v) };
}

static inline dots pairs_add(dots p, __m256i w0, __m256i w1, const int8_t *x)
{
    dots n = pairs(w0, w1, x);

    return (dots){ _mm256_add_epi16(p.a, n.a), _mm256_add_epi16(p.c, n.c) };
}

/* dot_*: groups [g0, g1) of four k of a block, plus bias * sum(x) where the codes are taken as unsigned. */

/* |w| * (x with w's sign): at most 2 * 128 * 127 in a pair, which fits i16. */
static inline dots dot_q8_0(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots sum = dots_zero();

    for (int g = g0; g < g1; g++) {
        __m256i w0 = load256(codes + g * 64), w1 = load256(codes + g * 64 + 32), v = broadcast4(x + g * 4);
        dots p = { _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(v, w0)),
                   _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(v, w1)) };
        sum = dots_widen(sum, p);
    }
    return sum;
}

/* Codes 0..15: 8 pairs of at most 2 * 15 * 127 fit i16. */
static inline dots dot_nibbles(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots p = dots_zero();

    for (int g = g0; g < g1; g += 2) {
        __m256i v0 = load256(codes + g * 32), v1 = load256(codes + g * 32 + 32);
        p = pairs_add(p, low_nibbles(v0), low_nibbles(v1), x + g * 4);
        v0 = _mm256_srli_epi16(v0, 4), v1 = _mm256_srli_epi16(v1, 4);
        p = pairs_add(p, low_nibbles(v0), low_nibbles(v1), x + g * 4 + 4);
    }
    return dots_widen(dots_zero(), p);
}

/* 12 + twice the E2M1 value, 0..24: 4 pairs of at most 2 * 24 * 127 fit i16. */
static inline dots dot_fp4(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    const __m256i table = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15,
                                           16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    dots sum = dots_zero();

    for (int g = g0; g < g1; g += 4) {
        dots p = dots_zero();
        for (int i = g; i < g + 4; i += 2) {
            __m256i v0 = load256(codes + i * 32), v1 = load256(codes + i * 32 + 32);
            p = pairs_add(p, _mm256_shuffle_epi8(table, low_nibbles(v0)), _mm256_shuffle_epi8(table, low_nibbles(v1)),
                          x + i * 4);
            v0 = low_nibbles(_mm256_srli_epi16(v0, 4)), v1 = low_nibbles(_mm256_srli_epi16(v1, 4));
            p = pairs_add(p, _mm256_shuffle_epi8(table, v0), _mm256_shuffle_epi8(table, v1), x + i * 4 + 4);
        }
        sum = dots_widen(sum, p);
    }
    return sum;
}

/* Codes 0..63: 2 pairs of at most 2 * 63 * 127 fit i16. */
static inline dots dot_q6(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots sum = dots_zero();

    for (int g = g0; g < g1; g += 2) {
        dots p = pairs(codes_q6_raw(codes, g, 0), codes_q6_raw(codes, g, 1), x + g * 4);
        p = pairs_add(p, codes_q6_raw(codes, g + 1, 0), codes_q6_raw(codes, g + 1, 1), x + g * 4 + 4);
        sum = dots_widen(sum, p);
    }
    return sum;
}

static inline __m256 fold_row(__m256 acc, __m256i dot, int32_t off, __m256 scale, float d)
{
    __m256 t = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot, _mm256_set1_epi32(off)));

    return _mm256_fmadd_ps(t, _mm256_mul_ps(scale, _mm256_set1_ps(d)), acc);
}

/* One stream with much arithmetic per byte: the hardware prefetcher alone reaches half of the memory bandwidth. */
enum { PREFETCH_AHEAD = 8192 };      /* bytes; past the end of the weights it does nothing */

static inline void prefetch_block(const uint8_t *codes, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)codes + PREFETCH_AHEAD + i, _MM_HINT_T0);
}

#define INT_ROW(name, block_bytes, dot_of, scales_of, group_k, with_min, offset)                              \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row, \
                               float *y)                                                                      \
    {                                                                                                         \
        int64_t k = q->k;                                                                                     \
        const int8_t *x = q->q8 + row * k;                                                                    \
        const int32_t *sum = q->sum + row * k / 16;                                                           \
        const float *dx = q->d + row * (k / 32), *sx = q->s + row * (k / 32);                                 \
        const uint8_t *codes = panel, *rec = panel + h->scale_offset;                                         \
        __m256 a = _mm256_setzero_ps(), c = a;                                                                \
        for (int64_t b = 0; b < k / 32; b++, x += 32, sum += 2, codes += h->code_bytes) {                     \
            _Alignas(32) float scale[2 * PANEL], min[PANEL];                                                  \
            prefetch_block(codes, block_bytes);                                                               \
            scales_of(rec, b, scale, min);                                                                    \
            for (int i = 0; i < 32 / (group_k); i++) {                                                        \
                int32_t off = (offset) * ((group_k) == 32 ? sum[0] + sum[1] : sum[i]);                        \
                dots t = dot_of(codes, i * (group_k) / 4, (i + 1) * (group_k) / 4, x);                        \
                a = fold_row(a, t.a, off, _mm256_load_ps(scale + i * PANEL), dx[b]);                          \
                c = fold_row(c, t.c, off, _mm256_load_ps(scale + i * PANEL + 8), dx[b]);                      \
            }                                                                                                 \
            if (with_min) {                                                                                   \
                a = _mm256_fmadd_ps(_mm256_load_ps(min), _mm256_set1_ps(sx[b]), a);                           \
                c = _mm256_fmadd_ps(_mm256_load_ps(min + 8), _mm256_set1_ps(sx[b]), c);                       \
            }                                                                                                 \
            if (h->span == 32 || b % 8 == 7)                                                                  \
                rec += h->span_bytes;                                                                         \
        }                                                                                                     \
        _mm256_storeu_ps(y, a);                                                                               \
        _mm256_storeu_ps(y + 8, c);                                                                           \
    }
INT_ROW(q8_0, 512, dot_q8_0, scales_f16, 32, 0, 0)
INT_ROW(q4_0, 256, dot_nibbles, scales_f16, 32, 0, 8)
INT_ROW(q4_k, 256, dot_nibbles, scales_q4_k, 32, 1, 0)
INT_ROW(q6_k, 384, dot_q6, scales_q6_k, 16, 0, 32)
INT_ROW(mxfp4, 256, dot_fp4, scales_mxfp4, 32, 0, 12)
INT_ROW(nvfp4, 256, dot_fp4, scales_nvfp4, 16, 0, 12)

const matmul_int_row_fn matmul_int_row_avx2[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = int_row_q8_0, [LAYOUT_Q4_0] = int_row_q4_0, [LAYOUT_Q4_K] = int_row_q4_k,
    [LAYOUT_Q6_K] = int_row_q6_k, [LAYOUT_MXFP4] = int_row_mxfp4, [LAYOUT_NVFP4] = int_row_nvfp4,
};
