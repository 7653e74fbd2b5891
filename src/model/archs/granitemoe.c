/* archs/granitemoe.c: Granite 3 mixtures: Granite's factors, experts by a softmax of the chosen, and in some of them a
 * shared expert that is simply added. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    const int f = hp->n_ff;        /* files give the expert's width as feed_forward_length */
    KVANT_TRY(read_granite_factors(g, hp, diag));
    KVANT_TRY(read_moe_lead(g, hp, diag));
    if (!gguf_find(g, "granitemoe.expert_feed_forward_length"))
        hp->moe.n_ff = f;
    return KVANT_OK;
}

const arch_def arch_granitemoe = { "granitemoe", shapes, request_plain_layer, build_plain_layer };
