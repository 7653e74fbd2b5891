/* server/grammar/grammar_internal.h: the compiled form of a grammar, shared by grammar_parse.c, grammar_check.c and
 * grammar_match.c. */
#ifndef KVANT_SERVER_GRAMMAR_INTERNAL_H
#define KVANT_SERVER_GRAMMAR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include "server/grammar/grammar.h"

/* A rule is elems[start ...]: alternatives separated by ALT, closed by END. */
enum { ELEM_END, ELEM_ALT, ELEM_REF, ELEM_SET };
typedef struct gram_elem {
    uint32_t type : 2, value : 30; /* REF: rule, SET: byte set */
} gram_elem;

typedef struct byte_set {
    uint64_t bits[4];
} byte_set;

typedef struct gram_state gram_state;
typedef struct gram_walk gram_walk;

struct grammar {
    _Atomic int refs;
    gram_elem *elems;
    int n_elems, cap_elems;
    int *rules; /* [n_rules] start in elems; -1 while undefined */
    int n_rules, cap_rules;
    byte_set *sets;
    int n_sets, cap_sets;
    int root;
    /* guards everything below: the automaton and its runs */
    pthread_mutex_t lock;
    struct stack_node *nodes; /* hash-consed stacks: top position and the node below */
    int n_nodes, cap_nodes;
    int *node_hash, *state_hash;
    int node_buckets, state_buckets;
    gram_state **states;
    int n_states, cap_states;
    _Atomic size_t bytes; /* of nodes, states, masks; read without the lock */
    int64_t spent, stop;  /* work ever done; where the step at hand has to end */
    int n_vocab;          /* width of the masks; 0 until the first */
    grammar_run *runs;    /* those that stand in a state */
    gram_walk *walk;      /* the mask in work, one at a time; NULL before the first */
    int *work, cap_work; /* scratch of closures: pairs (position, node below) */
    int *found, cap_found;
    unsigned *seen; /* closure stamps by node */
    unsigned stamp;
    int cap_seen;
};

/* grammar_check.c: every rule defined, none reaches itself before a byte (left recursion, hidden or not).  The work
 * grows with the number of elements and no faster. */
int grammar_check(const grammar *g, const char *(*name)(const void *user, int rule), const void *user,
                  kvant_diag *diag);

#endif
