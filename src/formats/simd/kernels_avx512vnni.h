/* kernels_avx512vnni.h: the integer path of a format from the functions of its class. */
#include "formats/simd/simd_int_avx512vnni.h"

#ifdef INT_SHORT_ROWS
/* Rows of one block are read beyond their end: they are copied, further apart. */
enum { SHORT_STRIDE = 32 };

static const uint8_t *short_rows(const uint8_t *rows, size_t stride, int n, uint8_t *copy)
{
    for (int i = 0; i < n; i++)
        memcpy(copy + i * SHORT_STRIDE, rows + (size_t)i * stride, CARD_BYTES_OF_RECORD);
    return copy;
}

static void card_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                          int n, float *s, size_t lds, int d)
{
    uint8_t copy[INT_ROWS * SHORT_STRIDE] = { 0 };

    if (d > 32) {
        int_score_q8(param, q8, ldq8, r, rows, stride, n, s, lds, d);
        return;
    }
    for (int i = 0; i < n; i += INT_ROWS) {
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_score_q8(param, q8, ldq8, r, short_rows(rows + (size_t)i * stride, stride, m, copy), SHORT_STRIDE, m, s + i,
                     lds, d);
    }
}

static void card_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                         int n, float *acc, size_t lda, int d)
{
    uint8_t copy[INT_ROWS * SHORT_STRIDE] = { 0 };

    if (d > 32)
        int_axpy_q8(param, w, ldw, r, rows, stride, n, acc, lda, d);
    else
        int_axpy_q8(param, w, ldw, r, short_rows(rows, stride, n, copy), SHORT_STRIDE, n, acc, lda, d);
}
#else
#define card_score_q8 int_score_q8
#define card_axpy_q8 int_axpy_q8
#endif

const kvant_format_kernels CARD_KERNELS(CARD_NAME, avx512vnni) = {
    .prep_q8 = int_prep_q8, .score_q8 = card_score_q8, .axpy_q8 = card_axpy_q8,
};
