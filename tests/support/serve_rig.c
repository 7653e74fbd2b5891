/* serve_rig.c: see serve_rig.h. */
#include "support/serve_rig.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include "base/rng.h"
#include "support/check.h"

int serve_open(serve_rig *r, const char *path, kvant_engine_params ep, kvant_session_params sp)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    return serve_open_model(r, &mp, ep, sp);
}

/* KVANT_TEST_DEVICES=cpu:1,cpu:2: layers over these and routed experts on the CPU apart, where a test names no device;
 * KVANT_TEST_TENSOR=cpu:1,cpu:2: a part of every layer on each. */
static void place(kvant_engine_params *ep)
{
    const char *devices = getenv("KVANT_TEST_DEVICES"), *parts = getenv("KVANT_TEST_TENSOR");

    if ((!devices && !parts) || ep->device)
        return;
    ep->device = parts ? parts : devices;
    ep->split_tensors = parts != NULL;
    ep->cpu_experts = parts ? 0 : INT_MAX;
}

int serve_open_model(serve_rig *r, const kvant_model_params *mp, kvant_engine_params ep, kvant_session_params sp)
{
    const char *path = mp->path;
    kvant_diag d = { "" };

    memset(r, 0, sizeof *r);
    place(&ep);
    CHECK(kvant_model_open(mp, &r->m, &d) == KVANT_OK, "%s: %s", path, d.text);
    if (!r->m)
        return 0;
    r->n_vocab = kvant_model_get_info(r->m)->n_vocab;
    CHECK(kvant_engine_create(r->m, &ep, &r->e, &d) == KVANT_OK, "%s: %s", path, d.text);
    if (r->e)
        CHECK(kvant_session_create(r->e, &sp, &r->s, &d) == KVANT_OK, "%s: %s", path, d.text);
    return r->s != NULL;
}

void serve_close(serve_rig *r)
{
    kvant_session_free(r->s);
    kvant_engine_free(r->e);
    kvant_model_close(r->m);
    memset(r, 0, sizeof *r);
}

static int on_event(void *user, const kvant_event *ev)
{
    serve_out *o = user;

    if (ev->kind == KVANT_EVENT_TOKEN && o->n < RIG_TOKENS) {
        o->logprob[o->n] = ev->logprob;
        o->tokens[o->n++] = ev->token;
        atomic_store(&o->seen, o->n);
        return o->stop_after && o->n == o->stop_after ? o->stop_how : KVANT_EVENT_GO;
    }
    if (ev->kind != KVANT_EVENT_END)
        return KVANT_EVENT_GO;
    o->ends++;
    o->finish = ev->finish;
    o->code = ev->code;
    o->t = *ev->timings;
    o->n_cached = ev->n_cached;
    o->n_preempted = ev->timings->n_preempted;
    snprintf(o->text, sizeof o->text, "%s", ev->text);
    o->n_embd = ev->n_embd;
    if (ev->embedding)
        memcpy(o->embedding, ev->embedding, (size_t)ev->n_embd * sizeof(float));
    atomic_store(&o->done, 1);
    return KVANT_EVENT_GO;
}

int serve_submit(serve_rig *r, kvant_request *q, serve_out *out, kvant_diag *diag)
{
    const int after = out->stop_after, how = out->stop_how;

    memset(out, 0, sizeof *out);
    out->stop_after = after;
    out->stop_how = how;
    q->event = on_event;
    q->user = out;
    return kvant_session_submit(r->s, q, &out->id, diag);
}

void serve_wait(serve_out *out)
{
    const struct timespec ms = { 0, 200000 };

    while (!atomic_load(&out->done))
        nanosleep(&ms, NULL);
}

void serve_one(serve_rig *r, kvant_request *q, serve_out *out)
{
    kvant_diag d = { "" };
    const int code = serve_submit(r, q, out, &d);

    CHECK(code == KVANT_OK, "submit: %s", d.text);
    if (code == KVANT_OK)
        serve_wait(out);
}

static int best(const float *x, int n)
{
    int b = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[b])
            b = i;
    return b;
}

int serve_same(const serve_out *a, const serve_out *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->n * sizeof *a->logprob) == 0;
}

void serve_alone(kvant_engine *e, const int32_t *prompt, int n, int n_gen, int32_t *out)
{
    const int v = kvant_model_get_info(kvant_engine_model(e))->n_vocab;
    kvant_diag d = { "" };
    int seq = 0;

    CHECK(kvant_seq_new(e, &seq, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < n_gen; i++) {
        const kvant_item it = i == 0 ? (kvant_item){ seq, prompt, n, 1, KVANT_LOGITS_LAST }
                                     : (kvant_item){ seq, &out[i - 1], 1, 0, KVANT_LOGITS_LAST };
        CHECK(kvant_step(e, &it, 1, &d) == KVANT_OK, "%s", d.text);
        const float *x = kvant_step_logits(e, 0, 0);
        out[i] = x ? best(x, v) : -1;
    }
    kvant_seq_free(e, seq);
}

void serve_tokens(int32_t *t, int n, uint64_t seed)
{
    rng r = { seed };
    for (int i = 0; i < n; i++)
        t[i] = (int32_t)rng_below(&r, 256);
}
