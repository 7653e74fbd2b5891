/* mixtures/qwen2moe.c: Qwen1.5-MoE and Qwen2-MoE: attention with biases on q, k and v; routed experts whose weights are
 * not renormalised, and a shared expert behind a sigmoid gate. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 1;
    hp->moe.raw = 1;
    KVANT_TRY(read_moe_shapes(g, hp, 1, diag));
    return read_moe_router(g, hp, diag);
}

const arch_def arch_qwen2moe = { "qwen2moe", shapes, request_plain_layer, build_plain_layer };
