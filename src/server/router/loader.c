/* loader.c: the thread that loads and unloads models, one at a time, so that what they take together is known.
 *
 * First it unloads what is to go and is held by nobody, then it takes the wish that waits longest.  A model that needs
 * room gets it from the least recently used one that nobody holds.  When all are held for PATIENCE_S, the least
 * recently used one takes no new requests (they wait and are served next), so that a model that is always in use
 * keeps no other one out for ever.  Requests in flight always end first.
 *
 * A model that no request used for --sleep-idle-seconds sleeps: it is unloaded, and the next request wishes for it. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum {
    PATIENCE_S = 10,
    END_MS = 600, /* for a load at the server's end */
};

/* Errors that name a file tell clients nothing of its folder. */
static void without_folder(const char *path, char *text)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0;

    for (char *at = text; n && (at = strstr(at, path)) != NULL;)
        memmove(at, at + n, strlen(at + n) + 1);
}

/* ---- those who wait ---- */

void models_refuse(work *w, int kind, const char *text)
{
    while (w) {
        work *next = w->next;
        api_fail(&w->refused, kind, "model", "%s", text);
        work_enqueue(w);
        w = next;
    }
}

/* Somebody still wants it.  Under the lock. */
static int is_wanted(const served *m)
{
    int wanted = m->asked;

    for (const work *w = m->parked.first; w && !wanted; w = w->next) {
        pthread_mutex_lock(&w->job->lock);
        wanted = !w->job->gone;
        pthread_mutex_unlock(&w->job->lock);
    }
    return wanted;
}

/* The wish is over: m leaves the list, and its requests go on.  Under the lock, which is released meanwhile. */
static void end_wish(served *m, int state, int kind, const char *text)
{
    models *a = &m->s->models;
    served **at = &a->wishes, *before = NULL;

    for (; *at != m; at = &(*at)->next_wish)
        before = *at;
    *at = m->next_wish;
    if (a->last_wish == m)
        a->last_wish = before;
    m->wished = m->asked = 0;
    m->state = state;
    models_tell_status(m, state == SERVED_READY ? "loaded" : "unloaded");
    if (state == SERVED_READY && a->queue_key)
        kvant_session_set_queue_tenant(m->session, a->queue_key, NULL);
    m->failed = kind != API_OK;
    snprintf(m->why, sizeof m->why, "%s", text);
    work *w = m->parked.first;
    m->parked.first = NULL;
    for (work *k = w; k && kind == API_OK && state == SERVED_READY; k = k->next) {
        k->m = m;
        m->users++;
    }
    m->used_ns = clock_ns();
    pthread_mutex_unlock(&a->lock);
    if (kind != API_OK)
        models_refuse(w, kind, text);
    while (w && kind == API_OK) {
        work *next = w->next; /* those whose client left are passed over there */
        work_enqueue(w);
        w = next;
    }
    pthread_mutex_lock(&a->lock);
}

/* ---- loading ---- */

static void fail_wish(served *m, int code, kvant_diag *diag)
{
    const int ends = !m->s->p.router && !m->asleep && code != KVANT_ECANCELED; /* the server ends with this error */
    kvant_diag whole = *diag;
    char text[sizeof m->why];

    without_folder(m->path, diag->text);
    snprintf(text, sizeof text, "model: \"%.60s\" could not be loaded: %.160s", m->name, diag->text);
    if (code != KVANT_ECANCELED && !ends) /* cancelled: the server ends, and it was no fault of the model */
        log_msg(LOG_WARN, "%s", text);
    served_close(m);
    if (ends)
        server_fail(m->s, code, &whole);
    pthread_mutex_lock(&m->s->models.lock);
    m->bytes = 0;
    /* of the only one it is no fault of the request */
    const int kind = code == KVANT_ENOMEM || !m->s->p.router ? API_UNAVAILABLE : API_INVALID;
    end_wish(m, SERVED_NOT, kind, text);
}

static int open_file(served *m, kvant_diag *diag)
{
    const server *s = m->s;
    const int64_t most = s->p.models_memory;

    m->parts.draft_path = m->draft;
    KVANT_TRY(s->p.loader->open(s->p.loader->user, m->path, &m->parts, diag));
    if (most == 0 || m->parts.bytes <= most)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOSPC, "it needs %lld MiB, want at most %lld (--models-memory)",
                      (long long)(m->parts.bytes >> 20), (long long)(most >> 20));
}

static int start(served *m, kvant_diag *diag)
{
    server *s = m->s;

    KVANT_TRY(s->p.loader->start(s->p.loader->user, s, &m->parts, diag));
    KVANT_TRY(served_open(m, diag));
    if (s->p.router || m->asleep)
        served_find_cache(m);
    return KVANT_OK;
}

/* Under the lock, which is released while it works. */
static void unload(served *m)
{
    models *a = &m->s->models;

    const int asleep = m->asleep;
    m->state = SERVED_LEAVING;
    pthread_mutex_unlock(&a->lock);
    if (!m->failed)
        served_keep_cache(m);
    served_close(m);
    log_msg(LOG_INFO, asleep ? "asleep: %s, until a request comes (--sleep-idle-seconds)" : "unloaded: %s", m->name);
    pthread_mutex_lock(&a->lock);
    m->state = SERVED_NOT;
    models_tell_status(m, m->asleep ? "sleeping" : "unloaded");
    m->goes = 0;
    m->bytes = 0;
}

/* ---- room ---- */

static int fits(const server *s, const served *m)
{
    int64_t bytes = m->parts.bytes;
    int n = 1;

    for (int i = 0; i < s->models.n; i++) {
        const served *o = &s->models.list[i];
        n += o != m && o->state == SERVED_READY;
        bytes += o != m && o->state == SERVED_READY ? o->bytes : 0;
    }
    return (s->p.models_max == 0 || n <= s->p.models_max) && (s->p.models_memory == 0 || bytes <= s->p.models_memory);
}

static served *least_used(server *s, int idle)
{
    served *m = NULL;

    for (int i = 0; i < s->models.n; i++) {
        served *o = &s->models.list[i];
        if (o->state == SERVED_READY && !(idle && o->users) && (!m || o->used_ns < m->used_ns))
            m = o;
    }
    return m;
}

/* All are in use for long: one takes no new requests, unless one does so already. */
static void ask_one_to_go(server *s, const served *m)
{
    int goes = 0;

    if (clock_ns() - m->wished_ns < PATIENCE_S * (int64_t)1000000000)
        return;
    for (int i = 0; i < s->models.n; i++)
        goes |= s->models.list[i].goes;
    if (!goes && least_used(s, 0))
        least_used(s, 0)->goes = 1;
}

/* ---- sleep ---- */

/* Nobody holds it, and nobody asked for it for so long.  Under the lock. */
static int is_unused(const served *m)
{
    const int64_t for_ns = (int64_t)m->s->p.sleep_s * 1000000000;

    return for_ns && m->state == SERVED_READY && !m->users && !m->goes && !m->wished &&
           clock_ns() - m->used_ns >= for_ns;
}

static void put_props_asleep(served *m, jsonw *w)
{
    live_props(m, 1, w);
}

static char *text_of(served *m, void (*put)(served *, jsonw *))
{
    jsonw w;

    jsonw_init(&w);
    put(m, &w);
    char *text = jsonw_error(&w) ? NULL : kvant_strndup(w.buf, w.len);
    jsonw_free(&w);
    return text;
}

/* A model that sleeps still tells of itself.  0: out of memory. */
static int take_facts(served *m, const kvant_session_stats *st, asleep_facts *f)
{
    *f = (asleep_facts){ .props = text_of(m, put_props_asleep),
                         .meta = text_of(m, models_put_meta),
                         .name = kvant_strdup(kvant_model_get_info(m->model)->name),
                         .n_ctx = m->env.n_ctx,
                         .stats = *st };
    return f->props && f->meta && f->name;
}

/* Nor did a step end: from now on it sleeps.  Under the lock, which is released meanwhile; only this thread unloads. */
static void fall_asleep(served *m)
{
    models *a = &m->s->models;
    kvant_session_stats st;

    if (!is_unused(m))
        return;
    pthread_mutex_unlock(&a->lock);
    kvant_session_get_stats(m->session, &st);
    const int64_t still_ns = clock_ns() - st.last_step_ns;
    const int idle = !st.queued && !st.running && still_ns >= (int64_t)m->s->p.sleep_s * 1000000000;
    asleep_facts facts = { 0 };
    const int known = idle && take_facts(m, &st, &facts);
    pthread_mutex_lock(&a->lock);
    if (known && is_unused(m)) {
        const asleep_facts old = m->facts;
        m->asleep = 1;
        m->facts = facts;
        facts = old;
    }
    models_free_facts(&facts);
}

/* One that has to be unloaded now, or NULL.  Under the lock. */
static served *one_to_go(server *s)
{
    models *a = &s->models;

    for (int i = 0; i < a->n; i++) {
        served *m = &a->list[i];
        if (m->state == SERVED_READY && m->goes && !m->users)
            return m;
        fall_asleep(m);
        if (m->state == SERVED_READY && m->asleep)
            return m;
    }
    return NULL;
}

/* ---- the thread ---- */

/* One step towards m being ready; 0: nothing can be done now.  Under the lock, which is released while it works. */
static int work_on(served *m)
{
    server *s = m->s;
    models *a = &s->models;
    kvant_diag diag = { "" };
    int code = KVANT_OK;

    if (m->state == SERVED_READY) /* it is to go first */
        return 0;
    if (!is_wanted(m)) {
        pthread_mutex_unlock(&a->lock);
        served_close(m);
        pthread_mutex_lock(&a->lock);
        end_wish(m, SERVED_NOT, API_OK, m->failed ? m->why : "");
        return 1;
    }
    if (m->state == SERVED_NOT) {
        m->state = SERVED_LOADING;
        models_tell_status(m, "loading");
        pthread_mutex_unlock(&a->lock);
        code = open_file(m, &diag);
    } else if (fits(s, m)) {
        pthread_mutex_unlock(&a->lock);
        code = start(m, &diag);
        if (code == KVANT_OK) {
            pthread_mutex_lock(&a->lock);
            m->bytes = m->parts.bytes;
            const int woke = m->asleep;
            m->asleep = 0;
            end_wish(m, SERVED_READY, API_OK, "");
            /* only now: who waits for this line may ask at once */
            log_msg(LOG_INFO, s->p.router || woke ? "loaded: %s" : "ready: %s",
                    s->p.router || woke ? m->name : server_url(s));
            return 1;
        }
    } else if (least_used(s, 1)) {
        unload(least_used(s, 1));
        return 1;
    } else {
        ask_one_to_go(s, m);
        return 0;
    }
    if (code != KVANT_OK)
        fail_wish(m, code, &diag);
    else
        pthread_mutex_lock(&a->lock);
    return 1;
}

static int step(server *s)
{
    models *a = &s->models;
    served *m;

    if ((m = one_to_go(s)) != NULL) {
        unload(m);
        return 1;
    }
    for (m = a->wishes; m && m->state == SERVED_READY;)
        m = m->next_wish;
    return m && work_on(m);
}

static void *loader_main(void *user)
{
    server *s = user;
    models *a = &s->models;
    struct timespec soon;

    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (step(s))
            continue;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_sec++;
        if (a->wishes || s->p.sleep_s) /* clients may leave, patience ends, a model gets sleepy */
            pthread_cond_timedwait(&a->news, &a->lock, &soon);
        else
            pthread_cond_wait(&a->news, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int models_start(server *s, kvant_diag *diag)
{
    models *a = &s->models;

    if (!s->p.router && a->n)
        models_load(&a->list[0]);
    if (pthread_create(&a->thread, NULL, loader_main, s) != 0)
        return kvant_fail(diag, KVANT_ENOMEM, "serve: no thread to load models");
    a->running = 1;
    if (s->p.router)
        log_msg(LOG_INFO, "ready: %s, %d models", server_url(s), a->n);
    return KVANT_OK;
}

int server_ends(void *server_pointer)
{
    models *a = &((server *)server_pointer)->models;

    pthread_mutex_lock(&a->lock);
    const int stop = a->stop;
    pthread_mutex_unlock(&a->lock);
    return stop;
}

int models_stop(server *s)
{
    models *a = &s->models;

    if (!a->running)
        return 1;
    pthread_mutex_lock(&a->lock);
    a->stop = 1;
    pthread_cond_signal(&a->news);
    pthread_mutex_unlock(&a->lock);
    if (!clock_join(a->thread, clock_ns() + END_MS * (int64_t)1000000)) {
        log_msg(LOG_WARN, "a model that is being loaded does not end: the program ends without it");
        return 0;
    }
    a->running = 0;
    return 1;
}
