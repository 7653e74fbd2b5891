/* archs/mixtures/nemotron_h_moe.c: Nemotron 3: nemotron_h with experts behind a sigmoid router, in some models on a
 * latent narrower than the stream, and a plain shared expert. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    uint32_t latent = 0;

    hp->moe.gating = KVANT_GATING_SIGMOID;
    KVANT_TRY(read_one_block_shapes(g, hp, diag));
    KVANT_TRY(read_moe_lead(g, hp, diag));
    KVANT_TRY(gguf_u32(g, "nemotron_h_moe.moe_latent_size", 0, &latent, diag));
    if (latent > (uint32_t)hp->n_embd)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "nemotron_h_moe.moe_latent_size: %u, wanted at most %d", latent,
                          hp->n_embd);
    hp->moe.n_latent = (int)latent;
    return KVANT_OK;
}

const arch_def arch_nemotron_h_moe = { "nemotron_h_moe", shapes, request_one_block, build_one_block };
