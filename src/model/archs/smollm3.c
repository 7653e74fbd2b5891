/* archs/smollm3.c: SmolLM3: as Llama, with no RoPE in every fourth layer. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.none_step = 4;
    return KVANT_OK;
}

const arch_def arch_smollm3 = { "smollm3", shapes, request_plain_layer, build_plain_layer };
