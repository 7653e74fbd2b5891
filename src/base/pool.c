/* pool.c: worker threads for pool_run and the barrier inside it.  Owns the threads; knows nothing of ops.
 *
 * Every wait has three phases: spin on one word (a step of a small model is a chain of sub-microsecond waits), spin
 * and yield, then sleep on a condition variable, so that an idle pool costs nothing and 7 threads on 2 cores still
 * advance. With more threads than CPUs nothing spins: it would hold the CPU that the awaited thread needs.
 *
 * Lost wake-ups: the waker changes the word, then reads `sleepers`; the sleeper raises `sleepers`, then reads the word.
 * All four are sequentially consistent, so at least one of them sees the other. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "base/cpu.h"
#include "base/mem.h"
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    POOL_MAX = 256,
    SPIN_TURNS = 400,    /* about 5 us on Zen 3: a barrier between small ops */
    YIELD_TURNS = 150,   /* about 100 us: waking a sleeper costs 46 us there, and a sampler runs between steps */
    YIELD_PAUSES = 40,   /* pauses per yield; yielding early matters when the awaited thread lost its CPU to us */
};

struct pool {
    _Alignas(64) atomic_uint job;        /* number of the current job; a change starts the workers */
    _Alignas(64) atomic_uint left;       /* workers that still run the current job */
    _Alignas(64) atomic_uint arrived;    /* parts waiting at the current barrier */
    _Alignas(64) atomic_uint phase;      /* barriers passed */
    _Alignas(64) atomic_uint sleepers;   /* threads inside wait_asleep */
    pool_fn fn;                          /* written by the owner before `job` changes */
    void *arg;
    int quit, threads, spin_turns, yield_pauses, started;
    pthread_mutex_t lock;                /* guards only the sleep on `wake` */
    pthread_cond_t wake;
    pthread_t thread[POOL_MAX];
    struct pool_worker { pool *p; int part; } worker[POOL_MAX];
};

static void spin_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void wait_asleep(pool *p, atomic_uint *word, unsigned old)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(word) == old)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

/* Returns once *word differs from old, with everything written before that change visible. */
static void wait_change(pool *p, atomic_uint *word, unsigned old)
{
    for (int i = 0; i < p->spin_turns; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        spin_pause();
    }
    for (int i = 0; i < YIELD_TURNS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        sched_yield();
        for (int j = 0; j < p->yield_pauses; j++)
            spin_pause();
    }
    wait_asleep(p, word, old);
}

/* After a sequentially consistent change of a word. */
static void wake_sleepers(pool *p)
{
    if (atomic_load(&p->sleepers) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct pool_worker *w = arg;
    pool *p = w->p;

    for (unsigned seen = 0;; seen++) {
        wait_change(p, &p->job, seen);
        if (p->quit)
            return NULL;
        p->fn(p->arg, w->part, p->threads);
        if (atomic_fetch_sub(&p->left, 1) == 1)
            wake_sleepers(p);
    }
}

void pool_barrier(pool *p)
{
    if (p->threads == 1)
        return;
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed);  /* cannot move before we arrive */
    if (atomic_fetch_add(&p->arrived, 1) + 1 == (unsigned)p->threads) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);         /* before anyone can leave */
        atomic_fetch_add(&p->phase, 1);
        wake_sleepers(p);
    } else {
        wait_change(p, &p->phase, phase);
    }
}

static void start_job(pool *p, int quit)
{
    p->quit = quit;
    atomic_store_explicit(&p->left, (unsigned)p->started, memory_order_relaxed);
    atomic_fetch_add(&p->job, 1);
    wake_sleepers(p);
}

void pool_run(pool *p, pool_fn fn, void *arg)
{
    unsigned left;

    p->fn = fn;
    p->arg = arg;
    if (p->threads > 1)
        start_job(p, 0);
    fn(arg, 0, p->threads);
    while (p->threads > 1 && (left = atomic_load_explicit(&p->left, memory_order_acquire)) != 0)
        wait_change(p, &p->left, left);
}

int pool_threads(const pool *p)
{
    return p->threads;
}

void pool_free(pool *p)
{
    if (!p)
        return;
    if (p->started > 0)
        start_job(p, 1);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    kvant_free(p);
}

int pool_create(int threads, pool **out, kvant_diag *diag)
{
    if (threads < 1 || threads > POOL_MAX)
        return kvant_fail(diag, KVANT_EINVAL, "threads: %d, wanted 1 to %d", threads, POOL_MAX);
    pool *p = kvant_calloc(1, sizeof *p);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "thread pool: out of memory");
    p->threads = threads;
    int crowded = threads > cpu_count();
    p->spin_turns = crowded ? 0 : SPIN_TURNS;
    p->yield_pauses = crowded ? 0 : YIELD_PAUSES;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < threads; i++) {
        p->worker[i] = (struct pool_worker){ p, i };
        if (pthread_create(&p->thread[p->started], NULL, worker_main, &p->worker[i]) != 0) {
            pool_free(p);
            return kvant_fail(diag, KVANT_ENOMEM, "thread pool: cannot start thread %d of %d", i + 1, threads);
        }
        p->started++;
    }
    *out = p;
    return KVANT_OK;
}
