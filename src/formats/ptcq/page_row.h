/* page_row.h: rows of a page for simd_blocks.h, which reads rows from an address on, `stride` bytes apart: a row of a
 * page is a number and the page that it belongs to, whose mean is decoded once. */
#ifndef KVANT_FORMATS_PAGE_ROW_H
#define KVANT_FORMATS_PAGE_ROW_H

#include "base/half.h"
#include "formats/ptcq/ptcq.h"

typedef struct page_head {
    const uint8_t *page;
    float mean[KVANT_MAX_HEAD_DIM];
} page_head;

typedef struct page_row {
    const page_head *head;
    int r;
} page_row;

/* Rows first .. first + n - 1 of a page of heads of d values. */
static inline void page_rows(int k, const uint8_t *page, int first, int n, int d, page_head *head, page_row *rows)
{
    head->page = page;
    for (int g = 0; n > 0 && g < d / PTCQ_GROUP; g++)
        ptcq_mean(k, page + g * PTCQ_PAGE_BYTES(k), head->mean + g * PTCQ_GROUP);
    for (int i = 0; i < n; i++)
        rows[i] = (page_row){ head, first + i };
}

/* The place of values 32b .. 32b+31 of a row. */
typedef struct page_block {
    const uint8_t *codes, *scale;
    const float *mean;
    int before;                            /* the byte before the codes: its upper 9 - k bits are the state there */
} page_block;

static inline page_block page_block_of(int k, const uint8_t *row, int b)
{
    const page_row *p = (const page_row *)(const void *)row;
    const uint8_t *page = p->head->page + (size_t)(b / 4) * (size_t)PTCQ_PAGE_BYTES(k), *codes = page + p->r * 16 * k;
    const int at = b % 4 * 4 * k;

    return (page_block){ codes + at, page + PTCQ_SCALE_AT(k) + 2 * p->r, p->head->mean + 32 * b,
                         at ? codes[at - 1] : (page[PTCQ_START_AT(k) + p->r] << (k - 1)) & 0xff };
}

#endif
