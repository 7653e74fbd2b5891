/* grammar_work.c: see grammar_work.h.  Owns the thread and its list of tasks, which lie in their runs. */
#include "server/grammar/grammar_work.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_states.h"

enum {
    NICER = 10, /* a tenth of a busy processor is left for masks: arbitrary, not tuned */
    LANES = 256 /* buckets of tenants; a collision only shares turns */
};

struct grammar_work {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below, and the tasks in the runs */
    pthread_cond_t news;
    grammar_run *tasks; /* newest first; the order of turns is in them */
    grammar_run *bin;   /* to be freed; none of them is a task */
    int stop, stopped;
    uint64_t clock, lane_turn[LANES]; /* the last slice of each lane */
};

static void put_in_bin(grammar_work *w, grammar_run *r)
{
    r->task.next = w->bin;
    w->bin = r;
}

/* Whose lane waited longest; within the lane, the task that did. */
static grammar_run *choose(const grammar_work *w)
{
    grammar_run *best = NULL;

    for (grammar_run *r = w->tasks; r; r = r->task.next) {
        const uint64_t mine = w->lane_turn[r->task.lane], its = best ? w->lane_turn[best->task.lane] : 0;
        if (!best || mine < its || (mine == its && r->task.turn <= best->task.turn))
            best = r; /* of two alike the older one, which is further down */
    }
    return best;
}

static void take_out(grammar_work *w, grammar_run *r)
{
    for (grammar_run **p = &w->tasks; *p; p = &(*p)->task.next)
        if (*p == r) {
            *p = r->task.next;
            break;
        }
    r->task.queued = 0;
    if (r->task.gone)
        put_in_bin(w, r);
}

/* One slice of r, with the lock held before and after. */
static void run_slice(grammar_work *w, grammar_run *r)
{
    kvant_diag diag = { "" };
    int code = KVANT_ECANCELED;

    r->task.turn = w->lane_turn[r->task.lane] = ++w->clock;
    if (!r->task.gone && !w->stop) {
        pthread_mutex_unlock(&w->lock);
        code = grammar_run_work(r, &diag);
        pthread_mutex_lock(&w->lock);
    }
    if (code == KVANT_EBUSY && !r->task.gone && !w->stop)
        return;
    if (code == KVANT_EBUSY)
        code = KVANT_ECANCELED;
    void (*done)(void *user, int code, const char *text) = r->task.done;
    void *user = r->task.user;
    take_out(w, r); /* r may be added or discarded again from here on */
    pthread_mutex_unlock(&w->lock);
    done(user, code, diag.text);
    pthread_mutex_lock(&w->lock);
}

static void empty_bin(grammar_work *w)
{
    grammar_run *r = w->bin;

    w->bin = NULL;
    pthread_mutex_unlock(&w->lock);
    while (r) {
        grammar_run *next = r->task.next;
        grammar_run_free(r);
        r = next;
    }
    pthread_mutex_lock(&w->lock);
}

static void *work_main(void *user)
{
    grammar_work *w = user;

    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICER); /* of this thread; every user may */
    pthread_mutex_lock(&w->lock);
    while (!w->stop || w->tasks || w->bin) {
        if (w->bin)
            empty_bin(w);
        else if (w->tasks)
            run_slice(w, choose(w));
        else
            pthread_cond_wait(&w->news, &w->lock);
    }
    w->stopped = 1;
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int grammar_work_create(grammar_work **out, kvant_diag *diag)
{
    grammar_work *w = kvant_calloc(1, sizeof *w);

    if (!w)
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    if (pthread_create(&w->thread, NULL, work_main, w) != 0) {
        kvant_free(w);
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: its thread could not be started");
    }
    *out = w;
    return KVANT_OK;
}

void grammar_work_stop(grammar_work *w)
{
    pthread_mutex_lock(&w->lock);
    const int first = !w->stop;
    w->stop = 1;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    if (first)
        pthread_join(w->thread, NULL);
}

void grammar_work_free(grammar_work *w)
{
    if (!w)
        return;
    grammar_work_stop(w);
    pthread_cond_destroy(&w->news);
    pthread_mutex_destroy(&w->lock);
    kvant_free(w);
}

void grammar_work_add(grammar_work *w, grammar_run *r, unsigned lane,
                      void (*done)(void *user, int code, const char *text), void *user)
{
    pthread_mutex_lock(&w->lock);
    const int stopped = w->stopped;
    if (!stopped) {
        /* behind those that wait: what is new and small has its turn after one slice of each of them */
        r->task = (struct grammar_task){ w->tasks, 1, 0, lane % LANES, w->clock, done, user };
        w->tasks = r;
        pthread_cond_signal(&w->news);
    }
    pthread_mutex_unlock(&w->lock);
    if (stopped)
        done(user, KVANT_ECANCELED, "");
}

void grammar_work_discard(grammar_work *w, grammar_run *r)
{
    if (!w || !r) {
        grammar_run_free(r);
        return;
    }
    pthread_mutex_lock(&w->lock);
    const int stopped = w->stopped;
    r->task.gone = 1;
    if (!stopped && !r->task.queued)
        put_in_bin(w, r);
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    if (stopped)
        grammar_run_free(r);
}
