/* tests/support/op_run.c: see op_run.h. */
#include "support/op_run.h"
#include "base/pool.h"
#include "support/check.h"

enum { MAX_PARTS = 16 };

typedef struct scratch {
    unsigned char *block;
    size_t n, lead;
} scratch;

typedef struct job {
    const kvant_cpu_kernel *kernel;
    const void *args;
    void *shared, *local[MAX_PARTS];
    scratch shared_block, local_block[MAX_PARTS];
    pool *workers;
} job;

/* A guarded block that starts on a 64-byte boundary; the unused bytes before and behind it stay 0xFF too. */
static void *scratch_open(scratch *s, size_t n)
{
    s->block = check_guarded(n + 64, 0);
    s->n = n;
    s->lead = (size_t)(-(uintptr_t)s->block & 63);
    return s->block + s->lead;
}

static void scratch_close(scratch *s, const char *op, const char *which)
{
    int slack = 1;

    for (size_t i = 0; i < s->lead; i++)
        slack &= s->block[i] == 0xFF;
    for (size_t i = s->lead + s->n; i < s->n + 64; i++)
        slack &= s->block[i] == 0xFF;
    CHECK(slack && check_guard_ok(s->block), "%s wrote outside its %s scratch", op, which);
    check_guard_free(s->block);
}

static void job_open(job *j, const kvant_cpu_kernel *kernel, const void *args, int parts)
{
    j->kernel = kernel;
    j->args = args;
    j->shared = scratch_open(&j->shared_block, kernel->shared_bytes ? kernel->shared_bytes(args) : 0);
    for (int p = 0; p < parts; p++)
        j->local[p] = scratch_open(&j->local_block[p], kernel->local_bytes ? kernel->local_bytes(args) : 0);
}

static void job_close(job *j, int id, int parts)
{
    scratch_close(&j->shared_block, kvant_op_get(id)->name, "shared");
    for (int p = 0; p < parts; p++)
        scratch_close(&j->local_block[p], kvant_op_get(id)->name, "local");
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
        pool_barrier(j->workers, part);
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
