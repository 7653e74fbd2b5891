/* routes.c: the table of routes and what each does with a request whose head was accepted and whose body is here: what
 * takes a text or a JSON of any length is done by a worker (worker.c), the rest by the loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "kvant/kvant.h"
#include "server/server_impl.h"

static enum MHD_Result fail(call *c, struct MHD_Connection *conn, int kind, const char *param, const char *text)
{
    api_error e;

    api_fail(&e, kind, param, "%s", text);
    return respond_error(c, conn, &e);
}

/* ---- state of the server ---- */

/* Requests wait and no step has ended for long: the engine is stuck. */
static int stuck(const server *s, const kvant_session_stats *st)
{
    int64_t since = st->last_step_ns > s->started_ns ? st->last_step_ns : s->started_ns;

    return s->p.watchdog_s && st->queued + st->running > 0 &&
           clock_ns() - since > (int64_t)s->p.watchdog_s * 1000000000;
}

/* What is wrong with any model that is loaded, or NULL. */
static const char *illness(server *s)
{
    const char *ill = models_ready(s) ? NULL : "Loading model";
    kvant_session_stats st;

    for (int i = 0; i < s->models.n && !ill; i++) {
        served *m = &s->models.list[i];
        if (!served_hold(m))
            continue;
        kvant_session_get_stats(m->session, &st);
        ill = st.failed ? "the engine failed" : stuck(s, &st) ? "the engine makes no progress" : NULL;
        served_release(m);
    }
    return ill;
}

static enum MHD_Result get_health(call *c, struct MHD_Connection *conn)
{
    const char *ill = illness(c->s);
    jsonw w;

    if (ill)
        return fail(c, conn, API_UNAVAILABLE, "", ill);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "status", "ok");
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

/* Health, and willing to take new requests. */
static enum MHD_Result get_ready(call *c, struct MHD_Connection *conn)
{
    if (c->s->draining)
        return fail(c, conn, API_UNAVAILABLE, "", "the server is shutting down");
    return get_health(c, conn);
}

static enum MHD_Result get_version(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "version", kvant_version());
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

static enum MHD_Result get_metrics(call *c, struct MHD_Connection *conn)
{
    server *s = c->s;
    served *m = c->m;
    kvant_session_stats st;
    sbuf text = { 0 };
    metrics_view v = { .model = m ? m->name : "",
                       .vllm = s->p.metrics_vllm,
                       .llamacpp = s->p.metrics_llamacpp,
                       .connections = s->n_clients,
                       .streams = s->n_streams,
                       .uptime_ns = clock_ns() - s->started_ns };

    if (!s->p.router && s->models.n)
        v.model = s->models.list[0].name;
    v.ready = models_loaded(s);
    v.gone = atomic_load(&s->gone);
    for (int i = 0; i < 6; i++)
        v.http[i] = atomic_load(&s->http[i]);
    if (m) {
        kvant_session_get_stats(m->session, &st);
        grammar_cache_get_stats(m->env.grammars, &v.grammars);
    }
    metrics_text(m ? &m->metrics : NULL, m ? &st : NULL, &v, &text);
    enum MHD_Result ok = text.error ? MHD_NO
                                    : respond(c, conn, 200, "text/plain; version=0.0.4; charset=utf-8", text.s, text.n);
    sbuf_free(&text);
    return ok;
}

static enum MHD_Result get_props(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    if (c->m)
        live_props(c->m, &w);
    else
        router_props(c->s, &w);
    return respond_json(c, conn, 200, &w);
}

static enum MHD_Result get_slots(call *c, struct MHD_Connection *conn)
{
    kvant_session_stats st;
    const char *strict = query_value(conn, "fail_on_no_slot");
    jsonw w;

    if (!c->s->p.slots)
        return fail(c, conn, API_NOT_FOUND, "", "/slots is switched off (--no-slots)");
    kvant_session_get_stats(c->m->session, &st);
    if (strict && strcmp(strict, "1") == 0 && st.running >= st.max_seqs)
        return fail(c, conn, API_UNAVAILABLE, "", "no slot is free");
    jsonw_init(&w);
    live_slots(c->m, 1, &w);
    return respond_json(c, conn, 200, &w);
}

static enum MHD_Result get_trace(call *c, struct MHD_Connection *conn)
{
    sbuf text = { 0 };
    enum MHD_Result ok = MHD_NO;

    if (live_trace(c->m, &text) == KVANT_OK)
        ok = respond(c, conn, 200, "application/json", text.s, text.n);
    sbuf_free(&text);
    return ok;
}

/* A stream of the server's numbers; ?interval=SECONDS (1 to 86400). */
static enum MHD_Result get_events(call *c, struct MHD_Connection *conn)
{
    const char *given = query_value(conn, "interval");
    int seconds = given ? atoi(given) : 1;
    job *j;

    if (seconds < 1 || seconds > 86400)
        return fail(c, conn, API_INVALID, "interval", "interval: wanted 1 to 86400 seconds");
    j = job_new(c->s, NULL, JOB_LIVE, 0);
    if (!j)
        return fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    j->stream = 1;
    j->live_of = c->m;
    served_release(c->m); /* to watch a model keeps it from nothing */
    c->m = NULL;
    j->interval_ns = (int64_t)seconds * 1000000000;
    sbuf_puts(&j->out, ": kvant\n\n");
    return respond_job(c, conn, j);
}

static enum MHD_Result get_page(call *c, struct MHD_Connection *conn)
{
    const char *name = strrchr(c->route->path, '/') + 1;
    const ui_file *f = ui_find(name[0] ? name : "index.html");

    if (!f || !c->s->p.page)
        return fail(c, conn, API_NOT_FOUND, "", f ? "the page is switched off" : "no such file");
    return respond(c, conn, 200, ui_type(f->name), (const char *)f->bytes, f->n);
}

/* ---- generation: the make_ functions run on a worker (worker.c) ---- */

static int submitted(work *w, int kind)
{
    if (kind != API_OK) {
        job_release(w->result);
        w->result = NULL;
    }
    return kind;
}

static int generate(work *w, int shape, api_error *e)
{
    request_env env = w->m->env;
    request *r = NULL;
    unsigned char salt[16];

    env.tenant = w->key + 1;
    if (request_parse(&env, shape, w->body.s ? w->body.s : "", w->body.n, &r, e) != API_OK)
        return e->kind;
    work_drop_body(w);
    snprintf(w->ignored, sizeof w->ignored, "%s", r->ignored);
    auth_salt(w->s->p.keys, w->key, r->salt, salt);
    w->result = job_new(w->s, w->m, JOB_GENERATE, r->n_prompts * r->n);
    int kind = w->result ? job_submit(w->result, r, w->key, salt, e)
                         : api_fail(e, API_UNAVAILABLE, "", "out of memory");
    request_dispose(r);
    return submitted(w, kind);
}

static int make_completion(work *w, api_error *e)
{
    return generate(w, BODY_TEXT, e);
}

static int make_native(work *w, api_error *e)
{
    return generate(w, BODY_NATIVE, e);
}

static int make_infill(work *w, api_error *e)
{
    return generate(w, BODY_INFILL, e);
}

static int make_chat(work *w, api_error *e)
{
    return generate(w, BODY_CHAT, e);
}

static int make_messages(work *w, api_error *e)
{
    return generate(w, BODY_MESSAGES, e);
}

static int make_responses(work *w, api_error *e)
{
    return generate(w, BODY_RESPONSES, e);
}

static int count_tokens(work *w, int shape, api_error *e)
{
    request_env env = w->m->env;
    request *r = NULL;

    env.tenant = w->key + 1;
    if (request_parse(&env, shape, w->body.s ? w->body.s : "", w->body.n, &r, e) != API_OK)
        return e->kind;
    jsonw_object(&w->reply);
    if (shape == BODY_RESPONSES)
        jsonw_kstr(&w->reply, "object", "response.input_tokens");
    jsonw_kint(&w->reply, "input_tokens", r->prompts[0].n);
    jsonw_end(&w->reply);
    request_dispose(r);
    return API_OK;
}

static int make_count(work *w, api_error *e)
{
    return count_tokens(w, BODY_MESSAGES, e);
}

static int make_chat_count(work *w, api_error *e)
{
    return count_tokens(w, BODY_CHAT, e);
}

static int make_responses_count(work *w, api_error *e)
{
    return count_tokens(w, BODY_RESPONSES, e);
}

static enum MHD_Result post_completions(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_completion);
}

static enum MHD_Result post_native(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_native);
}

static enum MHD_Result post_infill(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_infill);
}

static enum MHD_Result post_chat(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_chat);
}

static enum MHD_Result post_messages(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_messages);
}

static enum MHD_Result post_responses(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_responses);
}

static enum MHD_Result post_count(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_count);
}

static enum MHD_Result post_chat_count(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_chat_count);
}

static enum MHD_Result post_responses_count(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_responses_count);
}

/* ---- text: on a worker too ---- */

static void put_piece(const kvant_model *m, int32_t id, jsonw *w)
{
    char text[4096];
    int n = kvant_token_bytes(m, id, 1, text, sizeof text);

    jsonw_strn(w, text, n > 0 && n <= (int)sizeof text ? (size_t)n : 0);
}

static int make_tokenize(work *w, api_error *e)
{
    prompt p = { 0 };
    int pieces;
    jsonw *out = &w->reply;

    if (request_parse_tokenize(&w->m->env, w->body.s ? w->body.s : "", w->body.n, &p, &pieces, e) != API_OK)
        return e->kind;
    jsonw_object(out);
    jsonw_key(out, "tokens");
    jsonw_array(out);
    for (int i = 0; i < p.n; i++) {
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

static int make_detokenize(work *w, api_error *e)
{
    prompt p = { 0 };
    sbuf text = { 0 };
    textout out = { 0 };
    text_stops none = { 0 };
    jsonw *reply = &w->reply;

    if (request_parse_detokenize(&w->m->env, w->body.s ? w->body.s : "", w->body.n, &p, e) != API_OK)
        return e->kind;
    for (int i = 0; i < p.n; i++)
        textout_token(&out, w->m->model, p.ids[i], &none, &text);
    textout_end(&out, &text);
    jsonw_object(reply);
    jsonw_key(reply, "content");
    jsonw_strn(reply, text.s ? text.s : "", text.n);
    jsonw_end(reply);
    reply->error |= text.error;
    textout_free(&out);
    sbuf_free(&text);
    prompt_free(&p);
    return API_OK;
}

static int make_template(work *w, api_error *e)
{
    char *text;
    jsonw *out = &w->reply;

    if (request_parse_template(&w->m->env, w->body.s ? w->body.s : "", w->body.n, &text, e) != API_OK)
        return e->kind;
    jsonw_object(out);
    jsonw_kstr(out, "prompt", text);
    jsonw_end(out);
    kvant_text_free(text);
    return API_OK;
}

static enum MHD_Result post_tokenize(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_tokenize);
}

static enum MHD_Result post_detokenize(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_detokenize);
}

static enum MHD_Result post_template(call *c, struct MHD_Connection *conn)
{
    return work_begin(c, conn, make_template);
}

/* ---- slots and files ---- */

/* A full quota is the client's to empty, not a prompt that is too long; a slot that runs will not run for ever. */
static int action_error(const job *j, int code)
{
    const int saves = j->slot_action == KVANT_SLOT_SAVE || j->slot_action == KVANT_CACHE_SAVE;

    return code == KVANT_EBUSY || (code == KVANT_ENOSPC && saves) ? API_INVALID : api_kind_of(code);
}

static void slot_done(void *user, const kvant_slot_result *r)
{
    job *j = user;

    pthread_mutex_lock(&j->lock);
    j->slot = *r;
    if (r->code != KVANT_OK)
        api_fail(&j->error, action_error(j, r->code), "", "%s",
                 r->text && r->text[0] ? r->text : kvant_error_text(r->code));
    j->slot.text = "";
    j->done = 1;
    pthread_mutex_unlock(&j->lock);
    job_dirty(j);
    server_wake(j->s);
    job_release(j);
}

void route_slot_result(job *j, jsonw *w)
{
    static const char *const count[] = {
        "", "n_saved", "n_restored", "n_erased", "n_saved", "n_restored", "n_cleared"
    };
    static const char *const bytes[] = { "", "n_written", "n_read", "", "n_written", "n_read", "" };

    jsonw_object(w);
    if (j->slot_action <= KVANT_SLOT_ERASE)
        jsonw_kint(w, "id_slot", j->slot.slot);
    if (j->slot_name[0])
        jsonw_kstr(w, "filename", j->slot_name);
    jsonw_kint(w, count[j->slot_action], j->slot.n_tokens);
    if (bytes[j->slot_action][0])
        jsonw_kint(w, bytes[j->slot_action], j->slot.bytes);
    jsonw_knum(w, "ms", (double)j->slot.ns * 1e-6);
    jsonw_end(w);
}

static enum MHD_Result run_action(call *c, struct MHD_Connection *conn, int action, int slot, int named)
{
    job *j = job_new(c->s, c->m, JOB_SLOT, 0);
    api_error e = { 0 };
    kvant_diag diag = { "" };
    unsigned char salt[16];
    int code;

    if (!j)
        return fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    j->slot_action = action;
    if (named && request_parse_filename(c->body.s ? c->body.s : "", c->body.n, j->slot_name, &e) != API_OK) {
        job_release(j);
        return respond_error(c, conn, &e);
    }
    auth_salt(c->s->p.keys, c->key, NULL, salt);
    atomic_fetch_add(&j->refs, 1);
    code = kvant_session_slot(c->m->session, action, slot, j->slot_name, salt, slot_done, j, &diag);
    if (code == KVANT_OK)
        return respond_job(c, conn, j);
    atomic_fetch_sub(&j->refs, 1);
    job_release(j);
    return fail(c, conn, code == KVANT_EBUSY ? API_UNAVAILABLE : api_kind_of(code), "", diag.text);
}

static int action_of(struct MHD_Connection *conn, const char *const *names)
{
    const char *given = query_value(conn, "action");

    for (int i = 0; given && i < 3; i++)
        if (strcmp(given, names[i]) == 0)
            return i;
    return -1;
}

static enum MHD_Result post_slot(call *c, struct MHD_Connection *conn)
{
    static const char *const names[] = { "save", "restore", "erase" };
    int action = action_of(conn, names), slot = atoi(strrchr(c->path, '/') + 1);
    kvant_session_stats st;

    if (action < 0)
        return fail(c, conn, API_INVALID, "action", "action: wanted save, restore or erase");
    kvant_session_get_stats(c->m->session, &st);
    if (slot >= st.max_seqs)
        return fail(c, conn, API_INVALID, "id", "slot: no such slot");
    return run_action(c, conn, KVANT_SLOT_SAVE + action, slot, action < 2);
}

static enum MHD_Result post_cache(call *c, struct MHD_Connection *conn)
{
    static const char *const names[] = { "save", "restore", "clear" };
    int action = action_of(conn, names);

    if (action < 0)
        return fail(c, conn, API_INVALID, "action", "action: wanted save, restore or clear");
    return run_action(c, conn, KVANT_CACHE_SAVE + action, 0, action < 2);
}

/* ---- adapters ---- */

static enum MHD_Result get_lora(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    live_lora(c->m, &w);
    return respond_json(c, conn, 200, &w);
}

/* The scales of requests that bring none. */
static enum MHD_Result post_lora(call *c, struct MHD_Connection *conn)
{
    float scales[KVANT_LORA_FILES];
    kvant_diag diag = { "" };
    api_error e = { 0 };
    jsonw w;

    if (request_parse_lora(&c->m->env, c->body.s ? c->body.s : "", c->body.n, scales, &e) != API_OK)
        return respond_error(c, conn, &e);
    const int n = kvant_session_get_lora(c->m->session, NULL, 0);
    const int code = kvant_session_set_lora(c->m->session, scales, n, &diag);
    if (code < 0)
        return fail(c, conn, api_kind_of(code), "", diag.text);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kbool(&w, "success", 1);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

/* ---- the table ---- */

static const route routes[] = {
    { "GET", "/", get_page, ROUTE_PUBLIC },
    { "GET", "/index.html", get_page, ROUTE_PUBLIC },
    { "GET", "/app.js", get_page, ROUTE_PUBLIC },
    { "GET", "/chat.js", get_page, ROUTE_PUBLIC },
    { "GET", "/code.js", get_page, ROUTE_PUBLIC },
    { "GET", "/live.js", get_page, ROUTE_PUBLIC },
    { "GET", "/markdown.js", get_page, ROUTE_PUBLIC },
    { "GET", "/store.js", get_page, ROUTE_PUBLIC },
    { "GET", "/view.js", get_page, ROUTE_PUBLIC },
    { "GET", "/style.css", get_page, ROUTE_PUBLIC },
    { "GET", "/health", get_health, ROUTE_PUBLIC },
    { "GET", "/v1/health", get_health, ROUTE_PUBLIC },
    { "GET", "/ready", get_ready, ROUTE_PUBLIC },
    { "GET", "/ping", get_health, ROUTE_PUBLIC },
    { "GET", "/version", get_version, 0 },
    { "GET", "/metrics", get_metrics, ROUTE_ANY },
    { "GET", "/v1/models", get_models, ROUTE_MODEL },
    { "GET", "/models", get_models, ROUTE_MODEL },
    { "POST", "/models/load", post_load, ROUTE_ADMIN | ROUTE_SHORT },
    { "POST", "/models/unload", post_unload, ROUTE_ADMIN | ROUTE_SHORT },
    { "GET", "/v1/models/", get_model, ROUTE_MODEL | ROUTE_NAMED },
    { "GET", "/models/", get_model, ROUTE_MODEL | ROUTE_NAMED },
    { "GET", "/props", get_props, ROUTE_MODEL | ROUTE_ANY },
    { "GET", "/slots", get_slots, ROUTE_MODEL | ROUTE_ONE | ROUTE_ADMIN },
    { "GET", "/debug/trace", get_trace, ROUTE_MODEL | ROUTE_ONE | ROUTE_ADMIN },
    { "GET", "/debug/events", get_events, ROUTE_MODEL | ROUTE_ANY | ROUTE_ADMIN },
    { "POST", "/v1/completions", post_completions, ROUTE_MODEL },
    { "POST", "/v1/chat/completions", post_chat, ROUTE_MODEL },
    { "POST", "/chat/completions", post_chat, ROUTE_MODEL },
    { "POST", "/v1/chat/completions/input_tokens", post_chat_count, ROUTE_MODEL },
    { "POST", "/chat/completions/input_tokens", post_chat_count, ROUTE_MODEL },
    { "POST", "/v1/embeddings", post_embeddings, ROUTE_MODEL },
    { "POST", "/embeddings", post_native_embeddings, ROUTE_MODEL },
    { "POST", "/embedding", post_native_embeddings, ROUTE_MODEL },
    { "POST", "/v1/rerank", post_rerank, ROUTE_MODEL },
    { "POST", "/v1/reranking", post_rerank, ROUTE_MODEL },
    { "POST", "/rerank", post_rerank, ROUTE_MODEL },
    { "POST", "/reranking", post_rerank, ROUTE_MODEL },
    { "POST", "/tokenize", post_tokenize, ROUTE_MODEL },
    { "POST", "/detokenize", post_detokenize, ROUTE_MODEL },
    { "POST", "/apply-template", post_template, ROUTE_MODEL },
    { "POST", "/slots/", post_slot, ROUTE_MODEL | ROUTE_ONE | ROUTE_SLOT | ROUTE_SHORT },
    { "POST", "/cache", post_cache, ROUTE_MODEL | ROUTE_ONE | ROUTE_SHORT | ROUTE_ADMIN },
    { "POST", "/v1/responses", post_responses, ROUTE_MODEL },
    { "POST", "/responses", post_responses, ROUTE_MODEL },
    { "GET", "/v1/responses/", get_response, ROUTE_NAMED },
    { "GET", "/responses/", get_response, ROUTE_NAMED },
    { "DELETE", "/v1/responses/", delete_response, ROUTE_NAMED },
    { "DELETE", "/responses/", delete_response, ROUTE_NAMED },
    { "POST", "/v1/responses/input_tokens", post_responses_count, ROUTE_MODEL },
    { "POST", "/responses/input_tokens", post_responses_count, ROUTE_MODEL },
    { "POST", "/v1/messages", post_messages, ROUTE_MODEL },
    { "POST", "/v1/messages/count_tokens", post_count, ROUTE_MODEL },
    { "POST", "/completion", post_native, ROUTE_MODEL },
    { "POST", "/completions", post_native, ROUTE_MODEL },
    { "POST", "/infill", post_infill, ROUTE_MODEL },
    { "GET", "/lora-adapters", get_lora, ROUTE_MODEL | ROUTE_ONE },
    { "POST", "/lora-adapters", post_lora, ROUTE_MODEL | ROUTE_ONE | ROUTE_SHORT | ROUTE_ADMIN },
};

static int path_is(const route *r, const char *path)
{
    size_t n = strlen(r->path);

    if (r->flags & ROUTE_NAMED)
        return strncmp(r->path, path, n) == 0 && path[n];
    if (!(r->flags & ROUTE_SLOT))
        return strcmp(r->path, path) == 0;
    return strncmp(r->path, path, n) == 0 && path[n] && strlen(path + n) <= 4 &&
           strspn(path + n, "0123456789") == strlen(path + n);
}

const route *route_find(const char *method, const char *path, int *other)
{
    *other = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!path_is(&routes[i], path))
            continue;
        if (strcmp(routes[i].method, method) == 0 ||
            (strcmp(method, "HEAD") == 0 && routes[i].method[0] == 'G' && routes[i].handler != get_events))
            return &routes[i];
        *other = 1;
    }
    return NULL;
}

int route_count(void)
{
    return (int)(sizeof routes / sizeof *routes);
}

const route *route_at(int i)
{
    return &routes[i];
}
