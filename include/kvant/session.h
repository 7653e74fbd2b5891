/* session.h: many requests on one engine: queue, scheduler, prefix cache, snapshots on disk.
 *
 * A session owns one thread (the owner), which alone touches the engine from kvant_session_create to
 * kvant_session_free. Every function here may be called from any thread, also from callbacks, unless its text says
 * otherwise.  None of them waits for a step, except create and free.
 *
 * Life of a request: submit -> (queued) -> prompt in chunks -> TOKEN events -> exactly one END event.  Events of a
 * request come in order, on the owner thread, through the request's callback.  After END its id is dead and `user` is
 * never passed again.  A callback must not block: everything waits for it.  After a round of callbacks the owner calls
 * params.wake once, so a server can fill per-connection buffers in the callback and write one eventfd in wake.
 *
 * The tokens of a request do not depend on what else runs, on chunking, cache hits, preemption or restores. */
#ifndef KVANT_SESSION_H
#define KVANT_SESSION_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/engine.h"
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* what libkvant.so exports */

typedef struct kvant_session kvant_session;

/* The prefix cache, told to whoever sends requests where their prefixes are.  A block is 64 tokens with all that is
 * before them; its hash is made of those, of the salt (with adapters) and of what rows are made with (weights, formats,
 * arithmetic, kinds of devices), and is the same in every process. */
enum { KVANT_KV_STORED = 1, KVANT_KV_REMOVED = 2, KVANT_KV_CLEARED = 3 };
enum { KVANT_KV_POOL = 0, KVANT_KV_HOST = 1, KVANT_KV_STORE = 2 }; /* where: pages, host memory, a directory */
typedef struct kvant_kv_event {
    int kind, medium;
    int n;                  /* blocks; CLEARED: 0 */
    const uint64_t *hashes; /* [n]; STORED: each but the first follows on the one before */
    int has_parent;         /* STORED: the first block follows on the block `parent` */
    uint64_t parent;
    /* STORED: i32[64 n].  Models whose state is kept only at some positions: the last block ends at one of them. */
    const int32_t *tokens;
} kvant_kv_event;

/* A running sequence whose pages are needed is dropped and computed again (RECOMPUTE: prompt in chunks, generated
 * tokens one by one), or copied to host memory and back (SAVE, within save_bytes; beyond it: recompute). */
enum { KVANT_PREEMPT_RECOMPUTE = 0, KVANT_PREEMPT_SAVE = 1 };

/* Speculative decoding: a step may carry guesses of the tokens that come next and check them all at once.  The text,
 * its log-probabilities and all else but time are those without.  NGRAM guesses what stood behind the last tokens of
 * the text where they stood before, DRAFT what a draft model says (params.draft), MTP what the model's own block for
 * further tokens says (an engine with params.mtp).  AUTO takes the guesses of the
 * drafter that is right more often, as many as pay by what steps took; the others all that there are. */
enum {
    KVANT_SPEC_OFF = 0,
    KVANT_SPEC_NGRAM = 1,
    KVANT_SPEC_AUTO = 2,
    KVANT_SPEC_DRAFT = 3,
    KVANT_SPEC_MTP = 4
};
enum { KVANT_MOST_DRAFTS = 32 };      /* of a sequence in a step */

/* 0 or NULL everywhere means the default in brackets. */
typedef struct kvant_session_params {
    size_t size;          /* of this struct: kvant_session_params_init writes it */
    int max_queue;        /* requests that may wait [1024]; submit beyond it: KVANT_EBUSY */
    int max_queue_tenant; /* of them, of one tenant [max_queue]; submit beyond it: KVANT_EBUSY */
    /* One step (docs/scheduler.md).  Decode rows first: one per running sequence, never capped. */
    int batch_tokens;          /* most tokens of a step [2048]; at least max_seqs + 64 */
    int prefill_budget;        /* static budget: prompt tokens fill a step up to this total [off] */
    /* prompt tokens of a step are so few that by what steps have taken it stays under so many ms [60], but at least 64;
     * one request alone: at least one pass of the engine; -1: no target */
    int target_itl_ms;
    int max_batch_tokens;      /* dynamic budget T: prompt tokens up to max(n_ubatch, T - decode rows) [off] */
    int prefill_cap;           /* dynamic: most prompt tokens of one sequence per step [from T and n_ctx] */
    int prefill_first;         /* 1: decode rows step aside while prompts wait [0] */
    int prefill_first_waiting; /* prefill_first: only when at least this many prompts wait [no threshold] */
    int prefill_first_defer;   /* prefill_first: most steps in which rows step aside in a row [unlimited] */
    int preempt;               /* KVANT_PREEMPT_* */
    int64_t save_bytes;        /* host memory for KVANT_PREEMPT_SAVE [256 MiB] */
    /* The prefix cache takes the engine's free pages and, for state snapshots, its params.snapshots slots. */
    int no_prefix_cache; /* 1: off */
    /* recurrent models: also a snapshot every so many prompt tokens, multiple of 64 [1024]; -1: none */
    int ladder;
    /* 1: pages and state made by decode steps enter the cache too (recurrent models: the tokens that follow may then
     * differ in rounding from a cold run) */
    int prefix_reuse_decode;
    /* KVANT_SPEC_*; other than OFF it wants logits_rows above the engine's max_seqs, a row for each draft of a step,
     * and an engine that verifies drafts (kvant_engine_verifies): KVANT_EUNSUPPORTED */
    int spec;
    int draft_max;            /* most drafts of a sequence in a step [16], at most KVANT_MOST_DRAFTS */
    int draft_min;            /* fewer guesses than these are none [0] */
    int n_trace;              /* step records kept for kvant_session_trace [4096] */
    /* directory of slot and cache files, opened at create; NULL: save and restore are refused */
    const char *snapshot_dir;
    /* most bytes of the files of one salt, and of all files in snapshot_dir [any]; a save beyond: KVANT_ENOSPC */
    int64_t snapshot_tenant_bytes, snapshot_bytes;
    int64_t slot_hold_ns; /* so long after its last use a slot is nobody else's [0] */
    /* Called on the owner thread after each round of events; must not block.  NULL: none. */
    void (*wake)(void *user);
    void *wake_user;
    /* Called on the owner thread when blocks come into the prefix cache or leave it; must not block.  NULL: none. */
    void (*kv_event)(void *user, const struct kvant_kv_event *ev);
    void *kv_event_user;
    /* The engine of a draft model, which outlives the session; its owner thread alone uses it.  Wanted are at least as
     * many sequences, the vocabulary of the session's model (KVANT_EINVAL names the token), and no recurrent layers
     * (KVANT_EUNSUPPORTED).  NULL: none */
    kvant_engine *draft;
    float draft_p_min;        /* a draft model guesses on while it gives its guess at least this chance [0] */
    /* Host memory for pages and snapshots that the prefix cache gives up, bytes [0: none]. */
    int64_t host_bytes;
    /* Directory, opened at create, where blocks of the prefix cache are kept for later sessions and other processes,
     * which may share it; NULL: none.  store_bytes: of all its files [any]; beyond it those go that were used longest
     * ago. */
    const char *store_dir;
    int64_t store_bytes;
} kvant_session_params;

/* Everything 0 or NULL: the defaults in brackets. */
void kvant_session_params_init(kvant_session_params *p, size_t size);
static inline kvant_session_params kvant_session_defaults(void)
{
    kvant_session_params p;
    kvant_session_params_init(&p, sizeof p);
    return p;
}
/* Starts the owner thread.  The engine must be idle (no sequences) and outlive the session; nobody else may use it.
 * params is copied.  KVANT_EINVAL names the parameter; KVANT_ENOENT: no such snapshot_dir; KVANT_ENOMEM. */
int kvant_session_create(kvant_engine *e, const kvant_session_params *params, kvant_session **out, kvant_diag *diag);
/* Ends all requests (END, KVANT_FINISH_ERROR, KVANT_ECANCELED), runs their callbacks, joins the owner.  Not from a
 * callback.  NULL is accepted. */
void kvant_session_free(kvant_session *s);

/* ---- requests ---- */

enum {
    KVANT_EVENT_PROGRESS = 1, /* prompt tokens were evaluated: prompt_done changed */
    KVANT_EVENT_TOKEN = 2,    /* one generated token, end-of-generation tokens included */
    KVANT_EVENT_END = 3,      /* the last event of a request */
    KVANT_EVENT_PROMPT = 4,   /* a token of the prompt, in order, before the first TOKEN (n_prompt_logprobs) */
};

enum {
    KVANT_FINISH_NONE = 0,
    KVANT_FINISH_STOP = 1,   /* end of generation, a stop id, or the callback said so */
    KVANT_FINISH_LENGTH = 2, /* max_tokens, or the context is full */
    KVANT_FINISH_CANCEL = 3, /* kvant_session_cancel, or the callback said so */
    KVANT_FINISH_ERROR = 4,  /* code and text say what */
    KVANT_FINISH_COUNT
};

/* A callback returns one of these. */
enum {
    KVANT_EVENT_GO = 0,
    KVANT_EVENT_STOP = 1,   /* a stop string is complete: END with KVANT_FINISH_STOP follows */
    KVANT_EVENT_CANCEL = 2, /* the client is gone: END with KVANT_FINISH_CANCEL follows */
    KVANT_EVENT_PAUSE = 3,  /* TOKEN: the client reads too slowly: no further token until kvant_session_resume */
};

typedef struct kvant_token_prob {
    int32_t token;
    float logprob;
} kvant_token_prob;

/* Times are nanoseconds of the monotonic clock; 0: did not happen. */
typedef struct kvant_timings {
    int64_t submitted_ns, started_ns; /* started: admitted to run */
    int64_t first_token_ns, ended_ns;
    int64_t prompt_ns, decode_ns; /* started to first token, first to last token */
    int n_prompt, n_cached;       /* prompt tokens, and how many of them came from the prefix cache */
    int n_generated, n_preempted;
    int n_drafted, n_draft_accepted; /* drafts that were checked; of them, those that were the text */
    /* the context was full so often (kvant_request.shift); tokens that stayed the last time, and that went in all */
    int n_shifts, n_kept, n_dropped;
} kvant_timings;

typedef struct kvant_event {
    uint64_t id;
    int kind;                            /* KVANT_EVENT_* */
    int n_prompt, prompt_done, n_cached; /* PROGRESS, TOKEN */
    /* TOKEN, PROMPT.  logprob: of the model's own distribution (before penalties, bias, mask and temperature), NaN if
     * not asked for, and for the prompt's first token, which nothing predicts.  top: the n_logprobs (PROMPT:
     * n_prompt_logprobs) most likely tokens at its place, best first; valid during the call. */
    int32_t token;
    int index; /* 0 for the first generated token; PROMPT: place in the prompt */
    float logprob;
    const kvant_token_prob *top;
    int n_top;
    /* END */
    int finish;         /* KVANT_FINISH_* */
    int32_t stop_token; /* the end-of-generation or stop id that ended it, or -1 */
    int code;           /* KVANT_E* with FINISH_ERROR, else KVANT_OK */
    const char *text;   /* its sentence; "" */
    const kvant_timings *timings; /* TOKEN too: until now */
    /* KVANT_REQUEST_EMBED_*: f32[n_rows][n_embd], not normalised; else NULL.  n_rows 1, of EMBED_EACH n_prompt */
    const float *embedding;
    int n_embd, n_rows;
} kvant_event;

enum {
    KVANT_REQUEST_GENERATE = 0,
    KVANT_REQUEST_EMBED_MEAN = 1, /* mean of the last hidden states (after the output norm) of all tokens */
    KVANT_REQUEST_EMBED_LAST = 2, /* that of the last token */
    KVANT_REQUEST_EMBED_FIRST = 3, /* that of the first token */
    KVANT_REQUEST_EMBED_EACH = 4, /* those of all tokens */
};

enum {
    KVANT_CACHE_NO_READ = 1,  /* evaluate the whole prompt */
    KVANT_CACHE_NO_WRITE = 2, /* leave nothing in the prefix cache */
};

/* Arrays are copied by submit; callbacks and their user pointers are kept until END. */
typedef struct kvant_request {
    size_t size; /* of this struct: kvant_request_init writes it */
    int kind; /* KVANT_REQUEST_* */
    const int32_t *prompt;
    int n_prompt;            /* 1 .. n_ctx */
    int max_tokens;          /* generated tokens; 0: none (END after the prompt); -1: until context or pool end */
    const int32_t *stop_ids; /* these end the request; they come as a TOKEN event too */
    int n_stop_ids;
    int ignore_eos;                      /* 1: end-of-generation tokens do not end it */
    const kvant_sampler_params *sampler; /* NULL: greedy */
    int n_logprobs;                      /* -1: none; 0: of the chosen token; up to 20: and the most likely ones */
    /* 1: those of TOKEN events are of what the sampler chose among, with all its parts and its temperature */
    int post_probs;
    /* As n_logprobs, for each prompt token (PROMPT events): the prompt is evaluated whole, 64 tokens a step, only one
     * such at a time.  Wants an engine with logits_rows of at least max_seqs + 64; not with a slot, nor EMBED */
    int n_prompt_logprobs;
    int priority;                        /* higher runs earlier [0] */
    uint32_t tenant;                     /* whose it is: tenants are served alike [0: nobody's in particular] */
    unsigned char salt[16];              /* prefixes are shared only between equal salts */
    const float *lora;                   /* a scale of each adapter of the model; NULL: the session's */
    int n_system;                        /* tokens of the system and tools prefix: a snapshot is taken at its end */
    int cache;                           /* KVANT_CACHE_* */
    int held;                            /* 1: submitted as if paused: kvant_session_resume lets it start */
    /* -1: any.  Else: continue what lies in that slot where the prompt begins with its tokens, and leave the sequence
     * there at the end (see slots) */
    int slot;
    int draft_max, draft_min; /* in place of the session's; -1: the session's.  draft_max 0: no drafts */
    int64_t timeout_ns; /* in the queue; then END, KVANT_EBUSY.  0: none */
    /* Called before each choice: f32[n_vocab], may set logits to -INFINITY (grammar).  Negative: the request ends with
     * that code.  Owner thread.  accepted: a token was chosen. */
    int (*mask)(void *user, float *logits, int n_vocab);
    void (*accepted)(void *user, int32_t token);
    void *mask_user;
    int (*event)(void *user, const kvant_event *ev); /* returns KVANT_EVENT_GO, STOP, CANCEL, PAUSE (END: ignored) */
    void *user;
    float draft_p_min; /* in place of the session's; -1: the session's */
    /* 1: where the context, or the pool, is full, the request does not end with FINISH_LENGTH: its first n_keep tokens
     * stay (-1: its prompt; at most seven eighths of the context), of those behind them the first n_discard go (0: half
     * of them; at least a sixteenth of the context, at most all but the last two), and the rest is computed anew: a
     * prompt pass, whose tokens are those of a request with that prompt.  max_tokens -1 is then without end.  Penalties
     * and random numbers go on.  Nothing computed so enters the prefix cache. */
    int shift, n_keep, n_discard;
} kvant_request;

/* Greedy, slot -1, n_logprobs and n_prompt_logprobs -1, max_tokens -1, drafts -1; everything else 0. */
void kvant_request_init(kvant_request *p, size_t size);
static inline kvant_request kvant_request_defaults(void)
{
    kvant_request p;
    kvant_request_init(&p, sizeof p);
    return p;
}
/* Queues a request; *id (never reused) is valid before the first event comes.  On error no event comes.
 * KVANT_EINVAL (a field, its value and what was wanted), KVANT_ENOSPC (longer than the context, or than the whole
 * pool), KVANT_EBUSY (queue full, or draining; try later), KVANT_EDEVICE (the engine failed), KVANT_ENOMEM. */
int kvant_session_submit(kvant_session *s, const kvant_request *r, uint64_t *id, kvant_diag *diag);
/* Scales of the model's n adapters for requests that bring none, from the next submit on; at create the model's.  A
 * request shares with others, and continues in a slot, only rows made with its own scales.  KVANT_EINVAL: another n, or
 * a scale out of range. */
int kvant_session_set_lora(kvant_session *s, const float *scales, int n, kvant_diag *diag);
/* max_queue_tenant, from the next submit on; what waits already stays.  Any thread.  KVANT_EINVAL: not 1..max_queue. */
int kvant_session_set_queue_tenant(kvant_session *s, int most, kvant_diag *diag);
/* They are written to scales[cap]; returns how many adapters there are. */
int kvant_session_get_lora(kvant_session *s, float *scales, int cap);
/* Ends a request at the next step boundary with KVANT_FINISH_CANCEL.  Unknown or ended ids: nothing happens. */
void kvant_session_cancel(kvant_session *s, uint64_t id);
/* Undoes one KVANT_EVENT_PAUSE of a request, also one whose callback is just about to return.  A paused request keeps
 * its place and its pages until others wait for them (then it is preempted and queues again once it is resumed); the
 * rest of the batch goes on.  Any thread, not from
 * a callback of this request.  Unknown or ended ids: nothing happens. */
void kvant_session_resume(kvant_session *s, uint64_t id);
/* No new requests (submit: KVANT_EBUSY); what is queued or running goes on for at most `ms`, then ends with
 * KVANT_FINISH_ERROR, KVANT_ECANCELED.  Returns at once; kvant_session_stats tells when nothing is left. */
void kvant_session_drain(kvant_session *s, int64_t ms);

/* ---- what it is doing ---- */

enum { KVANT_HIST = 6, KVANT_STEP_EDGES = 13 };
typedef struct kvant_session_stats {
    /* now */
    int queued, running, prefilling, decoding;
    int paused; /* of the running ones: their clients read too slowly, or they are held for another reason */
    int max_seqs, max_queue;
    int pages, pages_free, pages_cached;   /* of 64 tokens; cached: held by the prefix cache alone (reclaimable) */
    int states, states_free;               /* snapshot slots */
    /* Pools of pages, tail and state.  used: of running sequences; cached: what only the prefix cache holds. */
    int64_t cache_bytes, cache_bytes_used, cache_bytes_cached;
    int draining;
    int failed;           /* KVANT_E* that stopped the engine, or 0 */
    int64_t last_step_ns; /* end of the last step */
    /* since create */
    uint64_t submitted, rejected, finished[KVANT_FINISH_COUNT];
    uint64_t prompt_tokens, cached_tokens;
    uint64_t computed_tokens; /* prompt rows run, recomputed ones included */
    uint64_t generated_tokens;
    /* In tokens; known: of the prompts, what earlier ones began with as far as the cache still had their pages: what
     * could have been found, and was not where the state of a recurrent model is kept only at some positions. */
    uint64_t prefix_queries, prefix_hits, prefix_known;
    uint64_t preempted_recompute, preempted_saved, evicted_pages, evicted_states;
    uint64_t preempted_paused;    /* of them: paused ones that gave way to others */
    uint64_t preempted_share;     /* and those of a tenant with more than its part, for one with less */
    uint64_t preempted_unplanned; /* of them: a promise of pages was wrong; 0 but for a fault in kvant */
    uint64_t failed_steps;        /* refused or failed as a whole; who was in them went on alone */
    uint64_t replayed_passes;     /* that the device ran as a recorded program (CUDA graphs) */
    uint64_t started, continued;  /* prompts that began, and chunks that went on with one */
    uint64_t deferred_rows;       /* decode rows that stepped aside (prefill_first) */
    uint64_t steps, decode_only_steps, decode_rows, waiting_sum;
    int waiting_max;
    int64_t step_ns; /* time spent in steps */
    /* Steps by size.  prompt: 0, 1-64, 65-128, 129-256, 257-512, more; decode: 0, 1-63, 64-127, 128-255, 256-511, more;
     * waiting: 0, 1-7, 8-15, 16-31, 32-63, more.  Each sums to steps. */
    uint64_t prompt_hist[KVANT_HIST], decode_hist[KVANT_HIST], waiting_hist[KVANT_HIST];
    /* Steps by tokens (decode rows and prompt tokens): at most 1, 8, 16, 32, ... 8192, 16384, more. */
    uint64_t tokens_hist[KVANT_STEP_EDGES + 1], step_tokens;
    /* Drafts that were checked, and those that were the text: all, those at place i behind the last token; how often a
     * sequence carried so many. */
    uint64_t drafted, draft_accepted, draft_accepted_at[KVANT_MOST_DRAFTS], draft_steps[KVANT_MOST_DRAFTS + 1];
    /* Prefixes beyond the pool: host memory; blocks found there and in store_dir; files of store_dir: written, not
     * written (no room, an error), found damaged. */
    int64_t host_bytes, host_bytes_used;
    uint64_t host_hits, store_hits, store_written, store_dropped, store_damaged;
    uint64_t context_shifts; /* contexts that were full and went on with a part of their text */
} kvant_session_stats;
void kvant_session_get_stats(kvant_session *s, kvant_session_stats *out);

typedef struct kvant_step_record {
    uint64_t step; /* 1, 2, ... */
    int64_t t0_ns, t1_ns;
    int decode_rows, prompt_tokens, waiting, running, deferred, preempted, pages_used;
} kvant_step_record;
/* The last steps, oldest first, at most cap and at most params.n_trace; returns how many. */
int kvant_session_trace(kvant_session *s, kvant_step_record *out, int cap);

enum { KVANT_SLOT_FREE = 0, KVANT_SLOT_PREFILL = 1, KVANT_SLOT_DECODE = 2, KVANT_SLOT_PARKED = 3 };
typedef struct kvant_slot_info {
    int slot, state;                  /* KVANT_SLOT_* */
    uint64_t request;                 /* 0: none */
    int n_prompt, n_cached, n_tokens; /* n_tokens: in the cache now */
    int n_generated, max_tokens;
    int pages;
    int64_t bytes;                    /* PARKED: of its pages, tail and state; else 0 */
    int64_t started_ns, first_token_ns;
} kvant_slot_info;
/* All max_seqs slots; returns how many were written (at most cap). */
int kvant_session_slots(kvant_session *s, kvant_slot_info *out, int cap);

/* ---- slots and files ----
 * A slot is a place for a running sequence.  A request with slot >= 0 leaves its sequence parked there, exact to the
 * last bit (tail and state included), until erase, another request of that slot that does not continue it, or the need
 * for pages.  Within params.slot_hold_ns of its last use a slot is refused (KVANT_EBUSY) to requests and restores of
 * another salt.
 * Names: [A-Za-z0-9_.-]{1,64}, the first not a dot; files lie in params.snapshot_dir as NAME.kvs, those of slots with a
 * salt that is not zero as TENANT+NAME.kvs (16 hex digits of the salt): nobody overwrites another's.
 * A file that is damaged, or made with another model, formats or salt, or other adapters than the session has for
 * requests that bring none, is refused and nothing changes. */
enum {
    KVANT_SLOT_SAVE = 1,    /* a parked sequence -> file */
    KVANT_SLOT_RESTORE = 2, /* file -> slot (free or parked) */
    KVANT_SLOT_ERASE = 3,
    KVANT_CACHE_SAVE = 4,    /* the whole prefix cache -> file; slot is ignored */
    KVANT_CACHE_RESTORE = 5, /* file -> prefix cache, as much as is free */
    KVANT_CACHE_CLEAR = 6
};
typedef struct kvant_slot_result {
    int code;           /* KVANT_OK, EINVAL, ENOENT, EFORMAT, EIO, ENOSPC, EBUSY (the slot runs) */
    const char *text;   /* sentence, "" when fine */
    int slot, n_tokens; /* tokens saved or restored */
    int64_t bytes, ns;  /* of the file; time taken */
} kvant_slot_result;
/* Queues the action; `done` is called once on the owner thread.  salt: the tenant's, kept in the file and compared.
 * KVANT_EINVAL (action, slot or name), KVANT_EBUSY (draining), KVANT_ENOMEM: then `done` is not called. */
int kvant_session_slot(kvant_session *s, int action, int slot, const char *name, const unsigned char salt[16],
                       void (*done)(void *user, const kvant_slot_result *r), void *user, kvant_diag *diag);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
