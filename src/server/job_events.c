/* job_events.c: what the session's events make of a job: text, probabilities, embeddings, its end.  Owner thread. */
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/server_impl.h"

static int keep_prob(choice *c, const kvant_event *ev, int64_t at)
{
    if (c->probs.n == c->probs.cap) {
        int cap = c->probs.cap ? c->probs.cap * 2 : 4;
        token_prob *p = kvant_realloc(c->probs.list, (size_t)c->probs.cap * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return KVANT_ENOMEM;
        c->probs.list = p;
        c->probs.cap = cap;
    }
    token_prob *p = &c->probs.list[c->probs.n++];
    *p = (token_prob){ .token = ev->token, .logprob = ev->logprob, .at = at };
    p->n_top = ev->n_top < REQUEST_MAX_LOGPROBS ? ev->n_top : REQUEST_MAX_LOGPROBS;
    if (p->n_top)
        memcpy(p->top, ev->top, (size_t)p->n_top * sizeof *p->top);
    return KVANT_OK;
}

static void put_echo(choice *c)
{
    if (!c->echo)
        return;
    sbuf_puts(&c->text, c->echo);
    c->chars += answer_characters(c->echo, strlen(c->echo));
    c->echo = NULL;
}

static int on_token(job *j, choice *c, const kvant_event *ev)
{
    int64_t now = clock_ns();
    int stop = 0, ends = kvant_token_is_eog(j->m->model, ev->token);

    if (c->last_token_ns)
        metrics_observe(&j->m->metrics, METRIC_ITL, now - c->last_token_ns);
    c->last_token_ns = now;
    c->n_generated = ev->index + 1;
    c->timings = *ev->timings;
    c->n_prompt = ev->timings->n_prompt;
    c->n_cached = ev->timings->n_cached;
    put_echo(c);
    if (!ends) {
        const int64_t at = answer_at(c);
        if ((j->gen.probs.wanted || j->gen.keep_tokens) && keep_prob(c, ev, at) != KVANT_OK)
            stop = KVANT_ENOMEM;
        else
            stop = answer_token(j, c, ev->token);
        answer_settle(j, c, 0);
    } else if (j->gen.keep_tokens > 1 && keep_prob(c, ev, answer_at(c)) != KVANT_OK) {
        stop = KVANT_ENOMEM;
    }
    answer_flush(j, c);
    if ((j->out.n > MAX_STREAM_BYTES && ev->index > 0) || j->out.error || stop < 0) {
        if (!j->error.kind)
            api_fail(&j->error, API_SERVER, "", stop < 0 ? "out of memory" : "the client reads too slowly");
        return KVANT_EVENT_CANCEL;
    }
    if (stop || (ends && masks_constrain(c)))
        return KVANT_EVENT_STOP;
    if (j->stream && j->out.n > (answers_tight(j) ? STREAM_TIGHT_HIGH : STREAM_HIGH)) {
        c->waits |= WAIT_CLIENT;
        j->n_paused++;
    }
    c->held = c->waits != 0;
    return c->held ? KVANT_EVENT_PAUSE : KVANT_EVENT_GO;
}

/* Returns the offset of the next prompt token: behind the text of the last one; a BOS that the text does not show takes
 * no room. */
static int64_t prompt_at(const choice *c)
{
    const token_prob *last = c->probs.n ? &c->probs.list[c->probs.n - 1] : NULL;
    char text[4096];

    if (!last || (c->probs.n == 1 && last->token == kvant_token_bos(c->job->m->model)))
        return 0;
    const int n = kvant_token_bytes(c->job->m->model, last->token, 1, text, sizeof text);
    return last->at + (n > 0 && n <= (int)sizeof text ? answer_characters(text, (size_t)n) : 0);
}

/* A token of the prompt: of it an answer with echo tells too. */
static int on_prompt_token(job *j, choice *c, const kvant_event *ev)
{
    if (keep_prob(c, ev, prompt_at(c)) == KVANT_OK) {
        c->probs.n_prompt = c->probs.n;
        return KVANT_EVENT_GO;
    }
    if (!j->error.kind)
        api_fail(&j->error, API_SERVER, "", "out of memory");
    return KVANT_EVENT_CANCEL;
}

/* llama.cpp's embd_normalize: 2 is unit length, as OpenAI's are. */
static double norm_scale(const float *x, int n, int norm)
{
    double sum = 0, most = 0;

    for (int i = 0; i < n; i++) {
        const double a = fabs((double)x[i]);
        most = a > most ? a : most;
        sum += norm == 2 ? a * a : norm > 0 ? pow(a, norm) : 0;
    }
    if (norm < 0)
        return 1;
    const double length = norm == 0 ? most / 32760 : norm == 2 ? sqrt(sum) : pow(sum, 1.0 / norm);
    return length > 0 ? 1 / length : 0;
}

static void keep_embedding(choice *c, const kvant_event *ev)
{
    const size_t n = (size_t)ev->n_embd * (size_t)ev->n_rows;
    const int norm = c->job->embed.request->norm;
    const double scale = norm < 0 ? 1 : norm_scale(ev->embedding, ev->n_embd, norm);

    c->vectors.v = kvant_calloc(n, sizeof *c->vectors.v);
    c->vectors.n_rows = ev->n_rows;
    for (size_t i = 0; c->vectors.v && i < n; i++)
        c->vectors.v[i] = (float)(ev->embedding[i] * scale);
    if (c->job->kind == JOB_RERANK)
        kvant_model_rank(c->job->m->model, ev->embedding, &c->vectors.score);
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

/* Sends the rest of the text, and the chunk that says why it ended. */
static void end_text(job *j, choice *c)
{
    put_echo(c);
    answer_end(j, c);
    if (j->stream && c->finish != KVANT_FINISH_CANCEL)
        answer_last(j, c);
}

/* Observes of each prompt the longest of its choices. */
static void observe_longest(job *j)
{
    int n = j->n_choices / j->gen.n_prompt_texts;

    for (int i = 0; i < j->n_choices; i += n) {
        int most = 0;
        for (int k = i; k < i + n; k++)
            most = j->choices[k].n_generated > most ? j->choices[k].n_generated : most;
        metrics_observe(&j->m->metrics, METRIC_MOST, most);
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
    if ((j->kind == JOB_EMBED || j->kind == JOB_RERANK) && !c->vectors.v && !j->error.kind)
        api_fail(&j->error, API_SERVER, "", "no embedding came out");
    if (j->kind == JOB_GENERATE && !j->error.kind)
        end_text(j, c);
    if (++j->n_ended < j->n_choices)
        return;
    j->done = 1;
    if (j->kind == JOB_GENERATE && !j->error.kind && !j->gone)
        observe_longest(j);
    if (j->stream && j->error.kind)
        j->gen.shape->error_frame(j);
    else if (j->stream && j->gen.shape->end_stream)
        j->gen.shape->end_stream(j);
}

int job_event(void *user, const kvant_event *ev)
{
    choice *c = user;
    job *j = c->job;
    int answer = KVANT_EVENT_GO;

    pthread_mutex_lock(&j->lock);
    if (ev->kind == KVANT_EVENT_TOKEN && !j->gone)
        answer = on_token(j, c, ev);
    if (ev->kind == KVANT_EVENT_PROMPT && !j->gone)
        answer = on_prompt_token(j, c, ev);
    if (ev->kind == KVANT_EVENT_PROGRESS && j->gen.progress && !j->gone)
        j->gen.shape->progress(j, c, ev);
    if (ev->kind == KVANT_EVENT_END)
        on_end(j, c, ev);
    if (j->gone || (j->error.kind && ev->kind != KVANT_EVENT_END))
        answer = KVANT_EVENT_CANCEL; /* one choice failed: the others are of no use */
    answers_count_stream(j);
    pthread_mutex_unlock(&j->lock);
    if (ev->kind == KVANT_EVENT_END) {
        metrics_finish(&j->m->metrics, ev);
        if (c->run)
            grammar_work_discard(j->m->masks, c->run);
        c->run = NULL;
        if (j->embed.request)
            job_next_texts(j);
    }
    if (ev->kind == KVANT_EVENT_TOKEN || ev->kind == KVANT_EVENT_END || j->gen.progress)
        job_dirty(j);
    if (ev->kind == KVANT_EVENT_END) {
        predict_ended(j);
        job_release(j);
    }
    return answer;
}
