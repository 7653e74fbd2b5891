/* port_slots.c: slot_copy and slot_zero, by words where sizes and addresses are whole words, else by bytes. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/gdn/gdn_params.h"

static int64_t unit_of(port_call *c, const void *base, size_t stride, size_t bytes)
{
    if (((uintptr_t)base | stride | bytes) % 4 == 0)
        return 4;
    port_define(c, "UNIT uint8_t");
    return 1;
}

static size_t slot_copy_scratch(port_device *d, const void *args)
{
    const kvant_slot_copy_args *a = args;
    (void)d;
    return (size_t)a->n * a->bytes;
}

static int copy_pass(port_device *d, const kvant_slot_copy_args *a, int gather, kvant_diag *diag)
{
    struct p_slots p = { .gather = gather };
    port_call c = PORT_CALL(slot_copy, p);
    const int64_t unit = unit_of(&c, a->base, a->stride, a->bytes);
    p.stride = (int64_t)a->stride / unit;
    p.n = (int64_t)a->bytes / unit;
    port_write(&c, a->base, d->rest(d, a->base));
    port_write(&c, d->scratch, slot_copy_scratch(d, a));
    port_read(&c, gather ? a->src : a->dst, (size_t)a->n * sizeof(int32_t));
    return port_dispatch(d, &c, (p.n + SLOT_SPAN - 1) / SLOT_SPAN, a->n, 1, diag);
}

static int slot_copy_run(port_device *d, const void *args, kvant_diag *diag)
{
    KVANT_TRY(copy_pass(d, args, 1, diag));
    return copy_pass(d, args, 0, diag);
}
PORT_OP_SCRATCH(slot_copy, NULL, slot_copy_scratch, slot_copy_run)

static int slot_zero_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = args;
    struct p_slots p = { 0 };
    port_call c = PORT_CALL(slot_zero, p);
    const int64_t unit = unit_of(&c, a->base, a->stride, a->bytes);
    p.stride = (int64_t)a->stride / unit;
    p.n = (int64_t)a->bytes / unit;
    port_write(&c, a->base, d->rest(d, a->base));
    port_read(&c, a->dst, (size_t)a->n * sizeof(int32_t));
    return port_dispatch(d, &c, (p.n + SLOT_SPAN - 1) / SLOT_SPAN, a->n, 1, diag);
}
PORT_OP(slot_zero, NULL, slot_zero_run)
