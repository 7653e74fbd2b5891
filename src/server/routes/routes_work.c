/* routes_work.c: what a worker (worker.c) makes of a body: requests of the session, or an answer at once.  A text or a
 * JSON of any length is read here and not on the loop. */
#include "server/routes/routes.h"

#include <stdio.h>
#include "base/text/sbuf.h"
#include "base/thread/guard.h"

int work_submitted(work *w, int kind)
{
    if (kind != API_OK) {
        job_release(w->result);
        w->result = NULL;
    }
    return kind;
}

/* ---- generation ---- */

/* Nothing is asked but that the model be there, as it is now, or that it go; only an administrator sends it away. */
static int answer_idle(work *w, api_request *r)
{
    const int may = w->s->p.router && w->admin;
    if (r->idle == IDLE_UNLOAD && may)
        models_unload(w->m);
    else
        r->idle = IDLE_LOAD; /* it stays, and the answer says so */
    ollama_put_idle(w->m, r, &w->reply);
    request_dispose(r);
    return API_OK;
}

static int parse_body(work *w, api_request **r, api_error *e)
{
    request_env env = w->m->env;

    env.tenant = w->key + 1;
    if (request_parse(&env, w->shape, sbuf_text(&w->body), w->body.n, r, e) != API_OK)
        return e->kind;
    snprintf(w->ignored, sizeof w->ignored, "%s", (*r)->ignored);
    return API_OK;
}

int make_answer(work *w, api_error *e)
{
    api_request *r = NULL;
    unsigned char salt[16];

    if (parse_body(w, &r, e) != API_OK)
        return e->kind;
    work_drop_body(w);
    if (r->idle)
        return answer_idle(w, r);
    auth_salt(w->s->p.keys, w->key, r->salt, salt);
    w->result = job_new(w->s, w->m, JOB_GENERATE, r->n_prompts * r->n);
    int kind = w->result ? job_submit(w->result, r, w->key, salt, e)
                         : api_fail(e, API_UNAVAILABLE, "", "out of memory");
    request_dispose(r);
    return work_submitted(w, kind);
}

int make_count(work *w, api_error *e)
{
    api_request *r = NULL;

    if (parse_body(w, &r, e) != API_OK)
        return e->kind;
    jsonw_object(&w->reply);
    if (w->shape == BODY_RESPONSES)
        jsonw_kstr(&w->reply, "object", "response.input_tokens");
    jsonw_kint(&w->reply, "input_tokens", r->prompts[0].n);
    jsonw_end(&w->reply);
    request_dispose(r);
    return API_OK;
}

/* A router asks which tokens a request has before it chooses a worker: vLLM's names. */
static void put_rendered(work *w, const api_request *r, int i, jsonw *out)
{
    const prompt *p = &r->prompts[i];
    char id[JOB_ID];

    jsonw_object(out);
    job_id_text(w->s, "render-", id);
    jsonw_kstr(out, "request_id", id);
    jsonw_kstr(out, "model", w->m->name);
    jsonw_key(out, "token_ids");
    jsonw_array(out);
    for (int k = 0; k < p->n && !jsonw_error(out); k++)
        jsonw_int(out, p->ids[k]);
    jsonw_end(out);
    jsonw_key(out, "sampling_params");
    jsonw_object(out);
    jsonw_kint(out, "n", r->n);
    if (r->max_tokens >= 0)
        jsonw_kint(out, "max_tokens", r->max_tokens);
    jsonw_knum(out, "temperature", (double)r->sampler.temp);
    jsonw_knum(out, "top_p", (double)r->sampler.top_p);
    jsonw_end(out);
    jsonw_kbool(out, "stream", r->stream);
    if (r->salt)
        jsonw_kstr(out, "cache_salt", r->salt);
    jsonw_end(out);
}

int make_render(work *w, api_error *e)
{
    api_request *r = NULL;

    if (parse_body(w, &r, e) != API_OK)
        return e->kind;
    if (w->shape == BODY_TEXT)
        jsonw_array(&w->reply); /* of the prompts */
    for (int i = 0; i < r->n_prompts; i++)
        put_rendered(w, r, i, &w->reply);
    if (w->shape == BODY_TEXT)
        jsonw_end(&w->reply);
    request_dispose(r);
    return API_OK;
}

/* ---- text ---- */

static void put_piece(const kvant_model *m, int32_t id, jsonw *w)
{
    char text[4096];
    int n = kvant_token_bytes(m, id, 1, text, sizeof text);

    jsonw_strn(w, text, n > 0 && n <= (int)sizeof text ? (size_t)n : 0);
}

int make_tokenize(work *w, api_error *e)
{
    prompt p = { 0 };
    int pieces;
    jsonw *out = &w->reply;

    if (request_parse_tokenize(&w->m->env, sbuf_text(&w->body), w->body.n, &p, &pieces, w->ignored, e) != API_OK)
        return e->kind;
    jsonw_object(out);
    jsonw_key(out, "tokens");
    jsonw_array(out);
    for (int i = 0; i < p.n && !jsonw_error(out); i++) {
        if (pieces) {
            jsonw_object(out);
            jsonw_kint(out, "id", p.ids[i]);
            jsonw_key(out, "piece");
            put_piece(w->m->model, p.ids[i], out);
            jsonw_end(out);
        } else {
            jsonw_int(out, p.ids[i]);
        }
    }
    jsonw_end(out);
    jsonw_kint(out, "count", p.n);
    jsonw_kint(out, "max_model_len", w->m->env.n_ctx);
    jsonw_end(out);
    prompt_free(&p);
    return API_OK;
}

int make_detokenize(work *w, api_error *e)
{
    prompt p = { 0 };
    sbuf text = { 0 };
    textout out = { 0 };
    text_stops none = { 0 };
    jsonw *reply = &w->reply;

    if (request_parse_detokenize(&w->m->env, sbuf_text(&w->body), w->body.n, &p, w->ignored, e) != API_OK)
        return e->kind;
    for (int i = 0; i < p.n && !guard_over(); i++)
        textout_token(&out, w->m->model, p.ids[i], &none, &text);
    textout_end(&out, &text);
    jsonw_object(reply);
    jsonw_key(reply, "content");
    jsonw_strn(reply, sbuf_text(&text), text.n);
    jsonw_key(reply, "prompt"); /* as vLLM names it */
    jsonw_strn(reply, sbuf_text(&text), text.n);
    jsonw_end(reply);
    reply->error |= text.error;
    textout_free(&out);
    sbuf_free(&text);
    prompt_free(&p);
    return API_OK;
}

int make_template(work *w, api_error *e)
{
    char *text;
    jsonw *out = &w->reply;

    if (request_parse_template(&w->m->env, sbuf_text(&w->body), w->body.n, &text, w->ignored, e) != API_OK)
        return e->kind;
    jsonw_object(out);
    jsonw_kstr(out, "prompt", text);
    jsonw_end(out);
    kvant_text_free(text);
    return API_OK;
}
