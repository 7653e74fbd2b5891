/* archs/glm4.c: GLM-4 of 2025: norms before and after the blocks, gate and up in one tensor, RoPE in adjacent pairs of
 * a part of each head. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.post = 1;
    hp->ffn_fused = 1;
    return KVANT_OK;
}

const arch_def arch_glm4 = { "glm4", shapes, request_plain_layer, build_plain_layer };
