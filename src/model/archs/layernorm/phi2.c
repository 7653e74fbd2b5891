/* archs/layernorm/phi2.c: Phi-1, Phi-1.5 and Phi-2: attention and a GELU without gate beside each other on one
 * LayerNorm; biases everywhere, that of the logits too; RoPE on a part of each head. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.layer = 1;
    hp->parallel = 1;
    hp->act = ACT_GELU_ALONE;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_phi2 = { "phi2", shapes, request_plain_layer, build_plain_layer };
