/* mixtures/glm4moe.c: GLM-4.5 and 4.6: attention with biases, optional q and k norms, RoPE on half of a head; leading
 * dense layers, then experts behind a sigmoid router with a bias for the choice, and a plain shared expert. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = gguf_tensor_find(g, "blk.0.attn_q_norm.weight") != NULL;
    hp->rope.neox = 1;
    hp->moe.gating = KVANT_GATING_SIGMOID;
    hp->norm_names.ffn = "post_attention_norm";
    return read_moe_lead(g, hp, diag);
}

const arch_def arch_glm4moe = { "glm4moe", shapes, request_plain_layer, build_plain_layer };
