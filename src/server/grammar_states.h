/* server/grammar_states.h: states of a grammar's automaton and the runs that stand in them, shared by grammar_states.c
 * and grammar_match.c.  All of it under g->lock. */
#ifndef KVANT_SERVER_GRAMMAR_STATES_H
#define KVANT_SERVER_GRAMMAR_STATES_H

#include "server/grammar_internal.h"

enum { HARD_BYTES = 64 << 20 }; /* of one grammar; beyond it there is an error */
enum { DEAD = -1 };             /* the state of a text that the grammar does not have */

struct gram_state {
    int n, accept, link, text_left, left;
    int *next;      /* [256], or NULL before the first use */
    uint32_t *mask; /* tokens that may come, or NULL */
    int nodes[];
};

struct grammar_run {
    grammar *g;
    const grammar_vocab *v;
    int state;
    grammar_run *next;
};

int gram_too_large(kvant_diag *diag);
int gram_start(grammar *g, int *state, kvant_diag *diag);
/* The state behind a byte, or DEAD.  KVANT_EINVAL at a limit. */
int gram_step(grammar *g, int from, int byte, int *to, kvant_diag *diag);
void gram_drop(grammar *g); /* all states, stacks and masks */
/* Where they take too much: starts the automaton anew with the states that runs stand in. */
int gram_shrink(grammar *g, kvant_diag *diag);

#endif
