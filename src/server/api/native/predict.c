/* predict.c: /predict, as Vertex AI sends it to a container: {"instances": [BODY]} -> {"predictions": [ANSWER]}.
 * An instance is the body of another route, which its "@requestFormat" names: by its path, or as llama-server does
 * (/v1/chat/completions is chatCompletions).  Instances run beside each other; one that fails has its error in its
 * place. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/request/request_impl.h"
#include "server/routes/routes.h"

enum { FORMAT = 64 };

/* ---- routes by their names ---- */

/* "/v1/chat/completions" -> "chatCompletions" */
static void format_of(const char *path, char out[FORMAT])
{
    int n = 0, capital = 0;

    path += strncmp(path, "/v1/", 4) == 0 ? 4 : 1;
    for (; *path && n + 1 < FORMAT; path++) {
        const int apart = strchr("/-_", *path) != NULL;
        if (!apart)
            out[n++] = (char)(capital ? toupper((unsigned char)*path) : *path);
        capital = apart;
    }
    out[n] = 0;
}

static int is_generation(const route *r, int shape)
{
    return r->make == make_answer && r->shape == shape;
}

/* A worker's route, but for this one and one that only streams. */
static const route *route_named(const char *format)
{
    char name[FORMAT];

    for (int i = 0; i < route_count(); i++) {
        const route *r = route_at(i);
        if (!r->make || r->make == make_predict || is_generation(r, BODY_TGI_STREAM) || !(r->flags & ROUTE_MODEL))
            continue;
        format_of(r->path, name);
        if (strcmp(r->path, format) == 0 || (name[0] && strcmp(name, format) == 0))
            return r;
    }
    return NULL;
}

/* ---- parts ---- */

static void one_less(job *whole)
{
    if (atomic_fetch_sub(&whole->predict.left, 1) > 1)
        return;
    pthread_mutex_lock(&whole->lock);
    whole->done = 1;
    pthread_mutex_unlock(&whole->lock);
    job_dirty(whole);
    server_wake(whole->s);
}

void predict_ended(job *part)
{
    pthread_mutex_lock(&part->lock);
    job *whole = part->done ? part->whole : NULL;
    if (whole)
        part->whole = NULL;
    pthread_mutex_unlock(&part->lock);
    if (!whole)
        return;
    one_less(whole);
    job_release(whole);
}

/* The part's end is heard of, or it was before. */
static void listen_to(job *part, job *whole)
{
    pthread_mutex_lock(&part->lock);
    if (!part->done) {
        part->whole = whole;
        atomic_fetch_add(&whole->refs, 1);
        atomic_fetch_add(&whole->predict.left, 1);
    }
    pthread_mutex_unlock(&part->lock);
}

/* An answer comes at once: Ollama's routes would stream unless they are told. */
static int set_whole(json_t *o, const route *r, api_error *e)
{
    int stream = 0;

    API_TRY(body_bool(o, "stream", &stream, e));
    if (stream)
        return api_fail(e, BAD, "stream", "stream: found true, wanted false: /predict answers at once");
    if (!is_generation(r, BODY_OLLAMA_CHAT) && !is_generation(r, BODY_OLLAMA_GENERATE))
        return API_OK;
    return body_put(o, "stream", json_false(), e);
}

static int read_instance(json_t *o, const route **r, api_error *e)
{
    const char *format = body_text(body_field(o, "@requestFormat"));

    if (!json_is_object(o))
        return body_wrong(e, "instances", o, "instances: wanted objects");
    *r = format ? route_named(format) : NULL;
    if (!*r)
        return body_wrong(e, "instances", body_field(o, "@requestFormat"),
                          "@requestFormat: wanted a route such as chatCompletions");
    API_TRY(set_whole(o, *r, e));
    return json_object_del(o, "@requestFormat") == 0 ? API_OK : api_no_memory(e);
}

/* One instance as a worker's body of its route. */
static int run_instance(work *all, json_t *o, job *whole, predict_item *item, api_error *e)
{
    const route *r = NULL;

    API_TRY(read_instance(o, &r, e));
    char *text = json_text(o, JSON_COMPACT);
    if (!text)
        return api_no_memory(e);
    work w = { .s = all->s, .m = all->m, .shape = r->shape, .key = all->key, .admin = all->admin };
    jsonw_init(&w.reply);
    w.reply.max = all->reply.max;
    sbuf_puts(&w.body, text);
    free(text);
    const int kind = w.body.error ? api_no_memory(e) : r->make(&w, e);
    sbuf_free(&w.body);
    for (char *rest, *name = strtok_r(w.ignored, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
        request_note_ignored(name, all->ignored);
    item->job = w.result;
    item->reply = w.reply;
    if (w.result)
        listen_to(w.result, whole);
    return kind;
}

int make_predict(work *w, api_error *e)
{
    json_t *o = NULL, *list, *v;
    size_t i;
    int kind = body_read(sbuf_text(&w->body), w->body.n, &o, e);

    if (kind == API_OK)
        kind = request_check_fields(&w->m->env, o, REQUEST_PREDICT, w->ignored, e);
    list = json_object_get(o, "instances");
    const size_t n = json_array_size(list);
    if (kind == API_OK && (n == 0 || n > REQUEST_MAX_PROMPTS))
        kind = body_wrong(e, "instances", list, "instances: wanted an array of 1 to %d objects", REQUEST_MAX_PROMPTS);
    job *j = kind == API_OK ? job_new(w->s, w->m, JOB_PREDICT, 0) : NULL;
    if (j)
        j->predict.items = kvant_calloc(n, sizeof *j->predict.items);
    if (kind == API_OK && (!j || !j->predict.items)) {
        job_release(j);
        kind = api_no_memory(e);
    }
    if (kind == API_OK) {
        j->predict.n = (int)n;
        atomic_store(&j->predict.left, 1); /* this function's */
        json_array_foreach(list, i, v) run_instance(w, v, j, &j->predict.items[i], &j->predict.items[i].error);
        w->result = j;
        one_less(j);
    }
    json_decref(o);
    return kind;
}

/* ---- the answer ---- */

void predict_gone(job *j)
{
    for (int i = 0; i < j->predict.n; i++)
        if (j->predict.items[i].job)
            job_gone(j->predict.items[i].job);
}

static void put_part(job *part, jsonw *w)
{
    pthread_mutex_lock(&part->lock);
    if (part->error.kind)
        api_error_json(&part->error, ERROR_PLAIN, w);
    else if (part->kind == JOB_GENERATE)
        part->gen.shape->whole(part, w);
    else
        embed_whole(part, w);
    pthread_mutex_unlock(&part->lock);
}

void predict_whole(job *j, jsonw *w)
{
    jsonw_object(w);
    jsonw_key(w, "predictions");
    jsonw_array(w);
    for (int i = 0; i < j->predict.n; i++) {
        predict_item *item = &j->predict.items[i];
        if (item->error.kind)
            api_error_json(&item->error, ERROR_PLAIN, w);
        else if (item->job)
            put_part(item->job, w);
        else if (jsonw_error(&item->reply) || !item->reply.buf)
            w->error = 1;
        else
            jsonw_raw(w, item->reply.buf);
    }
    jsonw_end(w);
    jsonw_end(w);
}

void predict_free(job *j)
{
    for (int i = 0; i < j->predict.n; i++) {
        job *part = j->predict.items[i].job;
        if (part)
            job_gone(part);
        job_release(part);
        jsonw_free(&j->predict.items[i].reply);
    }
    kvant_free(j->predict.items);
}
