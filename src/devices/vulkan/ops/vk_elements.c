/* vk_elements.c: element-wise ops, whose shaders and dispatches are made of their cards (tools/ops/elements.py), and
 * the dispatches of norms. */
#include "devices/vulkan/core/vk_dev.h"
#include "ops/operands.h"

static uint64_t groups(int64_t n)
{
    return (uint64_t)((n + VK_GROUP - 1) / VK_GROUP);
}

void vk_operands(const vk_device *d, vk_call *c, int id, const void *args)
{
    const op_operands o = op_operands_of(id, args);
    for (int i = 0; i < o.n; i++) {
        const op_operand *p = &o.list[i];
        const size_t bytes = p->bytes || !p->at ? p->bytes : vk_rest(d, p->at);
        vk_ptr(c, p->at, p->at ? bytes : 0, p->access & OPERAND_WRITE ? VK_WRITE : VK_READ);
    }
}

int vk_counted(const char *name, const kvant_op *op, kvant_diag *diag)
{
    const op_operands o = op_operands_of(op->id, op->args);
    size_t most = 0;
    for (int i = 0; i < o.n; i++)
        most = o.list[i].bytes > most ? o.list[i].bytes : most;
    return vk_fits(name, (int64_t)(most / sizeof(float)), diag);
}

#include "ops/elements_vulkan.inc"
