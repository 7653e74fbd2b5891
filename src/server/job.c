/* job.c: one HTTP request's work in the session.  Owns the way from events (owner thread) to bytes that the loop thread
 * sends, and the job's references. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/server_impl.h"

job *job_new(server *s, int kind, int n)
{
    job *j = kvant_calloc(1, sizeof *j + (size_t)n * sizeof *j->choices);

    if (!j)
        return NULL;
    j->s = s;
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
    textout_free(&c->out);
    sbuf_free(&c->text);
    kvant_free(c->probs);
    kvant_free(c->embedding);
    grammar_work_discard(c->job->s->masks, c->run);
}

void job_release(job *j)
{
    if (!j || atomic_fetch_sub(&j->refs, 1) > 1)
        return;
    for (int i = 0; i < j->n_choices; i++)
        free_choice(&j->choices[i]);
    for (int i = 0; i < j->n_stops; i++)
        kvant_free(j->stop_text[i]);
    for (int i = 0; i < j->n_prompt_texts; i++)
        kvant_free(j->prompt_texts[i]);
    kvant_free(j->prompt_texts);
    grammar_release(j->grammar);
    sbuf_free(&j->out);
    work_free(j->work);
    pthread_mutex_destroy(&j->lock);
    kvant_free(j);
}

void job_dirty(job *j)
{
    server *s = j->s;

    pthread_mutex_lock(&s->dirty_lock);
    if (!j->dirty) {
        j->dirty = 1;
        atomic_fetch_add(&j->refs, 1);
        j->dirty_next = s->dirty;
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

/* ---- events, on the owner thread ---- */

static int keep_prob(choice *c, const kvant_event *ev)
{
    if (c->n_probs == c->cap_probs) {
        int cap = c->cap_probs ? c->cap_probs * 2 : 4;
        token_prob *p = kvant_realloc(c->probs, (size_t)c->cap_probs * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return KVANT_ENOMEM;
        c->probs = p;
        c->cap_probs = cap;
    }
    token_prob *p = &c->probs[c->n_probs++];
    *p = (token_prob){ .token = ev->token, .logprob = ev->logprob };
    p->n_top = ev->n_top < REQUEST_MAX_LOGPROBS ? ev->n_top : REQUEST_MAX_LOGPROBS;
    if (p->n_top)
        memcpy(p->top, ev->top, (size_t)p->n_top * sizeof *p->top);
    return KVANT_OK;
}

/* What `text` holds goes out as one chunk; with probabilities even when it is empty. */
static void flush_text(job *j, choice *c)
{
    if (!j->stream || (!c->text.n && !c->n_probs && c->role_sent))
        return;
    openai_chunk(j, c, c->text.s ? c->text.s : "", c->text.n, NULL);
    sbuf_drop(&c->text, c->text.n);
}

static int on_token(job *j, choice *c, const kvant_event *ev)
{
    int64_t now = clock_ns();
    int stop = 0, ends = kvant_token_is_eog(j->s->model, ev->token);

    if (c->last_token_ns)
        metrics_observe(&j->s->metrics, METRIC_ITL, now - c->last_token_ns);
    c->last_token_ns = now;
    c->n_generated = ev->index + 1;
    if (c->echo) {
        sbuf_puts(&c->text, c->echo);
        c->echo = NULL;
    }
    if (!ends) {
        stop = textout_token(&c->out, j->s->model, ev->token, &j->stops, &c->text);
        if (j->logprobs && keep_prob(c, ev) != KVANT_OK)
            stop = KVANT_ENOMEM;
    }
    flush_text(j, c);
    if (j->out.n > MAX_STREAM_BYTES || j->out.error || stop < 0) {
        if (!j->error.kind)
            api_fail(&j->error, API_SERVER, "", stop < 0 ? "out of memory" : "the client reads too slowly");
        return KVANT_EVENT_CANCEL;
    }
    if (stop || (ends && c->run))
        return KVANT_EVENT_STOP;
    if (j->stream && j->out.n > STREAM_HIGH) {
        c->waits |= WAIT_CLIENT;
        j->n_paused++;
    }
    c->held = c->waits != 0;
    return c->held ? KVANT_EVENT_PAUSE : KVANT_EVENT_GO;
}

static void keep_embedding(choice *c, const kvant_event *ev)
{
    double sum = 0;

    c->embedding = kvant_calloc((size_t)ev->n_embd, sizeof *c->embedding);
    if (!c->embedding)
        return;
    for (int i = 0; i < ev->n_embd; i++)
        sum += (double)ev->embedding[i] * ev->embedding[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0; /* unit length, as OpenAI's are */
    for (int i = 0; i < ev->n_embd; i++)
        c->embedding[i] = (float)(ev->embedding[i] * scale);
}

static void end_error(job *j, const kvant_event *ev)
{
    int kind = ev->code == KVANT_ECANCELED ? API_UNAVAILABLE : api_kind_of(ev->code);

    if (j->error.kind)
        return;
    if (ev->code == KVANT_ECANCELED)
        api_fail(&j->error, kind, "", "the server is shutting down");
    else
        api_fail(&j->error, kind, "", "%s", ev->text && ev->text[0] ? ev->text : kvant_error_text(ev->code));
}

/* What is left of the text, and the chunk that says why it ended. */
static void end_text(job *j, choice *c)
{
    if (c->echo)
        sbuf_puts(&c->text, c->echo);
    textout_end(&c->out, &c->text);
    flush_text(j, c);
    if (j->stream && c->finish != KVANT_FINISH_CANCEL)
        openai_chunk(j, c, "", 0, openai_finish(c->finish));
}

/* Of each prompt the longest of its choices. */
static void observe_longest(job *j)
{
    int n = j->n_choices / j->n_prompt_texts;

    for (int i = 0; i < j->n_choices; i += n) {
        int most = 0;
        for (int k = i; k < i + n; k++)
            most = j->choices[k].n_generated > most ? j->choices[k].n_generated : most;
        metrics_observe(&j->s->metrics, METRIC_MOST, most);
    }
}

/* The last event of a choice; the last choice finishes the job. */
static void on_end(job *j, choice *c, const kvant_event *ev)
{
    c->timings = *ev->timings;
    c->n_prompt = ev->timings->n_prompt;
    c->n_cached = ev->timings->n_cached;
    c->n_generated = ev->timings->n_generated;
    c->ended = 1;
    c->finish = ev->finish == KVANT_FINISH_ERROR && c->grammar_done ? KVANT_FINISH_STOP : ev->finish;
    if (ev->embedding)
        keep_embedding(c, ev);
    if (c->finish == KVANT_FINISH_ERROR)
        end_error(j, ev);
    if (j->kind == JOB_EMBED && !c->embedding && !j->error.kind)
        api_fail(&j->error, API_SERVER, "", "no embedding came out");
    if (j->kind == JOB_GENERATE && !j->error.kind)
        end_text(j, c);
    if (++j->n_ended < j->n_choices)
        return;
    j->done = 1;
    if (j->kind == JOB_GENERATE && !j->error.kind && !j->gone)
        observe_longest(j);
    if (j->stream && j->error.kind)
        openai_error_frame(j);
    else if (j->stream)
        openai_end_stream(j);
}

static int on_event(void *user, const kvant_event *ev)
{
    choice *c = user;
    job *j = c->job;
    int answer = KVANT_EVENT_GO;

    pthread_mutex_lock(&j->lock);
    if (ev->kind == KVANT_EVENT_TOKEN && !j->gone)
        answer = on_token(j, c, ev);
    if (ev->kind == KVANT_EVENT_END)
        on_end(j, c, ev);
    if (j->gone || (j->error.kind && ev->kind != KVANT_EVENT_END))
        answer = KVANT_EVENT_CANCEL; /* one choice failed: the others are of no use */
    pthread_mutex_unlock(&j->lock);
    if (ev->kind == KVANT_EVENT_END) {
        metrics_finish(&j->s->metrics, ev);
        if (c->run)
            grammar_work_discard(j->s->masks, c->run);
        c->run = NULL;
    }
    if (ev->kind != KVANT_EVENT_PROGRESS)
        job_dirty(j);
    if (ev->kind == KVANT_EVENT_END)
        job_release(j);
    return answer;
}

/* ---- masks ----
 *
 * A token is chosen under a mask that is there before the row of logits is: made in the callback of the token before it
 * where that costs little, else by the grammar thread, and until then the session holds the request. */

/* 1: nothing keeps the session's request back any more, and it is to be resumed.  Under j->lock. */
static int stop_waiting(choice *c, int why)
{
    c->waits &= ~why;
    if (c->waits || !c->held)
        return 0;
    c->held = 0;
    return !c->ended;
}

static void mask_failed(choice *c, int code, const char *text)
{
    job *j = c->job;
    const int kind = code == KVANT_EINVAL ? API_INVALID : api_kind_of(code);

    pthread_mutex_lock(&j->lock);
    if (!j->error.kind && !c->ended)
        api_fail(&j->error, kind, "", "%s", text);
    pthread_mutex_unlock(&j->lock);
}

/* Grammar thread: the mask is there, or never will be.  One failed choice ends the others (on_event). */
static void mask_ready(void *user, int code, const char *text)
{
    choice *c = user;
    job *j = c->job;

    if (code == KVANT_ECANCELED)
        mask_failed(c, KVANT_EDEVICE, "the server is shutting down");
    else if (code < 0)
        mask_failed(c, code, text);
    pthread_mutex_lock(&j->lock);
    const int failed = j->error.kind, go_on = stop_waiting(c, WAIT_MASK);
    const uint64_t id = go_on ? c->id : 0; /* it may not be submitted yet */
    pthread_mutex_unlock(&j->lock);
    if (go_on && failed)
        kvant_session_cancel(j->s->session, id);
    else if (go_on)
        kvant_session_resume(j->s->session, id);
    job_release(j);
}

static void wait_for_mask(choice *c)
{
    job *j = c->job;

    pthread_mutex_lock(&j->lock);
    c->waits |= WAIT_MASK;
    pthread_mutex_unlock(&j->lock);
    atomic_fetch_add(&j->refs, 1);
    grammar_work_add(j->s->masks, c->run, j->lane, mask_ready, c);
}

static void mask_ends(const job *j, float *logits, int n_vocab)
{
    for (int i = 0; i < n_vocab; i++)
        if (kvant_token_is_eog(j->s->model, i))
            logits[i] = -INFINITY;
}

/* Owner thread. */
static int mask_logits(void *user, float *logits, int n_vocab)
{
    choice *c = user;
    kvant_diag diag = { "" };
    int left, complete;

    if (c->n_generated < c->job->min_tokens && !c->run)
        mask_ends(c->job, logits, n_vocab);
    if (!c->run)
        return KVANT_OK;
    const int code = grammar_run_apply(c->run, logits, n_vocab, &left, &complete, &diag);
    if (code == KVANT_OK && complete && left == 0) { /* no end token to pick: the end is here */
        c->grammar_done = 1;
        return KVANT_ECANCELED;
    }
    if (code < 0)
        mask_failed(c, code, diag.text);
    return code;
}

/* Owner thread.  An error ends the request when this token's event is answered. */
static void token_accepted(void *user, int32_t token)
{
    choice *c = user;
    kvant_diag diag = { "" };

    if (!c->run)
        return;
    int code = grammar_run_take(c->run, token, &diag);
    if (code == KVANT_OK)
        code = grammar_run_try(c->run, &diag);
    if (code == KVANT_EBUSY)
        wait_for_mask(c);
    else if (code < 0)
        mask_failed(c, code, diag.text);
}

/* ---- submitting ---- */

static void cancel_all(job *j)
{
    for (int i = 0; i < j->n_choices; i++)
        if (j->choices[i].id)
            kvant_session_cancel(j->s->session, j->choices[i].id);
}

void job_go_on(job *j)
{
    uint64_t ids[REQUEST_MAX_CHOICES];
    int n = 0;

    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < j->n_choices && j->out.n < STREAM_LOW; i++)
        if (j->choices[i].waits & WAIT_CLIENT) {
            j->n_paused--;
            if (stop_waiting(&j->choices[i], WAIT_CLIENT))
                ids[n++] = j->choices[i].id;
        }
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < n; i++)
        kvant_session_resume(j->s->session, ids[i]);
}

void job_gone(job *j)
{
    pthread_mutex_lock(&j->lock);
    int was = j->gone || j->done;
    j->gone = 1;
    pthread_mutex_unlock(&j->lock);
    if (was || !j->s->session)
        return;
    if (j->kind == JOB_GENERATE || j->kind == JOB_EMBED) {
        atomic_fetch_add(&j->s->metrics.gone, 1);
        cancel_all(j);
    }
}

static int submit_error(job *j, int code, const kvant_diag *diag, api_error *e)
{
    kvant_session_stats st;

    kvant_session_get_stats(j->s->session, &st);
    if (code == KVANT_EBUSY && st.draining)
        return api_fail(e, API_UNAVAILABLE, "", "the server is shutting down");
    if (code == KVANT_EBUSY) {
        atomic_fetch_add(&j->s->metrics.rejected, 1);
        return api_fail(e, API_OVERLOAD, "", "%s; try later", diag->text);
    }
    return api_fail(e, api_kind_of(code), "", "%s", diag->text);
}

/* The mask of the first token: made here where that costs little, else q is submitted on hold. */
static int first_mask(job *j, choice *c, kvant_request *q, kvant_diag *diag)
{
    q->held = 0;
    if (!j->grammar)
        return KVANT_OK;
    KVANT_TRY(grammar_run_create(j->grammar, j->s->vocab, &c->run, diag));
    const int code = grammar_run_try(c->run, diag);
    q->held = code == KVANT_EBUSY;
    if (q->held)
        wait_for_mask(c); /* before it is submitted: its end takes c->run away */
    return q->held ? KVANT_OK : code;
}

/* Submitted on hold: the mask may have come before the session had an id to resume. */
static void held_from_start(choice *c)
{
    job *j = c->job;

    pthread_mutex_lock(&j->lock);
    c->held = 1;
    const int failed = j->error.kind, go_on = stop_waiting(c, 0);
    pthread_mutex_unlock(&j->lock);
    if (go_on && failed)
        kvant_session_cancel(j->s->session, c->id);
    else if (go_on)
        kvant_session_resume(j->s->session, c->id);
}

/* Choice i with what its request has in common with the others in q. */
static int submit_one(job *j, int i, kvant_request *q, api_error *e)
{
    choice *c = &j->choices[i];
    kvant_diag diag = { "" };
    int code;

    q->event = on_event;
    q->user = c;
    code = first_mask(j, c, q, &diag);
    if (c->run || j->min_tokens > 0) {
        q->mask = mask_logits;
        q->accepted = token_accepted;
        q->mask_user = c;
    }
    atomic_fetch_add(&j->refs, 1);
    if (code == KVANT_OK)
        code = kvant_session_submit(j->s->session, q, &c->id, &diag);
    if (code == KVANT_OK) {
        if (q->held)
            held_from_start(c);
        return API_OK;
    }
    atomic_fetch_sub(&j->refs, 1);
    if (c->run)
        grammar_work_discard(j->s->masks, c->run);
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

static int take_texts(job *j, const request *r, api_error *e)
{
    for (int i = 0; i < r->n_stops; i++) {
        j->stop_text[i] = kvant_strdup(r->stops[i]);
        if (!j->stop_text[i])
            return api_fail(e, API_UNAVAILABLE, "", "out of memory");
        j->stop_len[i] = r->stop_len[i];
        j->n_stops = i + 1;
    }
    j->stops = (text_stops){ j->stop_text, j->stop_len, j->n_stops };
    j->prompt_texts = kvant_calloc((size_t)r->n_prompts, sizeof *j->prompt_texts);
    if (!j->prompt_texts)
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    j->n_prompt_texts = r->n_prompts;
    for (int i = 0; i < r->n_prompts && r->echo; i++)
        j->prompt_texts[i] = kvant_strdup(r->prompts[i].text ? r->prompts[i].text : "");
    return API_OK;
}

/* Returns the request's number. */
static uint64_t take_request(job *j, const request *r)
{
    server *s = j->s;
    const uint64_t number = atomic_fetch_add(&s->next_id, 1) + 1;

    j->chat = r->chat;
    j->stream = r->stream;
    j->include_usage = r->include_usage;
    j->logprobs = r->logprobs;
    j->min_tokens = r->min_tokens;
    j->grammar = r->grammar ? grammar_ref(r->grammar) : NULL;
    snprintf(j->id, sizeof j->id, "%s-%016llx%08llx", r->chat ? "chatcmpl" : "cmpl", (unsigned long long)s->nonce,
             (unsigned long long)number);
    return number;
}

int job_submit(job *j, const request *r, int key, const unsigned char salt[16], api_error *e)
{
    kvant_request q = kvant_request_defaults();
    kvant_sampler_params sampler = r->sampler;

    const uint64_t number = take_request(j, r);
    j->lane = (unsigned)(key + 1);
    if (take_texts(j, r, e) != API_OK)
        return e->kind;
    q.max_tokens = r->max_tokens;
    q.ignore_eos = r->ignore_eos;
    q.n_logprobs = r->logprobs ? r->top_logprobs : -1;
    q.tenant = (uint32_t)(key + 1);
    memcpy(q.salt, salt, sizeof q.salt);
    q.sampler = &sampler;
    q.slot = r->slot;
    for (int i = 0; i < j->n_choices; i++) {
        const prompt *p = &r->prompts[i / r->n];
        q.prompt = p->ids;
        q.n_prompt = p->n;
        sampler.seed = r->has_seed ? r->sampler.seed + (uint64_t)(i % r->n)
                                   : (uint64_t)clock_ns() * 0x9E3779B97F4A7C15u + number * 256 + (uint64_t)i;
        j->choices[i].n_prompt = p->n;
        j->choices[i].echo = j->prompt_texts[i / r->n];
        if (submit_one(j, i, &q, e) != API_OK) {
            give_up(j, i);
            return e->kind;
        }
    }
    for (int i = 0; i < r->n_prompts; i++)
        metrics_taken(&j->s->metrics, r->n, r->max_tokens);
    grammar_release(j->grammar); /* the runs have theirs, and are freed where that disturbs nobody */
    j->grammar = NULL;
    return API_OK;
}

int job_submit_embed(job *j, const embed_request *r, int key, const unsigned char salt[16], api_error *e)
{
    kvant_request q = kvant_request_defaults();

    j->base64 = r->base64;
    q.kind = KVANT_REQUEST_EMBED_MEAN;
    q.max_tokens = 0;
    q.cache = KVANT_CACHE_NO_WRITE; /* texts to embed are documents, not conversations: nobody continues them */
    q.tenant = (uint32_t)(key + 1);
    memcpy(q.salt, salt, sizeof q.salt);
    for (int i = 0; i < j->n_choices; i++) {
        q.prompt = r->prompts[i].ids;
        q.n_prompt = r->prompts[i].n;
        if (submit_one(j, i, &q, e) != API_OK) {
            give_up(j, i);
            return e->kind;
        }
    }
    return API_OK;
}
