/* tests/support/serve_rig.h: a model, an engine and a session for tests, requests whose tokens are collected, and the
 * tokens of the same request run alone by plain engine calls. */
#ifndef KVANT_TESTS_SERVE_RIG_H
#define KVANT_TESTS_SERVE_RIG_H

#include <pthread.h>
#include "kvant/kvant.h"

enum { RIG_TOKENS = 512 };

typedef struct serve_rig {
    kvant_model *m;
    kvant_engine *e;
    kvant_session *s;
    int n_vocab;
} serve_rig;

/* What came out of a request. */
typedef struct serve_out {
    int32_t tokens[RIG_TOKENS];
    float logprob[RIG_TOKENS];
    int n, finish, code, n_cached, n_preempted, ends;
    _Atomic int stop_after, stop_how; /* the callback returns stop_how at its stop_after-th token; 0: never */
    char text[128];
    float embedding[4096];
    int n_embd;
    kvant_timings t;
    uint64_t id;
    _Atomic int done, seen; /* seen: n, while it runs */
} serve_out;

/* 0 when the model is not there. */
int serve_open(serve_rig *r, const char *path, kvant_engine_params ep, kvant_session_params sp);
/* The same with adapters. */
int serve_open_model(serve_rig *r, const kvant_model_params *mp, kvant_engine_params ep, kvant_session_params sp);
void serve_close(serve_rig *r);
/* Submits with out as the place for events (r->event and r->user are set). */
int serve_submit(serve_rig *r, kvant_request *q, serve_out *out, kvant_diag *diag);
void serve_wait(serve_out *out);
/* Submits and waits. */
void serve_one(serve_rig *r, kvant_request *q, serve_out *out);
/* Tokens and log-probabilities are equal, bit by bit. */
int serve_same(const serve_out *a, const serve_out *b);
/* The greedy tokens of a prompt alone, prompt in one piece, by plain steps of a fresh sequence of e. */
void serve_alone(kvant_engine *e, const int32_t *prompt, int n, int n_gen, int32_t *out);
/* n pseudo-random tokens below 256. */
void serve_tokens(int32_t *t, int n, uint64_t seed);

#endif
