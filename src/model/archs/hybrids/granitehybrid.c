/* archs/hybrids/granitehybrid.c: Granite 4 hybrids: layers of Mamba2, and attention without RoPE where
 * head_count_kv is not 0; dense, or experts with a plain shared expert; factors as granite's. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    uint32_t experts = 0;

    KVANT_TRY(read_granite_factors(g, hp, diag));
    KVANT_TRY(read_ssm_shapes(g, hp, diag));
    KVANT_TRY(gguf_u32(g, "granitehybrid.expert_count", 0, &experts, diag));
    if (experts > 0) {
        KVANT_TRY(read_moe_lead(g, hp, diag));
        hp->moe.n_ff = hp->n_ff;   /* feed_forward_length is an expert's */
        return KVANT_OK;
    }
    hp->moe.n_dense_lead = hp->n_layer;
    return KVANT_OK;
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(m->hp.no_attn[l] ? request_ssm(m, l, WEIGHT_REQUIRED, diag) : request_attention(m, l, diag));
    return request_ffn(m, l, diag);
}

static void build(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    if (w->is_attn)
        build_attention(b, l);
    else
        build_ssm(b, l);
    build_norm_after(b, -1);
    build_norm(b, w->ffn_norm);
    build_ffn(b, l);
    build_norm_after(b, -1);
}

const arch_def arch_granitehybrid = { "granitehybrid", shapes, layer, build };
