/* session_tenant.c: whose requests they are: each tenant's share of the queue, of places and of pages, and how much it
 * has been served.
 *
 * The table has a place for every request that can be alive at once, so a tenant never shares a counter with another.
 * A place is found, claimed and given back under the session's lock; what is served belongs to the owner thread. */
#include <assert.h>

#include "engine/session_impl.h"

static tenant *find(const kvant_session *s, uint32_t id)
{
    for (int i = 0; i < s->tenants.n; i++)
        if (s->tenants.list[i].id == id)
            return &s->tenants.list[i];
    return NULL;
}

/* A place for a tenant that has none: a new one, or that of a tenant that has no request any more. */
static tenant *claim(kvant_session *s, uint32_t id)
{
    tenant *t = NULL;

    for (int i = 0; i < s->tenants.n && s->tenants.n == s->cap_waiting; i++)
        if (s->tenants.list[i].requests == 0)
            t = &s->tenants.list[i];
    if (!t) {
        assert(s->tenants.n < s->cap_waiting); /* one place per request alive */
        t = &s->tenants.list[s->tenants.n++];
    }
    t->id = id;
    t->served = 0;
    return t;
}

int tenant_queued(const kvant_session *s, uint32_t id)
{
    const tenant *t = find(s, id);

    return t ? t->queued : 0;
}

void tenant_join(kvant_session *s, request *q)
{
    tenant *t = find(s, q->r.tenant);

    q->tenant = t ? t : claim(s, q->r.tenant);
    q->tenant->requests++;
    request_queued(s, q, 1);
}

void tenant_leave(kvant_session *s, request *q)
{
    request_queued(s, q, 0);
    q->tenant->requests--;
}

void request_queued(kvant_session *s, request *q, int queued)
{
    s->counts.queued += queued - q->queued;
    q->tenant->queued += queued - q->queued;
    q->queued = queued;
}

void tenant_arrives(kvant_session *s, request *q)
{
    const int at = (int)(q->tenant - s->tenants.list);
    double least = -1;

    s->tenants.arrived = at < s->tenants.arrived ? s->tenants.arrived : at + 1;
    if (q->tenant->used_by != q->r.tenant) { /* the place was another's */
        q->tenant->used_by = q->r.tenant;
        q->tenant->used_ns = 0;
    }
    for (int i = 0; i < s->tenants.arrived && q->tenant->live == 0; i++)
        if (s->tenants.list[i].live > 0 && (least < 0 || s->tenants.list[i].served < least))
            least = s->tenants.list[i].served;
    if (q->tenant->live++ == 0 && q->tenant->served < least)
        q->tenant->served = least;
}

/* ---- shares of what runs ---- */

void tenants_measure(kvant_session *s)
{
    s->tenants.active = 0;
    for (int i = 0; i < s->tenants.arrived; i++) {
        s->tenants.list[i].running = s->tenants.list[i].pages = 0;
        s->tenants.active += s->tenants.list[i].live > 0;
    }
    for (int i = 0; i < s->n_running; i++) {
        const request *q = s->running[i];
        q->tenant->running++;
        q->tenant->pages += kv_pages_held(&s->e->kv, q->seq) + q->promised;
    }
}

static int enter(kvant_session *s, tenant *t, int n)
{
    int at = n;

    if (t->rank >= 0)
        return n;
    t->rank = 0;
    for (; at > 0 && s->tenants.ranked[at - 1]->served > t->served; at--)
        s->tenants.ranked[at] = s->tenants.ranked[at - 1];
    s->tenants.ranked[at] = t;
    return n + 1;
}

int tenants_rank(kvant_session *s, int n_heads)
{
    int n = 0;

    for (int i = 0; i < s->tenants.arrived; i++)
        s->tenants.list[i].rank = -1;
    for (int i = 0; i < s->n_running; i++)
        n = enter(s, s->running[i]->tenant, n);
    for (int i = 0; i < n_heads; i++)
        n = enter(s, s->waiting[i]->tenant, n);
    for (int i = 0; i < n; i++)
        s->tenants.ranked[i]->rank = i;
    for (int i = 0; i < n_heads; i++)
        s->sched.waiting[i].tenant = s->waiting[i]->tenant->rank;
    return n > 0 ? n : 1;
}

/* At least one place, whoever else is there. */
static int part_of_places(const kvant_session *s)
{
    return s->tenants.active < s->max_seqs ? s->max_seqs / s->tenants.active : 1;
}

static int part_of_pages(const kvant_session *s)
{
    return s->e->kv.pages.n / s->tenants.active;
}

int tenant_is_short(const kvant_session *s, const request *q)
{
    const tenant *t = q->tenant;

    return s->tenants.active > 1 && t->running < part_of_places(s) &&
           t->pages + kv_pages_at(&s->e->kv, q->n_tokens + 1) <= part_of_pages(s);
}

/* Returns how much a tenant has beyond its part; its last request stays. */
static int beyond(const kvant_session *s, const tenant *t, int for_pages)
{
    if (t->running < 2)
        return 0;
    return for_pages ? t->pages - part_of_pages(s) : t->running - part_of_places(s);
}

int tenant_victim(const kvant_session *s, int for_pages)
{
    int best = -1, most = 0;

    for (int i = 0; i < s->n_running; i++) {
        const request *q = s->running[i];
        const int more = beyond(s, q->tenant, for_pages);
        if (more < 1 || more < most || q->keep || !request_can_yield(s, q))
            continue;
        most = more;
        best = i; /* of equals the last, which is the youngest */
    }
    return best;
}
