/* archs/qwen2.c: Qwen2 and Qwen2.5 dense: attention with biases on q, k and v, NEOX RoPE, SwiGLU. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_qwen2 = { "qwen2", shapes, request_plain_layer, build_plain_layer };
