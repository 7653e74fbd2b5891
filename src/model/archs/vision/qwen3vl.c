/* archs/vision/qwen3vl.c: the language model of Qwen3-VL: as Qwen3.  In a text the sections of M-RoPE have one
 * position, which is plain RoPE; images, and what they add to the first layers, are not read. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.qk = QK_NORM_HEADS;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_qwen3vl = { "qwen3vl", shapes, request_plain_layer, build_plain_layer };
