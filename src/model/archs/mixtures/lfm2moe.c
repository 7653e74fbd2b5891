/* archs/mixtures/lfm2moe.c: LFM2 with experts: the layers of lfm2; leading dense ones, then experts behind a sigmoid
 * router with a bias for the choice. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = 1;
    hp->rope.neox = 1;
    hp->norm_names.output = "token_embd_norm";
    hp->moe.gating = KVANT_GATING_SIGMOID;
    KVANT_TRY(read_short_conv_shapes(g, hp, diag));
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_lfm2moe = { "lfm2moe", shapes, request_short_conv_layer, build_short_conv_layer };
