/* server/grammar/grammar_states.h: states of a grammar's automaton and the runs that stand in them, shared by
 * grammar_states.c, grammar_match.c and grammar_work.c.  All of it under g->lock but what says otherwise. */
#ifndef KVANT_SERVER_GRAMMAR_STATES_H
#define KVANT_SERVER_GRAMMAR_STATES_H

#include "server/grammar/grammar_internal.h"
#include "server/grammar/grammar_vocab.h"

enum {
    HARD_BYTES = 64 << 20,  /* of one grammar; beyond it there is an error */
    ALL_BYTES = 256 << 20,  /* of all grammars; beyond it a grammar gets */
    OWN_BYTES = 4 << 20,    /* no more than this */
};
enum { DEAD = -1, NOWHERE = -3 }; /* the state of a text that the grammar does not have; of a run before its first */

/* Tokens that may come in a state.  It does not change once a state or a run has it. */
typedef struct gram_mask {
    _Atomic int refs; /* the state, and each run that stands in it */
    int accept, text_left, left;
    uint32_t bits[];
} gram_mask;

struct gram_state {
    int n, accept, link;
    int *next; /* [256], or NULL before the first use */
    gram_mask *mask;
    int nodes[];
};

/* A mask in work: the sorted tokens from i on are to be tried, in the states at[] of the first `alive` bytes. */
struct gram_walk {
    grammar_run *run; /* NULL: none is in work */
    gram_mask *mask;
    int i, alive;
    int at[GRAMMAR_MAX_TOKEN + 1];
};

struct grammar_run {
    grammar *g;
    const grammar_vocab *v;
    int state, linked;
    /* without the lock: belongs to the thread that has the run */
    gram_mask *mask;           /* of the next token; NULL: to be made */
    int failed;                /* for good */
    const unsigned char *rest; /* bytes of the token that came, not walked yet */
    int n_rest;
    int64_t spent, allowed, spent_mask; /* work of the request, what it may take, work of this token */
    grammar_run *next;
    /* grammar_work.c, under its lock */
    struct grammar_task {
        grammar_run *next;
        int queued, gone;
        unsigned lane;
        uint64_t turn;
        void (*done)(void *user, int code, const char *text);
        void *user;
    } task;
};

int gram_too_large(kvant_diag *diag);
void gram_mask_release(gram_mask *m); /* any thread; NULL accepted */
/* Counts memory of g; 0: there is none left. */
int gram_take_bytes(grammar *g, size_t n);
void gram_give_bytes(grammar *g, size_t n);
int gram_start(grammar *g, int *state, kvant_diag *diag);
/* The state behind a byte, or DEAD.  KVANT_EINVAL at a limit, KVANT_EBUSY at g->stop. */
int gram_step(grammar *g, int from, int byte, int *to, kvant_diag *diag);
int gram_known(const grammar *g, int from, int byte); /* that step was taken before */
void gram_drop(grammar *g);                           /* all states, stacks and masks */
/* must: the states take too much.  shrink: begins anew with the states that runs stand in.  No mask is in work. */
int gram_must_shrink(const grammar *g);
int gram_shrink(grammar *g, kvant_diag *diag);

#endif
