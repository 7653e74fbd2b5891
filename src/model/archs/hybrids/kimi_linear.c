/* archs/hybrids/kimi_linear.c: Kimi Linear: layers of Kimi Delta Attention, and latent attention without RoPE where
 * head_count_kv is not 0; leading dense layers, then experts behind a sigmoid router with a bias for the choice, and a
 * plain shared expert. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.none_step = 1;
    hp->moe.gating = KVANT_GATING_SIGMOID;
    KVANT_TRY(read_mla_shapes(g, "kimi-linear", 1, hp, diag)); /* value_length: a head size that nothing uses */
    KVANT_TRY(read_kda_shapes(g, "kimi-linear", hp, diag));
    return read_moe_lead(g, hp, diag);
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(m->hp.no_attn[l] ? request_kda(m, l, diag) : request_mla(m, l, diag));
    return request_ffn(m, l, diag);
}

static void build(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    if (w->is_attn)
        build_mla(b, l);
    else
        build_kda(b, l);
    build_norm(b, w->ffn_norm);
    build_ffn(b, l);
}

const arch_def arch_kimi_linear = { "kimi-linear", shapes, layer, build };
