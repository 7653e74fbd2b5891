/* models.c: which models a server has, who uses them, who waits for which.  A model that somebody holds stays as it is:
 * the loader (loader.c) changes only those that nobody holds.  models.lock guards the fields that server_impl.h names;
 * what a model consists of is written by the loader before it is ready and read by those who hold it. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "server/api/responses/responses_store.h"
#include "server/routes/routes.h"
#include "server/server_impl.h"

int models_open(server *s, kvant_diag *diag)
{
    models *a = &s->models;

    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->news, NULL);
    a->room = s->p.n_models + (s->p.router ? MODELS_MOST : 1);
    a->list = kvant_calloc((size_t)a->room, sizeof *a->list);
    s->kept.responses = response_store_new(auth_room(s->p.keys) + 1);
    if (!a->list || !s->kept.responses)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    for (; a->n < s->p.n_models; a->n++) {
        a->list[a->n].s = s;
        a->list[a->n].name = s->p.models[a->n].name;
        a->list[a->n].path = s->p.models[a->n].path;
        a->list[a->n].draft = s->p.models[a->n].draft;
        a->list[a->n].cached = s->p.models[a->n].cached;
        a->list[a->n].hidden = s->p.models[a->n].hidden;
    }
    return KVANT_OK;
}

void models_end(server *s)
{
    models *a = &s->models;

    for (int i = 0; i < a->n; i++) {
        work *w = a->list[i].parked.first;
        a->list[i].parked.first = NULL;
        while (w) {
            work *next = w->next;
            job_release(w->job);
            w = next;
        }
        served_stop(&a->list[i]);
    }
}

void models_close(server *s)
{
    models *a = &s->models;

    if (!a->list)
        return;
    for (int i = 0; i < a->n; i++) {
        served_close(&a->list[i]);
        kvant_free(a->list[i].own_name);
        kvant_free(a->list[i].own_path);
        kvant_free(a->list[i].own_draft);
        if (!s->p.router) /* a router's are taken up again by its next start */
            served_drop_cache(&a->list[i]);
        models_free_facts(&a->list[i].facts);
    }
    kvant_free(a->list);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->news);
}

void models_free_facts(asleep_facts *f)
{
    kvant_free(f->props);
    kvant_free(f->meta);
    kvant_free(f->name);
    *f = (asleep_facts){ 0 };
}

/* ---- who holds a model ---- */

int served_hold(served *m)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    const int ready = m->state == SERVED_READY;
    m->users += ready;
    pthread_mutex_unlock(&a->lock);
    return ready;
}

void served_share(served *m)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    m->users++;
    pthread_mutex_unlock(&a->lock);
}

void served_release(served *m)
{
    models *a = m ? &m->s->models : NULL;

    if (!m)
        return;
    pthread_mutex_lock(&a->lock);
    if (--m->users == 0 && (m->goes || a->wishes))
        pthread_cond_signal(&a->news);
    pthread_mutex_unlock(&a->lock);
}

served *models_last(server *s)
{
    models *a = &s->models;
    served *last = NULL;

    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->n; i++)
        if (a->list[i].state == SERVED_READY && (!last || a->list[i].used_ns > last->used_ns))
            last = &a->list[i];
    if (last)
        last->users++;
    pthread_mutex_unlock(&a->lock);
    return last;
}

/* ---- all of them ---- */

int models_ready(server *s)
{
    models *a = &s->models;

    if (s->p.router)
        return 1;
    pthread_mutex_lock(&a->lock);
    const int ready = a->n && (a->list[0].state == SERVED_READY || a->list[0].asleep);
    pthread_mutex_unlock(&a->lock);
    return ready;
}

int models_asleep(server *s, sbuf *props, kvant_session_stats *st)
{
    models *a = &s->models;
    served *m = !s->p.router && a->n ? &a->list[0] : NULL;

    pthread_mutex_lock(&a->lock);
    const int asleep = m && m->asleep;
    if (asleep && props)
        sbuf_puts(props, m->facts.props);
    if (asleep && st)
        *st = m->facts.stats;
    pthread_mutex_unlock(&a->lock);
    return asleep;
}

int models_busy(server *s)
{
    kvant_session_stats st;
    int busy = 0;

    for (int i = 0; i < s->models.n; i++)
        if (served_hold(&s->models.list[i])) {
            kvant_session_get_stats(s->models.list[i].session, &st);
            busy += st.queued + st.running;
            served_release(&s->models.list[i]);
        }
    return busy;
}

/* 1: the others can go on without it. */
static int give_up(served *m, int code)
{
    if (!m->s->p.router || strcmp(kvant_engine_get_params(m->engine)->device, "cpu") != 0)
        return 0;
    pthread_mutex_lock(&m->s->models.lock);
    m->goes = m->failed = 1;
    snprintf(m->why, sizeof m->why, "its engine stopped after an error (%s)", kvant_error_text(code));
    pthread_mutex_unlock(&m->s->models.lock);
    return 1;
}

int models_failed(server *s)
{
    kvant_session_stats st = { 0 };
    int code = 0;

    for (int i = 0; i < s->models.n; i++)
        if (served_hold(&s->models.list[i])) {
            kvant_session_get_stats(s->models.list[i].session, &st);
            if (st.failed && !give_up(&s->models.list[i], st.failed))
                code = st.failed;
            served_release(&s->models.list[i]);
        }
    return code;
}

/* ---- wishes ---- */

/* Under the lock. */
static void wish(served *m)
{
    models *a = &m->s->models;

    if (m->wished)
        return;
    m->wished = 1;
    m->wished_ns = clock_ns();
    m->next_wish = NULL;
    if (a->wishes)
        a->last_wish->next_wish = m;
    else
        a->wishes = m;
    a->last_wish = m;
    pthread_cond_signal(&a->news);
}

static void park(served *m, work *w)
{
    w->next = NULL;
    if (m->parked.first)
        m->parked.last->next = w;
    else
        m->parked.first = w;
    m->parked.last = w;
    wish(m);
}

/* Refuses a model's name and lists those that a client may ask for instead, as many as the message holds. */
static int not_served(server *s, const char *name, api_error *e)
{
    char list[160] = "";
    size_t at = 0;

    for (int i = 0; i < s->models.n && at + 8 < sizeof list; i++)
        if (models_is_listed(&s->models.list[i]))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", s->models.list[i].name);
    if (!name[0])
        return api_fail(e, API_INVALID, "model", "model: missing, wanted one of %s", list);
    return api_fail(e, API_NOT_FOUND, "model", "model: \"%.60s\" is not served here, wanted one of %s", name, list);
}

int models_is_listed(const served *m)
{
    return !m->unlisted && !m->hidden;
}

int models_is_named(const served *m, const char *name)
{
    const size_t n = strlen(m->name);

    return strncmp(m->name, name, n) == 0 && (!name[n] || strcmp(name + n, ":latest") == 0);
}

int models_named(server *s, const char *name, served **m, api_error *e)
{
    *m = NULL;
    for (int i = 0; i < s->models.n; i++) {
        served *one = &s->models.list[i];
        const int exact = !s->p.router || strcmp(one->name, name) == 0;
        if (!one->unlisted && (exact || (!*m && models_is_named(one, name))))
            *m = one;
        if (exact && *m)
            break;
    }
    return *m ? API_OK : not_served(s, name, e);
}

/* Routes that read no model's name. */
static int work_is_of_texts(const work *w)
{
    return w->fn == make_tokenize || w->fn == make_detokenize || w->fn == make_template;
}

/* The model that w names.  A body that names none, or none that is here, wakes nobody: it is refused before. */
static int find_named(work *w, served **m, api_error *e)
{
    server *s = w->s;
    char name[1025] = ""; /* as long as readers of bodies take one */
    const size_t cap = s->p.router ? MODEL_NAME : sizeof name;
    const int asleep = models_asleep(s, NULL, NULL), names = asleep && s->p.names.strict && !work_is_of_texts(w);

    if ((s->p.router || asleep) && request_parse_model(sbuf_text(&w->body), w->body.n, name, cap, e) != API_OK)
        return e->kind;
    if (models_named(s, name, m, e) != API_OK)
        return e->kind;
    return names && name[0] ? models_is_other(*m, name, e) : API_OK;
}

int models_pick(work *w)
{
    models *a = &w->s->models;
    served *m;

    if (find_named(w, &m, &w->refused) != API_OK)
        return 1;
    pthread_mutex_lock(&a->lock);
    const int ready = m->state == SERVED_READY && !m->goes;
    const int waits = !ready && !m->fetching && (w->autoload || m->wished || m->asleep) && !a->draining;
    if (ready) {
        m->users++;
        m->used_ns = clock_ns();
        w->m = m;
    } else if (waits) {
        park(m, w);
    } else {
        api_fail(&w->refused, a->draining ? API_UNAVAILABLE : API_INVALID, "model",
                 a->draining    ? "the server is shutting down"
                 : m->fetching ? "model: \"%.100s\" is being downloaded"
                               : "model: \"%.100s\" is not loaded",
                 m->name);
    }
    pthread_mutex_unlock(&a->lock);
    return !waits;
}

int models_load(served *m)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    const int there = (m->state == SERVED_READY && !m->goes) || m->state == SERVED_LOADING || m->wished || m->fetching;
    m->asked |= !there;
    if (!there)
        wish(m);
    pthread_mutex_unlock(&a->lock);
    return !there;
}

int models_unload(served *m)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    const int there = m->state == SERVED_READY && !m->goes;
    const int slept = m->asleep && !m->wished; /* it is away, and the next request was to load it */
    m->goes |= there;
    if (slept)
        m->asleep = 0;
    pthread_cond_signal(&a->news);
    pthread_mutex_unlock(&a->lock);
    return there || slept;
}

void models_share(server *s, int queue_key)
{
    models *a = &s->models;

    pthread_mutex_lock(&a->lock);
    a->queue_key = queue_key; /* for those that are loading (loader.c) */
    for (int i = 0; i < a->n; i++)
        if (a->list[i].state == SERVED_READY)
            kvant_session_set_queue_tenant(a->list[i].session, queue_key, NULL);
    pthread_mutex_unlock(&a->lock);
}

void models_drain(server *s, int64_t ms)
{
    models *a = &s->models;

    for (int i = 0; i < a->n; i++) {
        pthread_mutex_lock(&a->lock);
        a->draining = 1;
        work *w = a->list[i].parked.first;
        a->list[i].parked.first = NULL;
        pthread_mutex_unlock(&a->lock);
        models_refuse(w, API_UNAVAILABLE, "the server is shutting down");
        if (served_hold(&a->list[i])) {
            kvant_session_drain(a->list[i].session, ms);
            served_release(&a->list[i]);
        }
    }
}
