/* tbq3_0_avx512vnni.c: 14 bytes per 32 values: [d fp16][qs u8 x 12], code j at bits 3j..3j+2 (see tbq3_0.c): the
 * integer path.  vpmultishiftqb takes eight codes out of a 64-bit lane, vpermb is the table. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static const uint8_t bytes[16] = { TBQ3_BYTES8, TBQ3_BYTES8 };

/* 16 bytes that hold the 12 of block b.  Those of the last block begin 4 bytes early, so that nothing behind the row is
 * read; a row of one block has no such bytes: it lies in a copy that may be read beyond (see tbq3_rows). */
static inline const uint8_t *tbq3_codes(const uint8_t *row, int b)
{
    return row + (size_t)b * 14 + 2 - (b ? 4 : 0);
}

static inline __m512i tbq3_table(void)
{
    return keys_table16(bytes);
}

static inline void tbq3_keys(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    __m512i w[4];
    keys_sixteen_spread(tbq3_codes(row, b), stride, keys_windows(b ? 4 : 0), w);
    for (int c = 0; c < 4; c++) {
        x[2 * c] = _mm512_permutexvar_epi8(keys_bits3(w[c], 0), tbq3_table());
        x[2 * c + 1] = _mm512_permutexvar_epi8(keys_bits3(w[c], 12), tbq3_table());
    }
}

static inline void tbq3_quad(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    __m512i rows = keys_four(tbq3_codes(row, b), stride);
    x[0] = _mm512_permutexvar_epi8(keys_quad_bits3(rows, 0, b ? 4 : 0), tbq3_table());
    x[1] = _mm512_permutexvar_epi8(keys_quad_bits3(rows, 1, b ? 4 : 0), tbq3_table());
}

#define INT_KEYS tbq3_keys
#define INT_QUAD tbq3_quad
#define INT_VALUE(j) (j)
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TBQ3_STEP8
#define INT_OFFSET INT_CENTRE8
#define INT_DIGITS 1
#define INT_MAX_ROW (16 * 14)
#include "formats/simd_int_avx512vnni.h"

enum { SHORT_ROW = 14, SHORT_STRIDE = 32 };

/* Rows of one block, further apart. */
static const uint8_t *tbq3_rows(const uint8_t *rows, size_t stride, int n, uint8_t *copy)
{
    for (int i = 0; i < n; i++)
        memcpy(copy + i * SHORT_STRIDE, rows + (size_t)i * stride, SHORT_ROW);
    return copy;
}

static void tbq3_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                          int n, float *s, size_t lds, int d)
{
    uint8_t copy[INT_ROWS * SHORT_STRIDE] = { 0 };

    if (d > 32) {
        int_score_q8(param, q8, ldq8, r, rows, stride, n, s, lds, d);
        return;
    }
    for (int i = 0; i < n; i += INT_ROWS) {
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_score_q8(param, q8, ldq8, r, tbq3_rows(rows + (size_t)i * stride, stride, m, copy), SHORT_STRIDE, m, s + i,
                     lds, d);
    }
}

static void tbq3_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                         int n, float *acc, size_t lda, int d)
{
    uint8_t copy[INT_ROWS * SHORT_STRIDE] = { 0 };

    if (d > 32)
        int_axpy_q8(param, w, ldw, r, rows, stride, n, acc, lda, d);
    else
        int_axpy_q8(param, w, ldw, r, tbq3_rows(rows, stride, n, copy), SHORT_STRIDE, n, acc, lda, d);
}

const kvant_format_kernels kvant_tbq3_0_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = tbq3_score_q8, .axpy_q8 = tbq3_axpy_q8,
};
