/* check.c: kvant_op_check: the arguments of every op, checked once before it is queued.  The checks are made of the
 * cards (tools/gen_ops); what they share is arg_check.c's.
 * Checks shapes, strides, types and NULLs, not the contents of device buffers (ids, tables): those are the engine's.
 * An op over zero rows is valid with NULL buffers. */
#include "ops/arg_check.h"

#include <limits.h>

#include "ops/checks.inc"

typedef int (*op_check)(const void *args, kvant_diag *diag);

static const op_check CHECKS[KVANT_OP_COUNT] = {
#define KVANT_OP(ID, name, args, tol, fused, text) [KVANT_OP_##ID] = check_##name##_args,
#include "kvant/ops.def"
#undef KVANT_OP
};

int kvant_op_check(int id, const void *args, kvant_diag *diag)
{
    if (id < 0 || id >= KVANT_OP_COUNT)
        BAD("op %d is unknown, wanted 0 to %d", id, KVANT_OP_COUNT - 1);
    if (args == NULL)
        BAD("%s: the arguments are NULL", arg_op(id));
    return CHECKS[id](args, diag);
}
