/* check_pool.c: the worker pool and the CPU list: parts, barriers, sleep and wake-up, bad thread counts, masks. */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/pool.h"

enum { ROUNDS = 200, STAGES = 20, MAX_THREADS = 16, BESIDE_ROUNDS = 21, MOST_BESIDE_NS = 12 * 1000 * 1000 };

typedef struct job {
    pool *p;
    int seen[MAX_THREADS];           /* plain ints: ThreadSanitizer reports a barrier that does not order them */
    int sum[STAGES][MAX_THREADS];
    int wrong[MAX_THREADS];
} job;

static void run_stages(void *arg, int part, int parts)
{
    job *j = arg;

    j->seen[part]++;
    for (int s = 0; s < STAGES; s++) {
        int want = 0, got = 0;
        j->sum[s][part] = part + s;
        pool_barrier(j->p, part);
        for (int i = 0; i < parts; i++) {
            want += i + s;
            got += j->sum[s][i];
        }
        j->wrong[part] += want != got;
        pool_barrier(j->p, part);
        j->sum[s][part] = -1000;     /* a thread that left the barrier early would read this */
    }
}

static void check_stages(int threads)
{
    static job j;
    int wrong = 0, ran = 0;

    memset(&j, 0, sizeof j);
    CHECK(pool_create(threads, &j.p, NULL) == KVANT_OK, "%d threads", threads);
    CHECK(pool_threads(j.p) == threads, "%d", pool_threads(j.p));
    for (int i = 0; i < ROUNDS; i++)
        pool_run(j.p, run_stages, &j);
    for (int i = 0; i < threads; i++) {
        wrong += j.wrong[i];
        ran += j.seen[i] == ROUNDS;
    }
    CHECK(wrong == 0, "%d threads: %d stages saw a neighbour's old value", threads, wrong);
    CHECK(ran == threads, "%d threads: only %d ran every round", threads, ran);
    pool_free(j.p);
}

static void count_part(void *arg, int part, int parts)
{
    (void)part;
    (void)parts;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void check_sleep(void)
{
    struct timespec nap = { 0, 20 * 1000 * 1000 };
    atomic_int count = 0;
    pool *p = NULL;

    CHECK(pool_create(4, &p, NULL) == KVANT_OK, "pool of 4");
    for (int i = 0; i < 5; i++) {            /* long enough for every worker to fall asleep */
        nanosleep(&nap, NULL);
        pool_run(p, count_part, &count);
    }
    CHECK(atomic_load(&count) == 20, "%d parts ran, wanted 20", atomic_load(&count));
    struct timespec c0, c1;
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c0);
    for (int i = 0; i < 5; i++)
        nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c1);
    double used = (double)(c1.tv_sec - c0.tv_sec) + 1e-9 * (double)(c1.tv_nsec - c0.tv_nsec);
    CHECK(used < 0.02, "an idle pool used %.3f s of CPU in 0.1 s", used);
    pool_free(p);
    pool_free(NULL);
}

/* Returns the seconds of CPU that the process used in 50 ms of this thread's sleep. */
static double used_in_a_nap(void)
{
    struct timespec nap = { 0, 50 * 1000 * 1000 }, c0, c1;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c0);
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c1);
    return (double)(c1.tv_sec - c0.tv_sec) + 1e-9 * (double)(c1.tv_nsec - c0.tv_nsec);
}

/* Workers that are told to stay awake do, those that slept too, and work; afterwards they sleep again.  A pool with
 * more threads than CPUs never waits awake. */
static void check_awake(int threads)
{
    const struct timespec nap = { 0, 20 * 1000 * 1000 };
    const int spins = threads <= cpu_count();
    atomic_int count = 0;
    pool *p = NULL;

    CHECK(pool_create(threads, &p, NULL) == KVANT_OK, "pool of %d", threads);
    for (int round = 0; round < 2; round++) {
        nanosleep(&nap, NULL);
        pool_stay_awake(p, 1);
        const double awake = used_in_a_nap();
        CHECK(spins ? awake > 0.001 : awake < 0.005, "%d threads used %.4f s of 0.05 s awake", threads, awake);
        pool_run(p, count_part, &count);
        pool_stay_awake(p, 0);
        nanosleep(&nap, NULL);
        const double asleep = used_in_a_nap();
        CHECK(asleep < 0.005, "%d threads used %.4f s of 0.05 s asleep", threads, asleep);
    }
    CHECK(atomic_load(&count) == 2 * threads, "%d parts", atomic_load(&count));
    pool_stay_awake(p, 1);         /* freed awake */
    pool_free(p);
}

/* ---- beside other work ---- */

static void *hog(void *stop)
{
    while (!atomic_load((atomic_int *)stop))
        ;
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The median of a job's time, in ns. */
static int64_t median_of_jobs(job *j)
{
    int64_t ns[BESIDE_ROUNDS];

    for (int i = 0; i < BESIDE_ROUNDS; i++) {
        ns[i] = -clock_ns();
        pool_run(j->p, run_stages, j);
        ns[i] += clock_ns();
    }
    qsort(ns, BESIDE_ROUNDS, sizeof ns[0], by_size);
    return ns[BESIDE_ROUNDS / 2];
}

/* Two threads that compute for every CPU: a wait that gives its processor away waits for their time slices.  40
 * barriers took 180 to 400 ms with yields, 0.3 ms without. */
static void check_beside(void)
{
    static job j;
    atomic_int stop = 0;
    pthread_t thread[2 * MAX_THREADS];
    const int n = cpu_count() < MAX_THREADS ? cpu_count() : MAX_THREADS;

    memset(&j, 0, sizeof j);
    CHECK(pool_create(n, &j.p, NULL) == KVANT_OK, "%d threads", n);
    for (int i = 0; i < 2 * n; i++)
        CHECK(pthread_create(&thread[i], NULL, hog, &stop) == 0, "thread %d", i);
    const int64_t ns = median_of_jobs(&j);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2 * n; i++)
        pthread_join(thread[i], NULL);
    CHECK(ns < MOST_BESIDE_NS, "%d threads beside %d that compute: %.1f ms a job", n, 2 * n, 1e-6 * (double)ns);
    printf("check_pool: %d threads beside %d that compute: %.2f ms a job\n", n, 2 * n, 1e-6 * (double)ns);
    pool_free(j.p);
}

static void check_bad(void)
{
    kvant_diag diag = { "" };
    pool *p = NULL;

    CHECK(pool_create(0, &p, &diag) == KVANT_EINVAL, "0 threads");
    CHECK(strstr(diag.text, "1 to 256") != NULL, "%s", diag.text);
    CHECK(pool_create(257, &p, &diag) == KVANT_EINVAL && p == NULL, "257 threads");
}

static void check_cpu(void)
{
    char text[256];
    uint32_t mask = 7;

    CHECK(cpu_count() >= 1, "%d", cpu_count());
    cpu_set_mask(CPU_AVX2);
    CHECK((kvant_cpu_features() & ~(uint32_t)CPU_AVX2) == 0, "mask is not applied: %x", (unsigned)kvant_cpu_features());
    cpu_set_mask(UINT32_MAX);
    CHECK((kvant_cpu_features() & ~cpu_detected()) == 0, "a mask may only remove features");
    kvant_cpu_text(CPU_AVX2 | CPU_AVX512, text, sizeof text);
    CHECK(strcmp(text, "avx2 avx512") == 0, "%s", text);
    kvant_cpu_text(CPU_AVX2 | CPU_AVX512, text, 4);
    CHECK(strcmp(text, "avx") == 0, "%s", text);
    CHECK(cpu_cap_find("ref", &mask) && mask == 0, "ref is the empty set");
    CHECK(!cpu_cap_find("sse9", &mask), "unknown names are refused");
    cpu_model_name(text, sizeof text);
    CHECK(text[0] != 0, "a model name");
}

int main(void)
{
    static const int threads[] = { 1, 2, 3, 7 };

    for (int i = 0; i < 4; i++)
        check_stages(threads[i]);
    check_sleep();
    if (cpu_count() > 1)
        check_awake(2);
    check_awake(cpu_count() + 1);
    check_beside();
    check_bad();
    check_cpu();
    return check_end("check_pool");
}
