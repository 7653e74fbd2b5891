/* op_registry.c: which ops exist (kvant/ops.def, made of the cards), and which kernels implement each: the reference,
 * kvant_<op>_ref, and the ladder of faster versions (devices/cpu/variants.def).  Constant tables only; the choice is
 * made from kvant_cpu_features() at every call, so that tests can lower the CPU mask at any time. */
#include "kvant/ops.h"

#include "base/cpu.h"

#define KVANT_OP(ID, name, args, tol, fused, text) { #name, sizeof(args), tol, fused, text },
static const kvant_op_info infos[] = {
#include "kvant/ops.def"
};
#undef KVANT_OP

#define KVANT_OP(ID, name, args, tol, fused, text) extern const kvant_cpu_kernel kvant_##name##_ref;
#include "kvant/ops.def"
#undef KVANT_OP

#define KVANT_OP(ID, name, args, tol, fused, text) [KVANT_OP_##ID] = &kvant_##name##_ref,
static const kvant_cpu_kernel *const references[KVANT_OP_COUNT] = {
#include "kvant/ops.def"
};
#undef KVANT_OP

#define KVANT_OP_VARIANT(op, isa, mask) extern const kvant_cpu_kernel kvant_##op##_##isa;
#include "devices/cpu/variants.def"
#undef KVANT_OP_VARIANT

typedef struct op_variant {
    int id;
    const kvant_cpu_kernel *kernel;
    const char *name;
    uint32_t mask; /* CPU features it needs, all of them */
} op_variant;

#define KVANT_OP(ID, name, args, tol, fused, text) id_##name = KVANT_OP_##ID,
enum { /* ids by lower-case name, so that a variant is named once */
#include "kvant/ops.def"
};
#undef KVANT_OP

#define KVANT_OP_VARIANT(op, isa, mask) { id_##op, &kvant_##op##_##isa, #isa, mask },
static const op_variant variants[] = {
#include "devices/cpu/variants.def"
    { -1, NULL, NULL, 0 }, /* the list may be empty on an unknown processor */
};
#undef KVANT_OP_VARIANT
enum { VARIANT_COUNT = sizeof variants / sizeof variants[0] - 1 };

const kvant_op_info *kvant_op_get(int id)
{
    return id >= 0 && id < KVANT_OP_COUNT ? &infos[id] : NULL;
}

const kvant_cpu_kernel *kvant_op_reference(int id)
{
    return id >= 0 && id < KVANT_OP_COUNT ? references[id] : NULL;
}

const kvant_cpu_kernel *kvant_op_cpu(int id)
{
    const kvant_cpu_kernel *best = kvant_op_reference(id);
    uint32_t cpu = kvant_cpu_features();

    for (int i = 0; i < VARIANT_COUNT; i++)
        if (variants[i].id == id && (variants[i].mask & ~cpu) == 0)
            best = variants[i].kernel;
    return best;
}

const kvant_cpu_kernel *kvant_op_variant(int id, int i, const char **name, int *usable)
{
    const kvant_cpu_kernel *kernel = NULL;
    uint32_t cpu = kvant_cpu_features();

    if (i == 0) {
        kernel = kvant_op_reference(id);
        *name = "ref";
        *usable = kernel != NULL;
        return kernel;
    }
    for (int j = 0, rung = 0; i > 0 && j < VARIANT_COUNT && !kernel; j++)
        if (variants[j].id == id && ++rung == i) {
            kernel = variants[j].kernel;
            *name = variants[j].name;
            *usable = (variants[j].mask & ~cpu) == 0;
        }
    return kernel;
}
