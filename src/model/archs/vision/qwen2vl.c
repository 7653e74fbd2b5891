/* archs/vision/qwen2vl.c: the language model of Qwen2-VL and Qwen2.5-VL: as Qwen2.  In a text the sections of
 * M-RoPE have one position, which is plain RoPE; images are not read. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_qwen2vl = { "qwen2vl", shapes, request_plain_layer, build_plain_layer };
