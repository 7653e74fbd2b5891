/* vk_attn.h: one attention as its passes see it: vk_attn.c cuts it into parts, vk_parts.c records them. */
#ifndef KVANT_DEVICES_VK_ATTN_H
#define KVANT_DEVICES_VK_ATTN_H

#include "devices/vulkan/core/vk_dev.h"

enum { MOST_SPLIT = 8192 };                /* keys of a part */

typedef struct vk_attn_job {
    const kvant_attn_args *a;
    vk_side k, v;
    int heads, head_tiles, tokens; /* heads of a tile; tiles that cover the heads of one KV head; tokens of a tile */
    int rows, n_split, n_part, width;
    int split;                     /* keys of a part: KVANT_SPLIT, or what split_of chose */
    int tile0, n_tiles;            /* of this dispatch */
    int part_from, parts;          /* of this dispatch */
    int direct;                    /* one part, no rotation back: the pass writes the result, nothing is merged */
    const float *qp;               /* prepared queries; q itself where nothing is to be done */
    int64_t ldp, gp;               /* their strides */
    void *part;
} vk_attn_job;

/* Partial sums of a tile; extents of queries, of results. */
size_t vk_tile_bytes(const vk_attn_job *p);
size_t vk_q_bytes(const kvant_seqs *s, int64_t ldq, int64_t gq, int h, int d);
size_t vk_out_bytes(const kvant_attn_args *a);

/* A kernel that is faster than attn_tile takes the encoded parts. */
int vk_fast_parts(const vk_device *d, const vk_attn_job *p);
/* All parts: the splits by the fastest kernel that takes them, the exact pages by attn_tile. */
int vk_parts(vk_device *d, vk_list *l, vk_attn_job *p, kvant_diag *diag);

/* vk_wide.c, prompts on matrix units: its scratch, 0 where it does not take the op; the whole op, where it takes it. */
size_t vk_wide_scratch(vk_device *d, const kvant_attn_args *a);
int vk_wide_run(vk_device *d, vk_list *l, const kvant_attn_args *a, int *took, kvant_diag *diag);

#endif
