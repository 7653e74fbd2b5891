/* worker.c: bodies are read beside the loop: JSON, templates, tokens, schemas.  A long work for one request must not
 * keep the loop from the others, nor one long body keep short ones waiting: two of the threads take only small bodies,
 * one of them only of keys whose bodies took little until now; the others take large ones first (work_queue.h).  A body
 * that takes more than its fuel is refused; one whose client left, or that the server's end finds under work, ends at
 * its next allocation or step (base/thread/guard.h).
 *
 * A call's connection waits for a job of kind JOB_WORK; the worker leaves there an answer, an error, or the job of a
 * request that it submitted, and the loop goes on with that (respond.c).  A client that left is passed over. */
#include <string.h>
#include <sys/resource.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/thread/guard.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http/kept.h"
#include "server/routes/routes.h"

enum {
    SMALL_BODY = 64 << 10,
    FUEL_S = 10, /* of processor for one body: 8 MiB of text take a tenth of it */
    DEADLINE_S = 60,
    END_MS = 600, /* for all workers at the server's end */
    LARGE_NICER = 5,
};

static work *take(server *s, enum work_which which)
{
    workers *k = &s->workers;
    work_node *w = NULL;

    pthread_mutex_lock(&k->lock);
    while (!k->stop && !w) {
        const int64_t now = clock_ns();
        w = work_queue_pop(&k->queue, which, now);
        if (w)
            k->moved_ns = now;
        else
            pthread_cond_wait(&k->news, &k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    return (work *)w;
}

static void leave(server *s, const work_node *was, int64_t used_ns)
{
    workers *k = &s->workers;

    pthread_mutex_lock(&k->lock);
    work_queue_done(&k->queue, was->tenant, was->large, used_ns, clock_ns());
    pthread_cond_broadcast(&k->news);
    pthread_mutex_unlock(&k->lock);
}

static int is_gone(job *j)
{
    pthread_mutex_lock(&j->lock);
    int gone = j->gone;
    pthread_mutex_unlock(&j->lock);
    return gone;
}

/* Why the work ended before it was done. */
static int tell_why(enum guard_why why, api_error *e)
{
    if (why == GUARD_CANCELLED)
        return api_fail(e, API_UNAVAILABLE, "", "the server is shutting down");
    if (why == GUARD_LATE)
        return api_fail(e, API_UNAVAILABLE, "", "the body was not read within %d s: the machine is busy", DEADLINE_S);
    return api_fail(e, API_INVALID, "", "the body takes more than %d s of work to read", FUEL_S);
}

static void make(work *w, api_error *e)
{
    guard g;

    guard_begin(&g, FUEL_S * (int64_t)1000000000, DEADLINE_S * (int64_t)1000000000, &w->left, &w->s->workers.stop);
    const uint64_t failures = mem_failures();
    const int kind = w->fn(w, e), failed = mem_failures() != failures;
    const enum guard_why why = guard_end();
    if (why != GUARD_GOES_ON && !w->result)
        tell_why(why, e);
    else if (failed && !w->result) /* whatever it says: something may be missing */
        api_fail(e, API_UNAVAILABLE, "", "out of memory");
    else if (kind != API_OK && !e->kind)
        api_fail(e, API_SERVER, "", "the request could not be read");
}

/* 0: it waits for its model and comes back. */
static int run(work *w)
{
    job *j = w->job;
    api_error e = { 0 };

    if (is_gone(j))
        atomic_fetch_add(&j->s->gone, 1);
    else if (w->picks && !w->m && !w->refused.kind && !models_pick(w))
        return 0;
    else if (w->refused.kind)
        e = w->refused;
    else
        make(w, &e);
    work_drop_body(w);
    pthread_mutex_lock(&j->lock);
    j->error = e;
    j->done = 1;
    pthread_mutex_unlock(&j->lock);
    job_dirty(j);
    server_wake(j->s);
    job_release(j); /* w may be gone */
    return 1;
}

static void *serve(server *s, enum work_which which)
{
    work *w;

    while ((w = take(s, which)) != NULL) {
        const work_node was = w->node; /* w goes */
        const int64_t begun = clock_thread_ns();
        run(w);
        if (was.large) /* it took many small blocks */
            mem_give_back(0);
        leave(s, &was, clock_thread_ns() - begun);
    }
    return NULL;
}

static void *worker_light(void *user)
{
    return serve(user, WORK_LIGHT_SMALL);
}

static void *worker_small(void *user)
{
    return serve(user, WORK_SMALL);
}

/* Large bodies wait behind the steps of the engine, which many others wait for.  Linux: only this thread. */
static void *worker_any(void *user)
{
    if (setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + LARGE_NICER) != 0)
        log_msg(LOG_DEBUG, "large bodies are read at the priority of all else");
    return serve(user, WORK_ANY);
}

int workers_start(server *s, kvant_diag *diag)
{
    static void *(*const of[WORKERS])(void *) = { worker_light, worker_small, worker_any, worker_any };
    workers *k = &s->workers;

    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->news, NULL);
    k->open = 1;
    if (work_queue_open(&k->queue, auth_room(s->p.keys) + 1) != KVANT_OK)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    for (; k->n < WORKERS; k->n++)
        if (pthread_create(&k->thread[k->n], NULL, of[k->n], s) != 0)
            return kvant_fail(diag, KVANT_ENOMEM, "server: no thread to read requests");
    return KVANT_OK;
}

int workers_stuck(server *s, int64_t ns)
{
    workers *k = &s->workers;

    pthread_mutex_lock(&k->lock);
    const int stuck = k->queue.waiting[0] + k->queue.waiting[1] > 0 && clock_ns() - k->moved_ns > ns;
    pthread_mutex_unlock(&k->lock);
    return stuck;
}

/* Running work ends; waiting work is given up. */
int workers_stop(server *s)
{
    workers *k = &s->workers;
    work *w;
    const int64_t until = clock_ns() + END_MS * (int64_t)1000000;

    if (!k->open)
        return 1;
    pthread_mutex_lock(&k->lock);
    k->stop = 1;
    pthread_cond_broadcast(&k->news);
    pthread_mutex_unlock(&k->lock);
    for (; k->n > 0; k->n--)
        if (!clock_join(k->thread[k->n - 1], until)) {
            log_msg(LOG_WARN, "a body under work does not end: the program ends without it");
            return 0;
        }
    while (k->queue.lanes && (w = (work *)work_queue_give_up(&k->queue)) != NULL)
        job_release(w->job);
    work_queue_close(&k->queue);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->news);
    *k = (workers){ 0 };
    return 1;
}

/* ---- one body ---- */

void work_drop_body(work *w)
{
    sbuf_free(&w->body);
    budget_body_release(w->s, w->key + 1, w->reserved);
    w->reserved = 0;
}

void work_free(work *w)
{
    if (!w)
        return;
    if (w->result) { /* nobody took it over: its client left */
        job_gone(w->result);
        job_release(w->result);
    }
    work_drop_body(w);
    jsonw_free(&w->reply);
    served_release(w->m);
    kvant_free(w);
}

void work_enqueue(work *w)
{
    workers *k = &w->s->workers;

    pthread_mutex_lock(&k->lock);
    if (k->queue.waiting[0] + k->queue.waiting[1] == 0)
        k->moved_ns = clock_ns();
    work_queue_push(&k->queue, &w->node);
    pthread_cond_broadcast(&k->news);
    pthread_mutex_unlock(&k->lock);
}

enum MHD_Result work_begin(call *c, struct MHD_Connection *conn)
{
    job *j = job_new(c->s, NULL, JOB_WORK, 0);
    work *w = kvant_calloc(1, sizeof *w);
    api_error e;

    if (!j || !w) {
        job_release(j);
        kvant_free(w);
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    }
    if (c->route->make == make_answer && kept_open(c, conn, j, &e) != API_OK) {
        job_release(j);
        kvant_free(w);
        return respond_error(c, conn, &e);
    }
    const char *autoload = query_value(conn, "autoload");
    *w = (work){ .node = { NULL, c->key + 1, c->body.n > SMALL_BODY },
                 .s = c->s,
                 .job = j,
                 .fn = c->route->make,
                 .shape = c->route->shape,
                 .picks = (c->route->flags & ROUTE_MODEL) != 0,
                 .key = c->key,
                 .admin = !server_has_keys(c->s) || auth_is_admin(c->s->p.keys, c->key),
                 .body = c->body,
                 .reserved = c->body_reserved };
    w->autoload = autoload ? strcmp(autoload, "true") == 0 || strcmp(autoload, "1") == 0 : c->s->p.autoload;
    c->body = (sbuf){ 0 };
    c->body_reserved = 0;
    jsonw_init(&w->reply);
    w->reply.max = (size_t)answers_most(c->s);
    j->work = w;
    atomic_fetch_add(&j->refs, 1); /* the worker's */
    enum MHD_Result ok = respond_job(c, conn, j);
    work_enqueue(w);
    return ok;
}
