/* archs/gpt_oss.c: gpt-oss: every other layer with a sliding window, sinks, biases everywhere, YaRN; experts behind a
 * router whose softmax is over the chosen, with clamped SwiGLU. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 1;
    hp->act = ACT_CLAMPED;
    hp->rope.yarn_exact = 1;            /* its configuration says so (truncate: false); files have no key for it */
    hp->moe.gating = KVANT_GATING_SOFTMAX_CHOSEN;
    hp->norm_names.ffn = "post_attention_norm";
    KVANT_TRY(read_window(g, hp, 2, diag));
    return read_moe_shapes(g, hp, 0, diag);
}

const arch_def arch_gpt_oss = { "gpt-oss", shapes, request_plain_layer, build_plain_layer };
