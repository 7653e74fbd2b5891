/* ggml.h: as much of ggml's interface as contrib/ggml/kvant_ggml.c calls, declared anew: it is compiled against this
 * where ggml itself is not there.  Names and types of ggml 0.21. */
#ifndef KVANT_TESTS_GGML_H
#define KVANT_TESTS_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1 };
enum ggml_prec { GGML_PREC_DEFAULT = 0, GGML_PREC_F32 = 10 };
struct ggml_context;
struct ggml_cgraph;
struct ggml_tensor {
    void *data;
};
struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
typedef uint16_t ggml_fp16_t;
typedef void (*ggml_custom_op_t)(struct ggml_tensor *dst, int ith, int nth, void *userdata);

struct ggml_context *ggml_init(struct ggml_init_params p);
void ggml_free(struct ggml_context *ctx);
struct ggml_cgraph *ggml_new_graph(struct ggml_context *ctx);
void ggml_build_forward_expand(struct ggml_cgraph *g, struct ggml_tensor *t);
struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type t, int64_t a, int64_t b);
struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *ctx, enum ggml_type t, int64_t a, int64_t b, int64_t c);
struct ggml_tensor *ggml_new_tensor_4d(struct ggml_context *ctx, enum ggml_type t, int64_t a, int64_t b, int64_t c,
                                       int64_t d);
size_t ggml_nbytes(const struct ggml_tensor *t);
struct ggml_tensor *ggml_permute(struct ggml_context *ctx, struct ggml_tensor *t, int a, int b, int c, int d);
struct ggml_tensor *ggml_mul_mat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
                                        struct ggml_tensor *v, struct ggml_tensor *mask, float scale, float max_bias,
                                        float softcap);
void ggml_flash_attn_ext_set_prec(struct ggml_tensor *t, enum ggml_prec prec);
struct ggml_tensor *ggml_ssm_conv(struct ggml_context *ctx, struct ggml_tensor *sx, struct ggml_tensor *c);
struct ggml_tensor *ggml_gated_delta_net(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
                                         struct ggml_tensor *v, struct ggml_tensor *g, struct ggml_tensor *beta,
                                         struct ggml_tensor *state, int64_t snapshots);
struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type t, int64_t a, int64_t b, int64_t c,
                                   int64_t d, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks,
                                   void *userdata);
ggml_fp16_t ggml_fp32_to_fp16(float x);
void ggml_fp32_to_fp16_row(const float *x, ggml_fp16_t *y, int64_t n);

#endif
