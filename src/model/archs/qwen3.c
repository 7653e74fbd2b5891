/* archs/qwen3.c: Qwen3 dense: attention with per-head q and k norms, NEOX RoPE, SwiGLU.  Spec engine 2.6. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->qk_norm = 1;
    hp->rope_neox = 1;
    return KVANT_OK;
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_attention(m, l, diag));
    return request_ffn_dense(m, l, diag);
}

static void build(builder *b, int l)
{
    build_norm(b, b->m->layers[l].attn_norm);
    build_attention(b, l);
    build_norm(b, b->m->layers[l].ffn_norm);
    build_ffn_dense(b, l);
}

const arch_def arch_qwen3 = { "qwen3", shapes, layer, build };
