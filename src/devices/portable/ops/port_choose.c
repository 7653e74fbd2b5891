/* port_choose.c: ops that pick the largest of a row: moe_route, argmax, top_k.  Long rows are cut into pieces, a
 * group each, and a second dispatch picks among what those found. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/ops/ops_params.h"

/* Values of a row that a group of top_k takes; most groups of a row. */
enum { PIECE = 4096, MOST_PIECES = 64 };

static int pieces_of(int d)
{
    const int pieces = (d + PIECE - 1) / PIECE;
    return pieces < MOST_PIECES ? pieces : MOST_PIECES;
}

static int moe_route_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    if (a->n_expert > MOST_EXPERTS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: moe_route: %d experts, wanted at most %d",
                          d->base.vt->name, a->n_expert, MOST_EXPERTS);
    if (a->n_group > PORT_THREADS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: moe_route: %d groups, wanted at most %d",
                          d->base.vt->name, a->n_group, PORT_THREADS);
    return KVANT_OK;
}

static int moe_route_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    const size_t picked = (size_t)a->n * (size_t)a->k * 4;
    const struct p_moe_route p = { .n_expert = a->n_expert, .k = a->k, .gating = a->gating, .raw = a->raw,
                                   .has_bias = a->bias != NULL, .n_group = a->n_group, .top_groups = a->top_groups,
                                   .group_best = a->group_best, .scale = a->scale };
    port_call c = PORT_CALL(moe_route, p);
    port_read(&c, a->logits, (size_t)a->n * (size_t)a->n_expert * 4);
    port_write(&c, a->ids, picked);
    port_write(&c, a->wts, picked);
    port_read(&c, a->bias, a->bias ? (size_t)a->n_expert * 4 : 0);
    return port_dispatch(d, &c, a->n, 1, 1, diag);
}
PORT_OP(moe_route, moe_route_supports, moe_route_run)

/* ---- top_k; argmax is the largest one ---- */

static size_t lists_bytes(const kvant_top_k_args *a)
{
    return (size_t)a->n * (size_t)pieces_of(a->d) * (size_t)a->k * sizeof(uint64_t);
}

static size_t top_k_scratch(port_device *d, const void *args)
{
    (void)d;
    return lists_bytes(args);
}

static int top_k_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_top_k_args *a = args;
    const int pieces = pieces_of(a->d);
    const size_t out = (size_t)a->n * (size_t)a->k * 4;
    for (int parts = pieces; parts >= 0; parts -= pieces) {
        const struct p_top_k p = { .d = a->d, .k = a->k, .parts = parts, .pieces = pieces };
        port_call c = PORT_CALL(top_k, p);
        port_read(&c, a->x, (size_t)a->n * (size_t)a->d * 4);
        port_write(&c, d->scratch, lists_bytes(a));
        port_write(&c, a->values, out);
        port_write(&c, a->ids, out);
        KVANT_TRY(port_dispatch(d, &c, a->n, parts ? parts : 1, 1, diag));
    }
    return KVANT_OK;
}
PORT_OP_SCRATCH(top_k, NULL, top_k_scratch, top_k_run)

/* The values, which nobody wants, lie behind the lists. */
static size_t argmax_scratch(port_device *d, const void *args)
{
    const kvant_argmax_args *a = args;
    const kvant_top_k_args k = { .n = a->n, .d = a->d, .k = 1 };
    (void)d;
    return lists_bytes(&k) + (size_t)a->n * sizeof(float);
}

static int argmax_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_argmax_args *a = args;
    kvant_top_k_args k = { .x = a->x, .ids = a->ids, .n = a->n, .d = a->d, .k = 1 };
    k.values = (float *)(void *)((char *)d->scratch + lists_bytes(&k));
    return top_k_run(d, &k, diag);
}
PORT_OP_SCRATCH(argmax, NULL, argmax_scratch, argmax_run)
