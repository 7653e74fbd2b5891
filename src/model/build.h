/* model/build.h: the builder: an architecture writes the ops of one device pass into it.
 *
 * The engine fills the inputs (token rows, cache sides, buffers), calls build_model, and submits b->ops.  All buffers
 * are device addresses taken once by the engine (build_scratch_bytes); nothing here allocates but the op arguments,
 * which come from the step arena.  A builder that ran out of arena has b->error set. */
#ifndef KVANT_MODEL_BUILD_H
#define KVANT_MODEL_BUILD_H

#include "base/mem.h"
#include "kvant/ops.h"
#include "model/model.h"

/* Activations of one pass of n tokens; widths in floats are in build.c (build_layout). */
typedef struct build_buffers {
    float *x;                      /* [n][n_embd] residual stream */
    float *a;                      /* [n][n_embd] normed input of a block */
    float *delta;                  /* [n][n_embd] output of a block, added at the next norm */
    /* [n][q | k | v] (q with gates where the architecture has them); gdn: [n][mixed | z] */
    float *qkv;
    float *att;                    /* [n][n_head*d_v]; gdn: conv output [n][channels] */
    float *o;                      /* [n][gdn_hv*gdn_dv] */
    float *alpha, *beta;           /* [n][gdn_hv] */
    float *ff;                     /* [n or n*k][2*n_ff] gate | up */
    float *ff2;                    /* [n*k][n_embd] expert outputs */
    float *router;                 /* [n][n_expert] */
    int32_t *route_ids;            /* [n][k] */
    float *route_wts;              /* [n][k] */
    float *sh_gate;                /* [n] */
    float *xs;                     /* [rows][n_embd] stream rows that give logits */
    float *keep;                   /* [rows][widest block output] and their block outputs */
    float *logits;                 /* [rows][n_vocab] */
    float *out_top;                /* [rows][top] largest logits, where asked for */
    int32_t *out_ids;              /* [rows][top] their tokens */
} build_buffers;

typedef struct builder {
    const kvant_model *m;
    const kvant_weight *w;         /* [m->n_specs] device weights; matrices */
    float *const *vec;             /* [m->n_specs] device address of vector specs as f32 */
    const float *inv_freq;         /* [n_rot/2] */
    arena *args;
    kvant_op *ops;
    int n_ops, cap_ops, error;
    const unsigned char *fused;    /* [KVANT_OP_COUNT] device takes the fused form */
    int compute, tail_pages, max_pos;
    /* the pass */
    int n;                         /* token rows */
    int any_prompt, any_decode;
    kvant_seqs seqs;
    const int32_t *ids, *pos;      /* [n] */
    const int32_t *out_rows;       /* [n_out] token rows that give logits */
    int n_out;
    int top;                       /* so many of the likeliest tokens of each of these rows are wanted; 1: no values */
    int hidden;                    /* 1: all rows (n_out = n) end at the output norm, in buf.a; no logits */
    /* the residual stream from here on: buf.x, or buf.xs after the last layer's gather */
    float *x;
    int rows;                      /* its rows: n, then n_out */
    kvant_kv_side *k, *v;          /* [n_layer] */
    const int32_t *seal_src, *seal_dst;
    int n_seal;
    float **conv_state;            /* [n_layer] */
    void **gdn_state;
    int64_t conv_stride, gdn_stride;   /* values per slot */
    int gdn_type;                  /* enum kvant_state_type */
    build_buffers buf;
    int have_delta;                /* delta holds a block's output not yet added to x */
} builder;

/* Bytes of the activation buffers for n token rows and `rows` logits rows; *buf gets offsets from base. */
size_t build_layout(const kvant_model *m, int n, int rows, unsigned char *base, build_buffers *buf);
/* Ops of a whole pass. */
void build_model(builder *b);
/* Most ops and argument bytes that a pass can need. */
int build_max_ops(const kvant_model *m);
size_t build_args_bytes(const kvant_model *m);

/* Appends one op; args are copied into the arena. */
void build_emit(builder *b, int id, const void *args, size_t bytes);
#define BUILD(b, ID, ...) \
    build_emit((b), KVANT_OP_##ID, &(BUILD_ARGS_##ID)__VA_ARGS__, sizeof(BUILD_ARGS_##ID))

#define BUILD_ARGS_EMBED kvant_embed_args
#define BUILD_ARGS_NORM_RMS kvant_norm_rms_args
#define BUILD_ARGS_NORM_ADD_RMS kvant_norm_add_rms_args
#define BUILD_ARGS_ADD kvant_add_args
#define BUILD_ARGS_NORM_L2 kvant_norm_l2_args
#define BUILD_ARGS_ROPE kvant_rope_args
#define BUILD_ARGS_SWIGLU kvant_swiglu_args
#define BUILD_ARGS_GATE_MUL kvant_gate_mul_args
#define BUILD_ARGS_GATE_ADD kvant_gate_add_args
#define BUILD_ARGS_MATMUL kvant_matmul_args
#define BUILD_ARGS_MATMUL_ID kvant_matmul_id_args
#define BUILD_ARGS_MOE_ROUTE kvant_moe_route_args
#define BUILD_ARGS_MOE_COMBINE kvant_moe_combine_args
#define BUILD_ARGS_ROWS_GATHER kvant_rows_gather_args
#define BUILD_ARGS_CACHE_WRITE kvant_cache_write_args
#define BUILD_ARGS_PAGE_SEAL kvant_page_seal_args
#define BUILD_ARGS_ATTN kvant_attn_args
#define BUILD_ARGS_CONV_STEP kvant_conv_args
#define BUILD_ARGS_CONV_CHUNK kvant_conv_args
#define BUILD_ARGS_GDN_GATES kvant_gdn_gates_args
#define BUILD_ARGS_GDN_STEP kvant_gdn_args
#define BUILD_ARGS_GDN_CHUNK kvant_gdn_args
#define BUILD_ARGS_ARGMAX kvant_argmax_args
#define BUILD_ARGS_TOP_K kvant_top_k_args
#define BUILD_ARGS_NORM_GATED kvant_norm_gated_args

/* ---- pieces that architectures are made of (blocks/) ---- */

/* y[rows][ldy] = W x. */
void build_matmul(builder *b, int weight, const float *x, int64_t ldx, float *y, int64_t ldy, int rows);
/* x += delta if there is one, then a = norm(x). */
void build_norm(builder *b, int weight);
/* In the last layer: from here on only the rows that give logits matter.  Gathers them from rows[n][width] and from the
 * stream; returns the gathered rows (or `rows` itself where nothing is to gather). */
const float *build_keep_output_rows(builder *b, int l, const float *rows, int width, float *scratch);
void build_attention(builder *b, int l);        /* a -> delta */
void build_attention_or_gdn(builder *b, int l); /* a -> delta; hybrids: what the layer's weights are */
void build_ffn_dense(builder *b, int l);        /* a -> delta */
void build_ffn_moe(builder *b, int l);          /* a -> delta */

/* Weight requests shared by architectures (blocks/). */
int request_attention(kvant_model *m, int l, kvant_diag *diag);
/* Hybrids: layer l has attention iff (l + 1) % full_interval == 0, else Gated DeltaNet.  Spec engine 2.2. */
int request_attention_or_gdn(kvant_model *m, int l, kvant_diag *diag);
int request_ffn_dense(kvant_model *m, int l, kvant_diag *diag);
int request_ffn_moe(kvant_model *m, int l, kvant_diag *diag);
/* Keys of the expert layers and of the recurrent layers. */
int read_moe_shapes(const gguf *g, hparams *hp, int shared, kvant_diag *diag);
int read_gdn_shapes(const gguf *g, hparams *hp, kvant_diag *diag);

#endif
