/* mixtures/ernie4_5_moe.c: ERNIE 4.5 mixtures: attention with adjacent-pair RoPE; leading dense layers, then experts
 * behind a softmax router with a bias for the choice, and a shared expert that is simply added. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    uint32_t step = 1;

    hp->rope.neox = 0;
    KVANT_TRY(gguf_u32(g, "ernie4_5-moe.interleave_moe_layer_step", 0, &step, diag));
    if (step != 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "ernie4_5-moe.interleave_moe_layer_step: %u, wanted 1", step);
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_ernie4_5_moe = { "ernie4_5-moe", shapes, request_plain_layer, build_plain_layer };
