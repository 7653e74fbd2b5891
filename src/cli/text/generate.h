/* cli/text/generate.h: one sequence that is prompted and continued: what plain text and chat share of `run`.  A client
 * of one session (kvant/session.h): each continuation is a request of slot 0, whose sequence stays there, so that the
 * next one goes on with it. */
#ifndef KVANT_CLI_GENERATE_H
#define KVANT_CLI_GENERATE_H

#include <pthread.h>
#include "cli/text/draft.h"
#include "cli/common.h"
#include "cli/sampling.h"
#include "cli/term.h"
#include "cli/text/constrain.h"
#include "kvant/session.h"

enum stop_reason { STOP_NONE, STOP_EOG, STOP_LENGTH, STOP_CONTEXT, STOP_INTERRUPT };
const char *stop_text(int reason);

/* Tokens that grow. */
typedef struct id_list {
    int32_t *v;
    int n;
    size_t cap;
} id_list;

/* The request that runs.  While it does, the session's thread writes here and into the texts of the generator. */
typedef struct gen_run {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int done;             /* END has come, and what the session shows is up to date (lock) */
    int end_came, n_made; /* n_made: tokens but for the one that ended it */
    int n_dropped;        /* of its text, where the context was full, as far as `all` knows */
    int finish, code;
    kvant_timings t;
    int prompt_done;
    progress bar;
    kvant_diag diag; /* of the request, or of what was to be done with a token */
} gen_run;

typedef struct generator {
    const opts *o;
    kvant_model *m;
    kvant_engine *e;
    draft_parts draft;
    kvant_session *s;
    sampling how;
    constrain *limits; /* NULL: answers are free */
    int64_t seed; /* of the first request; each has the next one */
    id_list all;  /* prompts and what was generated, but for end-of-generation tokens: the next prompt */
    kvant_detok detok;
    int n_first;  /* of `all`: the first prompt, of which --keep counts */
    int special, quiet; /* print control tokens; keep the text, print nothing */
    char *text;         /* everything since gen_text_reset, NUL-terminated */
    size_t text_len, text_cap;
    id_list ids; /* generated tokens since gen_text_reset */
    int64_t prompt_n, prompt_ns, decode_n, decode_ns;
    int64_t drafted, accepted; /* guesses of tokens */
    int64_t load_ns;
    gen_run run;
} generator;

/* Opens model, engine and session as o says.  gen_close also after an error. */
int gen_open(generator *g, const opts *o, kvant_diag *diag);
void gen_close(generator *g);
/* Appends prompt tokens (ids stay the caller's); they are evaluated with the next gen_continue. */
int gen_prompt(generator *g, const int32_t *ids, int n, kvant_diag *diag);
/* Generates at most n tokens (n < 0: no limit), printing text as it comes.  *reason says why it ended.
 * KVANT_ECANCELED: Ctrl-C before the first token. */
int gen_continue(generator *g, int64_t n, int *reason, kvant_diag *diag);
void gen_text_reset(generator *g);
/* Forgets what was prompted and generated. */
void gen_restart(generator *g);

/* ---- gen_report.c ---- */
/* Line i of timings and cache size -> buf; 0 past the last. */
int gen_stats(const generator *g, int i, char *buf, size_t cap);
/* Timings and cache size: as notes on standard error (unless --no-perf), or as members of the open JSON object. */
void gen_report(const generator *g);
void gen_json(const generator *g, jsonw *w);

#endif
