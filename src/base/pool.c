/* pool.c: worker threads for pool_run and the barrier inside it.  Owns the threads; knows nothing of ops.
 *
 * A wait spins on one word for a while (a step of a small model is a chain of sub-microsecond waits), then sleeps on a
 * condition variable, so that an idle pool costs nothing and 7 threads on 2 cores still advance.  A wait never yields:
 * beside other work a yield gives the processor away for whole time slices, on Linux since 6.6 for several at a time,
 * and a step of 0.2 ms took 50.  Each thread learns how long to spin: twice as long after a wait that was over in time,
 * half as long after one that was not, where whoever it waits for probably has no processor.  With more threads than
 * CPUs nothing spins: it would hold the CPU that the awaited thread needs.
 *
 * Lost wake-ups: the waker changes the word, then reads `sleepers`; the sleeper raises `sleepers`, then reads the word.
 * All four are sequentially consistent, so at least one of them sees the other. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    POOL_MAX = 256,
    SPIN_LEAST_NS = 4000,   /* a barrier between small ops */
    SPIN_MOST_NS = 100000,  /* waking a sleeper costs 46 us on Zen 3, and a sampler runs between steps */
    SPIN_PAUSES = 16,       /* between looks at the clock */
};

struct pool {
    _Alignas(64) atomic_uint job;        /* number of the current job; a change starts the workers */
    _Alignas(64) atomic_uint left;       /* workers that still run the current job */
    _Alignas(64) atomic_uint arrived;    /* parts waiting at the current barrier */
    _Alignas(64) atomic_uint phase;      /* barriers passed */
    _Alignas(64) atomic_uint sleepers;   /* threads inside wait_asleep */
    atomic_int awake;                    /* pool_stay_awake */
    pool_fn fn;                          /* written by the owner before `job` changes */
    void *arg;
    int quit, threads, spins, started;
    pthread_mutex_t lock;                /* guards only the sleep on `wake` */
    pthread_cond_t wake;
    pthread_t thread[POOL_MAX];
    struct pool_worker { _Alignas(64) pool *p; int part; int64_t spin_ns; } worker[POOL_MAX]; /* [0]: the owner */
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
    while (atomic_load(word) == old && !atomic_load(&p->awake))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

/* 1: *word differs from old before the thread's time to spin is over. */
static int wait_awake(const struct pool_worker *w, const atomic_uint *word, unsigned old)
{
    int64_t now = 0, until = 0; /* most waits are over before the first look at the clock */

    while (now <= until || atomic_load_explicit(&w->p->awake, memory_order_relaxed)) {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old)
                return 1;
            spin_pause();
        }
        now = clock_ns();
        until = until ? until : now + w->spin_ns;
    }
    return 0;
}

/* Returns once *word differs from old, with everything written before that change visible.  A thread that is called
 * from its sleep to stay awake looks again. */
static void wait_change(struct pool_worker *w, atomic_uint *word, unsigned old)
{
    do {
        if (w->p->spins && wait_awake(w, word, old)) {
            w->spin_ns = w->spin_ns < SPIN_MOST_NS / 2 ? 2 * w->spin_ns : SPIN_MOST_NS;
            return;
        }
        w->spin_ns = w->spin_ns > 2 * SPIN_LEAST_NS ? w->spin_ns / 2 : SPIN_LEAST_NS;
        wait_asleep(w->p, word, old);
    } while (atomic_load(word) == old);
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
        wait_change(w, &p->job, seen);
        if (p->quit)
            return NULL;
        p->fn(p->arg, w->part, p->threads);
        if (atomic_fetch_sub(&p->left, 1) == 1)
            wake_sleepers(p);
    }
}

void pool_stay_awake(pool *p, int on)
{
    if (!p->spins || p->threads == 1)
        return;
    atomic_store(&p->awake, on);
    if (on)
        wake_sleepers(p);
}

void pool_barrier(pool *p, int part)
{
    if (p->threads == 1)
        return;
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed);  /* cannot move before we arrive */
    if (atomic_fetch_add(&p->arrived, 1) + 1 == (unsigned)p->threads) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);         /* before anyone can leave */
        atomic_fetch_add(&p->phase, 1);
        wake_sleepers(p);
    } else {
        wait_change(&p->worker[part], &p->phase, phase);
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
        wait_change(&p->worker[0], &p->left, left);
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
    p->spins = threads <= cpu_count();
    p->worker[0] = (struct pool_worker){ p, 0, SPIN_MOST_NS };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < threads; i++) {
        p->worker[i] = (struct pool_worker){ p, i, SPIN_MOST_NS };
        if (pthread_create(&p->thread[p->started], NULL, worker_main, &p->worker[i]) != 0) {
            pool_free(p);
            return kvant_fail(diag, KVANT_ENOMEM, "thread pool: cannot start thread %d of %d", i + 1, threads);
        }
        p->started++;
    }
    *out = p;
    return KVANT_OK;
}
