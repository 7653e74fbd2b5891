/* tests/support/op_run.c: see op_run.h. */
#include "support/op_run.h"
#include "base/pool.h"
#include "support/check.h"

enum { MAX_PARTS = 16 };

typedef struct job {
    const kvant_cpu_kernel *kernel;
    const void *args;
    void *shared, *local[MAX_PARTS];
    pool *workers;
} job;

static size_t rounded(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static void job_open(job *j, const kvant_cpu_kernel *kernel, const void *args, int parts)
{
    j->kernel = kernel;
    j->args = args;
    j->shared = check_guarded(rounded(kernel->shared_bytes ? kernel->shared_bytes(args) : 0), 0);
    for (int p = 0; p < parts; p++)
        j->local[p] = check_guarded(rounded(kernel->local_bytes ? kernel->local_bytes(args) : 0), 0);
}

static void job_close(job *j, int id, int parts)
{
    CHECK(check_guard_ok(j->shared), "%s wrote outside its shared scratch", kvant_op_get(id)->name);
    check_guard_free(j->shared);
    for (int p = 0; p < parts; p++) {
        CHECK(check_guard_ok(j->local[p]), "%s wrote outside its local scratch", kvant_op_get(id)->name);
        check_guard_free(j->local[p]);
    }
}

static int accepted(int id, const void *args)
{
    kvant_diag diag = { "" };
    const int rc = kvant_op_check(id, args, &diag);

    CHECK(rc == KVANT_OK, "%s: %s", kvant_op_get(id)->name, diag.text);
    return rc == KVANT_OK;
}

void op_run(int id, const kvant_cpu_kernel *kernel, const void *args, int parts)
{
    job j;

    if (!accepted(id, args))
        return;
    job_open(&j, kernel, args, parts);
    for (int stage = 0; stage < kernel->stages; stage++)
        for (int i = 0; i < parts; i++) {
            const int part = stage % 2 ? parts - 1 - i : i;
            const kvant_work work = { j.shared, j.local[part] };

            kernel->fn[stage](args, part, parts, &work);
        }
    job_close(&j, id, parts);
}

static void job_part(void *arg, int part, int parts)
{
    job *j = arg;
    const kvant_work work = { j->shared, j->local[part] };

    for (int stage = 0; stage < j->kernel->stages; stage++) {
        j->kernel->fn[stage](j->args, part, parts, &work);
        pool_barrier(j->workers);
    }
}

void op_run_threads(int id, const kvant_cpu_kernel *kernel, const void *args, int threads)
{
    kvant_diag diag;
    job j;

    if (!accepted(id, args))
        return;
    job_open(&j, kernel, args, threads);
    CHECK(pool_create(threads, &j.workers, &diag) == KVANT_OK, "%s", diag.text);
    pool_run(j.workers, job_part, &j);
    pool_free(j.workers);
    job_close(&j, id, threads);
}
