/* archs/hunyuan_dense.c: Hunyuan dense: attention with per-head norms of q and k after RoPE, SwiGLU.  The converter has
 * put the model's own scaling of RoPE into the base. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.qk = QK_NORM_HEADS;
    hp->norm.qk_late = 1;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_hunyuan_dense = { "hunyuan-dense", shapes, request_plain_layer, build_plain_layer };
