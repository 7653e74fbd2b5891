/* mixtures/bailingmoe2.c: Ling 2.0, Ring and Sarvam: per-head norms of q and k, RoPE on a part of a head; leading dense
 * layers, then experts in groups behind a sigmoid router with a bias for the choice, and a plain shared expert. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_HEADS;
    hp->rope.neox = 1;
    hp->moe.gating = KVANT_GATING_SIGMOID;
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_bailingmoe2 = { "bailingmoe2", shapes, request_plain_layer, build_plain_layer };
