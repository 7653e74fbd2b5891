/* mixtures/mistral4.c: Mistral Small 4: as deepseek2 with a softmax router and a temperature of attention.  Groups of
 * experts, which no published file has, would be chosen by the sum of two softmax weights. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    KVANT_TRY(read_latent_mixture(g, "mistral4", hp, diag));
    if (hp->moe.n_group > 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "mistral4.expert_group_count: %d, wanted 1", hp->moe.n_group);
    return KVANT_OK;
}

const arch_def arch_mistral4 = { "mistral4", shapes, request_latent_layer, build_latent_layer };
