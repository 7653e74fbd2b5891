/* session_loop.c: the owner's loop: takes what came in, plans a step, runs it, hands out the results.
 *
 * Order within a tick, which the prefix index relies on: hits are looked up, then the plan is made, then sequences are
 * preempted (which frees pages but changes no index), then hits are resumed, then saved sequences are loaded and pages
 * evicted.  A hit that was looked up in this tick is therefore still there when it is used. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "cache/kv_image.h"
#include "engine/session_impl.h"

enum { PAUSED_TURN_NS = 20000000 };

/* ---- what came in ---- */

/* A tenant that was away does not bring the service it missed as credit. */
static void tenant_arrives(kvant_session *s, request *q)
{
    tenant *mine = session_tenant(s, q->r.salt);
    double least = -1;

    for (int i = 0; i < TENANTS && mine->live == 0; i++)
        if (s->tenants[i].live > 0 && (least < 0 || s->tenants[i].served < least))
            least = s->tenants[i].served;
    if (mine->live++ == 0 && mine->served < least)
        mine->served = least;
}

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
        s->waiting[s->n_waiting++] = in; /* room: the queue is capped, and what was preempted ran */
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

static void check_drain(kvant_session *s, int64_t now)
{
    int over;

    pthread_mutex_lock(&s->lock);
    over = s->draining && now >= s->drain_until_ns;
    pthread_mutex_unlock(&s->lock);
    if (over)
        end_all(s, KVANT_ECANCELED, "server: shutting down");
}

/* ---- the queue's order ---- */

/* Who is not paused; higher priority; what was preempted; the tenant that has been served least; the older one. */
static int goes_before(kvant_session *s, const request *a, const request *b)
{
    const double sa = session_tenant(s, a->r.salt)->served, sb = session_tenant(s, b->r.salt)->served;

    if (a->paused != b->paused)
        return b->paused;
    if (a->r.priority != b->r.priority)
        return a->r.priority > b->r.priority;
    if ((a->t.n_preempted > 0) != (b->t.n_preempted > 0))
        return a->t.n_preempted > 0;
    if (sa != sb)
        return sa < sb;
    return a->id < b->id;
}

/* The first n of the order to the front, in order. */
static void sort_heads(kvant_session *s, int n)
{
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int j = i + 1; j < s->n_waiting; j++)
            if (goes_before(s, s->waiting[j], s->waiting[best]))
                best = j;
        request *q = s->waiting[best];
        memmove(s->waiting + i + 1, s->waiting + i, (size_t)(best - i) * sizeof *s->waiting);
        s->waiting[i] = q;
    }
}

static void find_hit(kvant_session *s, request *q)
{
    if (q->hit_at == s->prefix.changes + 1)
        return;
    q->hit_at = s->prefix.changes + 1;
    q->hit = (prefix_hit){ 0, 0, -1, -1, 0 };
    if (s->p.no_prefix_cache || (q->r.cache & KVANT_CACHE_NO_READ))
        return;
    prefix_find(&s->prefix, q->r.salt, q->tokens, q->r.n_prompt, &q->hit);
    q->branch = q->hit.matched > q->hit.pages ? q->hit.matched * KVANT_PAGE : 0;
}

static int common_tokens(const request *a, const request *b)
{
    const int most = (a->r.n_prompt < b->r.n_prompt ? a->r.n_prompt : b->r.n_prompt);
    int n = 0;

    while (n < most && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* What `by` is about to enter in the index serves q more than what is there now. */
static int waits_for(const kvant_session *s, const request *q, const request *by)
{
    if (by->prompt_done || by->own_rows_only || (by->r.cache & KVANT_CACHE_NO_WRITE) ||
        memcmp(q->r.salt, by->r.salt, PREFIX_SALT) != 0)
        return 0;
    int n = common_tokens(q, by);
    n = n < q->r.n_prompt - 1 ? n : q->r.n_prompt - 1;
    return n / KVANT_PAGE > q->hit.pages && request_share_point(s, by, n) / KVANT_PAGE > q->hit.pages;
}

static int must_wait(const kvant_session *s, const request *q, int n_heads)
{
    if (q->paused)
        return 1;
    for (int i = 0; i < s->n_running; i++)
        if (q->r.slot >= 0 && s->running[i]->seq == q->r.slot)
            return 1;
    if (q->saved || s->p.no_prefix_cache || (q->r.cache & KVANT_CACHE_NO_READ) || slots_continues(s, q))
        return 0;
    for (int i = 0; i < s->n_running; i++)
        if (waits_for(s, q, s->running[i]))
            return 1;
    for (int i = 0; i < n_heads; i++)
        if (!s->wait_in[i].not_ready && waits_for(s, q, s->waiting[i]))
            return 1;
    return 0;
}

static int same_slot_ahead(const kvant_session *s, int head)
{
    for (int i = 0; i < head; i++)
        if (s->waiting[i]->r.slot >= 0 && s->waiting[i]->r.slot == s->waiting[head]->r.slot)
            return 1;
    return 0;
}

static int idle_pages(const kvant_session *s, const prefix_hit *h)
{
    int idle = 0;

    for (int i = h->node; i >= 0; i = s->prefix.nodes[i].parent)
        idle += s->e->kv.pages.refs[s->prefix.nodes[i].page] == 1;
    return idle;
}

/* What admitting q takes.  One that continues a parked sequence gets everything promised: computed anew it would not
 * have the bits that its decode steps gave it. */
static sched_wait wait_entry(kvant_session *s, request *q)
{
    const kv_cache *kv = &s->e->kv;
    const int all = kv_pages_at(kv, q->most_tokens > q->r.n_prompt ? q->most_tokens - 1 : q->r.n_prompt);
    const int goes_on = slots_continues(s, q);
    int pos, have, first;

    find_hit(s, q);
    if (goes_on) {
        pos = s->parked[q->r.slot].n;
        have = kv_pages_held(kv, q->r.slot);
    } else {
        pos = q->saved ? q->saved_len : q->hit.pages * KVANT_PAGE;
        have = q->saved ? 0 : q->hit.pages;
    }
    q->keep = goes_on || q->own_rows_only || q->t.n_preempted >= MAX_PREEMPTIONS;
    first = kv_pages_at(kv, (pos > q->r.n_prompt ? pos : q->r.n_prompt) + 1);
    return (sched_wait){ .pos = pos,
                         .prompt_left = pos < q->r.n_prompt ? q->r.n_prompt - pos : 0,
                         .cut = request_cut(s, q, pos),
                         .pages = (q->keep || first > all ? all : first) - have,
                         .pinned = q->saved || goes_on ? 0 : idle_pages(s, &q->hit) };
}

static int fill_heads(kvant_session *s)
{
    const int places = s->max_seqs - s->n_running;
    int n = places > 0 ? s->n_waiting : 0;

    n = n < QUEUE_HEADS ? n : QUEUE_HEADS;
    sort_heads(s, n);
    for (int i = 0; i < n; i++) {
        s->wait_in[i] = wait_entry(s, s->waiting[i]);
        s->wait_in[i].not_ready = same_slot_ahead(s, i) || must_wait(s, s->waiting[i], i);
    }
    return n;
}

/* ---- the plan's input ---- */

/* Pages that are free or idle once the sequence is gone. */
static int pages_back(const kvant_session *s, int seq)
{
    const page_pool *pool = &s->e->kv.pages;
    const kv_seq *q = &s->e->kv.seqs[seq];
    int n = 0;

    for (int p = 0; p < kv_pages_held(&s->e->kv, seq); p++)
        n += pool->refs[q->table[p]] == 1 || (pool->refs[q->table[p]] == 2 && pool->marked[q->table[p]]);
    return n;
}

static int fill_running(kvant_session *s)
{
    const page_pool *pool = &s->e->kv.pages;
    int promised = 0;

    for (int i = 0; i < s->n_running; i++)
        promised += s->running[i]->promised;
    const int available = pool->n_free + pool->n_idle - promised;
    for (int i = 0; i < s->n_running; i++) {
        const request *q = s->running[i];
        const int pos = request_len(s, q), left = q->r.n_prompt - pos;
        s->run_in[i] = (sched_seq){ .pos = pos,
                                    .prompt_left = left > 0 ? left : 0,
                                    .cut = q->prompt_done ? 0 : request_cut(s, q, pos),
                                    .pages_back = available < s->n_running ? pages_back(s, q->seq) : 0,
                                    .promised = q->promised,
                                    .keep = q->keep,
                                    .decoded = q->n_generated,
                                    .held = q->paused };
    }
    return available;
}

/* Parked sequences give way where the running ones and the first of the queue need their pages. */
static void make_room(kvant_session *s, int n_heads)
{
    for (;;) {
        const int available = fill_running(s);
        int need = s->n_running;
        for (int i = 0; i < n_heads; i++)
            if (!s->wait_in[i].not_ready) {
                need += s->wait_in[i].pages + s->wait_in[i].pinned;
                break;
            }
        if (available >= need || !slots_drop_oldest(s))
            return;
        for (int i = 0; i < n_heads; i++) { /* what was to be continued may be what went */
            const int not_ready = s->wait_in[i].not_ready;
            s->wait_in[i] = wait_entry(s, s->waiting[i]);
            s->wait_in[i].not_ready = not_ready;
        }
    }
}

static int make_plan(kvant_session *s)
{
    const kvant_session_params *p = &s->p;
    const sched_config c = { p->batch_tokens,          s->e->p.n_ubatch,       s->n_ctx,       s->max_seqs,
                             p->prefill_budget,        p->max_batch_tokens,    p->prefill_cap, p->prefill_first,
                             p->prefill_first_waiting, p->prefill_first_defer, s->e->kv.late };
    const int heads = fill_heads(s);

    make_room(s, heads);
    const sched_pages pages = { s->e->kv.pages.n_free, s->e->kv.pages.n_idle };
    sched_make(&c, s->run_in, s->n_running, s->wait_in, heads, pages, s->deferred, &s->plan);
    return heads;
}

/* ---- the plan's execution ---- */

static void preempt_planned(kvant_session *s)
{
    int kept = 0;

    for (int k = 0; k < s->plan.n_preempt; k++) {
        request *q = s->running[s->plan.preempt[k]];
        s->running[s->plan.preempt[k]] = NULL;
        request_preempt(s, q);
        q->rows = 0;
        s->waiting[s->n_waiting++] = q;
    }
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i])
            s->running[kept++] = s->running[i];
    s->n_running = kept;
}

static void count_started(kvant_session *s, const request *q)
{
    if (q->t.n_preempted > 0 || q->t.started_ns == 0)
        return; /* request_end counts those that never started */
    pthread_mutex_lock(&s->lock);
    s->n_queued--;
    pthread_mutex_unlock(&s->lock);
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
    count_started(s, q);
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
                      : q->greedy ? KVANT_LOGITS_GREEDY : kvant_sampler_wants(q->sampler);
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

/* ---- records ---- */

static int bucket(int v, const int *last, int n)
{
    int i = 0;
    while (i < n && v > last[i])
        i++;
    return i;
}

static void count_step(kvant_session *s, int64_t t0, int64_t t1, int waiting)
{
    static const int prompt_last[] = { 0, 64, 128, 256, 512 }, decode_last[] = { 0, 63, 127, 255, 511 };
    static const int waiting_last[] = { 0, 7, 15, 31, 63 };
    const sched_plan *p = &s->plan;
    kvant_session_stats *st = &s->st;

    st->steps++;
    st->decode_rows += (uint64_t)p->n_decode;
    st->decode_only_steps += p->n_decode > 0 && p->prompt_tokens == 0;
    st->deferred_rows += (uint64_t)p->n_deferred;
    st->waiting_sum += (uint64_t)waiting;
    st->waiting_max = waiting > st->waiting_max ? waiting : st->waiting_max;
    st->step_ns += t1 - t0;
    st->last_step_ns = t1;
    st->prompt_hist[bucket(p->prompt_tokens, prompt_last, KVANT_HIST - 1)]++;
    st->decode_hist[bucket(p->n_decode, decode_last, KVANT_HIST - 1)]++;
    st->waiting_hist[bucket(waiting, waiting_last, KVANT_HIST - 1)]++;
    if (trace_on()) {
        const char *names[] = { "decode rows", "prompt tokens", "waiting" };
        const int values[] = { p->n_decode, p->prompt_tokens, waiting };
        trace_span("step", 0, t0, t1);
        trace_counters("scheduler", t0, names, values, 3);
    }
}

static void fill_slot(const kvant_session *s, kvant_slot_info *o, const request *q)
{
    const int len = request_len(s, q);

    *o = (kvant_slot_info){ .slot = q->seq,
                            .state = len < q->r.n_prompt ? KVANT_SLOT_PREFILL : KVANT_SLOT_DECODE,
                            .request = q->id,
                            .n_prompt = q->r.n_prompt,
                            .n_cached = q->t.n_cached,
                            .n_tokens = len,
                            .n_generated = q->n_generated,
                            .max_tokens = q->r.max_tokens,
                            .pages = s->e->kv.seqs[q->seq].n_pages,
                            .started_ns = q->t.started_ns,
                            .first_token_ns = q->t.first_token_ns };
}

static void fill_now(kvant_session *s)
{
    kvant_session_stats *st = &s->st;
    const kv_cache *kv = &s->e->kv;
    kvant_plan plan = { 0 };

    st->running = s->n_running;
    st->prefilling = 0;
    for (int i = 0; i < s->n_running; i++)
        st->prefilling += request_len(s, s->running[i]) < s->running[i]->r.n_prompt;
    st->decoding = st->running - st->prefilling;
    st->paused = 0;
    for (int i = 0; i < s->n_running; i++)
        st->paused += atomic_load(&s->running[i]->hold) > 0;
    st->max_seqs = s->max_seqs;
    st->max_queue = s->p.max_queue;
    st->pages = kv->pages.n;
    st->pages_free = kv->pages.n_free;
    st->pages_cached = kv->pages.n_idle;
    st->states = kv->snaps.n;
    st->states_free = kv->snaps.n_free;
    st->evicted_pages = s->prefix.evicted_pages;
    st->evicted_states = s->prefix.evicted_snaps;
    if (st->cache_bytes == 0 && kvant_plan_make(s->e->m, &s->e->p, &plan, NULL) == KVANT_OK)
        st->cache_bytes = plan.kv + plan.tail + plan.state;
    st->cache_bytes_used = (int64_t)kv_page_image_bytes(kv) * (kv->pages.n - kv->pages.n_free - kv->pages.n_idle) +
                           (int64_t)kv_tail_image_bytes(kv) * (kv->tails.n - kv->tails.n_free) +
                           (int64_t)kv_state_image_bytes(kv) * (s->n_running + kv->snaps.n - kv->snaps.n_free);
}

/* Copies what other threads may see. */
static void publish(kvant_session *s, const kvant_step_record *step)
{
    fill_now(s);
    pthread_mutex_lock(&s->lock);
    const int draining = s->shown.draining;
    s->shown = s->st;
    s->shown.draining = draining;
    for (int i = 0; i < s->max_seqs; i++) {
        const int held = s->parked[i].tokens != NULL;
        s->slots[i] = (kvant_slot_info){ .slot = i,
                                         .state = held ? KVANT_SLOT_PARKED : KVANT_SLOT_FREE,
                                         .n_tokens = held ? s->parked[i].n : 0,
                                         .pages = held ? s->e->kv.seqs[i].n_pages : 0 };
    }
    for (int i = 0; i < s->n_running; i++)
        fill_slot(s, &s->slots[s->running[i]->seq], s->running[i]);
    if (step)
        s->trace[s->n_trace++ % (uint64_t)s->p.n_trace] = *step;
    pthread_mutex_unlock(&s->lock);
    if (s->events > 0 && s->p.wake)
        s->p.wake(s->p.wake_user);
    s->events = 0;
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
    count_step(s, t0, t1, waiting);
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
    publish(s, &r);
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
    check_drain(s, now);
    if (s->n_running + s->n_waiting == 0) {
        publish(s, NULL);
        return;
    }
    const int waiting = s->n_waiting;
    const int paused = count_paused(s->running, s->n_running) + count_paused(s->waiting, s->n_waiting);
    const int heads = make_plan(s);
    if (paused > 0 && s->plan.n_decode + s->plan.n_prompt + s->plan.n_preempt + s->plan.n_admit == 0) {
        s->blocked = 1;
        s->st.last_step_ns = now; /* it is the clients that make no progress */
        publish(s, NULL);
        return;
    }
    if (s->n_running + s->plan.n_admit == 0) { /* nothing will ever make room: an answer, not a spinning loop */
        end_all(s, KVANT_ENOSPC, "cache pool: no room for the request");
        publish(s, NULL);
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

    publish(s, NULL);
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
    publish(s, NULL);
    return NULL;
}
