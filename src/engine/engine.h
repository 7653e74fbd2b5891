/* engine/engine.h: the engine's insides, shared by its files.  Public face: kvant/engine.h. */
#ifndef KVANT_ENGINE_ENGINE_H
#define KVANT_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "cache/kv.h"
#include "devices/device.h"
#include "kvant/engine.h"
#include "model/build.h"

/* Values that an input takes: whole cache lines. */
#define STEP_INPUT_ROOM(n) (((size_t)(n) + 15) & ~(size_t)15)

/* Small integer inputs of a pass (step_inputs.def).  On the host each has room for the most; on the device they lie one
 * behind the other, as many values as the pass has, and come by one upload. */
typedef struct step_inputs {
#define STEP_INPUT(name, most, now) int32_t *name;
#include "engine/step_inputs.def"
#undef STEP_INPUT
} step_inputs;

typedef struct engine_weights {
    kvant_weight *w;                           /* [n_specs] */
    float **vec;                               /* [n_specs] device address of vectors */
    void *vec_mem;                             /* one device block behind vec */
    size_t vec_bytes;
    void **host;                               /* [n_specs] joined rows that the device still reads, or NULL */
    float *inv_freq, *inv_freq_window, *ones, *suppress;         /* device */
    float *heads;                              /* device: 0 .. n_head - 1 as int32 */
    float *scales;                             /* host copy of second-level scales */
} engine_weights;

/* Hidden states for the block that predicts further tokens: after the output norm, host memory.  rows: of the last
 * token of each sequence, and of the drafts behind it.  The block's own states stay on the device. */
enum { ENGINE_MTP_ROWS = BUILD_MTP_ROUNDS };
typedef struct engine_mtp {
    float *rows;                               /* [max_seqs][ENGINE_MTP_ROWS][n_embd] */
    float *sent;                               /* [max_seqs][n_embd] */
    int32_t *told;                             /* host copy of build_mtp.told */
    int *chain;                                /* [max_seqs] row of the pass that has the block's state; -1: none */
    int *at;                                   /* [max_seqs] which of its rows is the last token's */
    int *len;                                  /* [max_seqs] the length of the sequence that they belong to */
    uint64_t *serial;                          /* [max_seqs] and its number */
    int rests;                                 /* decode steps write no rows of the block: nobody asks it */
} engine_mtp;

/* The sink of the hidden states of a sequence's first n tokens, f32[n][n_embd], beside their sum; its owner's. */
typedef struct hidden_sink {
    float *rows;
    int n;
} hidden_sink;

/* The layers of a model over devices, in order; behind these places those that have routed experts alone. */
typedef struct engine_split {
    int n;
    char name[KV_MOST_PLACES][40];
    int device[KV_MOST_PLACES];                /* its number in the list of devices; -1: it is not there */
    unsigned char of[MODEL_MAX_LAYERS + 1];    /* place of each layer, and of the head */
    unsigned char experts[MODEL_MAX_LAYERS];   /* place of each layer's routed experts */
    int tensors;                               /* 1: every place has a part of every layer; `of` is the first */
    double end[KV_MOST_PLACES];                /* and of 1 the parts up to this place's are so much */
} engine_split;

/* A device, and what the engine has on it: addresses are the device's. */
typedef struct engine_place {
    kvant_device *dev;
    void **projections;                        /* [n_projections] f32[128][256] of qjl1_256, or NULL */
    int n_projections;
    engine_weights weights;
    unsigned char fused[KVANT_OP_COUNT];
    unsigned char *scratch;                    /* activations */
    build_buffers buf;
    int32_t *in_dev;
    size_t in_values;                          /* so many have room there */
    step_inputs in;                            /* in in_dev */
    int32_t *lora_rows;                        /* [n_ubatch] 0, 1, 2 ...; NULL: the model has no adapters */
} engine_place;

/* Before op number `op` n values (of four bytes) of each part go from one place to another; that op and those behind it
 * are of place `next`. */
enum { CROSSING_PARTS = 3 };
typedef struct engine_crossing {
    int op, from, to, next;
    int fill;                                  /* the layer whose experts come to a slot of `next`, plus one; 0: none */
    size_t n[CROSSING_PARTS];
    const void *src[CROSSING_PARTS];
    void *dst[CROSSING_PARTS];
} engine_crossing;

struct engine_tensor;

/* Routed experts that are apart and that the CPU has read, in passes without prompts. */
typedef struct engine_reads {
    int64_t bytes, ns;
    unsigned char *seen;                       /* [n_expert]; NULL: none are apart */
} engine_reads;

/* Experts of the CPU that a device computes with in passes of many rows (place/place_stream.h). */
typedef struct engine_stream {
    int rows, home;                            /* from so many rows on, by this place; 0: never */
    int last;                                  /* the slot that was filled last */
    void *mem;                                 /* the slots, on the device */
    void **made;                               /* [n_specs] rows of a synthetic model, or NULL; NULL: not open */
    copy_piece *list;                          /* of the matrix that is on its way */
    unsigned char slot[MODEL_MAX_LAYERS];
} engine_stream;

/* Between places. */
typedef struct engine_way {
    void *host;                                /* values on their way; NULL: there is one place */
    kvant_relay *relay;                        /* the program as one list (place_relay.c) */
    size_t scratch_bytes;                      /* of each place */
    int *part_heads;                           /* kv_config.part_heads; NULL: layers are whole */
    struct engine_tensor *tensor;              /* tensor/tensor.h: parts of layers on all places; NULL: whole layers */
    engine_reads reads;
    engine_stream stream;
} engine_way;

/* Those who look on while a program runs. */
typedef struct engine_profile engine_profile;
typedef struct engine_watch {
    /* NULL, or: called for every product, when what it reads is there and its result is not yet (make/collect.h) */
    void (*tap)(void *user, const kvant_op *op);
    void *tap_user;
    engine_profile *profile;                   /* NULL, or: what ops take (profile.h) */
} engine_watch;

struct kvant_engine {
    kvant_model *m;
    kvant_engine_params p;                     /* resolved; strings point into `names` */
    char names[4][KV_MOST_PLACES * 40];
    engine_split split;
    engine_place place[KV_MOST_PLACES];
    kv_place kv_places[KV_MOST_PLACES];
    engine_crossing *cross;                    /* of the program in ops */
    int n_cross, parted;                       /* parted: some layer's experts are on another place */
    engine_way way;
    kv_types *types;                           /* [n_layer] */
    unsigned char *kinds;
    kv_cache kv;
    builder b;
    arena args;
    kvant_op *ops;
    int max_ops;
    int32_t *in_host, *in_sent;                /* step inputs: filled, in the order of the upload */
    step_inputs host_in;
    /* logits of the last step */
    float *logits;                             /* host [logits_rows][n_vocab] */
    int *item_row, *item_rows;                 /* [max_seqs + 1] first row of each item; rows of logits */
    int32_t *tokens;                           /* [logits_rows] likeliest token of a row, where asked for; ROW_BAD */
    float *top;                                /* [logits_rows + pass_rows][KVANT_STEP_TOP] logits: by row, of a pass */
    int32_t *top_ids;                          /* the same: their tokens */
    int *item_code;                            /* [max_seqs] what became of it */
    int *item_draft;                           /* [max_seqs] its last so many tokens are drafts */
    int n_items;
    int ring_used;                             /* rows of the ring that the passes of the step have taken */
    /* KVANT_LOGITS_HIDDEN: host memory */
    double *hidden_sum;                        /* [max_seqs][n_embd] */
    float *hidden_last;                        /* [max_seqs][n_embd] */
    hidden_sink *hidden_sinks;                 /* [max_seqs] */
    engine_mtp mtp;
    float *hidden_rows;                        /* [KVANT_PAGE][n_embd] rows on their way from the device */
    int pass_rows;                             /* most logits rows of one pass */
    float *lora_scales;                        /* [max_seqs][adapters] of each sequence */
    _Atomic int cancel;
    engine_watch watch;
};

/* ---- params.c: defaults, layer types, sizes ---- */
int engine_resolve(const kvant_model *m, const kvant_engine_params *in, kvant_engine_params *out, kvant_diag *diag);
/* types[n_layer] from type_k, type_v and type_layers. */
int engine_types(const kvant_model *m, const kvant_engine_params *p, kv_types *types, kvant_diag *diag);
void engine_kv_config(const kvant_model *m, const kvant_engine_params *p, const kv_types *types, unsigned char *kinds,
                      kv_config *cfg);
int engine_pass_rows(const kvant_engine_params *p);
/* The plan of one place of resolved parameters; of all: -1.  Slots of prompts (place/place_stream.h) are in `scratch`
 * where they have room beside all else; base: they never are. */
int engine_plan_base(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place,
                     kvant_plan *out, kvant_diag *diag);
int engine_plan_place(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place,
                      kvant_plan *out, kvant_diag *diag);
/* KVANT_EINVAL names the value outside lo..hi. */
int engine_in_range(const char *name, int64_t v, int64_t lo, int64_t hi, kvant_diag *diag);

/* ---- place/place.c: layers over devices ---- */
/* KVANT_EINVAL, KVANT_EDEVICE: names, shares and rules that do not add up; KVANT_EUNSUPPORTED: layers that share K and
 * V would be apart, or tensors that cannot be. */
int engine_split_make(const kvant_model *m, const kvant_engine_params *p, engine_split *out, kvant_diag *diag);
/* Bytes of the weights on a place; -1: out of memory. */
int64_t engine_split_weights(const kvant_model *m, const engine_split *s, int place);
/* The first place of that name ("cpu", "CUDA0"), or one more at the end: *place. */
int engine_split_find(engine_split *s, const char *name, size_t n, int *place, kvant_diag *diag);
/* The layer that a tensor's name tells; -1: none. */
long engine_tensor_layer(const gguf_tensor *t);
/* The place of a tensor that is no routed expert; embeddings: that of the first layer. */
int engine_tensor_place(const kvant_model *m, const engine_split *s, const gguf_tensor *t);
/* 1: a tensor of the routed experts of layer *l. */
int engine_is_expert(const gguf_tensor *t, int *l);

/* Splits of places: names, and shares of devices that are above 0.  As engine_split_make. */
int engine_split_shares(const char *text, double *share, int n, kvant_diag *diag);

/* ---- place/place_experts.c: which device has the routed experts of a layer ---- */
int engine_split_experts(const kvant_model *m, const kvant_engine_params *p, engine_split *s, kvant_diag *diag);

/* ---- place/place_room.c: memory of places ---- */
/* 1: it is this machine's CPU beside the devices that were named. */
int engine_place_is_host(const engine_split *s, int place);
/* Bytes that the parameters give to a place; 0: any. */
int64_t engine_place_memory(const kvant_engine_params *p, const engine_split *s, int place);
/* KVANT_ENOSPC: a device's part is larger than what the parameters say it has; spare 1: than 15/16 of it. */
int engine_check_room(const kvant_model *m, const kvant_engine_params *p, int spare, kvant_diag *diag);

/* ---- place/place_run.c: a program over places ---- */
/* Most crossings of a program; 0: there is one place. */
int engine_most_crossings(const kvant_engine *e);
/* Values that the largest crossing takes per row. */
size_t engine_crossing_width(const kvant_engine *e);
/* The place of the head: logits and hidden states come from it. */
static inline engine_place *engine_head(kvant_engine *e)
{
    return &e->place[e->split.of[e->m->hp.n_layer]];
}
/* The place of op number i of the program. */
int engine_place_of_op(const kvant_engine *e, int i);
/* Makes from here on the builder's addresses those of a place, but for the inputs of a pass. */
void engine_bind(kvant_engine *e, int place);
/* The stream of the builder, which is on `from`, goes on at `to`: notes the crossing and binds. */
void engine_cross(kvant_engine *e, int from, int to);
/* The builder's hook of layers whose experts are on another place than `home` (build.h). */
const float *engine_apart(kvant_engine *e, int home, int l, int stage, const float *x, float *y, int width);
/* Submits the first n ops, each on its place, with the crossings between. */
int engine_submit(kvant_engine *e, int n, uint64_t key, kvant_diag *diag);

/* ---- place/place_reads.c: lists of the CPU ---- */
int engine_reads_create(kvant_engine *e, kvant_diag *diag);
/* Submits ops to a place whose addresses are plain pointers. */
int engine_submit_host(kvant_engine *e, int place, const kvant_op *ops, int n, kvant_diag *diag);

/* ---- place/place_relay.c: a program over the CPU and one device that runs it by itself ---- */
/* That device's place; -1: there is none, or there are others than it and the CPU. */
int engine_relay_place(const kvant_engine *e);
int engine_relay(kvant_engine *e, int home, int n, uint64_t key, kvant_diag *diag);
/* Once activations are there, and before they go. */
void engine_relay_ready(kvant_engine *e);
void engine_relay_release(kvant_engine *e);

/* ---- engine_lora.c: adapters of sequences ---- */
int engine_lora_create(kvant_engine *e, kvant_diag *diag);
/* seq has these scales (NULL: the model's) from now on. */
void engine_lora_set(kvant_engine *e, int seq, const float *scales);
void engine_lora_copy(kvant_engine *e, int from, int to);
/* It has an adapter with a scale other than 0. */
int engine_lora_any(const kvant_engine *e, int seq);
/* Each must be finite and in range; `what` begins the message. */
int engine_lora_check(const kvant_model *m, const float *scales, const char *what, kvant_diag *diag);

/* ---- create/create_cache.c ---- */
int engine_create_cache(kvant_engine *e, kvant_diag *diag);

/* ---- create/create_ops.c ---- */
/* Fused ops have a decomposition: takes what the op's device says it executes; a missing primitive is an error that
 * lists all. */
int engine_choose_ops(kvant_engine *e, kvant_diag *diag);

/* ---- load.c: weights to the device ---- */
/* Loads what the ops of e->b (a sample program) read. */
int engine_load_weights(kvant_engine *e, kvant_diag *diag);
void engine_free_weights(kvant_engine *e);

/* ---- draft/mtp_rows.c: the block that predicts further tokens (params.mtp) ---- */
struct step_pass;
int engine_mtp_create(kvant_engine *e, kvant_diag *diag);
void engine_mtp_free(kvant_engine *e);
/* The rows of a pass before the sequences seq[n_seqs]: to the device; after it: from there. */
int engine_mtp_send(kvant_engine *e, const struct step_pass *p, const int *seq, kvant_diag *diag);
int engine_mtp_keep(kvant_engine *e, const struct step_pass *p, const int *seq, const int *drafts,
                    kvant_diag *diag);
void engine_mtp_accept(kvant_engine *e, int seq, int n);
/* 1: the pass leaves the block out (mtp.rests), and nobody has states of its sequences. */
int engine_mtp_rests(kvant_engine *e, const struct step_pass *p, const int *seq);
/* The block guesses n tokens of a sequence, one behind another, the first behind `token`, which is `at` places behind
 * the sequence's length: there it is a guess of the block's own.  A device makes the guesses of all items without a
 * wait for the host. */
typedef struct mtp_item {
    int seq, at, n;                            /* n: at most ENGINE_MTP_ROWS */
    int32_t token;
    int32_t guess[ENGINE_MTP_ROWS];            /* out; -1: none, nor any behind it */
    float p[ENGINE_MTP_ROWS];                  /* out: share of the likeliest ones, 1 where `likely` is 0 */
} mtp_item;
int engine_mtp_guess(kvant_engine *e, mtp_item *items, int n, int likely, kvant_diag *diag);
/* The guesses of a sequence are done: pages that were taken for them go back. */
void engine_mtp_end(kvant_engine *e, int seq);

/* ---- engine.c: rows that may be taken back ---- */
/* The sequence ends at len again.  KVANT_EINVAL: no such sequence, it failed, it is shorter, or rows before its open
 * page, or all of a page that is full, would go. */
int engine_seq_rewind(kvant_engine *e, int seq, int len);
/* Keeps all that the row at len reads, while rows that may be taken back are behind it; until engine_seq_rewind. */
void engine_seq_hold(kvant_engine *e, int seq, int len);

/* ---- sampler.c ---- */
/* The highest of the finite logits, the lower id of equals; -1: none is finite. */
int32_t sampler_argmax(const float *logits, int n);

/* ---- step.c ---- */
enum { ROW_BAD = INT32_MIN };      /* in kvant_engine.tokens: the logits of this row of a draft are not finite */
/* As kvant_step_token and kvant_step_top, for row 0 .. n_draft of an item. */
int32_t engine_row_token(const kvant_engine *e, int item, int row);
int engine_row_top(const kvant_engine *e, int item, int row, const float **logits, const int32_t **ids);
/* KVANT_ENUMERIC: the logits of this row are not finite (row 0: the step said so of its item). */
int engine_row_code(const kvant_engine *e, int item, int row);
/* ---- draft/fold.c: rows of the ring into the states ---- */
/* Most input values of a fold. */
size_t engine_fold_values(const kvant_engine_params *p);
/* The rows of seq (-1: of all sequences) that count leave the ring.  On error they are lost: the sequence is broken. */
int engine_fold(kvant_engine *e, int seq, kvant_diag *diag);

/* Fills e->b for a sample pass of n rows (prompt or decode) of sequence-less tables, and builds its ops. */
int engine_sample_program(kvant_engine *e, int n, int prompt, kvant_diag *diag);

#endif
