/* archs/layernorm/cohere2.c: Command R7B, Command A: LayerNorms without bias, both blocks on one norm; three layers
 * with a window and RoPE in adjacent pairs, then one with neither; a factor of the logits. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.layer = 1;
    hp->parallel = 1;
    KVANT_TRY(read_window(g, hp, 4, diag));
    hp->rope.windowed_only = hp->window > 0;
    KVANT_TRY(gguf_f32(g, "cohere2.logit_scale", 1, &hp->logit_scale, diag));
    if (!(hp->logit_scale > 0 && hp->logit_scale <= 1e6f))
        return kvant_fail(diag, KVANT_EFORMAT, "cohere2.logit_scale: %g, wanted a positive number up to 1e6",
                          (double)hp->logit_scale);
    return KVANT_OK;
}

const arch_def arch_cohere2 = { "cohere2", shapes, request_plain_layer, build_plain_layer };
