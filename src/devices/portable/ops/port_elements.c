/* port_elements.c: element-wise ops, kernels and dispatches made of their cards (tools/ops/elements.py); dispatches of
 * norms as well. */
#include "devices/portable/core/port_dev.h"
#include "ops/elements_params.h"
#include "ops/operands.h"

void port_operands(port_device *d, port_call *c, int id, const void *args)
{
    const op_operands o = op_operands_of(id, args);
    for (int i = 0; i < o.n; i++) {
        const op_operand *p = &o.list[i];
        const size_t bytes = p->bytes || !p->at ? p->bytes : d->rest(d, p->at);
        (p->access & OPERAND_WRITE ? port_write : port_read)(c, p->at, p->at ? bytes : 0);
    }
}

static int fits(const port_device *d, const char *op, int64_t threads, kvant_diag *diag)
{
    enum { MOST = INT32_MAX - PORT_THREADS };
    if (threads <= MOST)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: %s: %lld values, wanted at most %d", d->base.vt->name, op,
                      (long long)threads, MOST);
}

#include "ops/elements_portable.inc"
