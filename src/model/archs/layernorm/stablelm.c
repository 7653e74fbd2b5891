/* archs/layernorm/stablelm.c: StableLM: LayerNorms with biases, RoPE on a part of each head, SwiGLU.  Files without
 * a norm of the FFN (StableLM 2 12B) have both blocks on one norm; it also has LayerNorms of each head of q and k. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)diag;
    hp->norm.layer = 1;
    hp->parallel = gguf_tensor_find(g, "blk.0.ffn_norm.weight") == NULL;
    hp->norm.qk = gguf_tensor_find(g, "blk.0.attn_q_norm.weight") ? QK_NORM_LAYER : QK_NORM_NONE;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_stablelm = { "stablelm", shapes, request_plain_layer, build_plain_layer };
