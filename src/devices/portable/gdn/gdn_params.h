/* gdn_params.h: what kernels of this folder get besides buffers.  prompt: the sequences that take part are prompts,
 * else those that decode; strides of slots count values, but bytes in slots.k.  Fields of 8 bytes first. */
#ifndef KVANT_PORTABLE_GDN_PARAMS_H
#define KVANT_PORTABLE_GDN_PARAMS_H

/* Values or units of a slot that a group takes. */
#define SLOT_SPAN 1024

struct p_gather { int64_t n, slot_stride; int32_t prompt, in_place; };
struct p_conv { int64_t ldx, slot_stride; int32_t c, k, prompt, linear, has_bias; };
struct p_gdn {
    int64_t ldq, ldk, ldv, slot_stride;
    int32_t hk, hv, dv, interleaved, prompt, n_seqs;
    float scale;
};
/* rows: of a head's state (p). */
struct p_ssm { int64_t ldx, lddt, ldb, slot_stride; int32_t h, rows, g, prompt; };
struct p_slots { int64_t stride, n; int32_t gather; };

#endif
