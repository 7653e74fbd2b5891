/* ollama_models.c: models as clients of Ollama (/api/tags, ps, show, version) and of LM Studio (/api/v0/models) know
 * them.  A model that is not loaded has its file's size and date; /api/show opens its file, on a worker. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/sha256.h"
#include "server/request/request_impl.h"
#include "server/routes/routes.h"

/* A model as far as it is known: all of a loaded one, what its file says, or nothing but the file's size. */
typedef struct about {
    const kvant_model *model;  /* NULL: not open */
    const tool_traits *traits; /* NULL: not known */
    int n_ctx;                 /* as served; 0: not loaded */
    int embeds;
} about;

static about about_loaded(const served *m)
{
    return (about){ .model = m->model,
                    .traits = m->traits,
                    .n_ctx = m->env.n_ctx,
                    .embeds = kvant_model_get_info(m->model)->pooling > KVANT_POOLING_NONE &&
                              m->env.pooling != KVANT_POOLING_RANK };
}

/* ---- parts of a model's object ---- */

static void put_strings(const char *key, const char *const *list, int n, jsonw *w)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (int i = 0; i < n; i++)
        jsonw_str(w, list[i]);
    jsonw_end(w);
}

static void put_capabilities(const about *a, jsonw *w)
{
    const char *list[4] = { "completion" };
    int n = 1;

    if (a->embeds)
        list[n++] = "embedding";
    if (a->traits && a->traits->d && a->traits->renders_tools)
        list[n++] = "tools";
    if (a->traits && a->traits->t)
        list[n++] = "thinking";
    put_strings("capabilities", list, n, w);
}

static void put_details(const about *a, jsonw *w)
{
    const kvant_model_info *i = a->model ? kvant_model_get_info(a->model) : NULL;
    const char *family = i ? i->arch : "";
    char size[32] = "";

    if (i && i->n_params >= 1000000000)
        snprintf(size, sizeof size, "%.1fB", (double)i->n_params * 1e-9);
    else if (i)
        snprintf(size, sizeof size, "%.2fM", (double)i->n_params * 1e-6);
    jsonw_key(w, "details");
    jsonw_object(w);
    jsonw_kstr(w, "parent_model", "");
    jsonw_kstr(w, "format", "gguf");
    jsonw_kstr(w, "family", family);
    put_strings("families", &family, 1, w);
    jsonw_kstr(w, "parameter_size", size);
    jsonw_kstr(w, "quantization_level", i ? live_ftype(a->model) : "");
    jsonw_end(w);
}

/* The digest tells one file from another; it is of the name, the size and the date, since a hash of the bytes would
 * read all of them. */
static void put_digest(const served *m, const struct stat *st, jsonw *w)
{
    char text[MODEL_NAME + 64], hex[65];
    unsigned char hash[32];
    const int n = snprintf(text, sizeof text, "%s %lld %lld", m->name, (long long)st->st_size, (long long)st->st_mtime);

    sha256(text, (size_t)n, hash);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    jsonw_kstr(w, "digest", hex);
}

static void put_file(const served *m, const about *a, jsonw *w)
{
    struct stat st = { 0 };

    stat(m->path, &st); /* a file that went has no size and no date */
    ollama_put_time("modified_at", st.st_mtime, 0, w);
    jsonw_kint(w, "size", a->model ? kvant_model_get_info(a->model)->file_bytes : (int64_t)st.st_size);
    put_digest(m, &st, w);
}

static void put_known(const served *m, const about *a, jsonw *w)
{
    jsonw_kstr(w, "name", m->name);
    jsonw_kstr(w, "model", m->name);
    put_file(m, a, w);
    put_details(a, w);
    put_capabilities(a, w);
}

void ollama_put_model(served *m, jsonw *w)
{
    const int held = served_hold(m);
    const about a = held ? about_loaded(m) : (about){ 0 };

    put_known(m, &a, w);
    if (held)
        served_release(m);
}

/* ---- lists ---- */

static void put_tag(served *m, jsonw *w)
{
    jsonw_object(w);
    ollama_put_model(m, w);
    jsonw_end(w);
}

/* It is loaded until another model needs its room. */
static void put_running(served *m, jsonw *w)
{
    if (!served_hold(m))
        return;
    const about a = about_loaded(m);
    const int on_cpu = strcmp(kvant_engine_get_params(m->engine)->device, "cpu") == 0;
    jsonw_object(w);
    put_known(m, &a, w);
    jsonw_kstr(w, "expires_at", "9999-12-31T23:59:59Z");
    jsonw_kint(w, "size_vram", on_cpu ? 0 : m->parts.bytes);
    jsonw_kint(w, "context_length", a.n_ctx);
    jsonw_end(w);
    served_release(m);
}

/* LM Studio's. */
static void put_studio(served *m, jsonw *w)
{
    const int held = served_hold(m);
    const about a = held ? about_loaded(m) : (about){ 0 };
    const kvant_model_info *i = a.model ? kvant_model_get_info(a.model) : NULL;

    jsonw_object(w);
    jsonw_kstr(w, "id", m->name);
    jsonw_kstr(w, "object", "model");
    jsonw_kstr(w, "type", a.embeds ? "embeddings" : "llm");
    jsonw_kstr(w, "publisher", "kvant");
    jsonw_kstr(w, "arch", i ? i->arch : "");
    jsonw_kstr(w, "compatibility_type", "gguf");
    jsonw_kstr(w, "quantization", i ? live_ftype(a.model) : "");
    jsonw_kstr(w, "state", held ? "loaded" : "not-loaded");
    if (i) {
        jsonw_kint(w, "max_context_length", i->n_ctx_train);
        jsonw_kint(w, "loaded_context_length", a.n_ctx);
    }
    jsonw_end(w);
    if (held)
        served_release(m);
}

static enum MHD_Result list(call *c, struct MHD_Connection *conn, const char *key, void (*put)(served *, jsonw *))
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    if (put == put_studio)
        jsonw_kstr(&w, "object", "list");
    models_put(c->s, key, put, &w);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_ollama_tags(call *c, struct MHD_Connection *conn)
{
    return list(c, conn, "models", put_tag);
}

enum MHD_Result get_ollama_ps(call *c, struct MHD_Connection *conn)
{
    return list(c, conn, "models", put_running);
}

enum MHD_Result get_studio_models(call *c, struct MHD_Connection *conn)
{
    return list(c, conn, "data", put_studio);
}

enum MHD_Result get_studio_model(call *c, struct MHD_Connection *conn)
{
    return models_answer(c, conn, put_studio);
}

enum MHD_Result get_ollama_version(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "version", OLLAMA_VERSION);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

/* ---- /api/show: on a worker ---- */

static void put_arch(const kvant_model_info *i, const char *key, int64_t v, jsonw *w)
{
    char name[96];

    snprintf(name, sizeof name, "%.40s.%s", i->arch, key);
    jsonw_kint(w, name, v);
}

static void put_model_info(const about *a, jsonw *w)
{
    const kvant_model_info *i = kvant_model_get_info(a->model);

    jsonw_key(w, "model_info");
    jsonw_object(w);
    jsonw_kstr(w, "general.architecture", i->arch);
    jsonw_kstr(w, "general.basename", i->name);
    jsonw_kint(w, "general.parameter_count", i->n_params);
    put_arch(i, "context_length", i->n_ctx_train, w);
    put_arch(i, "embedding_length", i->n_embd, w);
    put_arch(i, "block_count", i->n_layer, w);
    put_arch(i, "attention.head_count", i->n_head, w);
    put_arch(i, "attention.head_count_kv", i->n_head_kv, w);
    put_arch(i, "vocab_size", i->n_vocab, w);
    jsonw_end(w);
}

/* The context is a parameter, as in a Modelfile: clients read there how much they may send. */
static void put_shown(const served *m, const about *a, jsonw *w)
{
    char parameters[64] = "";

    if (a->n_ctx)
        snprintf(parameters, sizeof parameters, "num_ctx %d", a->n_ctx);
    jsonw_object(w);
    jsonw_kstr(w, "license", "");
    jsonw_kstr(w, "modelfile", "");
    jsonw_kstr(w, "parameters", parameters);
    jsonw_kstr(w, "template", kvant_chat_source(a->model));
    put_file(m, a, w);
    put_details(a, w);
    put_model_info(a, w);
    put_capabilities(a, w);
    jsonw_end(w);
}

/* Opens the file of a model that is not loaded: its shapes and its template. */
static int show_file(served *m, jsonw *w, api_error *e)
{
    kvant_model_params p = kvant_model_defaults();
    kvant_model *model = NULL;
    tool_traits *traits = NULL;
    kvant_diag diag = { "" };
    int code;

    p.path = m->path;
    code = kvant_model_open(&p, &model, &diag);

    if (code == KVANT_OK)
        code = tool_traits_open(model, m->s->p.tool_dialect, &traits, &diag);
    if (code == KVANT_OK) {
        const int pooling = kvant_model_get_info(model)->pooling;
        const about a = { .model = model,
                          .traits = traits,
                          .n_ctx = models_context(m), /* of one that sleeps */
                          .embeds = pooling > KVANT_POOLING_NONE && pooling != KVANT_POOLING_RANK };
        put_shown(m, &a, w);
    }
    tool_traits_free(traits);
    kvant_model_close(model);
    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), "model", "model: %s", diag.text);
}

static int show(work *w, const char *name, api_error *e)
{
    served *m;

    if (models_named(w->s, name, &m, e) != API_OK)
        return e->kind;
    const int away = w->s->p.router || models_asleep(w->s, NULL, NULL);
    if (!served_hold(m)) {
        if (!away)
            return api_fail(e, API_UNAVAILABLE, "", "Loading model");
        return models_is_other(m, name, e) == API_OK ? show_file(m, &w->reply, e) : e->kind;
    }
    const about a = about_loaded(m);
    if (models_is_other(m, name, e) == API_OK)
        put_shown(m, &a, &w->reply);
    served_release(m);
    return e->kind;
}

int make_ollama_show(work *w, api_error *e)
{
    const char *name = NULL;
    size_t n = 0;
    json_t *o = NULL;
    int kind = body_read(sbuf_text(&w->body), w->body.n, &o, e);

    if (kind == API_OK)
        kind = request_check_fields(&(request_env){ .refuse_unknown = w->s->p.refuse_unknown }, o, REQUEST_OLLAMA_SHOW,
                                    w->ignored, e);
    if (kind == API_OK)
        kind = body_string(o, body_field(o, "model") ? "model" : "name", MODEL_NAME - 1, &name, &n, e);
    if (kind == API_OK)
        kind = show(w, name ? name : "", e);
    json_decref(o);
    return kind;
}
