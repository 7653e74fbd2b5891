/* session_plan.c: what the owner's loop wants to run next: the queue in its order, what each request takes and may give
 * back, and from that the scheduler's plan. */
#include <string.h>

#include "engine/session_impl.h"

/* ---- the queue's order ---- */

/* 1: it ran and gave way, to others or to make room for its own text. */
static int has_run(const request *q)
{
    return q->shifted || q->t.n_preempted > q->pause.yielded;
}

/* The first difference decides: not paused; higher priority; a tenant with less than its part; one that has run; the
 * tenant that has been served least; the older one. */
static int goes_before(const kvant_session *s, const request *a, const request *b)
{
    const double sa = a->tenant->served, sb = b->tenant->served;
    const int short_a = tenant_is_short(s, a), short_b = tenant_is_short(s, b);

    if (a->pause.now != b->pause.now)
        return b->pause.now;
    if (a->r.priority != b->r.priority)
        return a->r.priority > b->r.priority;
    if (short_a != short_b)
        return short_a;
    if (has_run(a) != has_run(b))
        return has_run(a);
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
    if (q->looked.at == s->prefix.changes + 1)
        return;
    q->looked.at = s->prefix.changes + 1;
    q->hit = (prefix_hit){ .node = -1, .snap = -1 };
    if (s->p.no_prefix_cache || (q->r.cache & KVANT_CACHE_NO_READ))
        return;
    prefix_find(&s->prefix, q->share, q->tokens, q->r.n_prompt, &q->hit);
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

/* Returns 1 if the pages that `by` is about to enter in the index serve q more than those there now. */
static int waits_for(const kvant_session *s, const request *q, const request *by)
{
    if (by->prompt_done || by->own_rows_only || (by->r.cache & KVANT_CACHE_NO_WRITE) ||
        memcmp(q->share, by->share, PREFIX_SALT) != 0)
        return 0;
    int n = common_tokens(q, by);
    n = n < q->r.n_prompt - 1 ? n : q->r.n_prompt - 1;
    return n / KVANT_PAGE > q->hit.pages && request_share_point(s, by, n) / KVANT_PAGE > q->hit.pages;
}

static int must_wait(const kvant_session *s, const request *q, int n_heads)
{
    if (q->pause.now || tiers_want(s, q))
        return 1;
    for (int i = 0; i < s->n_running; i++)
        if (q->r.slot >= 0 && s->running[i]->seq == q->r.slot)
            return 1;
    if (q->saved.data || s->p.no_prefix_cache || (q->r.cache & KVANT_CACHE_NO_READ) || slots_continues(s, q))
        return 0;
    for (int i = 0; i < s->n_running; i++)
        if (waits_for(s, q, s->running[i]))
            return 1;
    for (int i = 0; i < n_heads; i++)
        if (!s->sched.waiting[i].not_ready && waits_for(s, q, s->waiting[i]))
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

    for (int i = h->node; i >= 0; i = prefix_up(&s->prefix, i))
        idle += page_pool_is_idle(&s->e->kv.pages, s->prefix.nodes[i].page);
    return idle;
}

/* The places and pages that admitting q takes.  One that continues a parked sequence gets everything promised: computed
 * anew it would not have the bits that its decode steps gave it. */
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
        pos = q->saved.data ? q->saved.n : q->hit.pages * KVANT_PAGE;
        have = q->saved.data ? 0 : q->hit.pages;
    }
    q->keep = goes_on || q->own_rows_only || q->t.n_preempted - q->pause.yielded >= MAX_PREEMPTIONS;
    first = kv_pages_at(kv, (pos > q->r.n_prompt ? pos : q->r.n_prompt) + 1);
    return (sched_wait){ .pos = pos,
                         .prompt_left = pos < q->r.n_prompt ? q->r.n_prompt - pos : 0,
                         .cut = request_cut(s, q, pos),
                         .pages = (q->keep || first > all ? all : first) - have,
                         .pinned = q->saved.data || goes_on ? 0 : idle_pages(s, &q->hit),
                         .tenant = q->tenant->rank };
}

int session_short_waits(kvant_session *s)
{
    for (int i = 0; i < s->n_waiting; i++) {
        if (s->waiting[i]->pause.now || !tenant_is_short(s, s->waiting[i]))
            continue;
        find_hit(s, s->waiting[i]);
        if (!must_wait(s, s->waiting[i], 0))
            return 1;
    }
    return 0;
}

static int fill_heads(kvant_session *s)
{
    const int places = s->max_seqs - s->n_running;
    int n = places > 0 ? s->n_waiting : 0;

    n = n < QUEUE_HEADS ? n : QUEUE_HEADS;
    sort_heads(s, n);
    tiers_fetch(s, s->waiting, n);
    for (int i = 0; i < n; i++) {
        s->sched.waiting[i] = wait_entry(s, s->waiting[i]);
        s->sched.waiting[i].not_ready = same_slot_ahead(s, i) || must_wait(s, s->waiting[i], i);
    }
    return n;
}

/* ---- the plan ---- */

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

int session_room(const kvant_session *s)
{
    int promised = 0;

    for (int i = 0; i < s->n_running; i++)
        promised += s->running[i]->promised;
    return page_pool_room(&s->e->kv.pages) - promised;
}

static int fill_running(kvant_session *s)
{
    const int available = session_room(s);

    for (int i = 0; i < s->n_running; i++) {
        const request *q = s->running[i];
        const int pos = request_len(s, q), left = q->r.n_prompt - pos;
        s->sched.running[i] = (sched_seq){ .pos = pos,
                                           .prompt_left = left > 0 ? left : 0,
                                           .cut = q->prompt_done ? 0 : request_cut(s, q, pos),
                                           .pages_back = available < s->n_running ? pages_back(s, q->seq) : 0,
                                           .promised = q->promised,
                                           .keep = q->keep,
                                           .decoded = q->n_generated,
                                           .held = q->pause.now,
                                           .tenant = q->tenant->rank };
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
            if (!s->sched.waiting[i].not_ready) {
                need += s->sched.waiting[i].pages + s->sched.waiting[i].pinned;
                break;
            }
        if (available >= need || !slots_drop_oldest(s))
            return;
        for (int i = 0; i < n_heads; i++) { /* what was to be continued may be what went */
            const int not_ready = s->sched.waiting[i].not_ready;
            s->sched.waiting[i] = wait_entry(s, s->waiting[i]);
            s->sched.waiting[i].not_ready = not_ready;
        }
    }
}

static void plan_step(kvant_session *s, const sched_config *c, int heads)
{
    sched_make(c, s->sched.running, s->n_running, s->sched.waiting, heads, page_pool_room(&s->e->kv.pages),
               s->pace.deferred, &s->sched.plan);
}

int session_plan(kvant_session *s)
{
    const kvant_session_params *p = &s->p;
    const sched_plan *made = &s->sched.plan;
    tenants_measure(s);
    const int heads = fill_heads(s), tenants = tenants_rank(s, heads), heavy = fair_weigh(s, heads, tenants);
    sched_config c = { p->batch_tokens,          s->e->p.n_ubatch,       s->n_ctx,       s->max_seqs,
                       p->prefill_budget,        p->max_batch_tokens,    p->prefill_cap, p->prefill_first,
                       p->prefill_first_waiting, p->prefill_first_defer, s->e->kv.late,  pace_tokens(s),
                       tenants,                  s->fair.heavy,          heavy };

    make_room(s, heads);
    plan_step(s, &c, heads);
    if (heavy >= 0 && made->n_decode + made->n_prompt + made->n_preempt + made->n_admit == 0) {
        c.heavy_tokens = -1; /* whoever they give way to cannot run either */
        plan_step(s, &c, heads);
    }
    return heads;
}
