/* server/grammar/grammar.h: output that follows a grammar, failing closed.
 *
 * GBNF text, or a JSON schema turned into GBNF text, is compiled into rules over BYTES (a character class becomes
 * its UTF-8 byte sequences), and run as a pushdown automaton whose state sets are found once and kept: a state is
 * a set of stacks, a transition is one table lookup after the first time, and each state keeps the mask of the
 * vocabulary's tokens that may come next.  Nothing recurses over input; every size and all work has a limit, and
 * beyond it there is an error, never unconstrained output.
 *
 * Threads: compile and release anywhere.  A grammar may be shared by runs of different threads (one mutex inside,
 * which grammar_run_take, _try and _apply never wait for). */
#ifndef KVANT_SERVER_GRAMMAR_H
#define KVANT_SERVER_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/engine.h"

enum {
    GRAMMAR_MAX_TEXT = 64 << 10,  /* bytes of GBNF that a request may bring */
    GRAMMAR_MAX_SCHEMA = 1 << 20, /* bytes of GBNF made from a schema */
    GRAMMAR_MAX_RULES = 65536,
    GRAMMAR_MAX_ELEMS = 400000, /* elements of all rules */
    GRAMMAR_MAX_GROUPS = 64,    /* nested parentheses */
    GRAMMAR_MAX_REPEAT = 4096,  /* counts in {m,n} */
    GRAMMAR_MAX_STACKS = 16384, /* alternatives alive at once */
    GRAMMAR_MAX_DEPTH = 2048,   /* rules open at once in one alternative */
};

/* Work, counted where it is done in units of 2 to 5 ns (measured on an EPYC: 2 for a byte of a token in states that are
 * known, 5 where they are new).  A limit is a count and no time, so that the same request ends alike on every
 * machine but for what earlier requests left in the automaton: that is not counted again.
 *   COMPILE  as many elements as there may be take about 2 million; the rest is for names that collide.
 *   TRY      what the thread that steps may spend on one token, 50 us: a look-up, or the mask of a small vocabulary.
 *   SLICE    about 1 ms: then it is another request's turn on the grammar thread.
 *   STEP     one byte from one state, which cannot be cut into slices: four times the largest set of stacks.
 *   MASK     one token.  150,000 tokens took 0.2 to 0.7 million for a new state of a JSON object.
 *   REQUEST  all of a request, and GRAMMAR_CREDIT walks over the vocabulary more for each token that it generates: what
 *            an unambiguous grammar takes when each of its tokens stands in a new state. */
enum {
    GRAMMAR_FUEL_COMPILE = 16 << 20,
    GRAMMAR_FUEL_TRY = 16 << 10,
    GRAMMAR_FUEL_SLICE = 256 << 10,
    GRAMMAR_FUEL_STEP = 1 << 20,
    GRAMMAR_FUEL_MASK = 64 << 20,
    GRAMMAR_FUEL_REQUEST = 256 << 20,
    GRAMMAR_CREDIT = 2,
};

typedef struct grammar grammar;
typedef struct grammar_vocab grammar_vocab;
typedef struct grammar_run grammar_run;

/* GBNF with the start rule "root" -> *out with one reference.  KVANT_EINVAL names the line and what is wrong there:
 * syntax, undefined rules, left recursion, an endless repetition of nothing, a limit. */
int grammar_compile(const char *text, size_t len, grammar **out, kvant_diag *diag);
grammar *grammar_ref(grammar *g);
void grammar_release(grammar *g); /* NULL accepted */
/* Bytes it takes now: rules, states, masks.  At most about 64 MiB. */
size_t grammar_bytes(grammar *g);

/* JSON schema text (an object, or true) -> GBNF text (kvant_free).  KVANT_EINVAL gives the path of what is not
 * supported: a keyword that would constrain and is not known is an error, never ignored. */
int grammar_from_schema(const char *schema, size_t len, char **gbnf, kvant_diag *diag);

/* The tokens of a model by their bytes, sorted: what masks are made over.  Control tokens have none, but those that
 * shown[id] (or NULL) counts as their text.  Immutable, any thread. */
int grammar_vocab_create(const kvant_model *m, const unsigned char *shown, grammar_vocab **out, kvant_diag *diag);
/* As grammar_vocab_create, from a list: bytes of token i at text[i], len[i]; eog[i] != 0 marks an end token. */
int grammar_vocab_from_list(const char *const *text, const int *len, const unsigned char *eog, int n,
                            grammar_vocab **out, kvant_diag *diag);
void grammar_vocab_free(grammar_vocab *v);
const char *grammar_vocab_text(const grammar_vocab *v, int32_t token, size_t *n); /* as long as v; n 0: it has none */

/* One generation under a grammar.  Keeps a reference on g; v must outlive it.  One thread at a time. */
int grammar_run_create(grammar *g, const grammar_vocab *v, grammar_run **out, kvant_diag *diag);
void grammar_run_free(grammar_run *r); /* may wait for the grammar, and frees much where it was the last to use it */
/* A run that begins within a token: its first bytes come from there (they must last until they are walked). */
void grammar_run_begin(grammar_run *r, const char *text, size_t n);
/* Makes the mask of the next token.  KVANT_OK: it is there.  KVANT_EBUSY: call grammar_run_work.  KVANT_EINVAL: a limit
 * is reached, or the text has left the grammar: the generation must end with that error. */
int grammar_run_try(grammar_run *r, kvant_diag *diag);
/* As grammar_run_try, a slice of work (GRAMMAR_FUEL_SLICE) at a time, by a thread that may wait for the grammar. */
int grammar_run_work(grammar_run *r, kvant_diag *diag);
/* Sets logits[i] = -INFINITY for every token that may not come next.  *left: tokens that may.  0 left with
 * *complete: the text is complete and nothing may follow.  KVANT_EINVAL when no token can continue an incomplete
 * text; KVANT_EINTERNAL when the mask was not made before. */
int grammar_run_apply(const grammar_run *r, float *logits, int n_vocab, int *left, int *complete, kvant_diag *diag);
int grammar_run_allows(const grammar_run *r, int32_t token); /* 0: the mask refuses it */
/* The token that was picked under the mask; the next one has to be made.  KVANT_EINVAL when it was not allowed. */
int grammar_run_take(grammar_run *r, int32_t token, kvant_diag *diag);
/* Bytes in place of a token, without a mask and in one go (few of them): KVANT_EINVAL at the first byte that cannot
 * come.  *complete: it may end here. */
int grammar_run_bytes(grammar_run *r, const char *text, size_t n, int *complete, kvant_diag *diag);

#endif
