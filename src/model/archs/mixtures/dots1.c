/* mixtures/dots1.c: dots.llm1: attention with per-head q and k norms; leading dense layers, then experts behind a
 * sigmoid router with a bias for the choice, and a shared expert that is simply added. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = 1;
    hp->rope.neox = 1;
    hp->moe.gating = KVANT_GATING_SIGMOID;
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_dots1 = { "dots1", shapes, request_plain_layer, build_plain_layer };
