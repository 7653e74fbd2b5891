/* parts_device.c: see parts_device.h. */
#include "support/parts_device.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "support/op_run.h"

typedef struct parts_dev {
    kvant_device base;
    const char *variant;
    int turn;
} parts_dev;

static const kvant_cpu_kernel *kernel_of(const parts_dev *d, int id)
{
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int i = 0; (kernel = kvant_op_variant(id, i, &name, &usable)) != NULL; i++)
        if (usable && strcmp(name, d->variant) == 0)
            return kernel;
    return NULL;
}

static void describe(const kvant_device *d, char *buf, int cap)
{
    snprintf(buf, (size_t)cap, "%s", ((const parts_dev *)d)->variant);
}

static int take(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag)
{
    (void)d;
    *addr = kvant_alloc(bytes);
    return *addr ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "out of memory");
}

static void give(kvant_device *d, void *addr)
{
    (void)d;
    kvant_free(addr);
}

static int copy(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    (void)d;
    (void)diag;
    memcpy(dst, src, bytes);
    return KVANT_OK;
}

/* Packed in three parts, the last one first; embed and the reference read the file's rows. */
static int weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    const parts_dev *d = (const parts_dev *)base;
    size_t bytes;

    (void)compute;
    if (w->use == KVANT_WEIGHT_EMBED || kernel_of(d, KVANT_OP_MATMUL) == kvant_op_reference(KVANT_OP_MATMUL))
        return KVANT_OK;
    KVANT_TRY(kvant_cpu_pack_bytes(w, &bytes, diag));
    KVANT_TRY(take(base, bytes, &w->packed, diag));
    memset(w->packed, 0xFF, bytes);
    kvant_cpu_pack_begin(w);
    for (int part = 2; part >= 0; part--)
        kvant_cpu_pack_part(w, part, 3);
    return KVANT_OK;
}

static void weight_free(kvant_device *d, kvant_weight *w)
{
    give(d, w->packed);
    w->packed = NULL;
}

static int supports(kvant_device *d, const kvant_op *op, kvant_diag *diag)
{
    if (kernel_of((parts_dev *)d, op->id))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "no variant %s", ((parts_dev *)d)->variant);
}

static int submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    static const int parts[] = { 1, 2, 7, 2 };
    parts_dev *d = (parts_dev *)base;
    int turn = key ? d->turn++ % 3 + 1 : 0;

    (void)diag;
    for (int i = 0; i < n; i++) {
        const kvant_cpu_kernel *kernel = kernel_of(d, ops[i].id);
        const int threads = turn == 3 && kernel->stages > 1;       /* one stage has no barrier that could be wrong */
        (threads ? op_run_threads : op_run)(ops[i].id, kernel, ops[i].args, parts[turn]);
    }
    return KVANT_OK;
}

static int sync(kvant_device *d, kvant_diag *diag)
{
    (void)d;
    (void)diag;
    return KVANT_OK;
}

kvant_device *parts_device(const char *variant)
{
    static const kvant_device_vt vt = { .name = "parts", .describe = describe, .alloc = take, .free = give,
                                        .copy_in = copy, .copy_out = copy, .weight_load = weight_load,
                                        .weight_free = weight_free, .supports = supports, .submit = submit,
                                        .sync = sync };
    static parts_dev d;
    d = (parts_dev){ { &vt }, variant, 0 };
    return &d.base;
}
