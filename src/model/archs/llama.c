/* archs/llama.c: Llama: plain attention, adjacent-pair RoPE (optional Llama-3 factors), SwiGLU or Mixtral experts.
 * Spec engine 2.6. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    uint32_t experts = 0;
    hp->qk_norm = 0;
    hp->rope_neox = 0;
    KVANT_TRY(gguf_u32(g, "llama.expert_count", 0, &experts, diag));
    if (experts == 0)
        return KVANT_OK;
    int f = hp->n_ff;              /* Mixtral files give the expert's width as feed_forward_length */
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    if (!gguf_find(g, "llama.expert_feed_forward_length"))
        hp->n_ff_exp = f;
    return KVANT_OK;
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_attention(m, l, diag));
    return m->hp.n_expert ? request_ffn_moe(m, l, diag) : request_ffn_dense(m, l, diag);
}

static void build(builder *b, int l)
{
    build_norm(b, b->m->layers[l].attn_norm);
    build_attention(b, l);
    build_norm(b, b->m->layers[l].ffn_norm);
    if (b->m->hp.n_expert)
        build_ffn_moe(b, l);
    else
        build_ffn_dense(b, l);
}

const arch_def arch_llama = { "llama", shapes, layer, build };
