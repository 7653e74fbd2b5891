/* mixtures/hunyuan_moe.c: Hunyuan-A13B: as the dense ones, with experts behind a softmax router whose weights are
 * renormalised, and a shared expert that is simply added. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->qk_norm = QK_NORM_HEADS;
    hp->qk_norm_late = 1;
    hp->rope_neox = 1;
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_hunyuan_moe = { "hunyuan-moe", shapes, request_plain_layer, build_plain_layer };
