/* mixtures/deepseek2.c: DeepSeek V2, V3 and R1, Kimi K2: latent attention with adjacent-pair RoPE; leading dense
 * layers, then experts in groups behind a softmax (V2) or sigmoid (V3) router, and a plain shared expert. */
#include <math.h>

#include "model/build.h"

/* Here YaRN sharpens the scores, not the sines.  The key is a tenth of the configuration's mscale_all_dim. */
static int read_yarn_scale(const gguf *g, hparams *hp, kvant_diag *diag)
{
    float tenth = 0.0f;

    KVANT_TRY(gguf_f32(g, "deepseek2.rope.scaling.yarn_log_multiplier", 0, &tenth, diag));
    if (hp->rope.yarn_factor <= 0.0f || tenth == 0.0f)
        return KVANT_OK;
    const float m = 1.0f + tenth * logf(hp->rope.yarn_factor);
    hp->rope.mscale = 1.0f;
    hp->attn_scale *= m * m;
    return KVANT_OK;
}

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 0;
    hp->moe.raw = 1;
    /* whatever rms_norm_eps says (Moonlight: 1e-5), in Transformers and the authors' code */
    hp->norm.latent_eps = 1e-6f;
    KVANT_TRY(read_mla_shapes(g, "deepseek2", 0, hp, diag));
    KVANT_TRY(read_yarn_scale(g, hp, diag));
    return read_moe_lead(g, hp, diag);
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_mla(m, l, diag));
    return request_ffn(m, l, diag);
}

static void build(builder *b, int l)
{
    build_norm(b, b->m->layers[l].attn_norm);
    build_mla(b, l);
    build_norm(b, b->m->layers[l].ffn_norm);
    build_ffn(b, l);
}

const arch_def arch_deepseek2 = { "deepseek2", shapes, layer, build };
