/* archs/qwen3moe.c: Qwen3 mixture of experts: Qwen3 attention, routed experts, no shared expert.  Spec engine 2.6. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = 1;
    hp->rope.neox = 1;
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    return read_moe_router(g, hp, diag);
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_attention(m, l, diag));
    return request_ffn_moe(m, l, diag);
}

static void build(builder *b, int l)
{
    build_norm(b, b->m->layers[l].attn_norm);
    build_attention(b, l);
    build_norm(b, b->m->layers[l].ffn_norm);
    build_ffn_moe(b, l);
}

const arch_def arch_qwen3moe = { "qwen3moe", shapes, layer, build };
