/* fused.h: the two named fusions of the public implementations: QJL keys with tbq3_0 or q4_polar values, over plain
 * (unpaged) buffers.  One query sketch per head and position, softmax and weighted sum in one call.
 *
 *   q_sketch f32[n_q_pos][n_heads][256]   prep_q of qjl1_256
 *   k        u8[n_kv_heads][n_tokens][34] qjl1_256
 *   v        u8[n_kv_heads][n_tokens][56] tbq3_0, or [82] q4_polar
 *   out      f32[n_q_pos][n_heads][128]   real space, overwritten
 *
 * Query head h reads KV head h / (n_heads/n_kv_heads).  causal: position p sees token t iff t <= q_pos_base + p.
 * No visible token, or a largest score that is not finite: zeros.  out may not overlap the inputs.
 * Threads: pure functions, no allocation.
 * Source: docs/formats/qjl1_256.md, tbq3_0.md, q4_polar.md.  Golden: docs/formats/golden.md, `cases[]`. */
#ifndef KVANT_FUSED_H
#define KVANT_FUSED_H

#include <stdint.h>
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

typedef struct kvant_attn_fused {
    const float *q_sketch;
    const uint8_t *k, *v;
    float *out;
    int n_q_pos, n_heads, n_kv_heads, n_tokens;
    float sm_scale;                /* normally 1/sqrt(128) */
    int causal, q_pos_base;
    int v_use_qjl;                 /* q4_polar values only: decode with the residual sign */
} kvant_attn_fused;

/* KVANT_EINVAL if a count is negative, n_heads is not a multiple of n_kv_heads, or a needed pointer is NULL. */
int kvant_attn_fused_check(const kvant_attn_fused *a, kvant_diag *diag);

/* References: two passes over the scores, sums in double.  Arguments were checked. */
void kvant_attn_fused_qjl_tbq_ref(const kvant_attn_fused *a);
void kvant_attn_fused_qjl_polar_ref(const kvant_attn_fused *a);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
