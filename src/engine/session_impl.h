/* engine/session_impl.h: the insides of a session, shared by its files.  Public face: kvant/session.h.
 *
 *   session.c          the public calls: threads, queues, copies of the statistics
 *   session_loop.c     the owner's loop: queue -> plan -> step -> events
 *   session_plan.c     the queue's order; what goes into the next step
 *   session_step.c     the step itself, and what each request got of it
 *   session_pace.c     how many prompt tokens a step may have, by measured time; who gives way
 *   session_stats.c    counters, and the copies that other threads see
 *   session_check.c    a new request: checks, its own copy
 *   session_lora.c     its adapters, and what they mean for sharing
 *   session_request.c  one request: snapshots, start, preemption, what a step gave it, end
 *   session_token.c    its next token
 *   session_shift.c    a part of its text goes on where the context is full
 *   draft/             guesses of the tokens behind it
 *   session_tenant.c   whose it is: shares of the queue, fairness
 *   blocks/            what comes into the prefix cache and leaves it, told outside
 *   session_slots.c    parked sequences and files
 *   snapshot_id.c      the fingerprint of those files
 *
 * `lock` guards the part of the structure that says so and is never held across a callback or a step. */
#ifndef KVANT_ENGINE_SESSION_IMPL_H
#define KVANT_ENGINE_SESSION_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/prefix.h"
#include "cache/store.h"
#include "engine/draft/draft_model.h"
#include "engine/draft/draft_ngram.h"
#include "engine/draft/synth.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "kvant/session.h"

enum {
    MAX_LOGPROBS = 20,
    MAX_PREEMPTIONS = 3, /* then a request comes back only with everything it can need promised */
    MAX_SNAPS = 40,      /* of one prompt: two ends, a branch, a quarter, and a ladder of doublings */
    QUEUE_HEADS = 16     /* waiting requests that a step looks at; arbitrary, not tuned */
};

typedef struct tenant {
    uint32_t id;
    int requests, queued; /* alive; of those, not running (lock) */
    int live;             /* arrived at the owner and not ended (owner thread) */
    int running, pages;   /* as of the plan: places, pages held and promised (owner thread) */
    int rank;             /* as of the plan: 0 is served next; -1: takes no part (owner thread) */
    double served;        /* tokens (owner thread) */
    double used_ns;       /* of the engine, not forgotten yet, by the tenant used_by (owner thread) */
    uint32_t used_by;
    int heavy;            /* as of the plan (owner thread) */
} tenant;

/* Kinds of drafts: n-grams by how well they were founded, a model's by how likely it took them to be, and all of a
 * model's. */
enum { RATE_MODEL = DRAFT_GRADES, MODEL_GRADES = 4, RATE_MEAN = RATE_MODEL + MODEL_GRADES, N_RATES };

/* Drafts that were looked at, and those that were accepted; the latest weigh most. */
typedef struct draft_rate {
    double taken, tried;
} draft_rate;

/* Sums over the steps without prompts: rows x, nanoseconds y; the latest weigh most. */
typedef struct draft_cost {
    double n, x, y, xx, xy;
} draft_cost;

/* The drafts of a session: what they brought and took until now, and its draft model. */
typedef struct draft_state {
    draft_cost cost, round_cost; /* of steps; of rounds of a draft model */
    draft_rate rates[N_RATES];
    draft_model model;
    draft_lane *lanes;           /* [max_seqs] */
    struct request **lane_req;   /* [max_seqs] */
    mtp_item *guesses;           /* [max_seqs] of the block's last rounds */
    int unasked;                 /* steps since the block was last worth its rows */
    int asked, looked;           /* how many rounds those were; of them, how many have been looked at */
    double *chances;             /* [max_seqs] that all drafts of a lane are accepted */
    draft_synth synth;
} draft_state;

/* How up to date a request's hit is. */
enum { LOOKED_AT = 0, LOOKED_FETCH = 1, LOOKED_REST = 2 };
typedef struct prefix_looked {
    uint64_t at; /* index version of the hit */
    int beyond;  /* the prefix was looked for in host memory and in the folder, and fetched from there */
    int stage;   /* until then: LOOKED_* */
    int n, end;  /* blocks that were looked at; those of them that are to be fetched */
    int fetched; /* some of them twice */
    unsigned char id[PREFIX_ID]; /* of the last of n; LOOKED_REST: of the next */
} prefix_looked;

/* The drafts of a request. */
typedef struct request_guesses {
    int n;                                   /* of this step, at tokens + n_tokens */
    unsigned char grades[KVANT_MOST_DRAFTS]; /* RATE_* of each */
    draft_ngram ngram;
    draft_seq model; /* the text in the draft model's engine */
    rng luck;        /* for chances that were stated */
    draft_rate rates[N_RATES];
} request_guesses;

/* How a request gives way. */
typedef struct request_pause {
    int now; /* hold > 0 as of the begin of the tick */
    int64_t ns;
    int yielded; /* preempted for others: while paused, or because its tenant had more than its share */
} request_pause;

/* The sequence of a request that was preempted. */
typedef struct request_image {
    uint8_t *data; /* of n tokens, or NULL */
    int n;
    size_t bytes;
} request_image;

typedef struct request {
    struct request *next, *prev; /* live list (lock) */
    struct request *inbox;       /* next in the inbox (lock) */
    tenant *tenant;
    int queued; /* 1: counted as waiting (lock) */
    uint64_t id;
    _Atomic int cancel;
    _Atomic int hold; /* pauses less resumes; above 0: no token until it is resumed */
    kvant_request r;  /* its arrays are ours */
    kvant_sampler_params sp;
    int greedy;
    float *lora;                     /* scales of the adapters; NULL: the model has none */
    unsigned char share[PREFIX_SALT]; /* its salt, with its adapters: what prefixes are shared by */
    /* owner thread from here on */
    int32_t *tokens; /* prompt, then generated */
    int n_tokens, n_generated;
    request_pause pause;
    int most_tokens; /* n_tokens never goes beyond */
    int seq;         /* -1: not running */
    int promised, keep;
    int rows;          /* planned for this step */
    request_guesses drafts;
    int fault_to;      /* a step with it failed: it steps alone until it has so many tokens; 0: none did */
    int prompt_done;   /* the prompt was evaluated once: entered in the index, events sent */
    int told;          /* tokens of the prompt that had their PROMPT event */
    int own_rows_only; /* continues a parked sequence: its rows may come from decode steps */
    int shifted;       /* waits to go on with a part of its text */
    int branch;        /* position where a known prefix goes on without a snapshot; 0: none */
    kvant_sampler *sampler;
    prefix_snap snaps[MAX_SNAPS];
    int n_snaps, rolling; /* rolling: snapshot of decode steps (prefix_reuse_decode), or -1 */
    float *hidden;        /* EMBED_FIRST, EMBED_EACH: f32[n_hidden][n_embd]; else NULL */
    int n_hidden;
    request_image saved;
    prefix_hit hit;
    prefix_looked looked;
    kvant_timings t;
} request;

/* The time that steps have taken until now; the latest weigh most. */
typedef struct step_pace {
    double prompt_ns, prompt_tokens; /* steps with prompts, without the part of their decode rows */
    double decode_ns;                /* of a step of decode rows alone */
    double last_prompt_ns;           /* of the last step, without that part */
    int deferred;                    /* steps in a row in which rows were held back */
} step_pace;

/* How far prompts of tenants that used much give way (session_pace.c). */
typedef struct fair_share {
    unsigned char *heavy; /* [tenants of the plan], by rank */
    int n_heavy;
    double earned_ns;     /* time that the prompts of heavy tenants may take */
} fair_share;

typedef struct parked {
    int32_t *tokens; /* NULL: nothing is parked in this slot */
    int n;
    int64_t bytes; /* that it takes in the caches */
    unsigned char salt[PREFIX_SALT], share[PREFIX_SALT]; /* as its request's */
    uint64_t stamp;
    int64_t at_ns; /* when it was left here */
} parked;

typedef struct session_blocks session_blocks; /* engine/blocks/session_blocks.h */

/* The folder snapshot_dir, and what its files must match. */
typedef struct session_files {
    unsigned char fingerprint[STORE_FINGERPRINT];
    int folder, is_open;
} session_files;

typedef struct action {
    struct action *next;
    int what, slot;
    char name[65];
    unsigned char salt[PREFIX_SALT];
    void (*done)(void *user, const kvant_slot_result *r);
    void *user;
} action;

/* Requests and actions of other threads, for the owner. */
typedef struct session_inbox {
    request *first, *last;
    action *first_action, *last_action;
} session_inbox;

typedef struct session_counts {
    uint64_t next_id, submitted, rejected;
    int queued; /* alive, not running: never started, or preempted */
} session_counts;

/* Orders of other threads to the owner. */
typedef struct session_orders {
    int stop, drain, resumed; /* resumed: since the owner looked last */
    int64_t drain_until_ns;
} session_orders;

/* The owner's work as other threads may see it. */
typedef struct session_shown {
    kvant_session_stats stats;
    kvant_step_record *trace; /* ring */
    uint64_t n_trace;         /* records ever written */
    kvant_slot_info *slots;   /* [max_seqs] */
} session_shown;

typedef struct session_tenants {
    tenant *list; /* [cap_waiting]; what is served and live: owner thread */
    int n;
    int arrived;     /* those that the owner has seen: the first so many */
    int active;      /* of them, with a request at the owner, as of the plan */
    tenant **ranked; /* [max_seqs + QUEUE_HEADS] */
} session_tenants;

typedef struct session_lora {
    unsigned char (*digest)[32]; /* of the content of each adapter */
    float *scales;               /* [adapters] of requests that bring none */
} session_lora;

/* The scheduler's inputs, and its plan. */
typedef struct session_sched {
    sched_seq *running;
    sched_wait *waiting;
    sched_plan plan;
} session_sched;

/* The items of a step. */
typedef struct session_step {
    kvant_item *items;
    request **req;
    int *draft; /* [max_seqs] the last so many tokens of each item are drafts */
    int n, events;
    int32_t *next_token; /* [max_seqs] decode inputs */
} session_step;

/* For tests and bench; NULL: none. */
typedef struct session_hooks {
    /* Guesses at most k tokens behind tokens[n], in place of the session's own. */
    int (*drafter)(void *user, const int32_t *tokens, int n, int32_t *out, int k);
    void *drafter_user;
    void (*_Atomic after_tick)(kvant_session *s); /* tests/support/session_audit.h */
} session_hooks;

struct kvant_session {
    kvant_engine *e;
    kvant_session_params p; /* resolved; snapshot_dir is ours */
    int max_seqs, n_ctx, n_vocab, n_embd, pages_suffice;
    pthread_t owner;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* guarded by lock */
    request *live;
    session_inbox inbox;
    session_counts counts;
    session_orders orders;
    session_shown shown;
    session_tenants tenants; /* arrived and on: owner thread */
    session_lora lora;       /* digest: constant */
    /* owner thread */
    request **waiting, **running;
    int n_waiting, cap_waiting, n_running;
    prefix_index prefix;
    parked *parked; /* [max_seqs] */
    uint64_t stamp;
    kvant_session_stats st;
    int64_t saved_bytes;
    int64_t yield_ns; /* a pause so long gives way to others */
    int blocked;  /* nothing ran: every request waits for its client */
    session_sched sched;
    session_step step;
    step_pace pace;
    fair_share fair;
    draft_state drafts;
    session_hooks hooks;
    float *scratch;                       /* [n_vocab] masked logits */
    float *hidden;                        /* [n_embd] */
    session_files files;
    session_blocks *blocks; /* NULL: nobody wants to know */
};

/* ---- session_loop.c ---- */
void *session_main(void *session);
void session_remove(request **list, int *n, int i);
void session_end_all(kvant_session *s, int code, const char *text);
/* running[i] goes back to the queue. */
void session_preempt(kvant_session *s, int i);

/* ---- session_step.c ---- */
/* Runs what the plan gave rows. */
void session_run_step(kvant_session *s, int waiting);

/* ---- session_plan.c ---- */
/* Sorts the first of the queue to its front and fills s->plan; returns how many heads the plan's indices may mean. */
int session_plan(kvant_session *s);
/* 1: a request waits that could start now but for room, and its tenant has less than its part. */
int session_short_waits(kvant_session *s);
/* Pages that can be had and that nobody was promised. */
int session_room(const kvant_session *s);

/* ---- session_stats.c ---- */
void session_count_step(kvant_session *s, int64_t t0, int64_t t1, int waiting);
/* Copies what other threads may see, with the record of a step or NULL; wakes them if there were events. */
void session_publish(kvant_session *s, const kvant_step_record *step);

/* ---- session_check.c ---- */
int request_create(const kvant_session *s, const kvant_request *r, request **out, kvant_diag *diag);
void request_free(request *q);

/* ---- session_draft.c ---- */
/* Gives the decode rows of the step that has been planned their drafts. */
void draft_plan(kvant_session *s);
void draft_count_step(kvant_session *s, int64_t ns);
/* q ends, or lost its sequence. */
void draft_drop(kvant_session *s, request *q);
/* The first `taken` of the `tried` drafts that q carried became its tokens. */
void draft_settle(kvant_session *s, request *q, int taken, int tried);

/* ---- session_token.c ---- */
/* Chooses, tells, and says whether that was the last one: KVANT_FINISH_*, NONE, or an error code.  With drafts: as many
 * tokens as the accepted ones bring, and the sequence has their rows. */
int request_next_tokens(kvant_session *s, request *q, int item, int32_t *token, kvant_diag *diag);
/* 1: the logits of every prompt token are wanted of the next step. */
int request_tells_prompt(const request *q);
/* PROMPT events of the rows that a step evaluated; what the request's owner answered last. */
int request_tell_prompt(kvant_session *s, request *q, int item, int rows);
int request_is_stop(const kvant_session *s, const request *q, int32_t token);

/* ---- session_request.c ---- */
int request_send(kvant_session *s, request *q, kvant_event *ev); /* what the request's owner answered */
int request_len(const kvant_session *s, const request *q);       /* tokens in the cache */
/* First snapshot position above pos, or 0. */
int request_cut(const kvant_session *s, const request *q, int pos);
/* Last snapshot position of a prompt at or below pos (any position where pages suffice). */
int request_share_point(const kvant_session *s, const request *q, int pos);
/* A sequence for an admitted request: the one of its slot (those that name one come first), one that is free, or one
 * that is only parked. */
void request_take_sequence(kvant_session *s, request *q);
/* The request starts, or goes on after a preemption, in its sequence. */
int request_start(kvant_session *s, request *q, kvant_diag *diag);
/* Takes the sequence of a request away, saved or not.  Computed anew, a request that goes on in a slot gets other bits:
 * it yields only where it can be saved. */
void request_preempt(kvant_session *s, request *q);
int request_can_yield(const kvant_session *s, const request *q);
/* After a step: snapshots, index, events, the next token; ends it where due (then 1 is returned). */
int request_after_step(kvant_session *s, request *q, int item, int rows, kvant_diag *diag);
/* The request gives its sequence back, and the promise of pages. */
void request_leave(kvant_session *s, request *q);
/* END event; frees everything.  The caller has taken it out of waiting or running. */
void request_times(request *q); /* as if it ended now */
void request_end(kvant_session *s, request *q, int finish, int32_t stop_token, int code, const char *text);

/* ---- session_shift.c ---- */
/* A text's longest in tokens, the last of which is never run. */
int session_longest(const kvant_session *s);
/* 1: a full context does not end it. */
int request_may_shift(const request *q);
/* The context of a request that ran is full: it waits in the queue with a part of its text as its prompt. */
void request_shift(kvant_session *s, request *q);

/* ---- session_tenant.c ---- */
/* With the lock held: its requests that wait; a new request takes its place in the queue; a request is no more; a
 * request runs (0) or waits (1). */
int tenant_queued(const kvant_session *s, uint32_t id);
void tenant_join(kvant_session *s, request *q);
void tenant_leave(kvant_session *s, request *q);
void request_queued(kvant_session *s, request *q, int queued);
/* Owner: a request came out of the inbox.  A tenant that was away does not bring the service it missed as credit. */
void tenant_arrives(kvant_session *s, request *q);
/* Counts what each tenant runs.  With several of them each is entitled to an equal part of the places and the pages. */
void tenants_measure(kvant_session *s);
/* Orders the tenants of the running requests and of the queue's first n_heads by what they have been served; writes
 * their rank and that of wait_in.  Returns how many there are, at least 1. */
int tenants_rank(kvant_session *s, int n_heads);

/* ---- session_pace.c ---- */
void pace_count(kvant_session *s, int64_t ns); /* the step that has been run, by its plan */
/* Prompt tokens that the next step may have; 0: any. */
int pace_tokens(const kvant_session *s);
/* The step that has been run, by its plan and its items; after pace_count. */
void fair_charge(kvant_session *s, int64_t ns);
/* A request that ran has ended. */
void fair_forget(kvant_session *s);
/* After tenants_rank: marks the heavy ones of the n_tenants.  Returns the prompt tokens that they may have together, or
 * -1: none is heavy. */
int fair_weigh(kvant_session *s, int n_heads, int n_tenants);
/* 1: the tenant of a waiting request has less than its part of the places, and of the pages even with this one. */
int tenant_is_short(const kvant_session *s, const request *q);
/* The running request that gives way where a tenant is short: the youngest that may, of the tenant furthest beyond its
 * part of the places (for_pages: of the pages).  -1: nobody is beyond it. */
int tenant_victim(const kvant_session *s, int for_pages);

/* ---- blocks/snapshot_id.c ---- */
/* The files of a session with this engine must match this identity (cache/store.h). */
int snapshot_identity(const kvant_engine *e, unsigned char out[STORE_FINGERPRINT], kvant_diag *diag);
/* A hash of the kinds of devices that have the layers, and their routed experts: what decides the bits of rows beside
 * the identity.  On the CPU one number, whatever its threads. */
uint64_t snapshot_devices(const kvant_engine *e);

/* ---- blocks/session_blocks.c ---- */
int blocks_create(kvant_session *s, kvant_diag *diag);
/* Tells what came and went until now. */
void blocks_tell(kvant_session *s);
void blocks_cleared(kvant_session *s); /* all of them went, from host memory too */
void blocks_end(kvant_session *s);     /* the last that is told: all of them go.  The owner's last act */
void blocks_close(kvant_session *s);   /* after the index is gone */

/* ---- blocks/session_tiers.c ---- */
/* Blocks that the prompts of these requests go on with in host memory or in the folder enter the index. */
void tiers_fetch(kvant_session *s, request *const *list, int n);
int tiers_want(const kvant_session *s, const request *q); /* it was not looked for, or not all of it, and may be */
/* Blocks of the prompt of q go from there: a result that came of them was not finite. */
void tiers_forget(kvant_session *s, const request *q);
void tiers_stats(const kvant_session *s, kvant_session_stats *st);

/* ---- session_lora.c ---- */
int session_lora_create(kvant_session *s, kvant_diag *diag);
/* With the lock held: a request that brings no scales gets the session's; how it shares is known then. */
void session_lora_join(kvant_session *s, request *q, int without);
/* Makes the salt of the slots of this salt, with the session's scales mixed in. */
void session_lora_share(kvant_session *s, const unsigned char *salt, unsigned char *out);

/* ---- session_slots.c ---- */
int slots_create(kvant_session *s, kvant_diag *diag);
void slots_free(kvant_session *s);
/* 1: the parked sequence of the request's slot is a beginning of its prompt, with at least one token left. */
int slots_continues(const kvant_session *s, const request *q);
/* KVANT_EBUSY: the slot is another tenant's, or was until a short while ago. */
int slots_check_tenant(const kvant_session *s, int slot, const unsigned char *salt, kvant_diag *diag);
void slots_drop(kvant_session *s, int slot);
/* Drops the parked sequence that was used longest ago; 0: there is none. */
int slots_drop_oldest(kvant_session *s);
void slots_park(kvant_session *s, request *q);
void slots_run(kvant_session *s, action *a);

#endif
