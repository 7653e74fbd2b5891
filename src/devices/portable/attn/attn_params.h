/* attn_params.h: what kernels of this folder get besides buffers; the host (port_attn.c) fills them.  Fields of 8 bytes
 * first. */
#ifndef KVANT_PORTABLE_ATTN_PARAMS_H
#define KVANT_PORTABLE_ATTN_PARAMS_H

/* One side's pages; has_tail: pages of the exact tail may be read instead. */
struct p_side { int64_t page_bytes, head_bytes, row_bytes; int32_t has_tail, has_factor; };

/* tiles: of HEADS query heads, of one KV head. */
struct p_attn {
    struct p_side k, v;
    int64_t ldq, gq, ldo;
    int32_t n_seqs, stride, h, h_kv, tiles, tail_pages, sink_pages, window, has_sinks;
    float scale, softcap;
};
struct p_attn_score {
    struct p_side k;
    int64_t ldq, gq, lds;
    int32_t n_seqs, stride, h, h_kv, tail_pages, sink_pages;
    float scale;
};

#endif
