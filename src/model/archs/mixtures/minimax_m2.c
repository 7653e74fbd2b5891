/* mixtures/minimax_m2.c: MiniMax-M2: q and k norms over all heads together, RoPE on part of a head; experts behind a
 * sigmoid router with a bias for the choice. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_ROWS;
    hp->rope.neox = 1;
    hp->moe.gating = KVANT_GATING_SIGMOID;
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    return read_moe_router(g, hp, diag);
}

const arch_def arch_minimax_m2 = { "minimax-m2", shapes, request_plain_layer, build_plain_layer };
