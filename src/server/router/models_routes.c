/* models_routes.c: /v1/models, and what an administrator does to models.  Names and shapes of a router's answers are
 * llama-server's. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/text/names.h"
#include "kvant/kvant.h"
#include "server/routes/routes.h"

int query_model(struct MHD_Connection *conn, char *name, size_t cap)
{
    const char *given = query_value(conn, "model");

    snprintf(name, cap, "%s", given ? given : "");
    MHD_http_unescape(name);
    return name[0] != 0;
}

int models_loaded(server *s)
{
    int n = 0;

    pthread_mutex_lock(&s->models.lock);
    for (int i = 0; i < s->models.n; i++)
        n += s->models.list[i].state == SERVED_READY;
    pthread_mutex_unlock(&s->models.lock);
    return n;
}

/* ---- one model ---- */

static void put_status(served *m, jsonw *w)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    const int loading = m->state == SERVED_LOADING || (m->wished && m->state != SERVED_READY);
    const int there = m->state == SERVED_READY || (m->asleep && m->state == SERVED_LEAVING);
    jsonw_key(w, "status");
    jsonw_object(w);
    jsonw_kstr(w, "value", m->fetching ? "downloading" : there ? "loaded" : loading ? "loading"
                           : m->asleep ? "sleeping" : "unloaded");
    if (m->fetching) {
        jsonw_key(w, "progress");
        downloads_put_progress(m, w);
    }
    if (m->goes)
        jsonw_kbool(w, "unloading", 1);
    if (m->failed) {
        jsonw_kbool(w, "failed", 1);
        jsonw_kstr(w, "error", m->why);
    }
    if (m->bytes)
        jsonw_kint(w, "bytes", m->bytes);
    jsonw_end(w);
    pthread_mutex_unlock(&a->lock);
}

void models_put_meta(served *m, jsonw *w)
{
    const kvant_model_info *i = kvant_model_get_info(m->model);

    jsonw_object(w);
    jsonw_kstr(w, "desc", i->desc);
    jsonw_kint(w, "n_ctx", m->env.n_ctx);
    jsonw_kint(w, "n_ctx_train", i->n_ctx_train);
    jsonw_kint(w, "n_vocab", i->n_vocab);
    jsonw_kint(w, "n_embd", i->n_embd);
    jsonw_kint(w, "n_params", i->n_params);
    jsonw_kint(w, "size", i->file_bytes);
    jsonw_end(w);
}

static void put_list(const char *key, const char *list, jsonw *w)
{
    const char *name;
    size_t n;

    jsonw_key(w, key);
    jsonw_array(w);
    while (list && names_next(&list, &name, &n))
        jsonw_strn(w, name, n);
    jsonw_end(w);
}

/* 1: it sleeps, and its facts stay until end_facts. */
static int begin_facts(served *m)
{
    pthread_mutex_lock(&m->s->models.lock);
    if (m->asleep)
        return 1;
    pthread_mutex_unlock(&m->s->models.lock);
    return 0;
}

static void end_facts(served *m)
{
    pthread_mutex_unlock(&m->s->models.lock);
}

static void put_other_name(const served *m, const char *name, jsonw *w)
{
    if (name && name[0] && strcmp(name, m->name) != 0)
        jsonw_str(w, name);
}

/* Names that a request may have for it: those of --alias, else its file's name and the one in its file. */
static void put_aliases(served *m, jsonw *w)
{
    if (m->s->p.names.aliases) {
        put_list("aliases", m->s->p.names.aliases, w);
        return;
    }
    jsonw_key(w, "aliases");
    jsonw_array(w);
    jsonw_str(w, m->name);
    if (!m->s->p.router && served_hold(m)) {
        put_other_name(m, kvant_model_get_info(m->model)->name, w);
        served_release(m);
    } else if (!m->s->p.router && begin_facts(m)) {
        put_other_name(m, m->facts.name, w);
        end_facts(m);
    }
    jsonw_end(w);
}

/* Without these two Mistral's clients take no list. */
static void put_mistral(const served *m, int held, jsonw *w)
{
    const tool_traits *t = held ? m->traits : NULL;

    jsonw_kstr(w, "type", "base");
    jsonw_key(w, "capabilities");
    jsonw_object(w);
    jsonw_kbool(w, "completion_chat", !held || !m->chat_problem[0]);
    jsonw_kbool(w, "function_calling", t && t->d && t->renders_tools);
    jsonw_kbool(w, "reasoning", t && t->t);
    jsonw_end(w);
}

static void put_model(served *m, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", m->name);
    put_aliases(m, w);
    jsonw_kstr(w, "object", "model");
    jsonw_kint(w, "created", m->s->wall_s);
    jsonw_kstr(w, "owned_by", "kvant");
    jsonw_kstr(w, "root", m->name);
    put_list("tags", m->s->p.names.tags, w);
    put_status(m, w);
    const int held = served_hold(m);
    put_mistral(m, held, w);
    if (held) {
        jsonw_kint(w, "max_model_len", m->env.n_ctx);
        jsonw_kint(w, "max_context_length", m->env.n_ctx);
        jsonw_key(w, "meta");
        models_put_meta(m, w);
        served_release(m);
    } else if (begin_facts(m)) {
        jsonw_kint(w, "max_model_len", m->facts.n_ctx);
        jsonw_key(w, "meta");
        jsonw_raw(w, m->facts.meta);
        end_facts(m);
    }
    jsonw_end(w);
}

/* As Ollama's clients want it, which llama-server answers beside OpenAI's list. */
static void put_ollama(served *m, jsonw *w)
{
    jsonw_object(w);
    ollama_put_model(m, w);
    jsonw_kstr(w, "type", "model");
    jsonw_kstr(w, "description", "");
    jsonw_kstr(w, "parameters", "");
    put_list("tags", m->s->p.names.tags, w);
    jsonw_end(w);
}

int models_context(served *m)
{
    int n = 0;

    if (served_hold(m)) {
        n = m->env.n_ctx;
        served_release(m);
    } else if (begin_facts(m)) {
        n = m->facts.n_ctx;
        end_facts(m);
    }
    return n;
}

/* Anthropic's, for clients that send its header. */
static void put_anthropic(served *m, jsonw *w)
{
    const time_t when = (time_t)m->s->wall_s;
    char text[40];
    struct tm tm;

    gmtime_r(&when, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    jsonw_object(w);
    jsonw_kstr(w, "type", "model");
    jsonw_kstr(w, "id", m->name);
    jsonw_kstr(w, "display_name", m->name);
    jsonw_kstr(w, "created_at", text);
    jsonw_kstr(w, "lifecycle", "active");
    const int n_ctx = models_context(m);
    if (n_ctx) {
        jsonw_kint(w, "max_input_tokens", n_ctx);
        jsonw_kint(w, "max_tokens", n_ctx);
    }
    jsonw_end(w);
}

void models_put(server *s, const char *key, void (*put)(served *m, jsonw *w), jsonw *w)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (int i = 0; i < s->models.n; i++)
        if (models_is_listed(&s->models.list[i]))
            put(&s->models.list[i], w);
    jsonw_end(w);
}

/* The ids that a list begins and ends with; all of it is one page. */
static void put_page(const server *s, jsonw *w)
{
    const served *first = NULL, *last = NULL;

    for (int i = 0; i < s->models.n; i++) {
        if (!models_is_listed(&s->models.list[i]))
            continue;
        first = first ? first : &s->models.list[i];
        last = &s->models.list[i];
    }
    jsonw_kstr(w, "first_id", first ? first->name : NULL);
    jsonw_kstr(w, "last_id", last ? last->name : NULL);
    jsonw_kbool(w, "has_more", 0);
}

/* ---- routes ---- */

/* ?reload=1: the list is read again first. */
static int reload(call *c, struct MHD_Connection *conn, api_error *e)
{
    const char *given = query_value(conn, "reload");
    kvant_diag diag = { "" };
    int code;

    if (!given || strcmp(given, "1") != 0)
        return API_OK;
    if (!c->s->p.router)
        return api_fail(e, API_INVALID, "reload", "reload: one model is served here; --models-dir has a list");
    if (server_has_keys(c->s) && !auth_is_admin(c->s->p.keys, c->key))
        return api_fail(e, API_FORBIDDEN, "reload", "reload: wants the admin key");
    code = models_reload(c->s, &diag);
    if (code == KVANT_OK)
        return API_OK;
    return api_fail(e, code == KVANT_ENOSPC ? API_INVALID : api_kind_of(code), "reload", "%s", diag.text);
}

enum MHD_Result get_models(call *c, struct MHD_Connection *conn)
{
    api_error e = { 0 };
    jsonw w;

    if (reload(c, conn, &e) != API_OK)
        return respond_error(c, conn, &e);
    jsonw_init(&w);
    jsonw_object(&w);
    if (c->api == ERROR_ANTHROPIC) {
        models_put(c->s, "data", put_anthropic, &w);
        put_page(c->s, &w);
    } else {
        models_put(c->s, "models", put_ollama, &w);
        jsonw_kstr(&w, "object", "list");
        models_put(c->s, "data", put_model, &w);
    }
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

/* The only model's name is its alias, or what its file says. */
int models_is_other(served *m, const char *name, api_error *e)
{
    int same = m->s->p.router || models_is_named(m, name) ||
               (m->s->p.names.aliases && request_name_listed(m->s->p.names.aliases, name));

    if (!same && served_hold(m)) {
        same = strcmp(name, kvant_model_get_info(m->model)->name) == 0;
        served_release(m);
    } else if (!same && begin_facts(m)) {
        same = strcmp(name, m->facts.name) == 0;
        end_facts(m);
    }
    if (same)
        return API_OK;
    return api_fail(e, API_NOT_FOUND, "model", "model: \"%.100s\" is not served here, want \"%.100s\"", name, m->name);
}

static int model_of_path(const call *c, served **m, api_error *e)
{
    char name[sizeof c->path];

    snprintf(name, sizeof name, "%s", strstr(c->path, c->route->path) + strlen(c->route->path));
    MHD_http_unescape(name);
    if (models_named(c->s, name, m, e) != API_OK)
        return e->kind;
    return models_is_other(*m, name, e);
}

enum MHD_Result models_answer(call *c, struct MHD_Connection *conn, void (*put)(served *, jsonw *))
{
    served *m;
    api_error e;
    jsonw w;

    if (model_of_path(c, &m, &e) != API_OK)
        return respond_error(c, conn, &e);
    jsonw_init(&w);
    put(m, &w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_model(call *c, struct MHD_Connection *conn)
{
    return models_answer(c, conn, c->api == ERROR_ANTHROPIC ? put_anthropic : put_model);
}

static enum MHD_Result change(call *c, struct MHD_Connection *conn, int (*act)(served *), const char *already)
{
    char name[MODEL_NAME] = "";
    served *m = NULL;
    api_error e = { 0 };

    if (!c->s->p.router)
        return respond_fail(c, conn, API_NOT_FOUND,
                            "one model is served here, always; kvant serve --models-dir has several");
    const int named = request_parse_model(sbuf_text(&c->body), c->body.n, name, sizeof name, &e) == API_OK;
    const int ended = named && act == models_unload && downloads_cancel(c->s, name);
    if (named && !ended)
        models_named(c->s, name, &m, &e);
    if (m && !act(m))
        api_fail(&e, API_INVALID, "model", "model: \"%.100s\" is %s", m->name,
                 m->fetching ? "being downloaded" : already);
    if (e.kind)
        return respond_error(c, conn, &e);
    return respond_success(c, conn);
}

enum MHD_Result post_load(call *c, struct MHD_Connection *conn)
{
    return change(c, conn, models_load, "already running");
}

enum MHD_Result post_unload(call *c, struct MHD_Connection *conn)
{
    return change(c, conn, models_unload, "not running");
}

void router_props(server *s, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "role", "router");
    jsonw_kint(w, "max_instances", s->p.models_max);
    jsonw_kint(w, "max_memory", s->p.models_memory);
    jsonw_kbool(w, "models_autoload", s->p.autoload);
    jsonw_kint(w, "max_body_bytes", s->p.max_body);
    jsonw_kstr(w, "build_info", "build-kvant-" KVANT_VERSION_TEXT); /* clients know llama.cpp by the b */
    jsonw_end(w);
}
