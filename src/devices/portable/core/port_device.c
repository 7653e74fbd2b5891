/* port_device.c: lists of ops on the devices of the portable kernels: which op there is, scratch, one call after
 * another. */
#include "devices/portable/core/port_dev.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- calls ---- */

static void add_buffer(port_call *c, const void *addr, size_t bytes, int write)
{
    c->buffer[c->n_buffers++] = (port_buffer){ bytes ? addr : NULL, bytes, write };
}

void port_read(port_call *c, const void *addr, size_t bytes)
{
    add_buffer(c, addr, bytes, 0);
}

void port_write(port_call *c, const void *addr, size_t bytes)
{
    add_buffer(c, addr, bytes, 1);
}

void port_define(port_call *c, const char *fmt, ...)
{
    static const char word[] = "#define ";
    const size_t n = strlen(c->defines), room = sizeof c->defines - n;
    va_list args;
    if (room <= sizeof word)
        return;
    memcpy(c->defines + n, word, sizeof word);
    va_start(args, fmt);
    vsnprintf(c->defines + n + sizeof word - 1, room - sizeof word, fmt, args);
    va_end(args);
    strcat(c->defines, "\n");
}

int port_dispatch(port_device *d, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag)
{
    if (x <= 0 || y <= 0 || z <= 0)
        return KVANT_OK;
    if (x > INT32_MAX || y > UINT16_MAX || z > UINT16_MAX)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: %s: %lld x %lld x %lld groups, wanted at most 2^31-1 x "
                          "65535 x 65535", d->base.vt->name, port_kernels[c->kernel].name, (long long)x, (long long)y,
                          (long long)z);
    return d->dispatch(d, c, x, y, z, diag);
}

/* ---- ops ---- */

#define KVANT_OP(ID, name, args, tol, fused, text) [KVANT_OP_##ID] = &port_op_##name,
#define FUSED(ID, name, on, ins, links, where) PORT_HAS_##on([FUSED_##ID] = &port_fused_##name,)
static const port_op *const port_ops[FUSED_END] = {
#include "kvant/ops.def"
#include "ops/fuse/fused.def"
};
#undef KVANT_OP

static int find_op(const port_device *d, int id, const port_op **out, kvant_diag *diag)
{
    const kvant_op_info *info = kvant_op_get(id);
    *out = id >= 0 && id < FUSED_END ? port_ops[id] : NULL;
    if (*out)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: op %s has no kernel", d->base.vt->name,
                      info ? info->name : "(none)");
}

int port_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag)
{
    const port_op *o;
    KVANT_TRY(find_op((port_device *)base, op->id, &o, diag));
    return o->supports ? o->supports((port_device *)base, op->args, diag) : KVANT_OK;
}

static int reserve_scratch(port_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    size_t want = 0;
    for (int i = 0; i < n; i++) {
        const port_op *o;
        KVANT_TRY(find_op(d, ops[i].id, &o, diag));
        const size_t s = o->scratch ? o->scratch(d, ops[i].args) : 0;
        want = s > want ? s : want;
    }
    if (want <= d->scratch_bytes)
        return KVANT_OK;
    KVANT_TRY(d->base.vt->sync(&d->base, diag));
    port_close(d);
    want = (want + want / 4 + 0xffff) & ~(size_t)0xffff;
    KVANT_TRY(d->base.vt->alloc(&d->base, want, &d->scratch, diag));
    d->scratch_bytes = want;
    return KVANT_OK;
}

int port_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    port_device *d = (port_device *)base;
    (void)key;                             /* nothing is recorded: the queue gets every op again */
    KVANT_TRY(reserve_scratch(d, ops, n, diag));
    kvant_op op;
    for (int i = 0; i < n;) {
        i += device_next_op(base, ops + i, n - i, 0, &op);
        KVANT_TRY(port_ops[op.id]->run(d, op.args, diag));
    }
    return KVANT_OK;
}

void port_close(port_device *d)
{
    if (d->scratch)
        d->base.vt->free(&d->base, d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
}
