/* server/work_queue.h: bodies that wait for a worker (worker.c), in the order in which they are taken.  No threads and
 * no clock: its user holds a lock and says what time it is.
 *
 * A tenant is a key, or those without one.  Each has a list of small bodies and one of large ones; tenants take turns,
 * and where there are several each has one small and one large body under work at most.  The processor time of a
 * tenant's bodies is counted; the count drains at a hundredth of the time that passes.  A tenant is light while it is
 * at most WORK_LIGHT_NS, so that a worker that takes only light ones' bodies is free, or will be soon, whatever the
 * others send. */
#ifndef KVANT_SERVER_WORK_QUEUE_H
#define KVANT_SERVER_WORK_QUEUE_H

#include <stdint.h>

enum { WORK_LIGHT_NS = 100000000, WORK_MOST_NS = 1000000000, WORK_DRAIN = 100 };

/* The first member of what is queued. */
typedef struct work_node {
    struct work_node *next;
    int tenant, large;
} work_node;

typedef struct work_lane {
    work_node *first[2], *last[2]; /* small, large */
    int running[2];                /* taken, and not done */
    uint64_t turn[2];              /* when one was taken, as counted by turns */
    int64_t used_ns, at_ns;        /* of processor, as of then */
} work_lane;

typedef struct work_queue {
    work_lane *lanes;
    int n; /* tenants */
    int shared; /* keys share the workers; one tenant, or one key and those without, are not told apart */
    int waiting[2];
    uint64_t turns;
} work_queue;

enum work_which { WORK_ANY, WORK_SMALL, WORK_LIGHT_SMALL };

int work_queue_open(work_queue *q, int n); /* KVANT_ENOMEM */
void work_queue_close(work_queue *q);      /* empty */
void work_queue_push(work_queue *q, work_node *w);
/* The next one for a worker of this kind, large ones first; NULL: none. */
work_node *work_queue_pop(work_queue *q, enum work_which which, int64_t now_ns);
/* One that was taken is done, and took so much of the processor. */
void work_queue_done(work_queue *q, int tenant, int large, int64_t used_ns, int64_t now_ns);
/* At the end: any that waits, whatever is under work. */
work_node *work_queue_give_up(work_queue *q);

#endif
