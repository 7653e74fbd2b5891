/* ops/op_util.h: small things that several ops share: the split over parts, and addresses inside pages. */
#ifndef KVANT_OPS_OP_UTIL_H
#define KVANT_OPS_OP_UTIL_H

#include "kvant/ops.h"

/* The contiguous range of n units that belongs to `part`. */
static inline void part_range(int64_t n, int part, int parts, int64_t *lo, int64_t *hi)
{
    *lo = n * part / parts;
    *hi = n * (part + 1) / parts;
}

/* Returns 1 if an op of decode (0) or prompt (1) sequences has rows of sequence s. */
static inline int takes_part(const kvant_seqs *seqs, int s, int phase)
{
    return (seqs->prompt[s] != 0) == phase && seqs->q0[s + 1] > seqs->q0[s];
}

/* Row r of KV head h of page p. */
static inline uint8_t *kv_row(const kvant_kv_side *side, int32_t page, int h, int r)
{
    return side->pages + (size_t)page * side->page_bytes + (size_t)h * side->head_bytes + (size_t)r * side->row_bytes;
}

/* f16 row r of KV head h of tail page t. */
static inline uint16_t *kv_tail_row(const kvant_kv_side *side, int32_t t, int n_head_kv, int h, int r, int d)
{
    return side->tail + (((size_t)t * (size_t)n_head_kv + (size_t)h) * KVANT_PAGE + (size_t)r) * (size_t)d;
}

/* Which pages a query in page qp reads exactly: the newest `tail` of its sequence, and the first `sink`. */
typedef struct exact_pages { int tail, sink; } exact_pages;

/* Tail page that holds page j of sequence s exactly for a query in page qp, or -1: read the encoded page.
 * A table entry of -1 inside the exact window means that the page was encoded at once. */
static inline int32_t kv_tail_page(const kvant_kv_side *side, const kvant_seqs *seqs, int s, int j, int qp,
                                   exact_pages exact)
{
    if (side->tail == NULL || seqs->tail_table == NULL || (qp - j >= exact.tail && j >= exact.sink))
        return -1;
    return seqs->tail_table[(size_t)s * (size_t)seqs->table_stride + (size_t)j];
}

/* Page id of logical page j of sequence s. */
static inline int32_t kv_page(const kvant_seqs *seqs, int s, int j)
{
    return seqs->table[(size_t)s * (size_t)seqs->table_stride + (size_t)j];
}

static inline size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

#endif
