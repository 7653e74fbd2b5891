/* work_queue.c: see work_queue.h. */
#include "server/work_queue.h"

#include <stddef.h>
#include "base/error.h"
#include "base/mem.h"

int work_queue_open(work_queue *q, int n)
{
    *q = (work_queue){ .lanes = kvant_calloc((size_t)n, sizeof *q->lanes), .n = n, .shared = n > 2 };
    return q->lanes ? KVANT_OK : KVANT_ENOMEM;
}

void work_queue_close(work_queue *q)
{
    kvant_free(q->lanes);
    *q = (work_queue){ 0 };
}

void work_queue_push(work_queue *q, work_node *w)
{
    work_lane *l = &q->lanes[w->tenant];

    w->next = NULL;
    if (l->first[w->large])
        l->last[w->large]->next = w;
    else
        l->first[w->large] = w;
    l->last[w->large] = w;
    q->waiting[w->large]++;
}

static void drain(work_lane *l, int64_t now)
{
    const int64_t less = (now - l->at_ns) / WORK_DRAIN;

    l->used_ns = l->used_ns > less ? l->used_ns - less : 0;
    l->at_ns = now;
}

static int may_take(const work_queue *q, work_lane *l, int large, int only_light, int64_t now)
{
    if (!l->first[large] || (q->shared && l->running[large]))
        return 0;
    if (!only_light || !q->shared)
        return 1;
    drain(l, now);
    return l->used_ns <= WORK_LIGHT_NS;
}

static work_node *take(work_queue *q, work_lane *l, int large)
{
    work_node *w = l->first[large];

    l->first[large] = w->next;
    q->waiting[large]--;
    return w;
}

/* The tenant that was served longest ago comes first. */
static work_node *pop(work_queue *q, int large, int only_light, int64_t now)
{
    work_lane *best = NULL;

    for (int t = 0; t < q->n && q->waiting[large]; t++) {
        work_lane *l = &q->lanes[t];
        if (may_take(q, l, large, only_light, now) && (!best || l->turn[large] < best->turn[large]))
            best = l;
    }
    if (!best)
        return NULL;
    best->turn[large] = ++q->turns;
    best->running[large]++;
    return take(q, best, large);
}

work_node *work_queue_pop(work_queue *q, enum work_which which, int64_t now)
{
    work_node *w = which == WORK_ANY ? pop(q, 1, 0, now) : NULL;

    return w ? w : pop(q, 0, which == WORK_LIGHT_SMALL, now);
}

void work_queue_done(work_queue *q, int tenant, int large, int64_t used, int64_t now)
{
    work_lane *l = &q->lanes[tenant];

    l->running[large]--;
    drain(l, now);
    l->used_ns = l->used_ns + used < WORK_MOST_NS ? l->used_ns + used : WORK_MOST_NS;
}

work_node *work_queue_give_up(work_queue *q)
{
    for (int i = 0; i < 2 * q->n; i++)
        if (q->lanes[i / 2].first[i % 2])
            return take(q, &q->lanes[i / 2], i % 2);
    return NULL;
}
