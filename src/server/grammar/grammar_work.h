/* server/grammar/grammar_work.h: one thread that makes masks beside the engine's steps, in slices: the lane (tenant)
 * that waited longest is next, and in it the task that did, so that nobody's grammar waits for all of another one's. */
#ifndef KVANT_SERVER_GRAMMAR_WORK_H
#define KVANT_SERVER_GRAMMAR_WORK_H

#include "server/grammar/grammar.h"

typedef struct grammar_work grammar_work;

int grammar_work_create(grammar_work **out, kvant_diag *diag);
/* Ends the thread; `done` of what is left, and of all that is added later, is called with KVANT_ECANCELED. */
void grammar_work_stop(grammar_work *w);
void grammar_work_free(grammar_work *w); /* stops it first; NULL accepted */
/* Makes the mask of r's next token.  done is called once, on the thread (or here, once it has stopped), without a lock:
 * KVANT_OK, an error of grammar_run_work with its text, or KVANT_ECANCELED.  Until then nobody else may use r. */
void grammar_work_add(grammar_work *w, grammar_run *r, unsigned lane,
                      void (*done)(void *user, int code, const char *text), void *user);
/* Frees r on the thread, which may be at work on it: then its `done` comes first.  Never waits.  w NULL, or stopped:
 * r is freed here. */
void grammar_work_discard(grammar_work *w, grammar_run *r);

#endif
