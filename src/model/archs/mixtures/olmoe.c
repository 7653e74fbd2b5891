/* archs/mixtures/olmoe.c: OLMoE: q and k normed as whole rows; experts behind a softmax router whose weights are not
 * renormalised. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    const int f = hp->n_ff;        /* files give the expert's width as feed_forward_length */

    hp->norm.qk = QK_NORM_ROWS;
    hp->rope.neox = 1;
    hp->moe.raw = 1;
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    if (!gguf_find(g, "olmoe.expert_feed_forward_length"))
        hp->moe.n_ff = f;
    return read_moe_router(g, hp, diag);
}

const arch_def arch_olmoe = { "olmoe", shapes, request_plain_layer, build_plain_layer };
