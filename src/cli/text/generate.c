/* generate.c: see generate.h.  Owns the session of `run`, its one request at a time, and the text that comes of it. */
#include "cli/text/generate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "cli/text/spec.h"
#include "text/detok.h"

enum { SLOT = 0, LEAST_BATCH = 1 + KVANT_PAGE, TURN_NS = 50000000 };

/* ---- open and close ---- */

static void banner(const generator *g)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    char dev[200];
    kvant_plan plan;

    kvant_engine_describe(g->e, dev, sizeof dev);
    log_msg(LOG_INFO, "model: %s (%s) on %s", kvant_model_get_info(g->m)->desc, kvant_model_get_info(g->m)->arch, dev);
    if (kvant_plan_make(g->m, p, &plan, NULL) == KVANT_OK)
        log_msg(LOG_INFO, "cache: K %s, V %s%s%s, tail %d, encoder %s; %" PRId64 " bytes per token, context %d",
                p->type_k, p->type_v, p->type_layers ? ", layers " : "", p->type_layers ? p->type_layers : "",
                p->kv_tail, encoder_name(p->encoder), plan.kv_bytes_per_token, p->n_ctx);
}

/* After each round of events: what kvant_session_slots shows is that of the end, once the end has come. */
static void after_events(void *user)
{
    gen_run *r = &((generator *)user)->run;

    pthread_mutex_lock(&r->lock);
    r->done = r->end_came;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
}

/* Nobody else waits for a step: no target time, and only -b bounds a piece of the prompt. */
static int open_session(generator *g, kvant_diag *diag)
{
    kvant_session_params p = kvant_session_defaults();
    const int batch = (int)opt_int(g->o, OPT_BATCH);

    p.batch_tokens = batch > LEAST_BATCH ? batch : LEAST_BATCH;
    p.target_itl_ms = -1;
    KVANT_TRY(draft_open(g->o, g->e, &g->draft, diag));
    spec_params(g->o, g->e, g->draft.e, &p);
    p.wake = after_events;
    p.wake_user = g;
    KVANT_TRY(kvant_session_create(g->e, &p, &g->s, diag));
    return spec_start_synth(g->o, g->s, diag);
}

static int open_parts(generator *g, kvant_diag *diag)
{
    kvant_engine_params p;
    draft_synth synth;

    KVANT_TRY(spec_synth(g->o, &synth, diag));
    params_from_opts(g->o, &p);
    p.logits_rows = 1 + spec_rows(g->o);
    p.draft_rows = spec_draft_rows(g->o, 1);
    KVANT_TRY(open_model(g->o, &g->m, diag));
    spec_engine(g->o, g->m, &p);
    KVANT_TRY(sampling_open(g->o, g->m, &g->how, diag));
    g->seed = (int64_t)g->how.p.seed;
    KVANT_TRY(constrain_open(g->o, g->m, &g->limits, diag));
    KVANT_TRY(open_engine(g->m, &p, &g->e, diag));
    keep_in_memory(g->o, g->m);
    g->how.p.context = kvant_engine_get_params(g->e)->n_ctx;
    if (g->how.p.dry_last_n >= g->how.p.context)
        g->how.p.dry_last_n = -1;
    return open_session(g, diag);
}

int gen_open(generator *g, const opts *o, kvant_diag *diag)
{
    pthread_condattr_t attr;
    int64_t t0 = clock_ns();

    memset(g, 0, sizeof *g);
    g->o = o;
    g->special = opt_flag(o, OPT_SPECIAL);
    g->quiet = opt_flag(o, OPT_JSON);
    pthread_mutex_init(&g->run.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->run.ended, &attr);
    pthread_condattr_destroy(&attr);
    term_catch_interrupt();
    KVANT_TRY(open_parts(g, diag));
    if (term_interrupted())
        return kvant_fail(diag, KVANT_ECANCELED, "stopped while the model was loaded");
    g->load_ns = clock_ns() - t0;
    banner(g);
    return KVANT_OK;
}

void gen_close(generator *g)
{
    kvant_session_free(g->s);
    draft_close(&g->draft);
    kvant_engine_free(g->e);
    kvant_model_close(g->m);
    sampling_free(&g->how);
    constrain_close(g->limits);
    kvant_free(g->text);
    kvant_free(g->ids.v);
    kvant_free(g->all.v);
    pthread_mutex_destroy(&g->run.lock);
    pthread_cond_destroy(&g->run.ended);
}

void gen_restart(generator *g)
{
    g->all.n = g->n_first = 0;
}

/* ---- text ---- */

void gen_text_reset(generator *g)
{
    g->text_len = 0;
    g->ids.n = 0;
    memset(&g->detok, 0, sizeof g->detok);
}

static int grow(void **p, size_t used, size_t need, size_t *cap, size_t item, kvant_diag *diag)
{
    size_t want = *cap ? *cap : 256, bytes;

    if (need <= *cap)
        return KVANT_OK;
    while (want < need)
        want *= 2;
    void *q = size_mul(want, item, &bytes) ? kvant_realloc(*p, used * item, bytes) : NULL;
    if (!q)
        return kvant_fail(diag, KVANT_ENOMEM, "text: no memory for %zu more", need);
    *p = q;
    *cap = want;
    return KVANT_OK;
}

static int append(id_list *l, const int32_t *ids, int n, kvant_diag *diag)
{
    void *p = l->v;

    KVANT_TRY(grow(&p, (size_t)l->n, (size_t)l->n + (size_t)n, &l->cap, sizeof *l->v, diag));
    l->v = p;
    memcpy(l->v + l->n, ids, (size_t)n * sizeof *ids);
    l->n += n;
    return KVANT_OK;
}

static int keep_text(generator *g, char *s, int n, kvant_diag *diag)
{
    void *p = g->text;

    KVANT_TRY(grow(&p, g->text_len, g->text_len + (size_t)n + 1, &g->text_cap, 1, diag));
    g->text = p;
    memcpy(g->text + g->text_len, s, (size_t)n);
    g->text_len += (size_t)n;
    g->text[g->text_len] = 0;
    if (g->quiet)
        return KVANT_OK;
    if (isatty(STDOUT_FILENO))
        term_sanitize(s);
    fwrite(s, 1, (size_t)n, stdout);
    fflush(stdout);
    return KVANT_OK;
}

enum { TOKEN_CAP = 4096 };

static int emit_token(generator *g, int32_t id, kvant_diag *diag)
{
    char bytes[TOKEN_CAP], out[3 * TOKEN_CAP + 64];
    int n = kvant_token_bytes(g->m, id, g->special, bytes, sizeof bytes);

    if (n < 0 || n > TOKEN_CAP)
        return kvant_fail(diag, KVANT_EINTERNAL, "token %d: its text has %d bytes, at most %d wanted", id, n,
                          TOKEN_CAP);
    KVANT_TRY(append(&g->ids, &id, 1, diag));
    n = detok_push(&g->detok, bytes, n, out, sizeof out);
    if (n < 0)
        return kvant_fail(diag, n, "token %d: detokeniser failed", id);
    return keep_text(g, out, n, diag);
}

static int end_text(generator *g, kvant_diag *diag)
{
    char out[16];
    int n = kvant_detok_flush(&g->detok, out, sizeof out);

    return n > 0 ? keep_text(g, out, n, diag) : KVANT_OK;
}

/* ---- a full context (--context-shift) ---- */

/* The first n tokens stay, `drop` behind them go, here as in the sequence. */
static void cut(id_list *l, int n, int drop)
{
    memmove(l->v + n, l->v + n + drop, (size_t)(l->n - n - drop) * sizeof *l->v);
    l->n -= drop;
}

/* llama.cpp's rule: of the first prompt so many and the token before every text; all of it where it has no more. */
static int kept(const generator *g)
{
    const int64_t keep = opt_int(g->o, OPT_KEEP) + (kvant_token_add_bos(g->m) != 0);
    const int first = g->n_first, n_ctx = kvant_engine_get_params(g->e)->n_ctx;
    const int wanted = opt_int(g->o, OPT_KEEP) < 0 || keep > first ? first : (int)keep;

    return wanted < n_ctx - n_ctx / 8 ? wanted : n_ctx - n_ctx / 8;
}

/* Makes room for n more tokens and one that is generated, by the rule of session_shift.c. */
static void make_room(generator *g, int n)
{
    const int n_ctx = kvant_engine_get_params(g->e)->n_ctx, behind = g->all.n - kept(g);
    const int need = g->all.n + n + 1 - n_ctx, half = behind / 2;

    if (!opt_flag(g->o, OPT_CONTEXT_SHIFT) || need <= 0 || need > behind)
        return;
    log_msg(LOG_INFO, "the context of %d tokens is full: the first %d stay, %d behind them go", n_ctx, kept(g),
            half > need ? half : need);
    cut(&g->all, kept(g), half > need ? half : need);
}

/* ---- events: on the session's thread ---- */

static int take_token(generator *g, int32_t id, kvant_diag *diag)
{
    if (kvant_token_is_eog(g->m, id)) /* the session ends the request */
        return g->special ? emit_token(g, id, diag) : KVANT_OK;
    g->run.n_made++;
    KVANT_TRY(append(&g->all, &id, 1, diag));
    return emit_token(g, id, diag);
}

static void take_end(generator *g, const kvant_event *ev)
{
    const char *why = constrain_error(g->limits);
    gen_run *r = &g->run;

    r->end_came = 1;
    r->finish = constrain_is_done(g->limits) ? KVANT_FINISH_STOP : ev->finish;
    r->t = *ev->timings;
    r->prompt_done = ev->prompt_done;
    if (r->code == KVANT_OK && r->finish == KVANT_FINISH_ERROR)
        r->code = kvant_fail(&r->diag, ev->code, "%s", why[0] ? why : ev->text);
}

static int on_event(void *user, const kvant_event *ev)
{
    generator *g = user;
    gen_run *r = &g->run;

    if (ev->kind == KVANT_EVENT_PROGRESS) {
        progress_show(&r->bar, ev->prompt_done);
        if (ev->prompt_done == ev->n_prompt)
            progress_end(&r->bar);
    } else if (ev->kind == KVANT_EVENT_TOKEN) {
        if (ev->timings->n_dropped > r->n_dropped)
            cut(&g->all, ev->timings->n_kept, ev->timings->n_dropped - r->n_dropped);
        r->n_dropped = ev->timings->n_dropped;
        r->code = take_token(g, ev->token, &r->diag);
    } else {
        progress_end(&r->bar);
        take_end(g, ev);
    }
    return r->code < 0 || term_interrupted() ? KVANT_EVENT_CANCEL : KVANT_EVENT_GO;
}

/* ---- prompt and continuation ---- */

int gen_prompt(generator *g, const int32_t *ids, int n, kvant_diag *diag)
{
    const int n_ctx = kvant_engine_get_params(g->e)->n_ctx;

    if (n < 1)
        return kvant_fail(diag, KVANT_EINVAL, "prompt: found 0 tokens, wanted at least 1");
    make_room(g, n);
    if (n > n_ctx - g->all.n)
        return kvant_fail(diag, KVANT_ENOSPC, "prompt: found %d tokens, wanted at most %d (context of %d tokens, -c)",
                          n, n_ctx - g->all.n > 0 ? n_ctx - g->all.n : 0, n_ctx);
    g->n_first = g->n_first ? g->n_first : n;
    return append(&g->all, ids, n, diag);
}

/* Wakes up in turns: Ctrl-C may have come while a long step runs, which only a cancel ends early. */
static void wait_for_end(generator *g, uint64_t id)
{
    gen_run *r = &g->run;

    pthread_mutex_lock(&r->lock);
    while (!r->done) {
        const int64_t until = clock_ns() + TURN_NS;
        const struct timespec t = { until / 1000000000, until % 1000000000 };
        pthread_cond_timedwait(&r->ended, &r->lock, &t);
        if (r->done || !term_interrupted())
            continue;
        pthread_mutex_unlock(&r->lock);
        kvant_session_cancel(g->s, id);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

static int run_request(generator *g, int64_t n, kvant_diag *diag)
{
    kvant_request q = kvant_request_defaults();
    gen_run *r = &g->run;
    uint64_t id;

    r->done = r->end_came = r->n_made = r->n_dropped = 0;
    r->code = KVANT_OK;
    q.prompt = g->all.v;
    q.n_prompt = g->all.n;
    q.max_tokens = n < 0 ? -1 : (int)(n < INT_MAX ? n : INT_MAX);
    q.sampler = &g->how.p;
    q.shift = opt_flag(g->o, OPT_CONTEXT_SHIFT);
    q.n_keep = kept(g);
    q.slot = SLOT;
    q.event = on_event;
    q.user = g;
    KVANT_TRY(constrain_begin(g->limits, &q, diag));
    progress_start(&r->bar, "prompt", q.n_prompt);
    KVANT_TRY(kvant_session_submit(g->s, &q, &id, diag));
    wait_for_end(g, id);
    g->how.p.seed++; /* another request, another draw: an answer that is asked for again is another one */
    if (r->code < 0)
        return kvant_fail(diag, r->code, "%s", r->diag.text);
    return KVANT_OK;
}

static void count_times(generator *g)
{
    const kvant_timings *t = &g->run.t;

    if (t->started_ns == 0)
        return;
    g->prompt_n += g->run.prompt_done - t->n_cached;
    g->prompt_ns += (t->first_token_ns ? t->first_token_ns : t->ended_ns) - t->started_ns;
    g->decode_n += t->n_generated > 1 ? t->n_generated - 1 : 0;
    g->decode_ns += t->decode_ns;
    g->drafted += t->n_drafted;
    g->accepted += t->n_draft_accepted;
}

static int reason_of(const gen_run *r, int64_t n)
{
    if (r->finish == KVANT_FINISH_STOP)
        return STOP_EOG;
    if (r->finish == KVANT_FINISH_CANCEL)
        return STOP_INTERRUPT;
    return n >= 0 && r->n_made >= n ? STOP_LENGTH : STOP_CONTEXT;
}

int gen_continue(generator *g, int64_t n, int *reason, kvant_diag *diag)
{
    const int n_prompt = g->all.n;

    KVANT_TRY(run_request(g, n, diag));
    count_times(g);
    *reason = reason_of(&g->run, n);
    if (*reason == STOP_INTERRUPT && g->run.n_made == 0)
        return kvant_fail(diag, KVANT_ECANCELED, "stopped after %d of %d prompt tokens", g->run.prompt_done, n_prompt);
    return end_text(g, diag);
}
