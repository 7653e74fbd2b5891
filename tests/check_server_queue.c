/* check_server_queue.c: which body a worker takes next (work_queue.c), by a clock of its own.  Four workers as in
 * worker.c read bodies of known cost: those of two keys that are slow, however small, and those of six that are not. */
#include "base/rng.h"
#include "server/work_queue.h"
#include "support/check.h"

enum { TENANTS = 9, WORKERS = 4, BODIES = 4096, MS = 1000000, TICK = MS / 10, SLOW = 45 * MS, QUICK = 3 * TICK };

typedef struct body {
    work_node node;
    int64_t cost, came;
    int used;
} body;

static body bodies[BODIES];

static body *new_body(int tenant, int large, int64_t cost, int64_t now)
{
    for (int i = 0; i < BODIES; i++)
        if (!bodies[i].used) {
            bodies[i] = (body){ { NULL, tenant, large }, cost, now, 1 };
            return &bodies[i];
        }
    return NULL;
}

typedef struct sim {
    work_queue q;
    body *at[WORKERS];
    int64_t begun[WORKERS], done[WORKERS], now, longest; /* longest: of a quick body, from push to take */
    int64_t served[TENANTS];
    int waits[TENANTS]; /* small bodies in the queue */
} sim;

static void put(sim *s, int tenant, int large, int64_t cost)
{
    work_queue_push(&s->q, &new_body(tenant, large, cost, s->now)->node);
    s->waits[tenant] += !large;
}

static void turn(sim *s, int i)
{
    static const enum work_which which[WORKERS] = { WORK_LIGHT_SMALL, WORK_SMALL, WORK_ANY, WORK_ANY };
    body *b = s->at[i];

    if (b && s->now >= s->done[i]) {
        work_queue_done(&s->q, b->node.tenant, b->node.large, b->cost, s->now);
        s->served[b->node.tenant]++;
        b->used = 0;
        s->at[i] = b = NULL;
    }
    if (b)
        return;
    s->at[i] = b = (body *)work_queue_pop(&s->q, which[i], s->now);
    if (!b)
        return;
    s->done[i] = s->now + b->cost;
    s->waits[b->node.tenant] -= !b->node.large;
    if (b->cost == QUICK && s->now - b->came > s->longest)
        s->longest = s->now - b->came;
}

/* Tenants 1 and 2 always have two small slow bodies and two large ones; 3 to 8 send a quick one now and then. */
static void run(sim *s, int64_t until, int quick, rng *r)
{
    for (; s->now < until; s->now += TICK) {
        for (int t = 1; t <= 2; t++)
            while (s->q.waiting[0] < 64 && s->waits[t] < 2) {
                put(s, t, 0, SLOW);
                put(s, t, 1, 6 * SLOW);
            }
        for (int t = 3; t < TENANTS && quick; t++)
            if (rng_below(r, 200) == 0)
                put(s, t, 0, QUICK);
        for (int i = 0; i < WORKERS; i++)
            turn(s, i);
    }
}

/* Small bodies that take long keep three workers busy, never all four. */
static void check_quick_ones(void)
{
    static sim s;
    rng r = { 5 };

    CHECK(work_queue_open(&s.q, TENANTS) == KVANT_OK, "no memory");
    run(&s, 400 * MS, 0, &r); /* what the two take becomes known */
    run(&s, 5000LL * MS, 1, &r);
    CHECK(s.longest <= 6 * QUICK, "a quick body waited %.1f ms beside slow ones, wanted %.1f at most",
          (double)s.longest / MS, 6.0 * QUICK / MS);
    for (int t = 3; t < TENANTS; t++)
        CHECK(s.served[t] > 100, "tenant %d: only %lld bodies were read", t, (long long)s.served[t]);
    CHECK(s.served[1] > 60 && s.served[2] > 60, "the slow ones: %lld and %lld bodies", (long long)s.served[1],
          (long long)s.served[2]);
    while (work_queue_give_up(&s.q))
        ;
    CHECK(s.q.waiting[0] == 0 && s.q.waiting[1] == 0, "%d and %d are left", s.q.waiting[0], s.q.waiting[1]);
    work_queue_close(&s.q);
}

/* Tenants take turns, each with one small body under work; what one took is forgiven with time. */
static void check_turns(void)
{
    work_queue q;
    body a = { .node = { NULL, 1, 0 } }, b = { .node = { NULL, 1, 0 } }, c = { .node = { NULL, 2, 0 } };
    const int64_t forgiven = (int64_t)WORK_DRAIN * (2 * SLOW);

    CHECK(work_queue_open(&q, 3) == KVANT_OK, "no memory");
    work_queue_push(&q, &a.node);
    work_queue_push(&q, &b.node);
    work_queue_push(&q, &c.node);
    CHECK(work_queue_pop(&q, WORK_SMALL, 0) == &a.node, "the first");
    CHECK(work_queue_pop(&q, WORK_SMALL, 0) == &c.node, "another key's");
    CHECK(work_queue_pop(&q, WORK_ANY, 0) == NULL, "a second one of a key under work");
    work_queue_done(&q, 1, 0, 4 * SLOW, 0);
    CHECK(work_queue_pop(&q, WORK_LIGHT_SMALL, forgiven / 2) == NULL, "of a key that took 180 ms");
    CHECK(work_queue_pop(&q, WORK_LIGHT_SMALL, forgiven) == &b.node, "the same once it is forgiven");
    work_queue_close(&q);
}

/* Without keys, or with one, every worker takes what there is. */
static void check_one_key(void)
{
    work_queue q;
    body list[3] = { { .node = { NULL, 1, 0 } }, { .node = { NULL, 1, 0 } }, { .node = { NULL, 1, 1 } } };

    CHECK(work_queue_open(&q, 2) == KVANT_OK, "no memory");
    for (int i = 0; i < 3; i++)
        work_queue_push(&q, &list[i].node);
    CHECK(work_queue_pop(&q, WORK_LIGHT_SMALL, 0) == &list[0].node, "the first");
    work_queue_done(&q, 1, 0, WORK_MOST_NS, 0);
    CHECK(work_queue_pop(&q, WORK_LIGHT_SMALL, 0) == &list[1].node, "the second, after one that took a second");
    CHECK(work_queue_pop(&q, WORK_SMALL, 0) == NULL, "a large one for a worker of small ones");
    CHECK(work_queue_pop(&q, WORK_ANY, 0) == &list[2].node, "the large one");
    work_queue_close(&q);
}

int main(void)
{
    check_turns();
    check_one_key();
    check_quick_ones();
    return check_end("check_server_queue");
}
