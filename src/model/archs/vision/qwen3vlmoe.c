/* archs/vision/qwen3vlmoe.c: the language model of Qwen3-VL's mixtures: as Qwen3's; of positions and images see
 * qwen3vl.c. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_HEADS;
    hp->rope.neox = 1;
    return read_moe_shapes(g, hp, 0, diag);
}

const arch_def arch_qwen3vlmoe = { "qwen3vlmoe", shapes, request_plain_layer, build_plain_layer };
