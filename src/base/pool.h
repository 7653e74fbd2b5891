/* base/pool.h: worker threads.  The owner thread calls pool_run; every worker, and the owner as part 0, runs
 * fn(arg, part, parts) and the call returns when all are done.  Inside fn, pool_barrier separates stages.
 * Work is split by shape, never by `parts`, so results do not depend on the thread count.
 * Waiting spins briefly, then sleeps; an idle pool uses no CPU (but between pool_stay_awake). */
#ifndef KVANT_BASE_POOL_H
#define KVANT_BASE_POOL_H

#include "base/error.h"

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int part, int parts);

int pool_create(int threads, pool **out, kvant_diag *diag);   /* 1 <= threads <= 256 */
int pool_threads(const pool *p);
void pool_run(pool *p, pool_fn fn, void *arg);
/* on 1: until on 0 nobody sleeps, where threads have a CPU each: the next pool_run comes soon.  The owner calls it. */
void pool_stay_awake(pool *p, int on);
void pool_barrier(pool *p, int part); /* only inside fn; all parts must reach it */
void pool_free(pool *p);

#endif
