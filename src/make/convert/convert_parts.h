/* make/convert/convert_parts.h: names, keys and tensors of the architectures of convert_mixture.c, convert_gemma4.c
 * and convert_hybrid.c, for the table of convert_arch.c. */
#ifndef KVANT_MAKE_CONVERT_PARTS_H
#define KVANT_MAKE_CONVERT_PARTS_H

#include "make/convert/convert_plan.h"

/* convert_mixture.c */
extern const convert_name convert_post_attention_names[], convert_minimax_names[], convert_gpt_oss_names[],
    convert_mla_names[];
int convert_put_dots1(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_glm4moe(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_ernie_moe(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_minimax(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_gpt_oss(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_deepseek2(const hf_config *c, gguf_keys *k, kvant_diag *diag);
/* The experts of gpt-oss, whose gate and up are neighbours, as numbers or in MXFP4. */
int convert_gpt_oss_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                           kvant_diag *diag);
/* kv_b_proj of latent attention: k's part transposed, v's as it is. */
int convert_mla_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                       kvant_diag *diag);

/* convert_gemma4.c */
extern const convert_name convert_gemma4_names[];
int convert_put_gemma4(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_gemma4_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                          kvant_diag *diag);

/* convert_hybrid.c */
extern const convert_name convert_gdn_names[], convert_lfm2_names[];
int convert_put_qwen3next(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_qwen35(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_lfm2(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_lfm2moe(const hf_config *c, gguf_keys *k, kvant_diag *diag);
/* Gated DeltaNet: qkvz sorted out, or heads of v in tiles; the short convolution of LFM2. */
int convert_qwen3next_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                             kvant_diag *diag);
int convert_qwen35_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                          kvant_diag *diag);
int convert_lfm2_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                        kvant_diag *diag);

#endif
