/* downloads.c: changes of the hub's cache that administrators ask for, one download and one removal at a time, each in
 * a thread of its own; and the events of /models/sse.  The threads only set fields of their task: the loop (tick)
 * answers requests, changes the list of models and writes streams. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum {
    TELL_MS = 250, /* between two events of a download; arbitrary */
    END_MS = 3000, /* a transfer looks up once a second */
};

/* ---- events ---- */

void models_tell(server *s, const char *event, const char *name, const char *data)
{
    downloads *d = &s->downloads;
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "model", name);
    jsonw_kstr(&w, "event", event);
    if (data) {
        jsonw_key(&w, "data");
        jsonw_raw(&w, data);
    }
    jsonw_end(&w);
    pthread_mutex_lock(&d->lock);
    if (!jsonw_error(&w) && d->events.n < MAX_STREAM_BYTES) {
        sbuf_puts(&d->events, "data: ");
        sbuf_put(&d->events, w.buf, w.len);
        sbuf_puts(&d->events, "\n\n");
    }
    pthread_mutex_unlock(&d->lock);
    jsonw_free(&w);
    server_wake(s);
}

void models_tell_status(served *m, const char *status)
{
    char data[64];

    if (!m->s->p.router)
        return;
    snprintf(data, sizeof data, "{\"status\":\"%s\"}", status);
    models_tell(m->s, "model_status", m->name, data);
}

/* The events so far, to each who reads them; at the server's end their streams end too. */
static void send_events(server *s)
{
    downloads *d = &s->downloads;

    pthread_mutex_lock(&d->lock);
    sbuf events = d->events;
    d->events = (sbuf){ 0 };
    pthread_mutex_unlock(&d->lock);
    for (job *j = s->jobs; j; j = j->link.next) {
        if (j->kind != JOB_LIVE || !j->live.events)
            continue;
        pthread_mutex_lock(&j->lock);
        if (j->out.n + events.n < MAX_STREAM_BYTES)
            sbuf_put(&j->out, sbuf_text(&events), events.n);
        j->done |= s->draining;
        const int news = j->out.n || j->done;
        pthread_mutex_unlock(&j->lock);
        if (news)
            job_resume(j);
    }
    sbuf_free(&events);
}

/* ---- the threads ---- */

static int is_ended(void *user)
{
    cache_task *t = user;

    pthread_mutex_lock(&t->s->downloads.lock);
    const int cancel = t->cancel;
    pthread_mutex_unlock(&t->s->downloads.lock);
    return cancel;
}

static int on_begun(void *user, int64_t bytes)
{
    cache_task *t = user;

    log_msg(LOG_INFO, "download: %s, %lld MiB are to come", t->name, (long long)(bytes >> 20));
    pthread_mutex_lock(&t->s->downloads.lock);
    t->begun = 1;
    pthread_mutex_unlock(&t->s->downloads.lock);
    server_wake(t->s);
    return is_ended(t);
}

static void put_progress(const cache_task *t, jsonw *w)
{
    jsonw_object(w);
    if (t->file[0]) {
        jsonw_key(w, t->file);
        jsonw_object(w);
        jsonw_kint(w, "done", t->file_done);
        jsonw_kint(w, "total", t->file_total);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static int on_progress(void *user, const char *file, int64_t done, int64_t total)
{
    cache_task *t = user;
    downloads *d = &t->s->downloads;
    const int64_t now = clock_ns();
    jsonw w;

    pthread_mutex_lock(&d->lock);
    const int tell = strcmp(t->file, file) != 0 || done == total || now - t->told_ns > TELL_MS * (int64_t)1000000;
    snprintf(t->file, sizeof t->file, "%s", file);
    t->file_done = done;
    t->file_total = total;
    t->told_ns = tell ? now : t->told_ns;
    jsonw_init(&w);
    put_progress(t, &w);
    pthread_mutex_unlock(&d->lock);
    if (tell && !jsonw_error(&w))
        models_tell(t->s, "download_progress", t->name, w.buf);
    jsonw_free(&w);
    return 0;
}

static void *task_main(void *user)
{
    cache_task *t = user;
    server *s = t->s;
    const server_downloads *door = s->p.loader->downloads;
    const server_fetch tell = { on_begun, on_progress, is_ended, t };
    kvant_diag why = { "" };

    const int code = t == &s->downloads.fetch ? door->fetch(t->name, &tell, &why)
                                              : door->remove(t->name, t->parts, &why);
    pthread_mutex_lock(&s->downloads.lock);
    t->code = code;
    snprintf(t->why, sizeof t->why, "%s", why.text[0] ? why.text : kvant_error_text(code));
    t->done = 1;
    pthread_mutex_unlock(&s->downloads.lock);
    server_wake(s);
    return NULL;
}

/* ---- the loop ---- */

static int begin(server *s, cache_task *t, const char *name, job *j, api_error *e)
{
    *t = (cache_task){ .s = s, .job = j, .parts = t->parts };
    snprintf(t->name, sizeof t->name, "%s", name);
    if (pthread_create(&t->thread, NULL, task_main, t) != 0)
        return api_fail(e, API_UNAVAILABLE, "", "no thread for it");
    t->runs = 1;
    atomic_fetch_add(&j->refs, 1);
    return API_OK;
}

static void answer(cache_task *t, int kind, const char *text)
{
    job *j = t->job;

    t->job = NULL;
    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    if (kind != API_OK)
        api_fail(&j->error, kind, "model", "%s", text);
    j->done = 1;
    pthread_mutex_unlock(&j->lock);
    job_resume(j);
    job_release(j);
}

/* A hub that does not answer is no fault of the request. */
static int kind_of(int code)
{
    return code == KVANT_EIO || code == KVANT_ENOMEM ? API_UNAVAILABLE
           : code == KVANT_ENOENT                    ? API_NOT_FOUND
                                                     : API_INVALID;
}

static void read_list(server *s)
{
    kvant_diag diag = { "" };

    if (models_reload(s, &diag) != KVANT_OK)
        log_msg(LOG_ERROR, "the list of models is as it was: %s", diag.text);
}

static void fetch_ended(server *s, cache_task *t)
{
    served *m = models_entry(s, t->name);
    jsonw w;

    if (m) {
        m->fetching = 0;
        m->unlisted = 1; /* until the list has it */
    }
    if (t->code == KVANT_OK)
        read_list(s);
    log_msg(t->code == KVANT_OK ? LOG_INFO : LOG_WARN, "download: %s: %s", t->name,
            t->code == KVANT_OK ? "finished" : t->why);
    answer(t, t->code == KVANT_OK ? API_OK : kind_of(t->code), t->why);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "error", t->why);
    jsonw_end(&w);
    if (t->code == KVANT_OK)
        models_tell(s, "download_finished", t->name, "{}");
    else if (t->begun)
        models_tell(s, "download_failed", t->name, jsonw_error(&w) ? NULL : w.buf);
    jsonw_free(&w);
}

static void removal_ended(server *s, cache_task *t)
{
    read_list(s); /* what is left of it comes back */
    log_msg(t->code == KVANT_OK ? LOG_INFO : LOG_WARN, "removed from the cache: %s%s%s", t->name,
            t->code == KVANT_OK ? "" : ": ", t->code == KVANT_OK ? "" : t->why);
    answer(t, t->code == KVANT_OK ? API_OK : kind_of(t->code), t->why);
    if (t->code == KVANT_OK)
        models_tell(s, "model_remove", t->name, NULL);
}

/* The repository has it: from now on it is in the list. */
static void fetch_began(server *s, cache_task *t)
{
    served *m = models_add(s, t->name);

    if (m) {
        m->fetching = 1;
        m->unlisted = 0;
        models_tell_status(m, "downloading");
    }
    answer(t, API_OK, "");
}

void downloads_tick(server *s)
{
    downloads *d = &s->downloads;
    cache_task *tasks[] = { &d->fetch, &d->removal };

    for (int i = 0; i < 2; i++) {
        cache_task *t = tasks[i];
        pthread_mutex_lock(&d->lock);
        t->cancel |= s->draining;
        const int done = t->runs && t->done, begun = t->runs && t->begun;
        pthread_mutex_unlock(&d->lock);
        if (begun && t->job && !(done && t->code != KVANT_OK))
            fetch_began(s, t);
        if (!done)
            continue;
        pthread_join(t->thread, NULL);
        t->runs = 0;
        if (t == &d->fetch)
            fetch_ended(s, t);
        else
            removal_ended(s, t);
    }
    send_events(s);
}

/* ---- what administrators ask for ---- */

static size_t repo_bytes(const char *name)
{
    return strcspn(name, ":");
}

int downloads_fetch(server *s, const char *name, job *j, api_error *e)
{
    downloads *d = &s->downloads;
    const served *m = models_entry(s, name);

    if (!models_name_ok(name, strlen(name)))
        return api_fail(e, API_INVALID, "model", "model: found a name that is too long or not printable");
    if (d->fetch.runs)
        return api_fail(e, API_OVERLOAD, "model",
                        "model: \"%.100s\" is being downloaded, one at a time; POST "
                        "/models/unload ends it",
                        d->fetch.name);
    if (m && !m->unlisted)
        return api_fail(e, API_INVALID, "model", "model: \"%.100s\" is there already", name);
    if (s->models.n == s->models.room)
        return api_fail(e, API_INVALID, "model",
                        "models: found %d, wanted at most %d; a restart forgets those that went", (int)s->models.n,
                        s->models.room);
    return begin(s, &d->fetch, name, j, e);
}

/* Another entry of the same file, or of a draft model that is it. */
static const served *user_of(server *s, const served *m)
{
    for (int i = 0; i < s->models.n; i++) {
        const served *o = &s->models.list[i];
        if (o != m && !o->unlisted && (strcmp(o->path, m->path) == 0 || (o->draft && strcmp(o->draft, m->path) == 0)))
            return o;
    }
    return NULL;
}

/* Whoever runs it goes on: its files have no name then, but are there until nobody holds them. */
static int take_off_list(server *s, served *m, api_error *e)
{
    const served *other = user_of(s, m);

    if (!m->cached)
        return api_fail(e, API_INVALID, "model", "model: \"%.100s\" is not of the hub's cache: nothing else is removed",
                        m->name);
    if (other)
        return api_fail(e, API_INVALID, "model", "model: \"%.80s\" is the file of \"%.80s\" too: it stays", m->name,
                        other->name);
    pthread_mutex_lock(&s->models.lock);
    const int loads = m->state == SERVED_LOADING || m->wished;
    m->unlisted |= !loads;
    pthread_mutex_unlock(&s->models.lock);
    if (loads)
        return api_fail(e, API_INVALID, "model", "model: \"%.100s\" is being loaded: ask again then", m->name);
    models_unload(m);
    return API_OK;
}

int downloads_remove(server *s, const char *name, job *j, api_error *e)
{
    downloads *d = &s->downloads;
    served *m = models_entry(s, name);
    const size_t n = repo_bytes(name);
    const int listed = m && !m->unlisted;

    if (d->removal.runs)
        return api_fail(e, API_OVERLOAD, "model", "model: \"%.100s\" is being removed, one at a time", d->removal.name);
    if (d->fetch.runs && repo_bytes(d->fetch.name) == n && memcmp(d->fetch.name, name, n) == 0)
        return api_fail(e, API_INVALID, "model", "model: \"%.100s\" is being downloaded; POST /models/unload ends that",
                        d->fetch.name);
    if (listed && take_off_list(s, m, e) != API_OK)
        return e->kind;
    d->removal.parts = !listed;
    return begin(s, &d->removal, name, j, e);
}

int downloads_cancel(server *s, const char *name)
{
    downloads *d = &s->downloads;

    if (!d->fetch.runs || strcmp(d->fetch.name, name) != 0)
        return 0;
    pthread_mutex_lock(&d->lock);
    d->fetch.cancel = 1;
    pthread_mutex_unlock(&d->lock);
    return 1;
}

void downloads_put_progress(served *m, jsonw *w)
{
    downloads *d = &m->s->downloads;

    pthread_mutex_lock(&d->lock);
    put_progress(&d->fetch, w);
    pthread_mutex_unlock(&d->lock);
}

/* ---- begin and end ---- */

void downloads_open(server *s)
{
    pthread_mutex_init(&s->downloads.lock, NULL);
}

static int stop(cache_task *t)
{
    if (!t->runs)
        return 1;
    if (!clock_join(t->thread, clock_ns() + END_MS * (int64_t)1000000)) {
        log_msg(LOG_WARN, "%s: a change of the cache does not end: the program ends without it", t->name);
        return 0;
    }
    t->runs = 0;
    answer(t, API_UNAVAILABLE, "the server is shutting down");
    return 1;
}

int downloads_stop(server *s)
{
    downloads *d = &s->downloads;

    pthread_mutex_lock(&d->lock);
    d->fetch.cancel = 1;
    pthread_mutex_unlock(&d->lock);
    const int ok = stop(&d->fetch);
    return stop(&d->removal) && ok;
}

void downloads_close(server *s)
{
    sbuf_free(&s->downloads.events);
    pthread_mutex_destroy(&s->downloads.lock);
}
