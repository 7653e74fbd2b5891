/* engine/scheduler.h: what the next step runs: a pure function of the queue, the running sequences, the pages and the
 * budget. It owns no state and touches no engine, so that tests/check_scheduler.c can drive it through random traces.
 *
 * Order of a step (docs/scheduler.md):
 *   1. decode rows: one per running sequence past its prompt, never capped; prefill_first may hold them back;
 *   2. pages for rows that take a new page; where none is left, the youngest sequences are preempted;
 *   3. prompt chunks of running sequences within the budget: tenants in their order, of one tenant the oldest first;
 *   4. admissions from the queue, in its order, while a place, pages and budget are left.
 * Each tenant gets an equal part of a step's prompt tokens, and those of theirs that others do not want.
 * Chunks end on the absolute 64-token grid, at a cut (where a snapshot is wanted), or at the prompt's end.
 *
 * Pages are promised before they are taken: room - promised never gets below zero.  Room: pages that can be had, free
 * ones and those that an eviction frees at once (page_pool_room). */
#ifndef KVANT_ENGINE_SCHEDULER_H
#define KVANT_ENGINE_SCHEDULER_H

typedef struct sched_config {
    int batch_tokens; /* ceiling of a step; at least max_seqs + 64 */
    int n_ubatch, n_ctx, max_seqs;
    int prefill_budget;   /* static; 0: off */
    int max_batch_tokens; /* dynamic; 0: off; wins over the static one */
    int prefill_cap;      /* dynamic, per sequence; 0: from T and n_ctx */
    int prefill_first, first_waiting, first_defer;
    int late_pages; /* 1: a page is taken by its last row, not its first (cache/kv.h) */
    int step_tokens; /* prompt tokens that take as long as a step may; 0: any */
    int n_tenants;   /* at least 1 */
    const unsigned char *heavy; /* [n_tenants]: those that give way to the others; NULL: none */
    int heavy_tokens;           /* prompt tokens that they may have together; -1: any */
} sched_config;

/* A running sequence; the array is in order of admission, oldest first. */
typedef struct sched_seq {
    int pos;         /* tokens in the cache */
    int prompt_left; /* prompt tokens not in the cache yet; 0: wants a decode row */
    int cut;         /* position that a chunk must not cross: a multiple of 64 above pos, or 0: none */
    int pages_back;  /* pages that become free or idle if it is dropped */
    int promised;    /* pages promised to it beyond those it has */
    int keep;        /* 1: everything it can ever need is promised; never preempted */
    int decoded;     /* tokens it has generated */
    int held;        /* 1: its client reads too slowly: no decode row; it may be preempted */
    int tenant;      /* 0 .. n_tenants - 1, in the order in which they are served */
} sched_seq;

/* A request in the queue, in the order in which they are to be admitted. */
typedef struct sched_wait {
    int pos;              /* tokens that a prefix hit, or its saved copy, brings along */
    int prompt_left, cut; /* as above, after the hit */
    int pages;            /* pages to promise: new ones, for the prompt and one token more (keep: for all) */
    int pinned;           /* idle pages that its hit would take */
    int not_ready;        /* 1: waits for something else; passed over */
    int tenant;
} sched_wait;

/* index < n_running: a running sequence; else n_running + index of the queue. */
typedef struct sched_piece {
    int index, n;
} sched_piece;

typedef struct sched_plan {
    int n_decode, n_prompt, n_admit, n_preempt, n_deferred;
    int no_pages; /* 1: the next of the queue wants more pages than are left */
    int prompt_tokens, budget, cap;
    int *decode, *preempt, *admit; /* [n_running], [n_running], [n_wait]; caller's memory */
    sched_piece *prompt;           /* [n_running + n_wait] */
    int *tokens;                   /* [n_tenants]: prompt tokens that each may still take */
} sched_plan;

/* deferred: steps in a row, until now, in which prefill_first held rows back.  Writes the plan's lists. */
void sched_make(const sched_config *c, const sched_seq *running, int n_running, const sched_wait *queue, int n_wait,
                int room, int deferred, sched_plan *plan);
/* The budget of prompt tokens and the cap per sequence of a step with d decode rows; 0: unbounded. */
void sched_budget(const sched_config *c, int d, int *budget, int *cap);

#endif
