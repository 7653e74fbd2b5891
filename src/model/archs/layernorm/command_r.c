/* archs/layernorm/command_r.c: Command R and R+: LayerNorms without bias, both blocks on one norm, RoPE in adjacent
 * pairs, a factor of the logits; R+ has LayerNorms of each head of q and k. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.layer = 1;
    hp->parallel = 1;
    hp->norm.qk = gguf_tensor_find(g, "blk.0.attn_q_norm.weight") ? QK_NORM_LAYER : QK_NORM_NONE;
    KVANT_TRY(gguf_f32(g, "command-r.logit_scale", 1, &hp->logit_scale, diag));
    if (!(hp->logit_scale > 0 && hp->logit_scale <= 1e6f))
        return kvant_fail(diag, KVANT_EFORMAT, "command-r.logit_scale: %g, wanted a positive number up to 1e6",
                          (double)hp->logit_scale);
    return KVANT_OK;
}

const arch_def arch_command_r = { "command-r", shapes, request_plain_layer, build_plain_layer };
