/* archs/llama.c: Llama: plain attention, adjacent-pair RoPE (optional Llama-3 factors), SwiGLU or Mixtral experts.
 * Spec engine 2.6. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    uint32_t experts = 0;
    hp->norm.qk = 0;
    hp->rope.neox = 0;
    KVANT_TRY(gguf_u32(g, "llama.expert_count", 0, &experts, diag));
    if (experts == 0)
        return KVANT_OK;
    int f = hp->n_ff;              /* Mixtral files give the expert's width as feed_forward_length */
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    if (!gguf_find(g, "llama.expert_feed_forward_length"))
        hp->moe.n_ff = f;
    return KVANT_OK;
}

const arch_def arch_llama = { "llama", shapes, request_plain_layer, build_plain_layer };
