/* ops_params.h: what kernels of this folder get besides buffers; the host (port_choose.c) fills
 * them.  Fields of 8 bytes first. */
#ifndef KVANT_PORTABLE_OPS_PARAMS_H
#define KVANT_PORTABLE_OPS_PARAMS_H

/* Values of a row that a group of threads takes. */
#define ROWS_SPAN 256

#define MOST_EXPERTS 1024
#define MOST_TOP_K 1024                    /* KVANT_TOP_K_MOST */

struct p_moe_route { int32_t n_expert, k, gating, raw, has_bias, n_group, top_groups, group_best; float scale; };
struct p_top_k { int32_t d, k, parts, pieces; };

#endif
