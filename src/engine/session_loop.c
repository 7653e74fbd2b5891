/* session_loop.c: the owner's loop: takes what came in, plans a step, runs it, hands out the results.
 *
 * Order within a tick, which the prefix index relies on: hits are looked up, then the plan is made, then sequences are
 * preempted (which frees pages but changes no index), then hits are resumed, then saved sequences are loaded and pages
 * evicted.  A hit that was looked up in this tick is therefore still there when it is used. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/session_impl.h"

enum { PAUSED_TURN_NS = 20000000 };

/* ---- what came in ---- */

/* With the lock held.  While all there is waits for its clients, cancels and the drain are looked at in turns. */
static void wait_for_work(kvant_session *s)
{
    while (!s->orders.stop && !s->inbox.first && !s->inbox.first_action && s->n_running + s->n_waiting == 0)
        pthread_cond_wait(&s->work, &s->lock);
    if (!s->blocked || s->orders.resumed || s->orders.stop || s->inbox.first || s->inbox.first_action)
        return;
    const int64_t until = clock_ns() + PAUSED_TURN_NS;
    const struct timespec t = { until / 1000000000, until % 1000000000 };
    pthread_cond_timedwait(&s->work, &s->lock, &t);
}

/* Waits for work when there is none; 0: the session ends. */
static int take_inbox(kvant_session *s, action **actions)
{
    request *in;
    int go_on;

    pthread_mutex_lock(&s->lock);
    wait_for_work(s);
    s->orders.resumed = 0;
    in = s->inbox.first;
    s->inbox.first = s->inbox.last = NULL;
    *actions = s->inbox.first_action;
    s->inbox.first_action = s->inbox.last_action = NULL;
    go_on = !s->orders.stop;
    pthread_mutex_unlock(&s->lock);
    for (; in; in = in->inbox) {
        s->waiting[s->n_waiting++] = in; /* room: alive are at most max_queue and max_seqs */
        tenant_arrives(s, in);
    }
    return go_on;
}

void session_remove(request **list, int *n, int i)
{
    (*n)--;
    memmove(list + i, list + i + 1, (size_t)(*n - i) * sizeof *list);
}

void session_end_all(kvant_session *s, int code, const char *text)
{
    while (s->n_running > 0)
        request_end(s, s->running[--s->n_running], KVANT_FINISH_ERROR, -1, code, text);
    while (s->n_waiting > 0)
        request_end(s, s->waiting[--s->n_waiting], KVANT_FINISH_ERROR, -1, code, text);
}

static void drop_cancelled(kvant_session *s, request **list, int *n)
{
    for (int i = 0; i < *n; i++) {
        if (!atomic_load(&list[i]->cancel))
            continue;
        request_end(s, list[i], KVANT_FINISH_CANCEL, -1, KVANT_OK, "");
        session_remove(list, n, i--);
    }
}

static void drop_late(kvant_session *s, int64_t now)
{
    for (int i = 0; i < s->n_waiting; i++) {
        const request *q = s->waiting[i];
        if (q->r.timeout_ns == 0 || q->t.started_ns || now - q->t.submitted_ns < q->r.timeout_ns)
            continue;
        request_end(s, s->waiting[i], KVANT_FINISH_ERROR, -1, KVANT_EBUSY, "queue: the request waited too long");
        session_remove(s->waiting, &s->n_waiting, i--);
    }
}

static void drop_refused(kvant_session *s)
{
    for (int i = 0; i < s->n_waiting; i++) {
        const request *q = s->waiting[i];
        kvant_diag diag = { "" };
        if (q->r.slot < 0 || q->t.started_ns || slots_check_tenant(s, q->r.slot, q->r.salt, &diag) == KVANT_OK)
            continue;
        request_end(s, s->waiting[i], KVANT_FINISH_ERROR, -1, KVANT_EBUSY, diag.text);
        session_remove(s->waiting, &s->n_waiting, i--);
    }
}

static void check_drain(kvant_session *s, int64_t now)
{
    int over;

    pthread_mutex_lock(&s->lock);
    over = s->orders.drain && now >= s->orders.drain_until_ns;
    pthread_mutex_unlock(&s->lock);
    if (over)
        session_end_all(s, KVANT_ECANCELED, "server: shutting down");
}

/* ---- the plan (session_plan.c) is carried out ---- */

static void count_queued(kvant_session *s, request *q, int queued)
{
    pthread_mutex_lock(&s->lock);
    request_queued(s, q, queued);
    pthread_mutex_unlock(&s->lock);
}

void session_preempt(kvant_session *s, int i)
{
    request *q = s->running[i];

    request_preempt(s, q);
    count_queued(s, q, 1);
    q->rows = 0;
    session_remove(s->running, &s->n_running, i);
    s->waiting[s->n_waiting++] = q;
}

/* From the youngest on, so that the places of those before stay as the plan knows them. */
static void preempt_planned(kvant_session *s)
{
    for (int i = s->n_running - 1; i >= 0; i--)
        for (int k = 0; k < s->sched.plan.n_preempt; k++)
            if (s->sched.plan.preempt[k] == i) {
                session_preempt(s, i);
                break;
            }
}

static void admit_one(kvant_session *s, request *q, int pages)
{
    const int before = q->saved.data ? kv_pages_at(&s->e->kv, q->saved.n) : 0;
    kvant_diag diag = { "" };

    if (before > s->e->kv.pages.n_free)
        prefix_evict(&s->prefix, before - s->e->kv.pages.n_free);
    for (int i = 0; i < s->n_waiting; i++)
        if (s->waiting[i] == q)
            session_remove(s->waiting, &s->n_waiting, i);
    const int code = request_start(s, q, &diag);
    q->promised = pages - before;
    count_queued(s, q, 0);
    if (code == KVANT_OK)
        s->running[s->n_running++] = q;
    else
        request_end(s, q, KVANT_FINISH_ERROR, -1, code, diag.text);
}

/* Sequences first: who names a slot must get that one.  Saved sequences last: loading them takes pages, for which idle
 * ones may have to be evicted. */
static void admit_planned(kvant_session *s, request *const *heads)
{
    const int *list = s->sched.plan.admit, n = s->sched.plan.n_admit;
    unsigned char saved[QUEUE_HEADS];

    for (int named = 1; named >= 0; named--)
        for (int k = 0; k < n; k++)
            if ((heads[list[k]]->r.slot >= 0) == named)
                request_take_sequence(s, heads[list[k]]);
    for (int k = 0; k < n; k++)
        saved[k] = heads[list[k]]->saved.data != NULL;
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < n; k++)
            if (saved[k] == round)
                admit_one(s, heads[list[k]], s->sched.waiting[list[k]].pages);
}

static void apply_plan(kvant_session *s, int n_heads)
{
    request *heads[QUEUE_HEADS];

    memcpy(heads, s->waiting, (size_t)n_heads * sizeof *heads);
    for (int i = 0; i < s->n_running; i++)
        s->running[i]->rows = 0;
    for (int k = 0; k < s->sched.plan.n_decode; k++)
        s->running[s->sched.plan.decode[k]]->rows = 1;
    for (int k = 0; k < s->sched.plan.n_prompt; k++) {
        const sched_piece *p = &s->sched.plan.prompt[k];
        request *q = p->index < s->n_running ? s->running[p->index] : heads[p->index - s->n_running];
        s->st.continued += p->index < s->n_running;
        q->rows = p->n;
    }
    preempt_planned(s);
    admit_planned(s, heads);
}

/* ---- a tick ---- */

/* Once per tick: a resume in the middle of it must not be seen by half of the plan. */
static int count_paused(request *const *list, int n, int64_t now)
{
    int paused = 0;

    for (int i = 0; i < n; i++) {
        const int was = list[i]->pause.now;
        list[i]->pause.now = atomic_load(&list[i]->hold) > 0;
        list[i]->pause.ns = list[i]->pause.now && !was ? now : list[i]->pause.ns;
        paused += list[i]->pause.now;
    }
    return paused;
}

/* Returns 1 if a waiting request could start now if it had a place or pages. */
static int somebody_lacks_room(const kvant_session *s, int n_heads)
{
    int ready = 0;

    for (int i = 0; i < s->n_waiting && s->n_running == s->max_seqs; i++)
        ready |= !s->waiting[i]->pause.now;
    for (int i = 0; i < n_heads && s->sched.plan.no_pages; i++)
        ready |= !s->sched.waiting[i].not_ready;
    return ready;
}

/* A place that is named must be that one. */
static int holds_named_slot(const kvant_session *s, const request *q)
{
    for (int i = 0; i < s->n_waiting; i++)
        if (!s->waiting[i]->pause.now && s->waiting[i]->r.slot == q->seq)
            return 1;
    return 0;
}

/* A paused request gives its place and pages to those that wait, the youngest first, and comes back when it is resumed:
 * who does not read holds nobody up.  Not at once: a pause may be short, for a mask that is being made.  0: none
 * does. */
static int yield_one(kvant_session *s, int any, int64_t now)
{
    for (int i = s->n_running - 1; i >= 0; i--) {
        request *q = s->running[i];
        if (!q->pause.now || now - q->pause.ns < s->yield_ns || !(any || holds_named_slot(s, q)) ||
            !request_can_yield(s, q))
            continue;
        q->pause.yielded++;
        s->st.preempted_paused++;
        session_preempt(s, i);
        return 1;
    }
    return 0;
}

/* A tenant with more than an equal part of the places or pages gives one request's back to a tenant with less: how long
 * one tenant's requests run must not decide when another's begin.  0: nobody does. */
static int share_one(kvant_session *s)
{
    const int i = session_short_waits(s) ? tenant_victim(s, s->n_running < s->max_seqs) : -1;

    if (i < 0)
        return 0;
    s->running[i]->pause.yielded++;
    s->st.preempted_share++;
    session_preempt(s, i);
    return 1;
}

static int make_plan(kvant_session *s, int64_t now)
{
    int heads;

    while (yield_one(s, 0, now))
        ;
    do
        heads = session_plan(s);
    while (s->sched.plan.n_admit + s->sched.plan.n_preempt == 0 && somebody_lacks_room(s, heads) &&
           (yield_one(s, 1, now) || share_one(s)));
    return heads;
}

/* Nothing runs, and the first of the queue does not fit the empty pool: an answer for it, not a spinning loop. */
static void end_head(kvant_session *s, int n_heads)
{
    int i = 0;

    while (i < n_heads - 1 && s->sched.waiting[i].not_ready)
        i++;
    request_end(s, s->waiting[i], KVANT_FINISH_ERROR, -1, KVANT_ENOSPC, "cache pool: no room for the request");
    session_remove(s->waiting, &s->n_waiting, i);
    session_publish(s, NULL);
}

/* 1: nothing can run yet, and a prefix is on its way from beyond the pool. */
static int only_fetches(const kvant_session *s, int n_heads)
{
    int fetches = 0;

    for (int i = 0; i < n_heads; i++)
        fetches |= tiers_want(s, s->waiting[i]);
    return fetches &&
           s->sched.plan.n_decode + s->sched.plan.n_prompt + s->sched.plan.n_preempt + s->sched.plan.n_admit == 0;
}

static void run_tick(kvant_session *s)
{
    const int64_t now = clock_ns();

    s->blocked = 0;
    drop_cancelled(s, s->running, &s->n_running);
    drop_cancelled(s, s->waiting, &s->n_waiting);
    drop_late(s, now);
    drop_refused(s);
    check_drain(s, now);
    if (s->n_running + s->n_waiting == 0) {
        session_publish(s, NULL);
        return;
    }
    const int waiting = s->n_waiting;
    const int paused = count_paused(s->running, s->n_running, now) + count_paused(s->waiting, s->n_waiting, now);
    const int heads = make_plan(s, now);
    if (only_fetches(s, heads)) {
        s->st.last_step_ns = now;
        session_publish(s, NULL);
        return;
    }
    if (paused > 0 &&
        s->sched.plan.n_decode + s->sched.plan.n_prompt + s->sched.plan.n_preempt + s->sched.plan.n_admit == 0) {
        s->blocked = 1;
        s->st.last_step_ns = now; /* it is the clients that make no progress */
        session_publish(s, NULL);
        return;
    }
    if (s->n_running + s->sched.plan.n_admit == 0) {
        end_head(s, heads);
        return;
    }
    s->pace.deferred = s->sched.plan.n_deferred > 0 ? s->pace.deferred + 1 : 0;
    apply_plan(s, heads);
    session_run_step(s, waiting);
}

static void tick(kvant_session *s)
{
    void (*after)(kvant_session *);

    run_tick(s);
    blocks_tell(s);
    after = atomic_load(&s->hooks.after_tick);
    if (after)
        after(s);
}

void *session_main(void *session)
{
    kvant_session *s = session;
    action *actions;
    int go_on;

    do {
        go_on = take_inbox(s, &actions);
        while (actions) {
            action *a = actions;
            actions = a->next;
            slots_run(s, a); /* frees it; also when the session ends: `done` is called for each */
            blocks_tell(s);
        }
        if (go_on)
            tick(s);
    } while (go_on);
    session_end_all(s, KVANT_ECANCELED, "server: stopped");
    blocks_end(s);
    session_publish(s, NULL);
    return NULL;
}
