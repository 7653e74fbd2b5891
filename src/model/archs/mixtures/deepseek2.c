/* mixtures/deepseek2.c: DeepSeek V2, V3 and R1, Kimi K2, Mistral Large 3: latent attention with adjacent-pair RoPE;
 * leading dense layers, then experts in groups behind a softmax (V2, Mistral) or sigmoid (V3) router, and a plain
 * shared expert. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->moe.raw = 1;
    return read_latent_mixture(g, "deepseek2", hp, diag);
}

const arch_def arch_deepseek2 = { "deepseek2", shapes, request_latent_layer, build_latent_layer };
