/* matmul_int_avx2.c: matmul with 8-bit activations on AVX2, and quantised panels to f32.
 *
 * Many rows: a panel is unpacked once.
 *   Codes of a whole byte to i16 (one 32-bit lane = two k of one output), multiplied with vpmaddwd: exact, no sign
 *   tricks, twice the f32 rate.  spread() gives the lanes (k0 k2) and (k1 k3) of four bytes; activations have the same
 *   order (matmul_xq.q16).
 *   Others to i8, multiplied with vpmaddubsw by unsigned activations (matmul_xq.u8, q + 128), summed in i16 for as many
 *   steps as cannot overflow, then widened: nearly four times the f32 rate.
 * Few rows: matmul_row_avx2.c. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc sees integer vector additions as plain arithmetic: it regroups a chain of them (reassoc) or puts it off to the
 * use of the sum (ter), and so keeps all products alive, far more than there are registers: 3x slower. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul/matmul_codes_avx2.h"

#include <math.h>

/* ---- activations ---- */

static inline float block_amax(const float *x, int *finite)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), inf = _mm256_set1_ps(INFINITY);
    __m256 best = _mm256_setzero_ps(), ok = _mm256_castsi256_ps(_mm256_set1_epi32(-1));

    for (int i = 0; i < 32; i += 8) {
        __m256 a = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
        ok = _mm256_and_ps(ok, _mm256_cmp_ps(a, inf, _CMP_LT_OQ));
        best = _mm256_max_ps(best, a);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(best), _mm256_extractf128_ps(best, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    *finite = _mm256_movemask_ps(ok) == 255;
    return _mm_cvtss_f32(m);
}

static inline int32_t sum8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* 16 values: i8 in natural order, i16 in (0 2 1 3) order; returns their sum. */
static inline int32_t quantise16(const float *x, __m256 id, int8_t *q8, uint8_t *u8, int16_t *q16)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                           8, 9, 12, 13, 10, 11, 14, 15);
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), id));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), id));
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    __m128i n = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));

    store128(q8, n);
    store128(u8, _mm_xor_si128(n, _mm_set1_epi8((char)0x80)));
    store256(q16, _mm256_shuffle_epi8(w, order));
    return sum8(_mm256_add_epi32(a, b));
}

void matmul_quantise_avx2(const float *x, const matmul_xq *q, int64_t row)
{
    int64_t k = q->k;
    int8_t *q8 = q->q8 + row * k;
    uint8_t *u8 = q->u8 + row * k;
    int16_t *q16 = q->q16 + row * k;
    int32_t *sum = q->sum + row * k / 16;

    for (int64_t b = 0; b < k / 32; b++, x += 32) {
        int finite;
        float amax = block_amax(x, &finite), d = finite ? amax / 127.0f : NAN;
        if (finite && amax > 1e-30f) {              /* below, 127 / amax could overflow; such a block counts as 0 */
            __m256 id = _mm256_set1_ps(127.0f / amax);
            sum[2 * b] = quantise16(x, id, q8 + b * 32, u8 + b * 32, q16 + b * 32);
            sum[2 * b + 1] = quantise16(x + 16, id, q8 + b * 32 + 16, u8 + b * 32 + 16, q16 + b * 32 + 16);
        } else {
            memset(q8 + b * 32, 0, 32);
            memset(u8 + b * 32, 128, 32);
            memset(q16 + b * 32, 0, 64);
            sum[2 * b] = sum[2 * b + 1] = 0;
        }
        q->d[row * (k / 32) + b] = d;
        q->s[row * (k / 32) + b] = d * (float)(sum[2 * b] + sum[2 * b + 1]);
        q->s16[row * (k / 16) + 2 * b] = d * (float)sum[2 * b];
        q->s16[row * (k / 16) + 2 * b + 1] = d * (float)sum[2 * b + 1];
    }
}

/* ---- unpack ---- */

static inline void spread(__m256i v, uint8_t *dst)
{
    store256(dst, _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store256(dst + 64, _mm256_srai_epi16(v, 8));
}

/* -128 * sum of 4 signed codes per lane, added to acc: the codes are small enough for vpmaddubsw with 128s. */
static inline __m256i bias_of(__m256i acc, __m256i codes)
{
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8((char)128), codes);

    return _mm256_sub_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}

/* One group of four k: as words for the i16 tiles, else as bytes and their bias. */
static inline void unpack_words(matmul_unpacked *u, int64_t i, int g, __m256i c0, __m256i c1)
{
    spread(c0, u->codes + i * 1024 + g * 128);
    spread(c1, u->codes + i * 1024 + g * 128 + 32);
}

static inline void unpack_bytes(matmul_unpacked *u, int64_t i, int g, __m256i c0, __m256i c1)
{
    store256(u->codes + i * 512 + g * 64, c0);
    store256(u->codes + i * 512 + g * 64 + 32, c1);
}

#define UNPACK(name, store, scales, group_k, with_min, steps)                                                          \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u) \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k), GROUPS = (group_k) / 4 };                                                       \
        const __m256i t = levels_of(h), centre = _mm256_set1_epi8((char)h->centre);                                    \
        u->group = group_k;                                                                                            \
        u->has_min = with_min;                                                                                         \
        for (int64_t i = 0; i < k / 32; i++) {                                                                         \
            int64_t b = k0 / 32 + i;                                                                                   \
            const uint8_t *codes = panel + b * h->code_bytes;                                                          \
            for (int g = 0; g < 8; g += GROUPS) {                                                                      \
                __m256i bias0 = _mm256_setzero_si256(), bias1 = bias0;                                                 \
                for (int j = g; j < g + GROUPS; j++) {                                                                 \
                    __m256i c0 = raw_##store(codes, j, 0, t), c1 = raw_##store(codes, j, 1, t);                        \
                    c0 = (with_min) ? c0 : _mm256_sub_epi8(c0, centre);                                                \
                    c1 = (with_min) ? c1 : _mm256_sub_epi8(c1, centre);                                                \
                    if ((steps) == 0) {                                                                                \
                        unpack_words(u, i, j, c0, c1);                                                                 \
                        continue;                                                                                      \
                    }                                                                                                  \
                    unpack_bytes(u, i, j, c0, c1);                                                                     \
                    bias0 = bias_of(bias0, c0);                                                                        \
                    bias1 = bias_of(bias1, c1);                                                                        \
                }                                                                                                      \
                store256(u->bias + (i * FOLDS + g / GROUPS) * PANEL, bias0);                                           \
                store256(u->bias + (i * FOLDS + g / GROUPS) * PANEL + 8, bias1);                                       \
            }                                                                                                          \
            scales_##scales(h, record(h, panel, b), b, FOLDS, u->scale + i * FOLDS * PANEL,                            \
                            u->min + i * FOLDS * PANEL);                                                               \
        }                                                                                                              \
    }
INT_LAYOUTS(UNPACK)

#define UNPACK_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = unpack_##name,
const matmul_unpack_fn matmul_unpack_avx2[LAYOUT_COUNT] = { INT_LAYOUTS(UNPACK_ENTRY) };

/* Four k of 8 outputs to f32: x = scale * code + min, the product rounded first as the types say. */
static inline void expand4(__m256i codes, __m256 scale, __m256 min, float *dst)
{
    __m256i k[4] = {
        _mm256_srai_epi32(_mm256_slli_epi32(codes, 24), 24), _mm256_srai_epi32(_mm256_slli_epi32(codes, 16), 24),
        _mm256_srai_epi32(_mm256_slli_epi32(codes, 8), 24), _mm256_srai_epi32(codes, 24),
    };

    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(dst + i * PANEL, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(k[i]), scale), min));
}

/* -0.0 as min leaves every product as it is, -0.0 and NaN included. */
#define EXPAND(name, store, scales, group_k, with_min, steps)                                                  \
    static void expand_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst) \
    {                                                                                                          \
        enum { FOLDS = 32 / (group_k) };                                                                       \
        const __m256i t = levels_of(h), centre = _mm256_set1_epi8((char)h->centre);                            \
        _Alignas(32) float scale[2 * PANEL], min[2 * PANEL];                                                   \
        for (int64_t b = k0 / 32; b < (k0 + k) / 32; b++) {                                                    \
            scales_##scales(h, record(h, panel, b), b, FOLDS, scale, min);                                     \
            for (int g = 0; g < 8; g++, dst += 4 * PANEL)                                                      \
                for (int s = 0; s < 2; s++) {                                                                  \
                    const int at = g * 4 / (group_k) * PANEL + s * 8;                                          \
                    __m256i c = raw_##store(panel + b * h->code_bytes, g, s, t);                               \
                    expand4(_mm256_sub_epi8(c, centre), _mm256_load_ps(scale + at),                            \
                            (with_min) ? _mm256_load_ps(min + at) : _mm256_set1_ps(-0.0f), dst + s * 8);       \
                }                                                                                              \
        }                                                                                                      \
    }
INT_LAYOUTS(EXPAND)

#define EXPAND_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = expand_##name,
void matmul_expand_avx2(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    static const matmul_expand_fn expand[LAYOUT_COUNT] = { INT_LAYOUTS(EXPAND_ENTRY) };

    expand[h->layout](h, panel, k0, k, dst);
}

/* ---- many rows ----
 * The f32 sums lie in acc (L1), because the integer sums need the registers. */

#define I_1(M) M(0)
#define I_2(M) I_1(M) M(1)
#define I_3(M) I_2(M) M(2)
#define I_4(M) I_3(M) M(3)
#define I_5(M) I_4(M) M(4)
#define I_6(M) I_5(M) M(5)

static void acc_load(float *acc, const float *y, int64_t ldy, int rows, int first)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < PANEL; i++)
            acc[r * PANEL + i] = first ? 0.0f : y[r * ldy + i];
}

static void acc_store(const float *acc, float *y, int64_t ldy, int rows)
{
    for (int r = 0; r < rows; r++)
        memcpy(y + r * ldy, acc + r * PANEL, PANEL * sizeof(float));
}

static inline void fold(float *acc, __m256i dot, __m256 scale, const float *d)
{
    __m256 s = _mm256_mul_ps(scale, _mm256_broadcast_ss(d));

    _mm256_store_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), s, _mm256_load_ps(acc)));
}

static inline void add_min(float *acc, __m256 min, __m256 sum)
{
    _mm256_store_ps(acc, _mm256_fmadd_ps(min, sum, _mm256_load_ps(acc)));
}

/* Row r of the sums of a row for minima: of 32 k, or of 16 k. */
#define MIN_SUMS(group_k) ((group_k) == 32 ? q->s + (row * blocks_all + b0) : q->s16 + 2 * (row * blocks_all + b0))
#define MIN_SUM(r, group_k) _mm256_broadcast_ss(sx + (r) * blocks_all * (32 / (group_k)))

/* Codes of a whole byte: both halves of the panel, two k per step. */
#define WORD_FIRST(r)                                               \
    __m256i a##r, c##r;                                             \
    {                                                               \
        __m256i v = vb_splat4(x + (r) * k);                        \
        a##r = _mm256_madd_epi16(w0, v);                            \
        c##r = _mm256_madd_epi16(w1, v);                            \
    }
#define WORD_NEXT(r)                                                \
    {                                                               \
        __m256i v = vb_splat4(x + (r) * k);                        \
        a##r = _mm256_add_epi32(a##r, _mm256_madd_epi16(w0, v));    \
        c##r = _mm256_add_epi32(c##r, _mm256_madd_epi16(w1, v));    \
    }
#define WORD_LOAD w0 = load256(w), w1 = load256(w + 32), w += 64
#define WORD_STEP(I) x += 2, WORD_LOAD; I(WORD_NEXT)
#define WORDS_16(I)                                                                      \
    WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I)
#define WORDS_32(I)                                                                      \
    WORDS_16(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I) WORD_STEP(I)
#define WORD_FOLD(r)                                                                    \
    fold(acc + (r) * PANEL, a##r, _mm256_load_ps(ws), dx + (r) * blocks_all);           \
    fold(acc + (r) * PANEL + 8, c##r, _mm256_load_ps(ws + 8), dx + (r) * blocks_all);
#define WORD_MIN_16(r) WORD_MIN(r, 16)
#define WORD_MIN_32(r) WORD_MIN(r, 32)
#define WORD_MIN(r, group_k)                                                            \
    add_min(acc + (r) * PANEL, _mm256_load_ps(wm), MIN_SUM(r, group_k));                \
    add_min(acc + (r) * PANEL + 8, _mm256_load_ps(wm + 8), MIN_SUM(r, group_k));
#define WORD_TILE(group_k, with_min, rows)                                                                       \
    static void tile_0_##group_k##_##with_min##_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, \
                                                       int64_t b0, int64_t blocks, float *y, int64_t ldy, int first) \
    {                                                                                                            \
        _Alignas(32) float acc[(rows) * PANEL];                                                                  \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const int16_t *x = q->q16 + row * k + b0 * 32;                                                           \
        const float *dx = q->d + row * blocks_all + b0, *ws = u->scale, *wm = u->min, *sx = MIN_SUMS(group_k);   \
        const uint8_t *w = u->codes;                                                                             \
        acc_load(acc, y, ldy, rows, first);                                                                      \
        for (int64_t i = 0; i < blocks * (32 / (group_k)); i++, ws += PANEL, wm += PANEL, sx++, x += 2) {        \
            __m256i w0, w1;                                                                                      \
            WORD_LOAD;                                                                                           \
            I_##rows(WORD_FIRST)                                                                                 \
            WORDS_##group_k(I_##rows)                                                                            \
            I_##rows(WORD_FOLD)                                                                                  \
            if (with_min) {                                                                                      \
                I_##rows(WORD_MIN_##group_k)                                                                     \
            }                                                                                                    \
            dx += (group_k) == 32 || i % 2 == 1;                                                                 \
        }                                                                                                        \
        acc_store(acc, y, ldy, rows);                                                                            \
    }

/* Others: one half of the panel (8 outputs), four k per step; p sums in i16, a in i32. */
#define BYTE_BEGIN(r) __m256i a##r = load256(bias), p##r;
#define BYTE_FIRST(r) p##r = _mm256_maddubs_epi16(vb_splat4(x + (r) * k), wv);
#define BYTE_NEXT(r) p##r = _mm256_add_epi16(p##r, _mm256_maddubs_epi16(vb_splat4(x + (r) * k), wv));
#define BYTE_WIDEN(r) a##r = _mm256_add_epi32(a##r, _mm256_madd_epi16(p##r, one));
#define BYTE_FOLD(r) fold(acc + (r) * PANEL, a##r, scale, dx + (r) * blocks_all);
#define BYTE_MIN_16(r) add_min(acc + (r) * PANEL, min, MIN_SUM(r, 16));
#define BYTE_MIN_32(r) add_min(acc + (r) * PANEL, min, MIN_SUM(r, 32));
#define BYTE_STEP(I, M) wv = load256(w); I(M) w += 64, x += 4;
#define BYTE_1(I) BYTE_STEP(I, BYTE_FIRST)
#define BYTE_2(I) BYTE_1(I) BYTE_STEP(I, BYTE_NEXT)
#define BYTE_4(I) BYTE_2(I) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT)
#define BYTE_8(I) BYTE_4(I) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT)              \
    BYTE_STEP(I, BYTE_NEXT)
/* Sums of a fold: steps that fit i16, widened; repeated. */
#define SUM_8_32(I) BYTE_8(I) I(BYTE_WIDEN)
#define SUM_4_32(I) BYTE_4(I) I(BYTE_WIDEN) BYTE_4(I) I(BYTE_WIDEN)
#define SUM_4_16(I) BYTE_4(I) I(BYTE_WIDEN)
#define SUM_2_16(I) BYTE_2(I) I(BYTE_WIDEN) BYTE_2(I) I(BYTE_WIDEN)
#define SUM_2_32(I) SUM_2_16(I) SUM_2_16(I)
#define BYTE_TILE(steps, group_k, with_min, rows)                                                                \
    static void tile_##steps##_##group_k##_##with_min##_##rows(const matmul_unpacked *u, const matmul_xq *q,     \
                                                               int64_t row, int64_t b0, int64_t blocks, float *y, \
                                                               int64_t ldy, int first)                           \
    {                                                                                                            \
        _Alignas(32) float all[(rows) * PANEL];                                                                  \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const __m256i one = _mm256_set1_epi16(1);                                                                \
        acc_load(all, y, ldy, rows, first);                                                                      \
        for (int s = 0; s < 2; s++) {                                                                            \
            const uint8_t *x = q->u8 + row * k + b0 * 32, *w = u->codes + s * 32;                                \
            const float *dx = q->d + row * blocks_all + b0, *ws = u->scale + s * 8;                              \
            const float *sx = MIN_SUMS(group_k), *wm = u->min + s * 8;                                           \
            const int32_t *bias = u->bias + s * 8;                                                               \
            float *acc = all + s * 8;                                                                            \
            for (int64_t i = 0; i < blocks * (32 / (group_k)); i++, bias += PANEL, ws += PANEL) {                \
                __m256i wv;                                                                                      \
                I_##rows(BYTE_BEGIN)                                                                             \
                SUM_##steps##_##group_k(I_##rows)                                                                \
                __m256 scale = _mm256_load_ps(ws);                                                               \
                I_##rows(BYTE_FOLD)                                                                              \
                if (with_min) {                                                                                  \
                    __m256 min = _mm256_load_ps(wm);                                                             \
                    I_##rows(BYTE_MIN_##group_k)                                                                 \
                }                                                                                                \
                wm += PANEL, sx++;                                                                               \
                dx += (group_k) == 32 || i % 2 == 1;                                                             \
            }                                                                                                    \
        }                                                                                                        \
        acc_store(all, y, ldy, rows);                                                                            \
    }

#define TILE_0 WORD_TILE_AT
#define TILE_2 BYTE_TILE
#define TILE_4 BYTE_TILE
#define TILE_8 BYTE_TILE
#define WORD_TILE_AT(steps, group_k, with_min, rows) WORD_TILE(group_k, with_min, rows)
#define ROWS_TILES(steps, group_k, with_min)                                                                     \
    TILE_##steps(steps, group_k, with_min, 1) TILE_##steps(steps, group_k, with_min, 2)                          \
    TILE_##steps(steps, group_k, with_min, 3) TILE_##steps(steps, group_k, with_min, 4)                          \
    TILE_##steps(steps, group_k, with_min, 5) TILE_##steps(steps, group_k, with_min, 6)
INT_TILES(ROWS_TILES)

#define TILE_NAME(steps, group_k, with_min, rows) tile_##steps##_##group_k##_##with_min##_##rows
#define TILE_ENTRY_OF(name, store, scales, group_k, with_min, steps)                                             \
    [LAYOUT_##name] = { NULL, TILE_NAME(steps, group_k, with_min, 1), TILE_NAME(steps, group_k, with_min, 2),    \
                        TILE_NAME(steps, group_k, with_min, 3), TILE_NAME(steps, group_k, with_min, 4),          \
                        TILE_NAME(steps, group_k, with_min, 5), TILE_NAME(steps, group_k, with_min, 6) },
const matmul_int_tile_fn matmul_int_tile_avx2[LAYOUT_COUNT][TILE_ROWS + 1] = { INT_LAYOUTS(TILE_ENTRY_OF) };
