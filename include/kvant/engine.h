/* engine.h: GGUF models in, tokens out.  A narrow handle API; other headers are for people who build their own engine.
 *
 * Model = a mapped file, its shapes and its tokenizer; reads no weights.  Engine = a model on a device with its paged
 * cache and state slots, all memory taken at create time.  Sequence = a timeline in the engine: tokens are appended by
 * steps.  One thread per engine at a time (the owner); a model may be shared by engines and threads.
 * Errors: every int function returns 0 or a KVANT_E* code and fills diag.
 * Results of a sequence do not depend on what else is in the batch, nor on the number of threads. */
#ifndef KVANT_ENGINE_H
#define KVANT_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"
#include "kvant/ops.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

typedef struct kvant_model kvant_model;
typedef struct kvant_engine kvant_engine;

/* ---- model ---- */

/* A low-rank adapter (LoRA): a GGUF file made for the model, and the scale that sequences have it with unless they say
 * otherwise (kvant_seq_lora). */
enum { KVANT_LORA_MOST = 1024,      /* scales are within +-KVANT_LORA_MOST */
       KVANT_LORA_FILES = 64 };     /* most adapters of a model */
typedef struct kvant_lora { const char *path; float scale; } kvant_lora;

typedef struct kvant_model_params {
    size_t size;                   /* of this struct: kvant_model_params_init writes it */
    const char *path;              /* GGUF file, or the first shard of a split one */
    /* NULL: the file's, else ChatML; a built-in one: chatml llama3 mistral gemma; or a Jinja text */
    const char *chat_template;
    /* NULL: the file's key kvant.rope.freq_dtype, else "f32".  "bf16": RoPE frequencies rounded to bf16, as a model had
     * them that was trained or recorded with its whole module, buffers included, cast to bf16. */
    const char *rope_freq_dtype;
    /* NULL, or "qwen3-8b:bf16": instead of a file, the shape of a published model with random weights (for speed) */
    const char *synthetic;
    const kvant_lora *lora;        /* n_lora adapters; copied */
    int n_lora;
    /* Values that stand in place of the file's or beside them: n_overrides texts "KEY=TYPE:VALUE" with a type of int,
     * float, bool or str ("tokenizer.ggml.add_bos_token=bool:false"), the tokenizer's too; copied */
    const char *const *overrides;
    int n_overrides;
    /* NULL, or a file with the block behind the trunk that predicts further tokens (blk.N.nextn.*) of a file that has
     * none: its tensors count as the model's.  KVANT_EFORMAT: another architecture, or a tensor of the same name. */
    const char *nextn;
} kvant_model_params;

/* Everything NULL or 0 but the size (sizeof in the caller's header, as in every _init). */
void kvant_model_params_init(kvant_model_params *p, size_t size);
static inline kvant_model_params kvant_model_defaults(void)
{
    kvant_model_params p;
    kvant_model_params_init(&p, sizeof p);
    return p;
}
/* Maps and checks the file (all shards), reads shapes and tokenizer; KVANT_ENOENT, KVANT_EFORMAT, KVANT_EUNSUPPORTED.
 * Close after every engine made from it; NULL is accepted. */
int kvant_model_open(const kvant_model_params *params, kvant_model **out, kvant_diag *diag);
void kvant_model_close(kvant_model *m);

/* Shapes of an opened model. Counts, in values; layers with attention of their own hold KV, recurrent layers state. */
typedef struct kvant_model_info {
    const char *arch, *name, *desc;          /* "qwen35", general.name, "qwen35 19M BF16" */
    int n_layer, n_embd, n_vocab, n_ctx_train;
    int n_head, n_head_kv, d_k, d_v;         /* attention */
    /* A layer may be of both kinds or of neither.  Recurrent layers: heads and widths of the gated delta rule, or of
     * Mamba2 (groups, heads, state, head size); 0: a convolution alone. */
    int n_attn_layers, n_gdn_layers;
    int gdn_hk, gdn_hv, gdn_dk, gdn_dv, conv_k;
    int n_window_layers, window;             /* layers whose attention sees only the last `window` tokens */
    int n_head_kv_window, d_k_window, d_v_window;   /* their heads; n_head_kv, d_k and d_v are the other layers' */
    int n_shared_layers;                     /* layers with attention over the K and V of an earlier one */
    int n_expert, n_expert_used;
    int64_t n_params, weight_bytes, file_bytes;
    int64_t state_bytes;                     /* recurrent (f32) + conv state of one sequence, all layers */
    int pooling;                             /* KVANT_POOLING_*: what the file says an embedding is */
    int n_mtp;                               /* blocks that predict further tokens and can guess drafts: 0 or 1 */
} kvant_model_info;
/* As in GGUF's pooling_type. */
enum {
    KVANT_POOLING_UNSAID = -1,
    KVANT_POOLING_NONE,
    KVANT_POOLING_MEAN,
    KVANT_POOLING_CLS,
    KVANT_POOLING_LAST,
    KVANT_POOLING_RANK
};
const kvant_model_info *kvant_model_get_info(const kvant_model *m);      /* as long as the model */
/* Adapter i, as long as the model; KVANT_EINVAL: there is none.  alpha 0: the file says none. */
typedef struct kvant_lora_info { const char *path; float scale, alpha; int rank; int64_t n_params; } kvant_lora_info;
int kvant_model_lora(const kvant_model *m, int i, kvant_lora_info *out);
/* The head of a reranker (cls.output.weight): its classes, 0: the file has none.  kvant_model_rank: the hidden state of
 * a text's last token, f32[n_embd], -> a score: with several classes the softmax of the first one (yes), else its
 * value.
 * KVANT_EUNSUPPORTED: there is no head. */
int kvant_model_rank_classes(const kvant_model *m);
int kvant_model_rank(const kvant_model *m, const float *hidden, float *score);
/* A query and a document as the file wants them put together (tokenizer.chat_template.rerank, a text with {query} and
 * {document}; without it: BOS query EOS document EOS, where the file asks for these).  Control tokens are parsed in the
 * file's text alone.  Ids, *n and errors as in kvant_tokenize. */
int kvant_rank_tokenize(const kvant_model *m, const char *query, const char *document, int32_t *ids, int cap, int *n,
                        kvant_diag *diag);
/* 1: the layer holds K and V; 0: it is recurrent, or reads those of another layer, or there is none. */
int kvant_model_layer_is_attn(const kvant_model *m, int layer);

/* ---- text: any thread ---- */

enum { KVANT_TOK_SPECIAL = 1,      /* parse control tokens in the text */
       KVANT_TOK_BOS = 2 };        /* add BOS where the file asks for it */

/* text[len] (any bytes) -> ids[cap]; *n is the number of tokens, also when cap is too small (then KVANT_ENOSPC). */
int kvant_tokenize(const kvant_model *m, const char *text, size_t len, int flags, int32_t *ids, int cap, int *n,
                   kvant_diag *diag);
/* Bytes of one token -> buf[cap]; returns the length needed, or KVANT_EINVAL if id is out of range.
 * special: control tokens give their text, else nothing. */
int kvant_token_bytes(const kvant_model *m, int32_t id, int special, char *buf, int cap);
int kvant_token_is_eog(const kvant_model *m, int32_t id);      /* one that ends a generation */
int32_t kvant_token_bos(const kvant_model *m);      /* -1: none */
int32_t kvant_token_eos(const kvant_model *m);      /* -1: none */
int kvant_token_add_bos(const kvant_model *m);      /* the file asks for BOS */
int kvant_token_add_eos(const kvant_model *m);      /* it asks for EOS: at the end of texts to embed */

/* Streaming detokeniser: never emits half a UTF-8 character; bytes that can no longer become one give U+FFFD.  Begins
 * as { 0 }; one per stream of text. */
typedef struct kvant_detok { char pending[8]; int n_pending; } kvant_detok;
/* Appends token bytes; out[cap] gets complete characters (NUL-terminated); returns their length or an error.  A cap of
 * 3 * length + 16 always suffices (each ill-formed byte may give U+FFFD); KVANT_ENOSPC leaves d unchanged. */
int kvant_detok_push(const kvant_model *m, kvant_detok *d, int32_t id, char *out, int cap);
/* The end of the text: what is pending gives one U+FFFD.  Returns the length, 0 or 3; KVANT_ENOSPC: cap below 4. */
int kvant_detok_flush(kvant_detok *d, char *out, int cap);

typedef struct kvant_chat_msg { const char *role, *content; } kvant_chat_msg;
/* How a prompt of messages ends. */
enum kvant_chat_end {
    KVANT_CHAT_CLOSED,   /* after the last message */
    KVANT_CHAT_OPEN,     /* an answer is begun */
    KVANT_CHAT_CONTINUE, /* the last message, an assistant's, is left open: what is generated goes on with its text */
};
/* A chat template gets these: messages in C or as JSON (an array as in OpenAI's API, with tool calls, parts,
 * reasoning); tools and documents as JSON arrays; kwargs, a JSON object of more variables.  NULL: none. */
typedef struct kvant_chat_input {
    const kvant_chat_msg *msgs;
    int n;
    const char *messages;          /* instead of msgs */
    const char *tools, *documents, *kwargs;
    int end;                       /* enum kvant_chat_end */
} kvant_chat_input;
/* Messages -> prompt text through the model's template (Jinja; limits in docs/templates.md).  *text: kvant_text_free.
 * KVANT_EINVAL (the template refuses the messages, fails at a line and column, or passes a limit), KVANT_EUNSUPPORTED
 * (it cannot be used).  Ids as in kvant_tokenize: control tokens are parsed in what the template wrote and never in the
 * messages' text.  format and tokenize: only messages. */
int kvant_chat_render(const kvant_model *m, const kvant_chat_input *in, char **text, kvant_diag *diag);
int kvant_chat_encode(const kvant_model *m, const kvant_chat_input *in, int32_t *ids, int cap, int *n_ids,
                      kvant_diag *diag);
int kvant_chat_format(const kvant_model *m, const kvant_chat_msg *msgs, int n, int end, char **text,
                      kvant_diag *diag);
int kvant_chat_tokenize(const kvant_model *m, const kvant_chat_msg *msgs, int n, int end, int32_t *ids,
                        int cap, int *n_ids, kvant_diag *diag);
/* "jinja" (a template's text), "chatml", ... (built in), "unknown" (the file's cannot be used); *from_file: 0 when the
 * file has no template and ChatML was assumed. */
const char *kvant_chat_family(const kvant_model *m, int *from_file);
const char *kvant_chat_source(const kvant_model *m);      /* the template's text, as long as the model */
void kvant_text_free(char *text);

/* ---- engine ---- */

enum { KVANT_MOST_DEVICES = 16 };

typedef struct kvant_engine_params {
    size_t size;                   /* of this struct: kvant_engine_params_init writes it */
    const char *device;            /* "cpu", "cuda:0"; NULL: cpu; several: see split */
    int threads;                   /* 0: all CPUs */
    int compute;                   /* enum kvant_compute */
    int n_ctx;                     /* most tokens of one sequence; 0: the model's training context */
    int max_seqs;                  /* sequences that may live at once; 0: 1 */
    int n_ubatch;                  /* tokens per device pass, rounded up to a multiple of 64; 0: 512, on CUDA
                                    * 2048 for 16 sequences or more and for mixtures of experts */
    int64_t pool_tokens;           /* KV pool in tokens; 0: max_seqs * n_ctx */
    const char *type_k, *type_v;   /* formats; NULL: "f16" */
    const char *type_layers;       /* "0-1=f16,6=turbo3,7=q8_0:tbq4_0" (K:V) or NULL */
    int kv_tail;                   /* exact tail in tokens: 0, 64, 128, ...; -1: default 64 */
    int encoder;                   /* enum kvant_encoder */
    const char *state_type;        /* recurrent states: "f32" or "bf16" (half the bytes; CPU and CUDA); NULL: "f32" */
    int logits_rows;               /* most rows of logits per step; 0: max_seqs */
    /* Snapshots that the prefix cache of a session may keep (recurrent models, models with windows apart, and any with
     * kv_tail over 64 or kv_sink: each takes as much state and windows as a sequence, and kv_tail/64 - 1 + kv_sink/64
     * tail pages); 0: none */
    int snapshots;
    /* Layers that see only a window keep its pages alone, in a pool of their own, where that is smaller and other
     * layers see everything; 1: they keep all pages, and a prefix can be resumed at any of them */
    int full_windows;
    /* qjl1_256: projection file (kvant/qjl.h), NULL: built from seed 42; read at create */
    const char *qjl_projection;
    /* Called on the creating thread while weights are loaded: `done` of `total` bytes, at least once, last with done ==
     * total.  Not 0 ends create with KVANT_ECANCELED.  NULL: none. */
    int (*progress)(void *user, int64_t done, int64_t total);
    void *progress_user;
    /* Several devices ("cuda:0,cuda:1") compute the layers in order, each with their caches; the head counts as a layer
     * more.  split: their shares ("3,1"), NULL: equal; read at create.  gpu_layers: so many of the last layers are
     * theirs and the CPU computes those before; 0: all are theirs. */
    const char *split;
    int gpu_layers;
    /* Routed experts apart from the rest of their layers.  cpu_experts: those of so many of the first layers are on the
     * CPU.  tensors: rules "PATTERN=DEVICE,..." before that one, extended regular expressions over the file's names of
     * tensors, the first that matches counts; they may move routed experts alone, all of a layer; read at create. */
    int cpu_experts;               /* -1: kvant_fit_* choose it, and gpu_layers where that is 0 */
    const char *tensors;
    /* Bytes that the engine may have of each device, in order, and of this machine's memory beside them; 0: any. */
    int64_t device_memory[KVANT_MOST_DEVICES], host_memory;
    /* Models with recurrent layers: most rows that the items with drafts of a step may have, 1 + n_draft each, at most
     * n_ubatch; states take them once they are accepted, a ring until then.  0: such models verify no drafts */
    int draft_rows;
    /* 1: the block that predicts further tokens is loaded, with K and V of its own, and can guess drafts
     * (KVANT_SPEC_MTP).  KVANT_EUNSUPPORTED: the model has none (info.n_mtp), or there are several devices. */
    int mtp;
    /* 1: several devices have a part of every layer instead of whole layers: KV heads with their pages, columns of
     * matrices; split: the parts, NULL: as even as they come.  Each has all KV heads where those are fewer.
     * KVANT_EINVAL: shares that are no whole heads; KVANT_EUNSUPPORTED: gpu_layers, cpu_experts, tensors, mtp too. */
    int split_tensors;
    /* First tokens of a sequence that stay exact (f16), rounded up to pages of 64; wants kv_tail of 64 or more and
     * formats under 16 bits; KVANT_EUNSUPPORTED on CUDA and Vulkan.  Prefixes resume from snapshots then. */
    int kv_sink;
} kvant_engine_params;

/* Everything 0 or NULL ("default"), except kv_tail -1 and the encoder: best. */
void kvant_engine_params_init(kvant_engine_params *p, size_t size);
static inline kvant_engine_params kvant_engine_defaults(void)
{
    kvant_engine_params p;
    kvant_engine_params_init(&p, sizeof p);
    return p;
}

/* Memory an engine with these parameters takes, by part, in bytes; no weights are read.  KVANT_EINVAL: a parameter. */
typedef struct kvant_plan {
    int64_t weights, kv, window, tail, state, scratch, total;
    int64_t kv_bytes_per_token;            /* K + V, encoded rows: all layers but those whose window is apart */
    int n_ctx, max_seqs;
} kvant_plan;
int kvant_plan_make(const kvant_model *m, const kvant_engine_params *p, kvant_plan *out, kvant_diag *diag);
/* The part of one of several devices, the CPU's first where it has layers: its name, and how many layers it has (the
 * head counts as one).  KVANT_EINVAL: there is no device i, or as above. */
typedef struct kvant_plan_part { char device[40]; int layers; kvant_plan plan; } kvant_plan_part;
int kvant_plan_device(const kvant_model *m, const kvant_engine_params *p, int i, kvant_plan_part *out,
                      kvant_diag *diag);
/* Group i of tensors ("attention", "routed experts") on a device, in the order of devices: its bytes, and those that a
 * decoded token reads of it.  KVANT_EINVAL: there is no group i, or as above. */
typedef struct kvant_plan_group {
    char device[40], group[24];
    int tensors, place;            /* place: its number in kvant_plan_device */
    int64_t bytes, token_bytes;
} kvant_plan_group;
int kvant_plan_group_at(const kvant_model *m, const kvant_engine_params *p, int i, kvant_plan_group *out,
                        kvant_diag *diag);

/* Loads the weights and takes all memory of the plan; KVANT_ENOSPC (more than this machine has free, by part),
 * KVANT_ENOMEM, KVANT_EINVAL (a parameter), KVANT_EUNSUPPORTED (an op or format the device lacks, listed),
 * KVANT_EDEVICE.  The model must outlive the engine.  free accepts NULL. */
int kvant_engine_create(kvant_model *m, const kvant_engine_params *p, kvant_engine **out, kvant_diag *diag);
void kvant_engine_free(kvant_engine *e);
const kvant_model *kvant_engine_model(const kvant_engine *e);
const kvant_engine_params *kvant_engine_get_params(const kvant_engine *e);   /* with defaults resolved */
/* "CPU (AMD EPYC, 2 threads, avx2)" */
void kvant_engine_describe(const kvant_engine *e, char *buf, int cap);
/* The name of the i-th device of an engine, in the order of kvant_plan_device; NULL: it has fewer. */
const char *kvant_engine_device(const kvant_engine *e, int i);
/* The op program of one decode step, one line per op, for `inspect --program`: "[form 1/4]" ends the lines of ops that
 * the device runs as one, "cpu may join: ..." tells of those that it joins unseen; *text: kvant_text_free. */
int kvant_engine_program_text(kvant_engine *e, char **text, kvant_diag *diag);

/* ---- sequences ---- */

int kvant_seq_new(kvant_engine *e, int *seq, kvant_diag *diag);   /* KVANT_ENOSPC: max_seqs live already */
int kvant_seq_free(kvant_engine *e, int seq);                     /* KVANT_EINVAL: no such sequence */
/* The scale of each of the model's adapters in this sequence, which is still empty: scales[n] of n adapters; 0: without
 * it.  A new sequence has the model's.  KVANT_EINVAL: no such sequence, not empty, another n, a scale out of range. */
int kvant_seq_lora(kvant_engine *e, int seq, const float *scales, int n, kvant_diag *diag);
/* A second sequence that goes on where src is, at any length.  Full pages are shared, the open page, the tail and the
 * state are copied.  KVANT_EINVAL (no such sequence, or broken), KVANT_ENOSPC (max_seqs live, or no page free). */
int kvant_seq_fork(kvant_engine *e, int src, int *seq, kvant_diag *diag);
int kvant_seq_length(const kvant_engine *e, int seq);             /* tokens so far, or KVANT_EINVAL */
/* Bytes of routed experts that the CPU has read so far, in passes without prompts, where it has them apart from their
 * layers, and the nanoseconds in which it computed with them; an expert that several rows of a pass have counts once.
 * 0 and 0: none are apart, or another device has them. */
void kvant_engine_expert_reads(const kvant_engine *e, int64_t *bytes, int64_t *ns);
int64_t kvant_seq_cache_bytes(const kvant_engine *e, int seq);    /* of its pages, tail and state, or KVANT_EINVAL */

/* GREEDY: of the last row only the likeliest token comes back (kvant_step_token); its logits stay on the device.
 * HIDDEN: no logits; the hidden states after the output norm are collected for kvant_seq_hidden.
 * TOP: as GREEDY, with the KVANT_STEP_TOP largest logits (kvant_step_top): what top-k sampling needs. */
enum { KVANT_LOGITS_NONE = 0, KVANT_LOGITS_LAST = 1, KVANT_LOGITS_ALL = 2, KVANT_LOGITS_GREEDY = 3,
       KVANT_LOGITS_HIDDEN = 4, KVANT_LOGITS_TOP = 5 };
enum { KVANT_STEP_TOP = 128 };

/* n tokens appended to one sequence.  prompt 1: a piece of a prompt (chunk forms; pieces of one prompt must end on the
 * 64-token grid, except the last); prompt 0: generated tokens, one at a time.  A sequence appears at most once per
 * step. */
typedef struct kvant_item {
    int seq;
    const int32_t *tokens;
    int n;
    int prompt;
    int logits;
} kvant_item;

/* Runs the items as one batch (in device passes of at most n_ubatch tokens).
 * Refused before anything runs, nothing changed: KVANT_EINVAL (token out of range, n = 0, bad sequence), KVANT_ENOSPC
 * (context or pool full).  Later errors are per item (kvant_step_code), the first one is returned: KVANT_ENUMERIC
 * (logits not finite, naming the sequence; the other items go on), KVANT_ECANCELED, KVANT_EIO (model file vanished),
 * KVANT_EDEVICE.  A sequence keeps the tokens of the passes that were completed (kvant_seq_length); one whose pass
 * failed can only be freed. */
int kvant_step(kvant_engine *e, const kvant_item *items, int n, kvant_diag *diag);
/* As kvant_step, where the last n_draft[i] tokens of item i are guesses behind one token of a prompt-0 item; NULL: none
 * are.  Their rows have the bits of one-token steps (on devices other than the CPU: are within the class), and LAST,
 * GREEDY and TOP give a result for each row of the item, 0 .. n_draft; but the sequence's length counts no guess until
 * kvant_seq_accept.  KVANT_EINVAL: more than kvant_seq_draft_room, or than draft_rows. */
int kvant_step_drafts(kvant_engine *e, const kvant_item *items, const int *n_draft, int n, kvant_diag *diag);
/* The result of an item of the last step.  KVANT_OK: all its tokens are in, its logits are valid.  KVANT_ECANCELED:
 * some are, the sequence can go on.  Else its pass failed.  KVANT_EINVAL: the step was refused, or no such item. */
int kvant_step_code(const kvant_engine *e, int item);
/* Logits f32[n_vocab] of a row of an item of the last step (row 0 for LAST without drafts); NULL if not asked for.
 * Valid until the next step. */
const float *kvant_step_logits(const kvant_engine *e, int item, int row);
/* The likeliest token (ties: the lower id) of a GREEDY or TOP item of the last step; -1 for other items. */
int32_t kvant_step_token(const kvant_engine *e, int item);
/* The largest logits of a TOP item of the last step and their tokens, the largest first (ties: the lower id), valid
 * until the next step.  Returns how many: KVANT_STEP_TOP, or the whole vocabulary where that is smaller; 0 for other
 * items. */
int kvant_step_top(const kvant_engine *e, int item, const float **logits, const int32_t **ids);
/* Hidden states (KVANT_LOGITS_HIDDEN) of a sequence from its first token on: f32[n_embd] mean over all tokens and that
 * of the last one; either may be NULL.  KVANT_EINVAL: no such sequence, or it is empty. */
int kvant_seq_hidden(const kvant_engine *e, int seq, float *mean, float *last);
/* The first n drafts of the sequence's item in the last step that it was in (with draft_rows: in the last step) are its
 * tokens: its length grows by n, and the other drafts are forgotten, as all are without this call.  KVANT_EINVAL: no
 * such sequence, it failed, or n is outside 0 .. n_draft. */
int kvant_seq_accept(kvant_engine *e, int seq, int n, kvant_diag *diag);
/* KVANT_OK: items may have drafts.  KVANT_EUNSUPPORTED: the model has recurrent layers and draft_rows is below 2; diag
 * says which. */
int kvant_engine_verifies(const kvant_engine *e, kvant_diag *diag);
/* Most drafts that the next step of the sequence may carry behind one token, at most 32 with mtp; 0 also where the
 * engine verifies none.  KVANT_EINVAL: no such sequence. */
int kvant_seq_draft_room(const kvant_engine *e, int seq);
/* Another thread may call this: the running step returns KVANT_ECANCELED at the next device pass. */
void kvant_engine_cancel(kvant_engine *e);

/* ---- sampling: a sampler belongs to one thread at a time ---- */

typedef struct kvant_sampler_params {
    size_t size;                   /* of this struct: kvant_sampler_params_init writes it */
    float temp;                    /* 0: greedy */
    int top_k;                     /* 0: off */
    float top_p, min_p;            /* 1 and 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty;   /* 1, 0, 0: off */
    int penalty_last_n;            /* tokens looked back on; -1: all */
    uint64_t seed;
    const int32_t *bias_ids;       /* logit bias: n_bias ids and values */
    const float *bias;
    int n_bias;
    /* Off where they are 0; what the others of a line say then counts for nothing. */
    float typical_p;                         /* 1: off too */
    float top_n_sigma;                       /* -1: off too */
    float xtc_probability, xtc_threshold;    /* a threshold above 0.5: off */
    float dynatemp_range, dynatemp_exponent; /* temp +- range, by entropy */
    int mirostat;                            /* 1, 2: in place of all but bias, n-grams and temp */
    float mirostat_tau, mirostat_eta;
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;      /* dry_last_n: tokens looked back on; -1: context */
    const int32_t *dry_breakers;             /* n_dry_breakers tokens that no repetition goes across */
    int n_dry_breakers;
    int no_repeat_ngram;                     /* no so many tokens come twice within the context */
    int context;                             /* tokens */
} kvant_sampler_params;
typedef struct kvant_sampler kvant_sampler;

/* temp 0.8, top_k 40, top_p 0.95, min_p 0.05; the others off */
void kvant_sampler_params_init(kvant_sampler_params *p, size_t size);
static inline kvant_sampler_params kvant_sampler_defaults(void)
{
    kvant_sampler_params p;
    kvant_sampler_params_init(&p, sizeof p);
    return p;
}
/* KVANT_EINVAL names the parameter out of range.  Arrays are copied. */
int kvant_sampler_create(const kvant_sampler_params *p, int n_vocab, kvant_sampler **out, kvant_diag *diag);
void kvant_sampler_free(kvant_sampler *s);                        /* NULL is accepted */
void kvant_sampler_accept(kvant_sampler *s, int32_t token);       /* feeds penalties: prompt and generated tokens */
/* logits f32[n_vocab] (unchanged) -> *token.  KVANT_ENUMERIC when no logit is finite. */
int kvant_sampler_pick(kvant_sampler *s, const float *logits, int32_t *token, kvant_diag *diag);
/* How the next pick can ask for logits: KVANT_LOGITS_GREEDY, _TOP (then kvant_sampler_pick_top) or _LAST.  Needed are
 * all where a bias or penalty raises logits or may lower more than KVANT_STEP_TOP - top_k of them, where top_k is 0 or
 * above KVANT_STEP_TOP, and by what is off by default. */
int kvant_sampler_wants(const kvant_sampler *s);
/* Picks as kvant_sampler_pick does, with equal token and state, from the output of kvant_step_top: the n largest finite
 * logits, in order.  KVANT_EINVAL when the sampler needs more of them (kvant_sampler_wants). */
int kvant_sampler_pick_top(kvant_sampler *s, const float *logits, const int32_t *ids, int n, int32_t *token,
                           kvant_diag *diag);
/* The token after an item of the last step, from what it asked for (LAST, TOP or GREEDY; for GREEDY s may be NULL).
 * Errors of the two above; KVANT_EINVAL when the item asked for none of these. */
int kvant_step_sample(const kvant_engine *e, int item, kvant_sampler *s, int32_t *token, kvant_diag *diag);
/* As kvant_step_sample, after row 0 .. n_draft of an item with drafts: row 0 is that of the token before them. */
int kvant_step_sample_row(const kvant_engine *e, int item, int row, kvant_sampler *s, int32_t *token,
                          kvant_diag *diag);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
