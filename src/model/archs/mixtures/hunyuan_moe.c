/* mixtures/hunyuan_moe.c: Hunyuan-A13B: as the dense ones, with experts behind a softmax router whose weights are
 * renormalised, and a shared expert that is simply added. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_HEADS;
    hp->norm.qk_late = 1;
    hp->rope.neox = 1;
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_hunyuan_moe = { "hunyuan-moe", shapes, request_plain_layer, build_plain_layer };
