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
    while (!s->stop && !s->inbox_first && !s->actions_first && s->n_running + s->n_waiting == 0)
        pthread_cond_wait(&s->work, &s->lock);
    if (!s->blocked || s->stop || s->inbox_first || s->actions_first)
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
    in = s->inbox_first;
    s->inbox_first = s->inbox_last = NULL;
    *actions = s->actions_first;
    s->actions_first = s->actions_last = NULL;
    go_on = !s->stop;
    pthread_mutex_unlock(&s->lock);
    for (; in; in = in->inbox) {
        s->waiting[s->n_waiting++] = in; /* room: alive are at most max_queue and max_seqs */
        tenant_arrives(s, in);
    }
    return go_on;
}

static void remove_at(request **list, int *n, int i)
{
    (*n)--;
    memmove(list + i, list + i + 1, (size_t)(*n - i) * sizeof *list);
}

static void end_all(kvant_session *s, int code, const char *text)
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
        remove_at(list, n, i--);
    }
}

static void drop_late(kvant_session *s, int64_t now)
{
    for (int i = 0; i < s->n_waiting; i++) {
        const request *q = s->waiting[i];
        if (q->r.timeout_ns == 0 || q->t.started_ns || now - q->t.submitted_ns < q->r.timeout_ns)
            continue;
        request_end(s, s->waiting[i], KVANT_FINISH_ERROR, -1, KVANT_EBUSY, "queue: the request waited too long");
        remove_at(s->waiting, &s->n_waiting, i--);
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
        remove_at(s->waiting, &s->n_waiting, i--);
    }
}

static void check_drain(kvant_session *s, int64_t now)
{
    int over;

    pthread_mutex_lock(&s->lock);
    over = s->draining && now >= s->drain_until_ns;
    pthread_mutex_unlock(&s->lock);
    if (over)
        end_all(s, KVANT_ECANCELED, "server: shutting down");
}

/* ---- the plan (session_plan.c) is carried out ---- */

static void count_queued(kvant_session *s, request *q, int queued)
{
    pthread_mutex_lock(&s->lock);
    request_queued(s, q, queued);
    pthread_mutex_unlock(&s->lock);
}

static void preempt_planned(kvant_session *s)
{
    int kept = 0;

    for (int k = 0; k < s->plan.n_preempt; k++) {
        request *q = s->running[s->plan.preempt[k]];
        s->running[s->plan.preempt[k]] = NULL;
        request_preempt(s, q);
        count_queued(s, q, 1);
        q->rows = 0;
        s->waiting[s->n_waiting++] = q;
    }
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i])
            s->running[kept++] = s->running[i];
    s->n_running = kept;
}

static void admit_one(kvant_session *s, request *q, int pages)
{
    const int before = q->saved ? kv_pages_at(&s->e->kv, q->saved_len) : 0;
    kvant_diag diag = { "" };

    if (before > s->e->kv.pages.n_free)
        prefix_evict(&s->prefix, before - s->e->kv.pages.n_free);
    for (int i = 0; i < s->n_waiting; i++)
        if (s->waiting[i] == q)
            remove_at(s->waiting, &s->n_waiting, i);
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
    const int *list = s->plan.admit, n = s->plan.n_admit;
    unsigned char saved[QUEUE_HEADS];

    for (int named = 1; named >= 0; named--)
        for (int k = 0; k < n; k++)
            if ((heads[list[k]]->r.slot >= 0) == named)
                request_take_sequence(s, heads[list[k]]);
    for (int k = 0; k < n; k++)
        saved[k] = heads[list[k]]->saved != NULL;
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < n; k++)
            if (saved[k] == round)
                admit_one(s, heads[list[k]], s->wait_in[list[k]].pages);
}

static void apply_plan(kvant_session *s, int n_heads)
{
    request *heads[QUEUE_HEADS];

    memcpy(heads, s->waiting, (size_t)n_heads * sizeof *heads);
    for (int i = 0; i < s->n_running; i++)
        s->running[i]->rows = 0;
    for (int k = 0; k < s->plan.n_decode; k++)
        s->running[s->plan.decode[k]]->rows = 1;
    for (int k = 0; k < s->plan.n_prompt; k++) {
        const sched_piece *p = &s->plan.prompt[k];
        request *q = p->index < s->n_running ? s->running[p->index] : heads[p->index - s->n_running];
        s->st.continued += p->index < s->n_running;
        q->rows = p->n;
    }
    preempt_planned(s);
    admit_planned(s, heads);
}

static void add_item(kvant_session *s, request *q)
{
    const int len = request_len(s, q), is_prompt = len < q->r.n_prompt;
    /* the device chooses, or leaves few to choose from, where nobody looks at the logits */
    const int wants = q->r.mask || q->r.n_logprobs >= 0 ? KVANT_LOGITS_LAST
                      : q->greedy                       ? KVANT_LOGITS_GREEDY
                                                        : kvant_sampler_wants(q->sampler);
    int logits = len + q->rows < q->n_tokens ? KVANT_LOGITS_NONE : wants;

    if (is_prompt && q->r.kind != KVANT_REQUEST_GENERATE)
        logits = KVANT_LOGITS_HIDDEN;
    s->items[s->n_items] = (kvant_item){ q->seq, q->tokens + len, q->rows, is_prompt, logits };
    s->item_req[s->n_items++] = q;
}

static int make_items(kvant_session *s)
{
    int pages = 0;

    s->n_items = 0;
    for (int i = 0; i < s->n_running; i++) {
        request *q = s->running[i];
        if (q->rows == 0)
            continue;
        add_item(s, q);
        pages += kv_pages_missing(&s->e->kv, q->seq, request_len(s, q) + q->rows);
    }
    return pages;
}

/* ---- the step ---- */

/* The engine cannot go on: a lost device, a vanished model file. */
static int is_fatal(int code)
{
    return code == KVANT_EDEVICE || code == KVANT_EIO || code == KVANT_EINTERNAL;
}

static void collect(kvant_session *s, const int *before, kvant_diag *diag)
{
    for (int i = 0; i < s->n_items; i++) {
        request *q = s->item_req[i];
        const kv_seq *seq = &s->e->kv.seqs[q->seq];
        const int taken = kv_pages_held(&s->e->kv, q->seq) - kv_pages_at(&s->e->kv, before[i]);
        const int rows = seq->len - before[i];

        q->promised -= taken < q->promised ? (taken > 0 ? taken : 0) : q->promised;
        if (!request_after_step(s, q, i, rows, diag))
            continue;
        for (int k = 0; k < s->n_running; k++)
            if (s->running[k] == q)
                remove_at(s->running, &s->n_running, k);
    }
}

static void run_step(kvant_session *s, int waiting)
{
    kvant_diag diag = { "" };
    int *before = s->next_token; /* [max_seqs] */
    const int pages = make_items(s);

    if (pages > s->e->kv.pages.n_free)
        prefix_evict(&s->prefix, pages - s->e->kv.pages.n_free);
    for (int i = 0; i < s->n_items; i++)
        before[i] = request_len(s, s->item_req[i]);
    const int64_t t0 = clock_ns();
    const int code = s->n_items ? kvant_step(s->e, s->items, s->n_items, &diag) : KVANT_OK;
    const int64_t t1 = clock_ns();
    session_count_step(s, t0, t1, waiting);
    const kvant_step_record r = { s->st.steps,
                                  t0,
                                  t1,
                                  s->plan.n_decode,
                                  s->plan.prompt_tokens,
                                  waiting,
                                  s->n_running,
                                  s->plan.n_deferred,
                                  s->plan.n_preempt,
                                  s->e->kv.pages.n - s->e->kv.pages.n_free };
    if (code == KVANT_OK || code == KVANT_ECANCELED || code == KVANT_ENUMERIC) {
        collect(s, before, &diag);
    } else {
        s->st.failed = is_fatal(code) ? code : 0;
        end_all(s, code, diag.text);
    }
    session_publish(s, &r);
}

/* Once per tick: a resume in the middle of it must not be seen by half of the plan. */
static int count_paused(request *const *list, int n)
{
    int paused = 0;

    for (int i = 0; i < n; i++) {
        list[i]->paused = atomic_load(&list[i]->hold) > 0;
        paused += list[i]->paused;
    }
    return paused;
}

static void tick(kvant_session *s)
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
    const int paused = count_paused(s->running, s->n_running) + count_paused(s->waiting, s->n_waiting);
    const int heads = session_plan(s);
    if (paused > 0 && s->plan.n_decode + s->plan.n_prompt + s->plan.n_preempt + s->plan.n_admit == 0) {
        s->blocked = 1;
        s->st.last_step_ns = now; /* it is the clients that make no progress */
        session_publish(s, NULL);
        return;
    }
    if (s->n_running + s->plan.n_admit == 0) { /* nothing will ever make room: an answer, not a spinning loop */
        end_all(s, KVANT_ENOSPC, "cache pool: no room for the request");
        session_publish(s, NULL);
        return;
    }
    s->deferred = s->plan.n_deferred > 0 ? s->deferred + 1 : 0;
    apply_plan(s, heads);
    run_step(s, waiting);
}

void *session_main(void *session)
{
    kvant_session *s = session;
    action *actions;
    int go_on;

    session_publish(s, NULL);
    do {
        go_on = take_inbox(s, &actions);
        while (actions) {
            action *a = actions;
            actions = a->next;
            slots_run(s, a); /* frees it; also when the session ends: `done` is called for each */
        }
        if (go_on)
            tick(s);
    } while (go_on);
    end_all(s, KVANT_ECANCELED, "server: stopped");
    session_publish(s, NULL);
    return NULL;
}
