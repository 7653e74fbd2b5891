/* model/model.h: an opened model: shapes, tensor table, tokenizer.  Internal; the public face is kvant/engine.h.
 *
 * Weights come in two steps.  At open every tensor that the architecture names is looked up and its shape checked;
 * nothing is read.  An engine then makes its own kvant_weight for each `weight_spec`: one tensor as it is, or rows of
 * several tensors put together (q, k and v in one matrix; qwen3next's grouped beta/alpha sorted out). */
#ifndef KVANT_MODEL_MODEL_H
#define KVANT_MODEL_MODEL_H

#include "kvant/engine.h"
#include "model/gguf.h"
#include "model/synthetic.h"
#include "model/template.h"
#include "model/tokenizer.h"

enum { MODEL_MAX_LAYERS = 1024, MODEL_MAX_HEAD_DIM = 512 };

/* Shapes of the trunk.  Checked at load: all positive, products in range. */
typedef struct hparams {
    int n_layer, n_embd, n_vocab, n_ctx_train, n_ff;
    int n_head, n_head_kv, d_k, d_v;
    float rms_eps, attn_scale;
    int n_rot, rope_neox;
    float rope_base, rope_mscale;
    int rope_freqs;                /* tensor id of rope_freqs.weight or -1 */
    float rope_linear;             /* linear scaling factor; 1: none */
    int rope_bf16;                 /* frequencies rounded to bf16 */
    int attn_gate;                 /* W_q carries an output gate per head (qwen3next, qwen35*) */
    int qk_norm;
    int full_interval;             /* 0: every layer has attention */
    int gdn_hk, gdn_hv, gdn_dk, gdn_dv, conv_k, gdn_interleaved;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;
    float expert_scale;
    const char *ffn_norm_name;     /* "ffn_norm" or "post_attention_norm" */
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
} weight_spec;

/* Weight ids (indices into model->specs), -1: the layer has none. */
typedef struct layer_weights {
    int is_attn;
    int attn_norm, ffn_norm;                      /* vectors */
    int qkv, q, k, v, q_norm, k_norm, attn_out;   /* qkv: one matrix where types allow, else q, k, v */
    int gdn_in, gdn_qkv, gdn_z;                   /* gdn_in: qkv and z in one matrix, else gdn_qkv and gdn_z */
    int gdn_beta, gdn_alpha, conv, dt, a, ssm_norm, ssm_out;
    int gate_up, gate, up, down;                  /* dense FFN */
    int router, gate_up_exps, gate_exps, up_exps, down_exps;
    int shexp_gate_up, shexp_gate, shexp_up, shexp_down, shexp_router;
} layer_weights;

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
    int token_embd, output, output_norm;
    layer_weights *layers;
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

const arch_def *arch_find(const char *name, size_t n);
/* "qwen3 qwen3moe ..." */
void arch_names(char *buf, size_t cap);

/* ---- weights.c ---- */

enum { WEIGHT_REQUIRED = 0, WEIGHT_OPTIONAL = 1 };
/* A matrix [n_expert][n_out][n_in] by tensor name; *id = spec id, or -1 where optional and absent. */
int weight_matrix(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int n_expert, int optional, int *id,
                  kvant_diag *diag);
/* An F32 (or F16/BF16, converted) vector of n values. */
int weight_vector(kvant_model *m, const char *name, int64_t n, int optional, int *id, kvant_diag *diag);
/* As weight_matrix with the name "blk.<l>.<part>". */
int weight_layer_matrix(kvant_model *m, int l, const char *part, int64_t n_in, int64_t n_out, int n_expert,
                        int optional, int *id, kvant_diag *diag);
int weight_layer_vector(kvant_model *m, int l, const char *part, int64_t n, int optional, int *id, kvant_diag *diag);
/* A spec from rows of others: *id = -1 (and the parts stay) when their types or widths differ or one has a scale. */
int weight_join(kvant_model *m, const char *name, const int *ids, int n, int *id, kvant_diag *diag);
/* A spec of chosen rows of one spec's tensor. */
int weight_rows(kvant_model *m, const char *name, int id, const weight_seg *segs, int n_segs, int64_t n_out, int *out,
                kvant_diag *diag);
/* Joins gate and up per expert (gate rows first). */
int weight_join_experts(kvant_model *m, const char *name, int gate, int up, int *id, kvant_diag *diag);
const gguf_tensor *weight_tensor(const kvant_model *m, int id);
/* Bytes of a spec in file layout. */
size_t weight_bytes(const weight_spec *s);
/* Copies the rows of a spec, in file layout, to dst[weight_bytes]. */
void weight_copy(const kvant_model *m, const weight_spec *s, uint8_t *dst);
/* A vector spec as f32. */
void weight_copy_f32(const kvant_model *m, const weight_spec *s, float *dst);
void weight_specs_free(kvant_model *m);

#endif
