/* encode_params.h: what kernels of this folder get besides buffers; the host (cache.c) fills them.  Fields of 8 bytes
 * first. */
#ifndef KVANT_PORTABLE_ENCODE_PARAMS_H
#define KVANT_PORTABLE_ENCODE_PARAMS_H

/* units: of one head's row; the last may hold fewer than WIDTH values. */
struct p_cache_write {
    int64_t page_bytes, head_bytes, row_bytes, ldx;
    int32_t n, n_seqs, stride, h, d, units, has_tail, has_factor;
};
struct p_page_seal {
    int64_t page_bytes, head_bytes, row_bytes;
    int32_t n, h, d, units, has_factor;
};
/* first: unit that the first group has; groups: of a head's row. */
struct p_pages { int64_t page_bytes, head_bytes, first; int32_t groups, h, d; };
struct p_cache_read { int64_t page_bytes, head_bytes, row_bytes; int32_t h, has_factor; };

#endif
