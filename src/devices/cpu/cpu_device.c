/* cpu_device.c: the CPU device: runs lists of ops on the worker pool.  Owns the pool and the scratch memory of ops;
 * kernels are chosen by kvant_op_cpu, weights are laid out by matmul_pack (matmul_pack.h).
 *
 * One submit is ONE pool_run: every worker walks the whole list and meets the others at a barrier after each stage.
 * (Waking the workers once per op costs more than a small op itself.)  Neighbouring matmuls that read the same
 * activations need no barrier between them, and their common preparation stage runs once. */
#include "devices/device.h"

#include <stdio.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/trace.h"
#include "devices/cpu/matmul/matmul_pack.h"

typedef struct cpu_device {
    kvant_device base;
    pool *workers;
    uint32_t features;                                  /* kernels[] was made for these */
    const kvant_cpu_kernel *kernels[KVANT_OP_COUNT];
    unsigned char *shared, *local;                      /* kept between submits, grown by scratch_reserve */
    size_t shared_bytes, local_bytes;                   /* local_bytes: of one part */
} cpu_device;

typedef struct cpu_run {
    cpu_device *d;
    const kvant_op *ops;
    int n;
    double *us;                                         /* NULL, or what each op took: see profile of device.h */
} cpu_run;

enum { HUGE_BYTES = 2 << 20 };

extern const kvant_device_vt kvant_device_cpu;          /* at the end; named in devices.def */

static void choose_kernels(cpu_device *d)
{
    uint32_t features = kvant_cpu_features();

    if (features == d->features && d->kernels[KVANT_OP_MATMUL])
        return;
    d->features = features;
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        d->kernels[id] = kvant_op_cpu(id);
}

static int cpu_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    int threads = cfg->threads > 0 ? cfg->threads : cpu_count();
    cpu_device *d = kvant_calloc(1, sizeof *d);

    if (!d)
        return kvant_fail(diag, KVANT_ENOMEM, "device cpu: out of memory");
    d->base.vt = &kvant_device_cpu;
    int rc = pool_create(threads, &d->workers, diag);
    if (rc < 0) {
        kvant_free(d);
        return rc;
    }
    choose_kernels(d);
    *out = &d->base;
    return KVANT_OK;
}

static void cpu_close(kvant_device *base)
{
    cpu_device *d = (cpu_device *)base;

    if (!d)
        return;
    pool_free(d->workers);
    kvant_free(d->shared);
    kvant_free(d->local);
    kvant_free(d);
}

static void cpu_describe(const kvant_device *base, char *buf, int cap)
{
    const cpu_device *d = (const cpu_device *)base;
    int threads = pool_threads(d->workers);
    char model[128], features[128];

    cpu_model_name(model, sizeof model);
    kvant_cpu_text(kvant_cpu_features(), features, sizeof features);
    snprintf(buf, (size_t)cap, "CPU (%s, %d thread%s, %s)", model, threads, threads == 1 ? "" : "s", features);
}

/* Pages of 2 MiB for big blocks: a step walks all weights once, and 4 KiB pages would miss the TLB on each. */
static void advise_huge(void *addr, size_t bytes)
{
#if defined(__linux__)
    uintptr_t lo = ((uintptr_t)addr + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1);
    uintptr_t hi = ((uintptr_t)addr + bytes) & ~(uintptr_t)(HUGE_BYTES - 1);
    if (hi > lo)
        (void)madvise((void *)lo, hi - lo, MADV_HUGEPAGE);      /* advice only: failing changes nothing */
#else
    (void)addr;
    (void)bytes;
#endif
}

static int cpu_alloc(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag)
{
    (void)d;
    void *p = kvant_alloc(bytes);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "device cpu: out of memory for %zu bytes", bytes);
    advise_huge(p, bytes);
    *addr = p;
    return KVANT_OK;
}

static void cpu_free(kvant_device *d, void *addr)
{
    (void)d;
    kvant_free(addr);
}

static int cpu_adopt(kvant_device *d, void *memory, size_t bytes, void **addr, kvant_diag *diag)
{
    (void)d;
    (void)bytes;
    (void)diag;
    *addr = memory;
    return KVANT_OK;
}

static int cpu_copy(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    (void)d;
    (void)diag;
    if (bytes)
        memcpy(dst, src, bytes);
    return KVANT_OK;
}

static void pack_part(void *arg, int part, int parts)
{
    kvant_cpu_pack_part(arg, part, parts);
}

/* compute is not needed: one packed layout serves both compute modes. */
static int cpu_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    cpu_device *d = (cpu_device *)base;
    size_t bytes;

    (void)compute;
    if (w->use == KVANT_WEIGHT_EMBED)
        return KVANT_OK;                                /* embed reads rows in file layout */
    KVANT_TRY(kvant_cpu_pack_bytes(w, &bytes, diag));
    void *packed = kvant_alloc(bytes);
    if (!packed)
        return kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory for %zu bytes", w->name ? w->name : "weight",
                          bytes);
    advise_huge(packed, bytes);
    w->packed = packed;
    kvant_cpu_pack_begin(w);
    pool_run(d->workers, pack_part, w);
    choose_kernels(d);
    int id = w->n_expert > 1 ? KVANT_OP_MATMUL_ID : KVANT_OP_MATMUL;
    if (!(w->use & KVANT_WEIGHT_EMBED) && d->kernels[id] != kvant_op_reference(id))
        w->data = NULL;                                 /* only the reference and embed read the file's rows */
    return KVANT_OK;
}

static void cpu_weight_free(kvant_device *d, kvant_weight *w)
{
    (void)d;
    kvant_free(w->packed);
    w->packed = NULL;
}

static int cpu_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag)
{
    cpu_device *d = (cpu_device *)base;
    const kvant_op_info *info = kvant_op_get(op->id);

    choose_kernels(d);
    if (!info)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device cpu: op %d does not exist", op->id);
    if (!d->kernels[op->id])
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device cpu: op %s has no kernel", info->name);
    return KVANT_OK;
}

/* Makes a scratch block at least `want` bytes large (contents are lost). */
static int scratch_reserve(unsigned char **block, size_t *have, size_t want, size_t count, kvant_diag *diag)
{
    size_t bytes;

    if (want <= *have && *block)
        return KVANT_OK;
    if (!size_mul(want, count, &bytes))
        return kvant_fail(diag, KVANT_ENOMEM, "device cpu: scratch of %zu x %zu bytes", want, count);
    kvant_free(*block);
    *have = 0;
    *block = kvant_alloc(bytes);
    if (!*block)
        return kvant_fail(diag, KVANT_ENOMEM, "device cpu: out of memory for %zu bytes of scratch", bytes);
    advise_huge(*block, bytes);
    *have = want;
    return KVANT_OK;
}

static int prepare(cpu_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    size_t shared = 64, local = 64;

    choose_kernels(d);
    for (int i = 0; i < n; i++) {
        const kvant_cpu_kernel *k = ops[i].id >= 0 && ops[i].id < KVANT_OP_COUNT ? d->kernels[ops[i].id] : NULL;
        if (!k)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device cpu: op %d has no kernel", ops[i].id);
        size_t s = k->shared_bytes ? k->shared_bytes(ops[i].args) : 0;
        size_t l = k->local_bytes ? k->local_bytes(ops[i].args) : 0;
        shared = s > shared ? s : shared;
        local = l > local ? l : local;
    }
    local = (local + 127) & ~(size_t)127;               /* two lines: parts never share what the prefetcher pairs */
    KVANT_TRY(scratch_reserve(&d->shared, &d->shared_bytes, shared, 1, diag));
    return scratch_reserve(&d->local, &d->local_bytes, local, (size_t)pool_threads(d->workers), diag);
}

/* First op after ops[i] that does not belong to the same group (see kvant_cpu_same_input). */
static int group_end(const kvant_op *ops, int i, int n)
{
    int j = i + 1;

    while (j < n && kvant_cpu_same_input(&ops[i], &ops[j]))
        j++;
    return j;
}

static void run_list(void *arg, int part, int parts)
{
    const cpu_run *r = arg;
    cpu_device *d = r->d;
    kvant_work work = { d->shared, d->local + (size_t)part * d->local_bytes };

    for (int i = 0, end; i < r->n; i = end) {
        const kvant_cpu_kernel *k = d->kernels[r->ops[i].id];
        int64_t t0 = (trace_on() || r->us) && part == 0 ? clock_ns() : 0;
        end = group_end(r->ops, i, r->n);
        for (int s = k->first_stage ? k->first_stage(r->ops[i].args) : 0; s < k->stages; s++) {
            int last = s == k->stages - 1;
            for (int j = i; j < (last ? end : i + 1); j++)
                k->fn[s](r->ops[j].args, part, parts, &work);
            if (!(last && end == r->n))
                pool_barrier(d->workers, part);
        }
        if (t0 && trace_on())
            trace_span(kvant_op_get(r->ops[i].id)->name, 0, t0, clock_ns());
        for (int j = i; t0 && r->us && j < end; j++)
            r->us[j] = j == i ? (double)(clock_ns() - t0) / 1e3 : -1.0;
    }
}

static int cpu_profile(kvant_device *base, const kvant_op *ops, int n, double *us, kvant_diag *diag)
{
    cpu_device *d = (cpu_device *)base;
    cpu_run run = { d, ops, n, us };

    if (n <= 0)
        return KVANT_OK;
    KVANT_TRY(prepare(d, ops, n, diag));
    pool_run(d->workers, run_list, &run);
    return KVANT_OK;
}

static int cpu_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    (void)key;                                          /* nothing is recorded: a list is already cheap to walk */
    return cpu_profile(base, ops, n, NULL, diag);
}

static int cpu_sync(kvant_device *d, kvant_diag *diag)
{
    (void)d;
    (void)diag;
    return KVANT_OK;
}

static void cpu_stay_awake(kvant_device *d, int on)
{
    pool_stay_awake(((cpu_device *)d)->workers, on);
}

/* ---- slots: the rows are packed once more ---- */

static int cpu_slot_bytes(kvant_device *base, const kvant_weight *w, size_t *bytes, kvant_diag *diag)
{
    cpu_device *d = (cpu_device *)base;

    choose_kernels(d);
    if (d->kernels[KVANT_OP_MATMUL_ID] == kvant_op_reference(KVANT_OP_MATMUL_ID))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device cpu: the reference reads rows as files have them");
    return kvant_cpu_pack_bytes(w, bytes, diag);
}

static int cpu_slot_make(kvant_device *d, kvant_weight *w, void *at, kvant_diag *diag)
{
    (void)d;
    (void)diag;
    w->packed = at;
    w->data = NULL;
    kvant_cpu_pack_begin(w);
    return KVANT_OK;
}

static void cpu_slot_drop(kvant_device *d, kvant_weight *w)
{
    (void)d;
    w->packed = NULL;
}

/* All rows, as files have them. */
static size_t file_bytes(const kvant_weight *w)
{
    return (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes * (size_t)w->n_out * (size_t)w->n_expert;
}

static int cpu_slot_fill(kvant_device *base, kvant_weight *w, int slot, const copy_piece *list, int n,
                         kvant_diag *diag)
{
    cpu_device *d = (cpu_device *)base;
    kvant_weight rows = *w;
    const size_t bytes = file_bytes(w);
    const int wrong = copy_pieces_beyond(list, n, bytes, bytes);

    (void)slot;
    if (wrong >= 0)
        return kvant_fail(diag, KVANT_EINVAL, "device cpu: %zu bytes of rows at %zu, wanted within %zu",
                          list[wrong].bytes, (size_t)list[wrong].to, bytes);
    uint8_t *joined = kvant_calloc(1, bytes);  /* rows that no piece has are zeros */
    if (!joined)
        return kvant_fail(diag, KVANT_ENOMEM, "device cpu: out of memory for %zu bytes of rows", bytes);
    for (int i = 0; i < n; i++)
        memcpy(joined + (uintptr_t)list[i].to, list[i].from, list[i].bytes);
    rows.data = joined;
    kvant_cpu_pack_begin(&rows);
    pool_run(d->workers, pack_part, &rows);
    kvant_free(joined);
    return KVANT_OK;
}

static int cpu_slot_used(kvant_device *d, int slot, kvant_diag *diag)
{
    (void)d;
    (void)slot;
    (void)diag;
    return KVANT_OK;
}

static const kvant_slots_vt cpu_slots = { cpu_slot_bytes, cpu_slot_make, cpu_slot_drop, cpu_slot_fill, cpu_slot_used };

const kvant_device_vt kvant_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .weight_load = cpu_weight_load,
    .weight_free = cpu_weight_free,
    .supports = cpu_supports,
    .submit = cpu_submit,
    .profile = cpu_profile,
    .sync = cpu_sync,
    .adopt = cpu_adopt,
    .stay_awake = cpu_stay_awake,
    .slots = &cpu_slots,
};
