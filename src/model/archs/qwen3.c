/* archs/qwen3.c: Qwen3 dense: attention with per-head q and k norms, NEOX RoPE, SwiGLU.  Spec engine 2.6. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.qk = QK_NORM_HEADS;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_qwen3 = { "qwen3", shapes, request_plain_layer, build_plain_layer };
