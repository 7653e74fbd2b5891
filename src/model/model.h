/* model/model.h: an opened model: shapes, tensor table, tokenizer.  Internal; the public face is kvant/engine.h.
 *
 * Weights come in two steps.  At open every tensor that the architecture names is looked up and its shape checked;
 * nothing is read.  An engine then makes its own kvant_weight for each `weight_spec`: one tensor as it is, or rows of
 * several tensors put together (q, k and v in one matrix; qwen3next's grouped beta/alpha sorted out). */
#ifndef KVANT_MODEL_MODEL_H
#define KVANT_MODEL_MODEL_H

#include "base/thread/copy.h"
#include "kvant/engine.h"
#include "model/gguf/gguf.h"
#include "model/lora.h"
#include "model/synthetic.h"
#include "text/template.h"
#include "text/tokenizer.h"

enum { MODEL_MAX_LAYERS = 1024, MODEL_MAX_HEAD_DIM = KVANT_MAX_PLAIN_HEAD_DIM };

enum model_act { ACT_SWIGLU = 0, ACT_GELU, ACT_CLAMPED, ACT_RELU2, ACT_GELU_ALONE };

/* Norms of queries and keys: none, of each head, of whole rows; LayerNorm of each head with weights of its own. */
enum qk_norm { QK_NORM_NONE = 0, QK_NORM_HEADS = 1, QK_NORM_ROWS = 2, QK_NORM_LAYER = 3 };

/* A layer's own shape.  kv_from: the layer whose K and V it reads; its own number where it has its own. */
typedef struct layer_shape { int h_kv, d_k, d_v, n_rot, n_ff, kv_from; } layer_shape;

enum { DIFFERS_KV = 1, DIFFERS_FF = 2 };

/* RoPE, and the temperature of queries that comes with it. */
typedef struct model_rope {
    int neox;
    float base, mscale;
    int freqs;                     /* tensor id of rope_freqs.weight or -1 */
    float linear;                  /* linear scaling factor; 1: none */
    float base_window;             /* base of windowed layers, without scaling; 0: as the others */
    int n_ctx_orig;                /* the context before a scaling of RoPE: YaRN, LongRoPE, attention temperature */
    float yarn_factor, yarn_fast, yarn_slow;   /* factor 0: no YaRN */
    int yarn_exact;                /* the ramp's ends are not rounded to whole dimensions */
    int long_factors, short_factors;   /* tensor ids of LongRoPE's factors or -1 */
    int none_step;                 /* layers (l + 1) % step == 0 have no RoPE; 0: all have it */
    int windowed_only;             /* only layers with a window have RoPE */
    float temp;                    /* queries grow by the logarithm of pos / n_ctx_orig; 0: they do not */
    int bf16;                      /* frequencies rounded to bf16 */
} model_rope;

typedef struct model_norms {
    float eps, latent_eps;         /* latent_eps: of the norms of latents; 0: eps */
    int qk;                        /* enum qk_norm */
    int qk_late;                   /* after RoPE instead of before it */
    int v;                         /* rows of V have a norm without weights; no V projection: it is that of K */
    int no_pre, post;              /* norms before and after the blocks */
    int layer;                     /* norms of the stream subtract the mean, and may have a bias */
} model_norms;

/* Tensors: "ffn_norm" or "post_attention_norm"; "output_norm" or "token_embd_norm". */
typedef struct model_norm_names { const char *ffn, *output; } model_norm_names;

/* Gated delta rule: heads and their widths. */
typedef struct model_gdn {
    int hk, hv, dk, dv, interleaved;
    int channels;                  /* gates per channel: Kimi Delta Attention */
} model_gdn;

/* Recurrent layers: widths of the input projection and of the output; the convolution's taps, the window's channels and
 * the state's values of a sequence. */
typedef struct model_rec { int in, out, conv_k, conv_channels, state_values; } model_rec;

typedef struct model_moe {
    int n, n_used, n_ff, n_ff_shared;
    int n_latent;                  /* routed experts work on so many values, between two projections; 0: on n_embd */
    int n_dense_lead;              /* the first so many layers have a dense FFN */
    int beside;                    /* a dense FFN beside the experts, each between norms of its own */
    int gating, raw;               /* as kvant_moe_route_args */
    int n_group, n_top_group;
    int shared_plain;              /* the shared expert is added as it is, without a gate */
    float scale;
} model_moe;

/* Latent attention: values of the latent; of the query's latent, 0: it has none; its heads before absorption. */
typedef struct model_mla { int rank, q_rank, dk, dv; } model_mla;

/* Shapes of the trunk.  Checked at load: all positive, products in range. */
typedef struct hparams {
    int n_layer, n_embd, n_vocab, n_ctx_train, n_ff;
    int pooling; /* KVANT_POOLING_* */
    /* n_head_kv, d_k, d_v, n_rot and n_ff: of most layers, and the widest of n_ff.  Each layer's own: `layer`, which an
     * architecture fills where it differs (0: as here). */
    int n_head, n_head_kv, d_k, d_v, n_rot;
    float attn_scale;
    model_rope rope;
    int window;                    /* sliding window of some layers' attention; 0: none */
    unsigned char windowed[MODEL_MAX_LAYERS];
    layer_shape layer[MODEL_MAX_LAYERS];
    int differs;                   /* DIFFERS_*: the file has layers of different KV heads or FFN widths .. */
    int layers_vary;               /* .. and the architecture takes them */
    int n_kv_from;                 /* so many layers at the end read the K and V of earlier ones */
    float attn_cap, logit_cap;     /* attention's scores, the logits: cap * tanh(x / cap); 0: as they are */
    int act;                       /* enum model_act; ACT_RELU2 (squared) and ACT_GELU_ALONE have no gate */
    int attn_gate;                 /* W_q carries an output gate per head (qwen3next, qwen35*) */
    model_norms norm;
    int parallel;                  /* the FFN reads what attention reads */
    int ffn_fused;                 /* ffn_up has the rows of gate, then up */
    float embd_scale, residual_scale, logit_scale;   /* factors; 1: none */
    int full_interval;             /* where files list no layers: every so many-th has attention */
    unsigned char no_attn[MODEL_MAX_LAYERS];   /* 1: head_count_kv says 0; or the layer is recurrent */
    unsigned char no_ffn[MODEL_MAX_LAYERS];    /* 1: feed_forward_length says 0 */
    int attention_free;            /* head_count says 0 */
    int one_block;                 /* layers of one block each, behind one norm: what these two say, else recurrent */
    model_gdn gdn;
    model_rec rec;
    int n_embd_layer;              /* width of the embeddings that every layer has of its own; 0: none */
    model_mla mla;
    model_moe moe;                 /* the last of the numbers: snapshot_id.c */
    model_norm_names norm_names;
} hparams;

/* Rows [row0, row0 + rows) of a tensor seen as n_out*n_expert rows of n_in. */
typedef struct weight_seg { int tensor; int64_t row0, rows; } weight_seg;

typedef struct weight_spec {
    char name[80];                 /* "blk.0.attn_qkv (q k v)" */
    int tensor;                    /* source tensor when n_segs == 0 */
    weight_seg *segs;              /* rows in order; NULL: the whole tensor */
    int n_segs;
    const kvant_wtype *type;
    int64_t n_in, n_out;
    int n_expert;
    int scale_tensor;              /* "<name>.scale" or -1 */
    int is_vector;                 /* norms, biases, conv taps: used as f32 */
    int bias;                      /* of a norm's weights: the spec of its bias, -1: none */
    int lora;                      /* it is a matrix of the adapters: 1 + its site; 0: of the model */
    int lora_first, lora_n;        /* sites where adapters change it */
} weight_spec;

/* Weight ids (indices into model->specs), -1: the layer has none. */
typedef struct layer_attn {
    int qkv, q, k, v, q_norm, k_norm, out;        /* qkv: one matrix where types allow, else q, k, v */
    int qkv_bias, q_bias, k_bias, v_bias, out_bias;   /* vectors, where the file has them */
    int q_a, k_b, v_b;                            /* latent attention */
    int sinks;                                    /* logits of the heads' sinks */
} layer_attn;

typedef struct layer_rec {
    int in, qkv, z;                               /* in: qkv and z in one matrix, else those */
    int beta, alpha, conv, dt, a, norm, out;
    int conv_in, conv_out;                        /* gated short convolution */
    int ssm_in, ssm_d, conv_bias;                 /* Mamba2 */
    int f_a, f_b, g_a, g_b;                       /* Kimi Delta Attention: forget gate, output gate */
} layer_rec;

typedef struct layer_exps {
    int router, router_bias, gate_up, gate, up, down;
    int router_add, gate_bias, up_bias, down_bias;   /* vectors, where the file has them */
    int shared_gate_up, shared_gate, shared_up, shared_down, shared_router;
    int latent_down, latent_up;
} layer_exps;

typedef struct layer_weights {
    int is_attn, is_state;                        /* has K and V, has a recurrent state */
    int attn_norm, ffn_norm;                      /* vectors */
    int attn_post_norm, ffn_post_norm;            /* norms of what the blocks add */
    int router_norm, exps_norm, dense_post_norm, exps_post_norm;   /* a dense FFN beside the experts */
    int embd_gate, embd_proj, embd_post_norm;     /* the layer's own embedding */
    float out_scale;                              /* the stream behind the layer is times this; 1: as it is */
    layer_attn attn;
    layer_rec rec;
    int gate_up, gate, up, down;                  /* dense FFN */
    int gate_bias, up_bias, down_bias;
    layer_exps exps;
} layer_weights;

/* The block behind the trunk that predicts further tokens (block_mtp.c); ids of specs, the shared ones where the file
 * has none of its own. */
typedef struct mtp_weights { int eh_proj, enorm, hnorm, norm, embd, head; } mtp_weights;

/* The head of a reranker; n 0: the file has none.  prompt: with {query} and {document}, n 0: none. */
typedef struct rank_head {
    float *w, *bias;               /* [n][n_embd], [n] */
    int n;
    gguf_str prompt;               /* in the file */
} rank_head;

typedef struct arch_def arch_def;
struct builder;

struct kvant_model {
    gguf *file;
    synthetic *made;               /* weights are made, not read; NULL: a file */
    tokenizer *tok;
    chat_template *chat;
    int chat_from_file;
    const arch_def *arch;
    hparams hp;
    weight_spec *specs;
    int n_specs, cap_specs;
    int token_embd, output, output_bias, output_norm;
    int32_t *suppressed;           /* n_suppressed tokens that the model never writes; NULL: none */
    int n_suppressed;
    int added;                     /* 1: the block behind the trunk is of another file */
    int n_nextn;                   /* blocks behind the trunk that predict further tokens .. */
    int n_mtp;                     /* .. of them usable, as layer n_layer: 0 or 1 */
    mtp_weights mtp;
    int layer_embd, layer_embd_proj, layer_embd_norm;   /* embeddings of every layer of its own */
    layer_weights *layers;
    lora_set lora;
    rank_head rank;
    kvant_model_info info;
    char desc[96], name[96], arch_name[32];
};

/* One architecture: a file in archs/ and a line in archs.def. */
struct arch_def {
    const char *name;              /* general.architecture */
    /* Reads and checks the shapes; common keys are read already. */
    int (*shapes)(const gguf *g, hparams *hp, kvant_diag *diag);
    /* Requests the weights of layer l into m->layers[l]. */
    int (*layer)(struct kvant_model *m, int l, kvant_diag *diag);
    /* Emits the ops of layer l. */
    void (*build)(struct builder *b, int l);
};

/* ---- model.c ---- */

/* The weights of a layer: norms, then what the architecture wants. */
int model_request_layer(kvant_model *m, int l, kvant_diag *diag);

/* ---- block_mtp.c ---- */

/* Finds the block; one that cannot be used is left out with a warning. */
int request_mtp(kvant_model *m, kvant_diag *diag);

/* ---- rank.c ---- */

int rank_open(const gguf *g, int n_embd, rank_head *r, kvant_diag *diag);   /* rank_close also after an error */
void rank_close(rank_head *r);

/* ---- archs.def ---- */

const arch_def *arch_find(const char *name, size_t n);
/* "qwen3 qwen3moe ..." */
void arch_names(char *buf, size_t cap);

/* ---- hparams.c ---- */

/* The keys that every architecture has; *n_nextn: blocks behind the trunk, which n_layer does not count. */
int hparams_read(const gguf *g, const char *arch, hparams *hp, int *n_nextn, kvant_diag *diag);
/* After the architecture has read its keys: values of layers that nothing says; and all of them are checked. */
int hparams_finish(kvant_model *m, kvant_diag *diag);
/* wanted: "f32" or "bf16"; NULL: as the file says. */
int hparams_freq_dtype(kvant_model *m, const char *wanted, kvant_diag *diag);

/* ---- rope_scaling.c ---- */

/* The keys of rope.scaling; hp->n_ctx_train is read already. */
int read_rope_scaling(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag);
int request_rope_factors(kvant_model *m, kvant_diag *diag);
/* LongRoPE has two sets of factors: the long ones for an engine whose context exceeds the original. */
int rope_is_long(const hparams *hp, int n_ctx);
/* Angles per position, f32[n_rot/2], of an engine whose sequences have at most n_ctx tokens. */
void rope_frequencies(const kvant_model *m, int n_ctx, float *inv_freq);
/* Those of layers with a window, f32[rope_window_rot/2]: of a base of their own and without scaling, or the others'. */
void rope_window_frequencies(const kvant_model *m, const float *others, float *inv_freq);
int rope_window_rot(const hparams *hp);

/* ---- weights.c ---- */

enum { WEIGHT_REQUIRED = 0, WEIGHT_OPTIONAL = 1 };
/* A matrix [n_expert][n_out][n_in] by tensor name; *id = spec id, or -1 where optional and absent. */
int weight_matrix(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int n_expert, int optional, int *id,
                  kvant_diag *diag);
/* As weight_matrix, without a look for a second-level scale: "<name>.scale" means something else there. */
int weight_bare_matrix(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int n_expert, int optional,
                       int *id, kvant_diag *diag);
/* An F32 (or F16/BF16, converted) vector of n values. */
int weight_vector(kvant_model *m, const char *name, int64_t n, int optional, int *id, kvant_diag *diag);
/* As weight_matrix with the name "blk.<l>.<part>". */
int weight_layer_matrix(kvant_model *m, int l, const char *part, int64_t n_in, int64_t n_out, int n_expert,
                        int optional, int *id, kvant_diag *diag);
int weight_layer_vector(kvant_model *m, int l, const char *part, int64_t n, int optional, int *id, kvant_diag *diag);
/* A spec from rows of others: *id = -1 (and the parts stay) when their types or widths differ or one has a scale. */
int weight_join(kvant_model *m, const char *name, const int *ids, int n, int *id, kvant_diag *diag);
/* Vectors of one length, one behind the other; of one type, else KVANT_EUNSUPPORTED. */
int weight_join_vectors(kvant_model *m, const char *name, const int *ids, int n, int *id, kvant_diag *diag);
/* A spec of chosen rows of one spec's tensor. */
int weight_rows(kvant_model *m, const char *name, int id, const weight_seg *segs, int n_segs, int64_t n_out, int *out,
                kvant_diag *diag);
/* A matrix in f32 that no tensor has: adapters'. */
int weight_made(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int *id, kvant_diag *diag);
/* Joins gate and up per expert (gate rows first). */
int weight_join_experts(kvant_model *m, const char *name, int gate, int up, int *id, kvant_diag *diag);
const gguf_tensor *weight_tensor(const kvant_model *m, int id);
/* Bytes of a spec in file layout. */
size_t weight_bytes(const weight_spec *s);
/* list[i] of the rows of a spec in file layout, each at most COPY_PIECE bytes, `to` as bytes from the first row on:
 * from the file, or from `rows` where they are elsewhere.  Returns how many; list NULL: only that. */
int weight_pieces(const kvant_model *m, const weight_spec *s, const void *rows, copy_piece *list);
/* Copies the rows of a spec, in file layout, to dst[weight_bytes], by several threads.  KVANT_OK or KVANT_ENOMEM. */
int weight_copy(const kvant_model *m, const weight_spec *s, uint8_t *dst);
/* A vector spec as f32. */
void weight_copy_f32(const kvant_model *m, const weight_spec *s, float *dst);
void weight_specs_free(kvant_model *m);

#endif
