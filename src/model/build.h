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

/* Rounds of guesses that the block makes before the host looks, at most, and of how many tokens it tells the logits. */
enum { BUILD_MTP_ROUNDS = 33, BUILD_MTP_TOP = 10 };
/* The block that predicts further tokens. */
typedef struct build_mtp {
    int seqs;                      /* not 0: all rows go to the end, and the block's K and V are written */
    float *h; /* [seqs][n_embd] hidden states before the pass, [n][n_embd] of its rows: the trunk's or the block's */
    float *in;                     /* [n][2*n_embd] */
    const int32_t *src;            /* [n] row of h of the token before */
    int32_t *ids; /* [seqs] tokens that the next round guesses behind: a round writes its likeliest ones here */
    float *told;  /* [BUILD_MTP_ROUNDS][build_mtp_told]: what rounds said, until the host takes it at once */
    int kv_end;                    /* ops so far, when a layer's K and V had been written */
    int on;       /* the pass writes rows of the block */
} build_mtp;

/* Activations of one pass of n tokens; widths in floats are in build.c (build_layout). */
typedef struct build_buffers {
    float *x;                      /* [n][n_embd] residual stream */
    float *a;                      /* [n][n_embd] normed input of a block */
    float *delta;                  /* [n][n_embd] output of a block, added at the next norm */
    /* [n][q | k | v] (q with gates where the architecture has them); gdn: [n][mixed | z]; later
     * [n][n_embd], what a shared expert gives */
    float *qkv;
    float *att;                    /* [n][n_head*d_v]; gdn: conv output [n][channels] */
    float *o;                      /* [n][gdn.hv*gdn.dv] */
    float *alpha, *beta;           /* [n][gdn.hv], alpha times gdn.dk with gates per channel; [n][gdn.hv] */
    float *ff;                     /* [n or n*k][2*n_ff] gate | up */
    float *ff2;                    /* [n*k][n_embd] expert outputs */
    float *router;                 /* [n][n_expert] */
    int32_t *route_ids;            /* [n][k] */
    float *route_wts;              /* [n][k] */
    float *sh_gate;                /* [n] */
    int32_t *heads;                /* [n][n_head] 0, 1, 2 ..: latent attention's matrices of single heads */
    float *embd, *embd_proj;       /* [n][n_layer][n_embd_layer]: what every layer adds of its own embedding */
    float *xs;                     /* [rows][n_embd] stream rows that give logits */
    float *keep;                   /* [rows][widest block output] and their block outputs */
    float *logits;                 /* [rows][n_vocab] */
    float *out_top;                /* [rows][top] largest logits, where asked for */
    int32_t *out_ids;              /* [rows][top] their tokens */
    build_mtp mtp;
    float *lora_h;                 /* [n][rank] A x of the adapters */
    float *lora_y;                 /* [n][widest] or [rows][n_vocab]: B (A x) */
} build_buffers;

/* The rows of a pass whose sequences have adapters: neighbours. */
typedef struct build_lora_rows {
    int row0, n;
    const float *scale;            /* [n][rank] */
} build_lora_rows;

enum { APART_SEND, APART_THERE, APART_BACK };

/* An engine of several devices hears of a program while it is built; ctx is its own. */
typedef struct build_hooks {
    /* NULL, or: called before the ops of layer l, and of the head (n_layer): from there on other addresses may hold */
    void (*enter)(struct builder *b, int l);
    /* NULL, or: called in a layer with routed experts, at each of these: x[rows][width], route_ids and route_wts go to
     * the device of the experts (NULL comes back: that is this one); ops from here on are there (x there comes back);
     * delta of there comes to y here, where ops from here on are. */
    const float *(*apart)(struct builder *b, int l, int stage, const float *x, float *y, int width);
    void *ctx;
} build_hooks;
/* Token rows [row0, row0 + n) may be taken back: recurrent layers do not write their state for them, and keep what it
 * needs of them in rows [at, at + n) of their ring.  fold: the ops take rows of the ring into the states (fold.c). */
typedef struct build_ring {
    float **layer;                 /* [n_layer] [rows] of the convolution's input, then of gates, then of betas */
    int rows;                      /* 0: there is none */
    int row0, n, at;
    int fold;
} build_ring;

/* Pages that queries read exactly: the newest, the first. */
typedef struct build_exact { int tail, sink; } build_exact;

/* Tables that no pass changes. */
typedef struct build_tables {
    const float *inv_freq;         /* [n_rot/2] */
    const float *inv_freq_window;  /* of windowed layers; the same table where they have no base of their own */
    const float *heads;            /* [n_head] the bits of 0, 1, 2 ... as int32 */
    const float *ones;             /* [d_v] of norms without weights */
    const float *suppress;         /* [n_vocab] what is added to logits; NULL: nothing */
    const int32_t *lora_row;       /* 0, 1, 2 ... */
} build_tables;

/* The rows that give logits; seqs: as sequences of one row each. */
typedef struct build_out {
    const int32_t *rows, *pos;     /* [n] of the pass's token rows */
    int n;
    kvant_seqs seqs, window_seqs;
} build_out;

/* Pages that the pass fills. */
typedef struct build_seals {
    const int32_t *src, *dst, *window;
    int n;
    int late;                      /* no row of the pass reads a page that it seals: build_late_seals adds the seals */
} build_seals;

/* States of recurrent layers: the convolution's window, the recurrence. */
typedef struct build_states {
    float **conv;                  /* [n_layer] */
    void **rec;
    int64_t conv_stride, rec_stride;   /* values per slot */
    int rec_type;                  /* enum kvant_state_type */
} build_states;

typedef struct builder {
    const kvant_model *m;
    const kvant_weight *w;         /* [m->n_specs] device weights; matrices */
    float *const *vec;             /* [m->n_specs] device address of vector specs as f32 */
    build_tables tables;
    arena *args;
    kvant_op *ops;
    int n_ops, cap_ops, error;
    const unsigned char *fused;    /* [KVANT_OP_COUNT] device takes the fused form */
    build_exact exact;
    int compute, max_pos;
    /* the pass */
    int n;                         /* token rows */
    int any_prompt, any_decode;
    kvant_seqs seqs, window_seqs;  /* the second: with the block tables of windowed layers, where they are apart */
    const int32_t *ids, *pos;      /* [n] */
    build_out out;
    int early;                     /* the layers that read others' K and V see the rows of `out` alone */
    int top;                       /* so many of the likeliest tokens of each of these rows are wanted; 1: no values */
    int hidden;                    /* 1: all rows (out.n = n) end at the output norm, in buf.a; no logits */
    /* the residual stream from here on: buf.x, or buf.xs after the last layer's gather */
    float *x;
    const float *in;               /* the input of the next block: buf.a, or x itself where no norm comes first */
    int rows;                      /* its rows: n, then out.n */
    const float *embd;             /* what these rows add of the layers' own embeddings */
    kvant_kv_side *k, *v;          /* [n_layer] */
    int windows_apart;             /* windowed layers have pages, seals and tables of their own */
    build_seals seals;
    build_states states;
    build_hooks hooks;
    build_ring ring;
    build_buffers buf;
    build_lora_rows lora[2];       /* of the n rows; of the rows of `out` */
    int have_delta;                /* delta holds a block's output not yet added to x */
} builder;

/* Bytes of the activation buffers for n token rows and `rows` logits rows; *buf gets offsets from base.  mtp_seqs:
 * sequences whose hidden states MTP wants, 0: without it. */
size_t build_layout(const kvant_model *m, int n, int rows, int mtp_seqs, unsigned char *base, build_buffers *buf);
/* K and V of the rows of the pass, for which buf.mtp.h is filled; a round of guesses behind buf.mtp.ids, to there. */
void build_mtp_rows(builder *b);
void build_mtp_guess(builder *b);
/* Values of `told` of a round of seqs sequences: ids[n][top], then logits[n][top]. */
size_t build_mtp_told(int seqs);
/* Ops of a whole pass. */
void build_model(builder *b);
/* Most ops and argument bytes that a pass can need. */
int build_max_ops(const kvant_model *m);
size_t build_args_bytes(const kvant_model *m);

/* Appends one op; args are copied into the arena. */
void build_emit(builder *b, int id, const void *args, size_t bytes);
/* The convolution of the pass's prompts and of its decode rows. */
void build_conv(builder *b, const kvant_conv_args *conv);
#define BUILD(b, ID, ...) \
    build_emit((b), KVANT_OP_##ID, &(build_args_##ID)__VA_ARGS__, sizeof(build_args_##ID))

#define KVANT_OP(ID, name, args, tol, fused, text) typedef args build_args_##ID;
#include "kvant/ops.def"
#undef KVANT_OP

/* Floats of a row of a recurrent layer's ring: the convolution's input and what Mamba2 has beside it; gates; betas. */
typedef struct ring_widths { int x, alpha, beta; } ring_widths;
ring_widths build_ring_widths(const kvant_model *m);
/* The ops that take the rows of b->seqs, which are rows 0 .. b->n - 1 of the ring of layer l, into its states. */
void build_fold(builder *b, int l);

/* ---- pieces that architectures are made of (blocks/) ---- */

/* y[rows][ldy] = W x. */
void build_matmul(builder *b, int weight, const float *x, int64_t ldx, float *y, int64_t ldy, int rows);
/* y += the vector `bias`, rows of `width`; nothing where the model has none (-1). */
void build_bias(builder *b, int bias, float *y, int width, int64_t ldy, int rows);
/* x[rows][width] *= s; nothing where s is 1. */
void build_scale(builder *b, float *x, float s, int width, int rows);
/* x += delta if there is one, then a = norm(x); weight -1: no norm, x itself is the next block's input. */
void build_norm(builder *b, int weight);
/* delta = norm(delta), weight -1: as it is; times the factor that the architecture has for it. */
void build_norm_after(builder *b, int weight);
/* In the last layer, or the last that writes K and V: from here on only the rows that give logits matter.  Gathers them
 * from rows[n][width] and from the stream; returns the gathered rows (or `rows` itself where nothing is to gather). */
const float *build_keep_output_rows(builder *b, int l, const float *rows, int width, float *scratch);
/* Writes rows of K and V, ld apart, into layer l's cache and, without seals.late, encodes the pages that are full. */
void build_cache_rows(builder *b, int l, const float *k_rows, const float *v_rows, int64_t ld);
/* After build_model: with seals.late, encodes the full pages of all layers. */
void build_late_seals(builder *b);
/* Rows of x, and of buf.alpha and buf.beta where the layer has them, into the ring; after the gates. */
void build_ring_keep(builder *b, int l, const float *x, int64_t ldx);
/* build_fold of each kind of layer: x, ldx and buf are the ring's. */
void fold_gdn(builder *b, int l, const float *x, int ldx);
void fold_kda(builder *b, int l, const float *x, int ldx);
void fold_ssm(builder *b, int l, const float *x, int ldx);
void fold_short_conv(builder *b, int l, const float *x, int ldx);
/* Without the output projection and its bias: rows[n][n_head*d_v] in buf.att. */
void build_attention_rows(builder *b, int l);
void build_attention(builder *b, int l);        /* in -> delta */
void build_mla(builder *b, int l);              /* in -> delta */
void build_ssm(builder *b, int l);              /* in -> delta */
/* As build_ssm, without the output projection: y[n][rec.out] in buf.o. */
void build_ssm_rows(builder *b, int l);
void build_one_block(builder *b, int l);        /* a norm, then Mamba2, attention or the FFN */
void build_short_conv_layer(builder *b, int l); /* short convolution or attention, then its FFN */
void build_attention_or_gdn(builder *b, int l); /* a -> delta; hybrids: what the layer's weights are */
void build_ffn_dense(builder *b, int l);        /* in -> delta */
void build_ffn_moe(builder *b, int l);          /* in -> delta */
void build_experts(builder *b, int l);          /* in and the router's rows in buf.router -> delta */
void build_ffn_beside(builder *b, int l);       /* in and x -> delta: a dense FFN and experts, with their norms */
void build_layer_inputs(builder *b);            /* x, scaled -> what every layer adds of its own embedding */
void build_layer_embd(builder *b, int l);       /* x and delta -> delta: the layer's own embedding, gated */
void build_layer_scale(builder *b, int l);      /* x and delta -> x */
void build_ffn(builder *b, int l);              /* in -> delta; dense: no experts, or l < moe.n_dense_lead */
void build_plain_layer(builder *b, int l);      /* norm, attention, norm, feed-forward; or both blocks on one norm */

/* Weight requests shared by architectures (blocks/). */
int request_attention(kvant_model *m, int l, kvant_diag *diag);
int request_mla(kvant_model *m, int l, kvant_diag *diag);
/* Hybrids: layer l has Gated DeltaNet where hp->no_attn says so, else attention.  Spec engine 2.2. */
int request_attention_or_gdn(kvant_model *m, int l, kvant_diag *diag);
/* lfm2's layers: a gated short convolution, y = out_proj(c * conv(b * x)) with b, c, x = in_proj(a), where
 * head_count_kv is 0, else attention; and as request_ffn. */
int request_short_conv_layer(kvant_model *m, int l, kvant_diag *diag);
/* Layers of one block each: attention, the FFN (a squared ReLU, no gate) or Mamba2. */
int read_one_block_shapes(const gguf *g, hparams *hp, kvant_diag *diag);
int request_one_block(kvant_model *m, int l, kvant_diag *diag);
/* Mamba2; its norm may be missing. */
int request_ssm(kvant_model *m, int l, int norm_optional, kvant_diag *diag);
int read_ssm_shapes(const gguf *g, hparams *hp, kvant_diag *diag);
int request_ffn_dense(kvant_model *m, int l, kvant_diag *diag);
/* Norms of the outputs of the layer's two blocks. */
int request_norms_after(kvant_model *m, int l, kvant_diag *diag);
/* flags[n_layer] from an array of bool, i32 or u32 that the file has: 1 where it is not 0. */
int read_layer_flags(const gguf *g, const char *key, const hparams *hp, unsigned char *flags, kvant_diag *diag);
/* Keys of sliding windows: the window, and which layers have it: as the file says, else all but every `every`-th. */
int read_window(const gguf *g, hparams *hp, int every, kvant_diag *diag);
/* Keys of caps; what hp says before is what a file without them means. */
int read_caps(const gguf *g, hparams *hp, kvant_diag *diag);
/* attention.temperature_scale; temperature_length may say the original context once more. */
int read_attn_temp(const gguf *g, hparams *hp, kvant_diag *diag);
int request_ffn_moe(kvant_model *m, int l, kvant_diag *diag);
int request_ffn_beside(kvant_model *m, int l, kvant_diag *diag);
/* Embeddings of every layer of its own: the table and what is made of the token's embedding; a layer's gate. */
int request_layer_embds(kvant_model *m, kvant_diag *diag);
int request_layer_embd(kvant_model *m, int l, kvant_diag *diag);
int request_layer_scale(kvant_model *m, int l, kvant_diag *diag);
int request_ffn(kvant_model *m, int l, kvant_diag *diag);   /* as build_ffn */
int request_plain_layer(kvant_model *m, int l, kvant_diag *diag);
/* Granite's factors of the embedding, of what blocks add and of the logits; and whether there is RoPE. */
int read_granite_factors(const gguf *g, hparams *hp, kvant_diag *diag);
/* Keys of the expert layers and of the recurrent layers. */
int read_moe_shapes(const gguf *g, hparams *hp, int shared, kvant_diag *diag);
/* Keys of the router; what hp says before is what a file without them means. */
int read_moe_router(const gguf *g, hparams *hp, kvant_diag *diag);
/* any_d_v: value_length says nothing of the cache. */
int read_mla_shapes(const gguf *g, const char *arch, int any_d_v, hparams *hp, kvant_diag *diag);
/* Layers of latent attention, then a dense FFN or experts. */
int read_latent_mixture(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag);
int request_latent_layer(kvant_model *m, int l, kvant_diag *diag);
void build_latent_layer(builder *b, int l);
/* Kimi Delta Attention. */
int read_kda_shapes(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag);
int request_kda(kvant_model *m, int l, kvant_diag *diag);
void build_kda(builder *b, int l);
/* read_moe_shapes and read_moe_router of mixtures with leading dense layers and a plain shared expert. */
int read_moe_lead(const gguf *g, hparams *hp, kvant_diag *diag);
int read_short_conv_shapes(const gguf *g, hparams *hp, kvant_diag *diag);
int read_gdn_shapes(const gguf *g, hparams *hp, kvant_diag *diag);

#endif
