/* archs/mixtures/olmoe.c: OLMoE: q and k normed as whole rows; experts behind a softmax router whose weights are not
 * renormalised. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    const int f = hp->n_ff;        /* files give the expert's width as feed_forward_length */

    hp->qk_norm = QK_NORM_ROWS;
    hp->rope_neox = 1;
    hp->expert_raw = 1;
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    if (!gguf_find(g, "olmoe.expert_feed_forward_length"))
        hp->n_ff_exp = f;
    return read_moe_router(g, hp, diag);
}

const arch_def arch_olmoe = { "olmoe", shapes, request_plain_layer, build_plain_layer };
