/* tgi_write.c: the JSON shapes of text-generation-inference.  A stream's event is a token, with the text that came out
 * with it: all of them together are the answer.  The last one tells how it ended, so a token that may be the last one
 * waits until that is known. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "kvant/kvant.h"
#include "server/routes/routes.h"

void tgi_take(tgi_answer *a, const api_request *r, int n_ctx)
{
    a->listed = r->shape == BODY_TGI_ROOT;
    a->max_tokens = r->max_tokens;
    a->n_ctx = n_ctx;
    a->wanted = r->tgi;
    a->has_seed = r->has_seed && r->sampler.temp > 0;
    a->seed = r->sampler.seed;
}

void tgi_free(tgi_answer *a)
{
    kvant_free(a->last);
    sbuf_free(&a->text);
    sbuf_free(&a->said);
}

/* ---- tokens ---- */

static void put_logprob(float v, jsonw *w)
{
    jsonw_key(w, "logprob");
    if (isnan(v)) /* the prompt's first token has none */
        jsonw_null(w);
    else
        jsonw_num(w, isfinite(v) ? (double)v : -9999.0);
}

/* s, n: its text; NULL: as the vocabulary has it.  A token that ends the answer has none. */
static void put_token(const job *j, int32_t token, float logprob, const char *s, size_t n, jsonw *w)
{
    const int ends = kvant_token_is_eog(j->m->model, token);
    char own[4096];

    if (!s) {
        const int k = ends ? 0 : kvant_token_bytes(j->m->model, token, 1, own, sizeof own);
        s = own;
        n = k > 0 && k <= (int)sizeof own ? (size_t)k : 0;
    }
    jsonw_object(w);
    jsonw_kint(w, "id", token);
    jsonw_key(w, "text");
    jsonw_strn(w, s, n);
    put_logprob(logprob, w);
    jsonw_kbool(w, "special", ends);
    jsonw_end(w);
}

static void put_top(const job *j, const token_prob *p, jsonw *w)
{
    jsonw_array(w);
    for (int i = 0; i < p->n_top; i++)
        put_token(j, p->top[i].token, p->top[i].logprob, NULL, 0, w);
    jsonw_end(w);
}

static void put_reason(const job *j, const choice *c, jsonw *w)
{
    jsonw_kstr(w, "finish_reason",
               c->finish == KVANT_FINISH_LENGTH ? "length" : c->out.stopped ? "stop_sequence" : "eos_token");
    jsonw_kint(w, "generated_tokens", c->n_generated);
    jsonw_key(w, "seed");
    if (j->gen.tgi.has_seed)
        jsonw_int(w, (int64_t)j->gen.tgi.seed);
    else
        jsonw_null(w);
}

static void put_generated(const job *j, const sbuf *text, jsonw *w)
{
    const char *before = j->gen.tgi.wanted.full_text ? j->gen.prompt_texts[0] : NULL;
    sbuf all = { 0 };

    sbuf_puts(&all, before ? before : "");
    sbuf_put(&all, sbuf_text(text), text->n);
    jsonw_key(w, "generated_text");
    jsonw_strn(w, sbuf_text(&all), all.n);
    w->error |= all.error;
    sbuf_free(&all);
}

/* ---- streams ---- */

/* An event for the token that waits (at the end without one: for none), and how the answer ended. */
static void send_last(job *j, const choice *ended)
{
    tgi_answer *a = &j->gen.tgi;
    const token_prob none = { .token = kvant_token_eos(j->m->model) }, *p = a->waits ? a->last : &none;
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kint(&w, "index", ++a->n_sent);
    jsonw_key(&w, "token");
    put_token(j, p->token, p->logprob, sbuf_text(&a->text), a->text.n, &w);
    if (j->gen.probs.top) {
        jsonw_key(&w, "top_tokens");
        put_top(j, p, &w);
    }
    if (ended) {
        put_generated(j, &a->said, &w);
        jsonw_key(&w, "details");
        jsonw_object(&w);
        put_reason(j, ended, &w);
        jsonw_kint(&w, "input_length", ended->n_prompt);
        jsonw_end(&w);
    } else {
        jsonw_key(&w, "generated_text");
        jsonw_null(&w);
        jsonw_key(&w, "details");
        jsonw_null(&w);
    }
    jsonw_end(&w);
    openai_frame(j, &w);
    sbuf_drop(&a->text, a->text.n);
    a->waits = 0;
}

static int may_be_last(const job *j, const choice *c)
{
    const tgi_answer *a = &j->gen.tgi;

    return c->out.stopped || kvant_token_is_eog(j->m->model, a->last->token) || c->n_generated == a->max_tokens ||
           c->n_prompt + c->n_generated >= a->n_ctx - 1;
}

static void tgi_chunk(job *j, choice *c, int ends)
{
    tgi_answer *a = &j->gen.tgi;

    if (!a->last && !(a->last = kvant_calloc(1, sizeof *a->last))) {
        j->out.error = 1;
        return;
    }
    for (int i = 0; i < c->probs.n; i++) {
        if (a->waits)
            send_last(j, NULL);
        *a->last = c->probs.list[i];
        a->waits = 1;
    }
    sbuf_put(&a->text, sbuf_text(&c->text), c->text.n);
    sbuf_put(&a->said, sbuf_text(&c->text), c->text.n);
    j->out.error |= a->text.error | a->said.error;
    c->probs.n = 0;
    c->role_sent = 1;
    sbuf_drop(&c->text, c->text.n);
    if (ends)
        send_last(j, c);
    else if (a->waits && !may_be_last(j, c))
        send_last(j, NULL);
}

static void tgi_error_frame(job *j)
{
    jsonw w;

    jsonw_init(&w);
    api_error_json(&j->error, ERROR_TGI, &w);
    openai_frame(j, &w);
}

/* ---- whole answers ---- */

static void put_tokens(const job *j, const choice *c, int from, int to, jsonw *w)
{
    jsonw_array(w);
    for (int i = from; i < to; i++)
        put_token(j, c->probs.list[i].token, c->probs.list[i].logprob, NULL, 0, w);
    jsonw_end(w);
}

static void put_details(const job *j, const choice *c, jsonw *w)
{
    jsonw_key(w, "details");
    jsonw_object(w);
    put_reason(j, c, w);
    jsonw_key(w, "prefill");
    put_tokens(j, c, 0, c->probs.n_prompt, w);
    jsonw_key(w, "tokens");
    put_tokens(j, c, c->probs.n_prompt, c->probs.n, w);
    if (j->gen.probs.top) {
        jsonw_key(w, "top_tokens");
        jsonw_array(w);
        for (int i = c->probs.n_prompt; i < c->probs.n; i++)
            put_top(j, &c->probs.list[i], w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void tgi_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    if (j->gen.tgi.listed)
        jsonw_array(w);
    jsonw_object(w);
    put_generated(j, &c->text, w);
    if (j->gen.tgi.wanted.details)
        put_details(j, c, w);
    jsonw_end(w);
    if (j->gen.tgi.listed)
        jsonw_end(w);
}

/* ---- /info ---- */

enum MHD_Result get_tgi_info(call *c, struct MHD_Connection *conn)
{
    const request_env *env = &c->m->env;
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "model_id", c->m->name);
    jsonw_key(&w, "model_sha");
    jsonw_null(&w);
    jsonw_kstr(&w, "model_dtype", live_ftype(c->m->model));
    jsonw_kstr(&w, "model_device_type", kvant_engine_get_params(c->m->engine)->device);
    jsonw_kstr(&w, "model_pipeline_tag", "text-generation");
    jsonw_kint(&w, "max_concurrent_requests", c->s->p.max_connections);
    jsonw_kint(&w, "max_best_of", 1);
    jsonw_kint(&w, "max_stop_sequences", REQUEST_MAX_STOPS);
    jsonw_kint(&w, "max_input_tokens", env->n_ctx - 1);
    jsonw_kint(&w, "max_total_tokens", env->n_ctx);
    jsonw_kint(&w, "validation_workers", WORKERS);
    jsonw_kint(&w, "max_client_batch_size", 1);
    jsonw_kstr(&w, "router", "kvant");
    jsonw_kstr(&w, "version", kvant_version_text());
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

const answer_shape tgi_shape = { tgi_chunk, NULL, tgi_error_frame, tgi_whole, NULL };
