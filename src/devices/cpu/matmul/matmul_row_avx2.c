/* matmul_row_avx2.c: matmul with 8-bit activations on AVX2, few rows: one row, one panel, straight from the packed
 * bytes, codes as the unsigned side. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc sees integer vector additions as plain arithmetic: it regroups a chain of them (reassoc) or puts it off to the
 * use of the sum (ter), and so keeps all products alive, far more than there are registers: 3x slower. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul/matmul_codes_avx2.h"

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
    __m256i v = vb_splat4(x);

    return (dots){ _mm256_maddubs_epi16(w0, v), _mm256_maddubs_epi16(w1, v) };
}

static inline dots pairs_add(dots p, __m256i w0, __m256i w1, const int8_t *x)
{
    dots n = pairs(w0, w1, x);

    return (dots){ _mm256_add_epi16(p.a, n.a), _mm256_add_epi16(p.c, n.c) };
}

/* Signed codes: |w| * (x with w's sign): at most 2 * 128 * 127 in a pair, which fits i16. */
static inline dots pairs_signed(__m256i w0, __m256i w1, const int8_t *x)
{
    __m256i v = vb_splat4(x);

    return (dots){ _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(v, w0)),
                   _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(v, w1)) };
}

/* How many pairs of products of unsigned codes fit i16 together: pairs * 2 * largest code * 127 <= 32767; 0: codes of a
 * whole byte, which are multiplied as signed ones.  A table's levels, plus the largest, are at most 30. */
enum { PAIRS_byte = 0, PAIRS_wide = 0, PAIRS_nibble = 8, PAIRS_table = 4, PAIRS_two = 8, PAIRS_three = 8,
       PAIRS_five = 4, PAIRS_six = 2 };

/* dot_<store>: groups [g0, g1) of four k of a block. */
#define DOT(store)                                                                                                   \
    static inline dots dot_##store(const uint8_t *codes, int g0, int g1, const int8_t *x, __m256i t)                 \
    {                                                                                                                \
        const int step = PAIRS_##store < g1 - g0 ? PAIRS_##store : g1 - g0;                                          \
        dots sum = dots_zero();                                                                                      \
        _Pragma("GCC unroll 8") for (int g = g0; g < g1 && step; g += step) {                                        \
            dots p = dots_zero();                                                                                    \
            _Pragma("GCC unroll 8") for (int i = g; i < g + step; i++)                                               \
                p = pairs_add(p, raw_##store(codes, i, 0, t), raw_##store(codes, i, 1, t), x + i * 4);               \
            sum = dots_widen(sum, p);                                                                                \
        }                                                                                                            \
        for (int g = g0; g < g1 && !step; g++)                                                                       \
            sum = dots_widen(sum, pairs_signed(raw_##store(codes, g, 0, t), raw_##store(codes, g, 1, t), x + 4 * g)); \
        return sum;                                                                                                  \
    }
DOT(byte)
DOT(nibble)
DOT(table)
DOT(wide)
DOT(two)
DOT(three)
DOT(five)
DOT(six)

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

enum { BYTES_byte = 512, BYTES_nibble = 256, BYTES_table = 256, BYTES_wide = 256, BYTES_two = 128, BYTES_three = 192,
       BYTES_five = 320, BYTES_six = 384 };

#define INT_ROW(name, store, scales, group_k, with_min, steps)                                                \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row, \
                               float *y)                                                                      \
    {                                                                                                         \
        enum { FOLDS = 32 / (group_k) };                                                                      \
        int64_t k = q->k;                                                                                     \
        const int8_t *x = q->q8 + row * k;                                                                    \
        const int32_t *sum = q->sum + row * k / 16, centre = PAIRS_##store != 0 && !(with_min) ? h->centre : 0;    \
        const float *dx = q->d + row * (k / 32);                                                              \
        const float *sx = (group_k) == 32 ? q->s + row * (k / 32) : q->s16 + row * (k / 16);                  \
        const uint8_t *codes = panel, *rec = panel + h->scale_offset;                                         \
        const __m256i t = levels_of(h);                                                                       \
        __m256 a = _mm256_setzero_ps(), c = a;                                                                \
        for (int64_t b = 0; b < k / 32; b++, x += 32, sum += 2, codes += BYTES_##store) {                     \
            _Alignas(32) float scale[2 * PANEL], min[2 * PANEL];                                              \
            prefetch_block(codes, BYTES_##store);                                                             \
            scales_##scales(h, rec, b, FOLDS, scale, min);                                                    \
            for (int i = 0; i < FOLDS; i++) {                                                                 \
                int32_t off = centre * (FOLDS == 1 ? sum[0] + sum[1] : sum[i]);                               \
                dots p = dot_##store(codes, i * (group_k) / 4, (i + 1) * (group_k) / 4, x, t);                \
                a = fold_row(a, p.a, off, _mm256_load_ps(scale + i * PANEL), dx[b]);                          \
                c = fold_row(c, p.c, off, _mm256_load_ps(scale + i * PANEL + 8), dx[b]);                      \
                if (with_min) {                                                                               \
                    __m256 s = _mm256_set1_ps(sx[b * FOLDS + i]);                                             \
                    a = _mm256_fmadd_ps(_mm256_load_ps(min + i * PANEL), s, a);                               \
                    c = _mm256_fmadd_ps(_mm256_load_ps(min + i * PANEL + 8), s, c);                           \
                }                                                                                             \
            }                                                                                                 \
            if ((b & h->last) == h->last)                                                                     \
                rec += h->span_bytes;                                                                         \
        }                                                                                                     \
        _mm256_storeu_ps(y, a);                                                                               \
        _mm256_storeu_ps(y + 8, c);                                                                           \
    }
INT_LAYOUTS(INT_ROW)

#define INT_ROW_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = int_row_##name,
const matmul_int_row_fn matmul_int_row_avx2[LAYOUT_COUNT] = { INT_LAYOUTS(INT_ROW_ENTRY) };
