/* archs/hybrids/falcon_h1.c: Falcon-H1: attention and Mamba2 side by side in every layer, on one norm; SwiGLU.
 * The converter has multiplied the model's many factors into the weights. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 1;
    hp->norm.no_pre = 1;           /* files name the norm of the FFN without ".weight": requested here */
    return read_ssm_shapes(g, hp, diag);
}

static int layer(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    const int64_t e = m->hp.n_embd;

    KVANT_TRY(weight_layer_vector(m, l, "attn_norm.weight", e, WEIGHT_REQUIRED, &w->attn_norm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_norm", e, WEIGHT_REQUIRED, &w->ffn_norm, diag));
    KVANT_TRY(request_attention(m, l, diag));
    KVANT_TRY(request_ssm(m, l, WEIGHT_OPTIONAL, diag));
    return request_ffn_dense(m, l, diag);
}

/* Adds both blocks.  The rows that give logits are chosen after the sum: each block has its own scratch. */
static void build_both(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int e = hp->n_embd, wide = hp->n_head * hp->d_v;
    float *sum = b->buf.a;

    build_ssm_rows(b, l);
    build_attention_rows(b, l);
    build_matmul(b, w->attn.out, b->buf.att, wide, sum, e, b->n);
    build_matmul(b, w->rec.out, b->buf.o, hp->rec.out, b->buf.delta, e, b->n);
    if (l < hp->n_layer - 1 || b->rows == b->out.n) {
        BUILD(b, ADD, { b->buf.delta, sum, b->n, e });
    } else {
        BUILD(b, ADD, { sum, b->buf.delta, b->n, e });
        build_keep_output_rows(b, l, sum, e, b->buf.delta);
    }
    b->have_delta = 1;
}

static void build(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    build_both(b, l);
    build_norm(b, w->ffn_norm);
    build_ffn_dense(b, l);
}

const arch_def arch_falcon_h1 = { "falcon-h1", shapes, layer, build };
