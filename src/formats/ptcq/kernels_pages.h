/* kernels_pages.h: the kernels of a format of page scope, over simd_blocks.h and the search of page_walk.h. */
#define BLOCK_DECODE card_decode32
#include "formats/ptcq/page_walk.h"
#include "formats/rotate/rotate.h"
#include "formats/simd/simd_blocks.h"
#include "formats/simd/simd_card.h"

static void pages_encode(const void *param, const float *x, size_t ldx, uint8_t *page, int d, int encoder)
{
    (void)param;
    (void)encoder;
    for (int g = 0; g < d / PTCQ_GROUP; g++)
        ptcq_encode_group(page_walk, rotate_r128, card_levels, CARD_K, x + g * PTCQ_GROUP, ldx,
                          page + g * PTCQ_PAGE_BYTES(CARD_K));
}

/* Calls a kernel of rows with rows first .. first + n - 1 of a page. */
#define PAGES_CALL(call)                                                                                    \
    {                                                                                                       \
        page_head head;                                                                                     \
        page_row at[KVANT_PAGE];                                                                            \
        const uint8_t *const rows = (const uint8_t *)at;                                                    \
        page_rows(CARD_K, page, first, n, d, &head, at);                                                    \
        call;                                                                                               \
    }

static void pages_decode(const void *param, const uint8_t *page, int first, int n, float *out, int d)
{
    PAGES_CALL(blocks_decode_acc(param, rows, sizeof *at, n, out, d))
}

static void pages_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *page, int first, int n,
                        float *s, size_t lds, int d)
{
    PAGES_CALL(blocks_score(param, qp, ldq, r, rows, sizeof *at, n, s, lds, d))
}

static void pages_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *page, int first, int n,
                       float *acc, size_t lda, int d)
{
    PAGES_CALL(blocks_axpy(param, w, ldw, r, rows, sizeof *at, n, acc, lda, d))
}

#ifndef PAGE_Q8_KERNELS
#define PAGE_Q8_KERNELS                    /* the integer path is that of the rung below */
#endif
#ifndef SPACE_KERNELS
#define SPACE_KERNELS                      /* the queries' rotation is that of the rung below */
#endif

const kvant_format_kernels CARD_KERNELS(CARD_NAME, VF_ISA) = {
    SPACE_KERNELS .encode_page = pages_encode, .decode_page = pages_decode, .score_page = pages_score,
    .axpy_page = pages_axpy, PAGE_Q8_KERNELS
};
