/* port_rows.c: moe_combine and rope: one dispatch each. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/ops/ops_params.h"

static int moe_combine_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const struct p_moe_combine p = { .d = a->d, .k = a->k };
    port_call c = PORT_CALL(moe_combine, p);
    port_operands(d, &c, KVANT_OP_MOE_COMBINE, args);
    return port_dispatch(d, &c, a->n, 1, (a->d + ROWS_SPAN - 1) / ROWS_SPAN, diag);
}
PORT_OP(moe_combine, NULL, moe_combine_run)

static int rope_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    const struct p_rope p = { .ldx = a->ldx, .gx = a->gx, .n_half = a->n_rot / 2, .neox = a->neox,
                              .mscale = a->mscale };
    port_call c = PORT_CALL(rope, p);
    port_operands(d, &c, KVANT_OP_ROPE, args);
    return port_dispatch(d, &c, a->n, a->h, 1, diag);
}
PORT_OP(rope, NULL, rope_run)
