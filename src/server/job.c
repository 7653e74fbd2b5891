/* job.c: one HTTP request's work in the session.  Owns the job's references, and the way from a request to the session;
 * job_events.c has the way back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "server/http/kept.h"

job *job_new(server *s, served *m, int kind, int n)
{
    job *j = kvant_calloc(1, sizeof *j + (size_t)n * sizeof *j->choices);

    if (!j)
        return NULL;
    j->s = s;
    j->m = m;
    if (m)
        served_share(m);
    j->kind = kind;
    j->n_choices = n;
    j->created = s->wall_s + (clock_ns() - s->started_ns) / 1000000000;
    pthread_mutex_init(&j->lock, NULL);
    atomic_store(&j->refs, 1);
    for (int i = 0; i < n; i++)
        j->choices[i] = (choice){ .job = j, .index = i };
    return j;
}

static void free_choice(choice *c)
{
    answer_free(c);
    kvant_free(c->probs.list);
    kvant_free(c->vectors.v);
    grammar_work_discard(c->job->m->masks, c->run);
}

static void free_generation(generation *g)
{
    for (int i = 0; i < g->n_stops; i++)
        kvant_free(g->stop_text[i]);
    for (int i = 0; i < g->n_prompt_texts; i++)
        kvant_free(g->prompt_texts[i]);
    kvant_free(g->prompt_texts);
    grammar_release(g->grammar);
    tool_set_free(g->tools);
    native_free(&g->native);
    tgi_free(&g->tgi);
    responses_answer_free(&g->responses);
}

void job_release(job *j)
{
    if (!j || atomic_fetch_sub(&j->refs, 1) > 1)
        return;
    for (int i = 0; i < j->n_choices; i++)
        free_choice(&j->choices[i]);
    free_generation(&j->gen);
    if (j->embed.request)
        atomic_fetch_sub(&j->s->budget.tenants[j->lane].texts, j->n_choices);
    embed_request_dispose(j->embed.request);
    predict_free(j);
    sbuf_free(&j->out);
    answers_count_stream(j);
    work_free(j->work);
    pthread_mutex_destroy(&j->lock);
    served_release(j->m);
    kvant_free(j);
}

int job_sends_lines(const job *j)
{
    if (j->kind == JOB_READ)
        return j->read.of && j->read.of->lines;
    return j->kind == JOB_GENERATE && j->gen.shape == &ollama_shape;
}

void job_dirty(job *j)
{
    server *s = j->s;

    pthread_mutex_lock(&s->dirty_lock);
    if (!j->link.dirty) {
        j->link.dirty = 1;
        atomic_fetch_add(&j->refs, 1);
        j->link.dirty_next = s->dirty;
        s->dirty = j;
    }
    pthread_mutex_unlock(&s->dirty_lock);
}

void server_wake(void *server_pointer)
{
    server *s = server_pointer;
    uint64_t one = 1;

    if (write(s->event_fd, &one, sizeof one) < 0)
        return; /* the counter is full: the loop is awake anyway */
}

/* ---- submitting ---- */

static void cancel_all(job *j)
{
    for (int i = 0; i < j->n_choices; i++)
        if (j->choices[i].id)
            kvant_session_cancel(j->m->session, j->choices[i].id);
}

void job_go_on(job *j)
{
    uint64_t ids[REQUEST_MAX_CHOICES];
    int n = 0;

    pthread_mutex_lock(&j->lock);
    const size_t low = answers_tight(j) ? STREAM_TIGHT_LOW : STREAM_LOW;
    for (int i = 0; i < j->n_choices && j->out.n < low; i++)
        if (j->choices[i].waits & WAIT_CLIENT) {
            j->n_paused--;
            if (job_stop_waiting(&j->choices[i], WAIT_CLIENT))
                ids[n++] = j->choices[i].id;
        }
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < n; i++)
        kvant_session_resume(j->m->session, ids[i]);
}

void job_gone(job *j)
{
    pthread_mutex_lock(&j->lock);
    int was = j->gone || j->done;
    j->gone = 1;
    pthread_mutex_unlock(&j->lock);
    if (j->work)
        atomic_store(&j->work->left, 1);
    if (j->kind == JOB_PREDICT)
        predict_gone(j);
    if (was || !j->m)
        return;
    if (j->kind <= JOB_RERANK) {
        atomic_fetch_add(&j->m->metrics.gone, 1);
        cancel_all(j);
    }
}

static int submit_error(job *j, int code, const kvant_diag *diag, api_error *e)
{
    kvant_session_stats st;

    kvant_session_get_stats(j->m->session, &st);
    if (code == KVANT_EBUSY && st.draining)
        return api_fail(e, API_UNAVAILABLE, "", "the server is shutting down");
    if (code == KVANT_EBUSY) {
        atomic_fetch_add(&j->m->metrics.rejected, 1);
        return api_fail(e, API_OVERLOAD, "", "%s; try later", diag->text);
    }
    return api_fail(e, api_kind_of(code), "", "%s", diag->text);
}

/* Submitted on hold: the mask may have come before the session had an id to resume. */
static void held_from_start(choice *c)
{
    job *j = c->job;

    pthread_mutex_lock(&j->lock);
    c->held = 1;
    const int failed = j->error.kind, go_on = job_stop_waiting(c, 0);
    pthread_mutex_unlock(&j->lock);
    if (go_on && failed)
        kvant_session_cancel(j->m->session, c->id);
    else if (go_on)
        kvant_session_resume(j->m->session, c->id);
}

/* Choice i with what its request has in common with the others in q. */
static int submit_one(job *j, int i, kvant_request *q, api_error *e)
{
    choice *c = &j->choices[i];
    kvant_diag diag = { "" };
    int code;

    q->event = job_event;
    q->user = c;
    answer_begin(j, c);
    code = masks_first(c, j->gen.grammar, &q->held, &diag);
    if (c->masked) {
        q->mask = masks_logits;
        q->accepted = masks_accepted;
        q->mask_user = c;
    }
    atomic_fetch_add(&j->refs, 1);
    if (code == KVANT_OK)
        code = kvant_session_submit(j->m->session, q, &c->id, &diag);
    if (code == KVANT_OK) {
        if (q->held)
            held_from_start(c);
        return API_OK;
    }
    atomic_fetch_sub(&j->refs, 1);
    if (c->run)
        grammar_work_discard(j->m->masks, c->run);
    c->run = NULL;
    return submit_error(j, code, &diag, e);
}

/* Choices from i on will never run; those before are cancelled and nobody waits for them. */
static void give_up(job *j, int i)
{
    pthread_mutex_lock(&j->lock);
    j->gone = 1;
    j->n_ended += j->n_choices - i;
    pthread_mutex_unlock(&j->lock);
    cancel_all(j);
}

/* The texts of prompts, where they are kept. */
static int take_prompts(generation *g, const api_request *r, api_error *e)
{
    g->prompt_texts = kvant_calloc((size_t)r->n_prompts, sizeof *g->prompt_texts);
    if (!g->prompt_texts)
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    g->n_prompt_texts = r->n_prompts;
    for (int i = 0; i < r->n_prompts; i++)
        if (r->prompts[i].text && !(g->prompt_texts[i] = kvant_strdup(r->prompts[i].text)))
            return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    return API_OK;
}

static int take_texts(generation *g, const api_request *r, api_error *e)
{
    for (int i = 0; i < r->n_stops; i++) {
        g->stop_text[i] = kvant_strdup(r->stops[i]);
        if (!g->stop_text[i])
            return api_fail(e, API_UNAVAILABLE, "", "out of memory");
        g->stop_len[i] = r->stop_len[i];
        g->n_stops = i + 1;
    }
    g->stops = (text_stops){ g->stop_text, g->stop_len, g->n_stops };
    if (g->shape == &native_shape && native_take_bias(&g->native, r) != KVANT_OK)
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    return take_prompts(g, r, e);
}

static void take_tools(generation *g, api_request *r, const served *m)
{
    const tool_traits *t = r->chat ? m->env.traits : NULL;

    g->traits = t;
    g->tools = r->tools;
    r->tools = NULL;
    g->grammar = r->grammar ? grammar_ref(r->grammar) : NULL;
    g->grammar_begins = r->grammar ? r->grammar_begins : GRAMMAR_AT_START;
    g->gate_vocab = t && t->vocab ? t->vocab : m->vocab;
    g->vocab = r->calls != CALLS_NONE ? g->gate_vocab : m->vocab;
    g->thoughts = r->thoughts;
    if (!t || !t->t)
        g->thoughts.budget = -1;
    g->thought_end = t ? t->end_ids : NULL;
    g->n_thought_end = t ? t->n_end : 0;
    g->parses = g->thoughts.apart || r->calls != CALLS_NONE;
}

/* How each body is answered, and the beginning of the answer's id. */
typedef struct body_answer {
    const answer_shape *shape;
    const char *id;
} body_answer;
static const body_answer answers[] = { [BODY_TEXT] = { &openai_shape, "cmpl-" },
                                       [BODY_CHAT] = { &openai_shape, "chatcmpl-" },
                                       [BODY_NATIVE] = { &native_shape, "cmpl-" },
                                       [BODY_INFILL] = { &native_shape, "cmpl-" },
                                       [BODY_MESSAGES] = { &anthropic_shape, "msg_" },
                                       [BODY_RESPONSES] = { &responses_shape, "resp_" },
                                       [BODY_OLLAMA_CHAT] = { &ollama_shape, "chat-" },
                                       [BODY_OLLAMA_GENERATE] = { &ollama_shape, "gen-" },
                                       [BODY_TGI] = { &tgi_shape, "gen-" },
                                       [BODY_TGI_STREAM] = { &tgi_shape, "gen-" },
                                       [BODY_TGI_ROOT] = { &tgi_shape, "gen-" },
                                       [BODY_COHERE] = { &cohere_shape, "chat-" },
                                       [BODY_FIM] = { &openai_shape, "cmpl-" } };

/* How the answer is written, and what it tells of the request. */
static void take_shape(generation *g, api_request *r, int n_ctx)
{
    g->shape = answers[r->shape].shape;
    g->openai = (openai_answer){ r->chat || r->shape == BODY_FIM, r->include_usage, r->verbose };
    native_take(&g->native, r);
    tgi_take(&g->tgi, r, n_ctx);
    g->ollama.generates = r->shape == BODY_OLLAMA_GENERATE;
    g->responses.body = r->responses;
    r->responses = NULL;
    g->keep_tokens = r->native.return_tokens || (r->stream && g->shape == &native_shape);
    if (g->shape == &tgi_shape)
        g->keep_tokens = r->probs.wanted ? 2 : 0;
    g->min_tokens = r->min_tokens;
    g->probs = r->probs;
    g->progress = r->progress && r->stream;
    g->timings_each = r->timings_each;
}

/* A client that has one id cannot tell another one. */
static void make_id(const server *s, const char *begins, uint64_t number, char out[JOB_ID])
{
    unsigned char text[sizeof s->secret + sizeof number], hash[32];
    size_t n;

    memcpy(text, s->secret, sizeof s->secret);
    memcpy(text + sizeof s->secret, &number, sizeof number);
    sha256(text, sizeof text, hash);
    n = (size_t)snprintf(out, JOB_ID, "%s", begins);
    for (int i = 0; i < 12; i++)
        n += (size_t)snprintf(out + n, JOB_ID - n, "%02x", hash[i]);
}

void job_id_text(server *s, const char *begins, char out[JOB_ID])
{
    make_id(s, begins, atomic_fetch_add(&s->next_id, 1) + 1, out);
}

void job_make_id(job *j, const char *begins)
{
    job_id_text(j->s, begins, j->id);
}

/* Returns the request's number. */
static uint64_t take_request(job *j, api_request *r)
{
    server *s = j->s;
    const uint64_t number = atomic_fetch_add(&s->next_id, 1) + 1;

    j->stream = r->stream;
    take_tools(&j->gen, r, j->m);
    take_shape(&j->gen, r, j->m->env.shift ? INT32_MAX : j->m->env.n_ctx);
    make_id(s, answers[r->shape].id, number, j->id);
    return number;
}

int job_submit(job *j, api_request *r, int key, const unsigned char salt[16], api_error *e)
{
    kvant_request q = kvant_request_defaults();
    kvant_sampler_params sampler = r->sampler;

    const uint64_t number = take_request(j, r);
    j->gen.submitted_ns = clock_ns();
    j->lane = (unsigned)(key + 1);
    if (take_texts(&j->gen, r, e) != API_OK)
        return e->kind;
    q.max_tokens = r->max_tokens;
    q.draft_max = r->drafts.max;
    q.draft_min = r->drafts.min;
    q.draft_p_min = r->drafts.p_min;
    q.ignore_eos = r->ignore_eos;
    q.n_logprobs = r->probs.wanted ? r->probs.top : -1;
    q.post_probs = r->probs.post;
    q.n_prompt_logprobs = r->echo || r->tgi.prefill ? q.n_logprobs : -1;
    q.tenant = (uint32_t)(key + 1);
    memcpy(q.salt, salt, sizeof q.salt);
    q.sampler = &sampler;
    q.lora = r->lora.given ? r->lora.scale : NULL;
    for (int i = 0; i < j->n_choices; i++) {
        const prompt *p = &r->prompts[i / r->n];
        q.slot = i == 0 ? r->slot : -1;
        q.prompt = p->ids;
        q.n_prompt = p->n;
        q.n_system = p->n_system;
        request_put_shift(&j->m->env, r, p, &q);
        sampler.seed = r->has_seed ? r->sampler.seed + (uint64_t)(i % r->n)
                                   : (uint64_t)clock_ns() * 0x9E3779B97F4A7C15u + number * 256 + (uint64_t)i;
        j->choices[i].n_prompt = p->n;
        j->choices[i].echo = r->echo ? j->gen.prompt_texts[i / r->n] : NULL;
        if (submit_one(j, i, &q, e) != API_OK) {
            give_up(j, i);
            return e->kind;
        }
    }
    for (int i = 0; i < r->n_prompts; i++)
        metrics_taken(&j->m->metrics, r->n, r->max_tokens);
    grammar_release(j->gen.grammar); /* the runs have theirs, and are freed where that disturbs nobody */
    j->gen.grammar = NULL;
    return API_OK;
}

/* ---- texts to embed or to rank ---- */

enum { TEXTS_AT_ONCE = 64, TEXTS_OF_KEY = 4 * REQUEST_MAX_TEXTS };

static int submit_text(job *j, int i, api_error *e)
{
    kvant_request q = kvant_request_defaults();

    q.kind = j->embed.request->kind;
    q.max_tokens = 0;
    q.cache = KVANT_CACHE_NO_WRITE; /* texts to embed are documents, not conversations: nobody continues them */
    q.tenant = (uint32_t)j->lane;
    memcpy(q.salt, j->embed.salt, sizeof q.salt);
    q.prompt = j->embed.request->prompts[i].ids;
    q.n_prompt = j->embed.request->prompts[i].n;
    return submit_one(j, i, &q, e);
}

/* The texts that were not sent will never be: one of the others failed.  Under the lock. */
static void drop_texts(job *j)
{
    j->n_ended += j->n_choices - j->embed.n_sent;
    j->embed.n_sent = j->n_choices;
    j->done |= j->n_ended == j->n_choices;
}

/* Takes the next text if it may be sent; its index in *i.  Else this thread has nothing more to do. */
static int take_text(job *j, int *i)
{
    pthread_mutex_lock(&j->lock);
    const int sent = j->embed.n_sent;
    const int go = !j->gone && !j->error.kind && sent < j->n_choices && sent - j->n_ended < TEXTS_AT_ONCE;
    *i = j->embed.n_sent;
    j->embed.n_sent += go;
    if (!go)
        j->embed.filling = 0;
    pthread_mutex_unlock(&j->lock);
    return go;
}

/* A text that the session did not take: a full queue is waited for, while others of the job are in it. */
static int give_text_back(job *j, int kind)
{
    pthread_mutex_lock(&j->lock);
    const int failed = j->error.kind != 0, waits = kind == API_OVERLOAD && j->embed.n_sent - 1 > j->n_ended;
    if (failed) { /* the others were dropped, but for this one */
        j->n_ended++;
        j->done |= j->n_ended == j->n_choices;
    } else {
        j->embed.n_sent--;
    }
    if (failed || waits)
        j->embed.filling = 0;
    pthread_mutex_unlock(&j->lock);
    return failed || waits ? API_OK : kind;
}

/* By the thread that set j->embed.filling, which it ends but on an error. */
static int send_texts(job *j, api_error *e)
{
    for (int i; take_text(j, &i);) {
        const int kind = submit_text(j, i, e);
        if (kind != API_OK)
            return give_text_back(j, kind);
    }
    return API_OK;
}

void job_next_texts(job *j)
{
    api_error e = { 0 };

    pthread_mutex_lock(&j->lock);
    if (j->error.kind && !j->done)
        drop_texts(j);
    const int go = !j->embed.filling && !j->gone && !j->done && j->embed.n_sent < j->n_choices;
    j->embed.filling |= go;
    pthread_mutex_unlock(&j->lock);
    if (!go || send_texts(j, &e) == API_OK)
        return;
    pthread_mutex_lock(&j->lock);
    j->error = e;
    drop_texts(j);
    pthread_mutex_unlock(&j->lock);
}

/* Texts that wait here take memory, but no place in the queue: a key may have so many. */
static int count_texts(job *j, api_error *e)
{
    _Atomic int *const texts = &j->s->budget.tenants[j->lane].texts;

    if (atomic_fetch_add(texts, j->n_choices) + j->n_choices <= TEXTS_OF_KEY)
        return API_OK;
    return api_fail(e, API_OVERLOAD, "", "texts of this key: more than %d at once; try later", TEXTS_OF_KEY);
}

int job_submit_embed(job *j, embed_request *r, int key, const unsigned char salt[16], api_error *e)
{
    j->embed.request = r;
    job_make_id(j, j->kind == JOB_EMBED ? "embd-" : "rank-");
    j->lane = (unsigned)(key + 1);
    j->embed.filling = 1;
    memcpy(j->embed.salt, salt, sizeof j->embed.salt);
    if (count_texts(j, e) != API_OK)
        return e->kind;
    if (send_texts(j, e) == API_OK)
        return API_OK;
    pthread_mutex_lock(&j->lock);
    const int sent = j->embed.n_sent;
    pthread_mutex_unlock(&j->lock);
    give_up(j, sent);
    return e->kind;
}
