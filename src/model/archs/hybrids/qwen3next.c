/* archs/hybrids/qwen3next.c: Qwen3-Next hybrid with routed experts and a shared expert (interleaved head map).
 * Layer l is full attention iff (l+1) % full_attention_interval == 0, where the file does not list which, else Gated
 * DeltaNet.  Spec engine 2.2. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = 1;
    hp->rope.neox = 1;             /* interleaved M-RoPE equals NEOX for text */
    hp->attn_gate = 1;
    hp->norm_names.ffn = "post_attention_norm";
    hp->gdn.interleaved = 1;
    KVANT_TRY(read_gdn_shapes(g, hp, diag));
    KVANT_TRY(read_moe_shapes(g, hp, 1, diag));
    return read_moe_router(g, hp, diag);
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_attention_or_gdn(m, l, diag));
    return request_ffn_moe(m, l, diag);
}

static void build(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    build_attention_or_gdn(b, l);
    build_norm(b, w->ffn_norm);
    build_ffn_moe(b, l);
}

const arch_def arch_qwen3next = { "qwen3next", shapes, layer, build };
