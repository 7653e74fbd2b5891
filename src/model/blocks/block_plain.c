/* blocks/block_plain.c: the layer that most architectures have: norm, attention, norm, feed-forward; norms after the
 * blocks, and a factor of what they add, where the architecture has them; or both blocks beside each other on one
 * norm. */
#include <stdio.h>

#include "model/build.h"

static int read_factor(const gguf *g, const char *arch, const char *name, float *v, kvant_diag *diag)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    KVANT_TRY(gguf_f32(g, key, 0, v, diag));
    if (!(*v > 0 && *v <= 1e6f))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %g, wanted a positive number up to 1e6", key, (double)*v);
    return KVANT_OK;
}

int read_granite_factors(const gguf *g, hparams *hp, kvant_diag *diag)
{
    gguf_str name;
    char arch[48], key[96];
    int rope = 1;
    float logits = 1.0f;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &name, diag));
    snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.s);
    KVANT_TRY(read_factor(g, arch, "embedding_scale", &hp->embd_scale, diag));
    KVANT_TRY(read_factor(g, arch, "residual_scale", &hp->residual_scale, diag));
    KVANT_TRY(read_factor(g, arch, "logit_scale", &logits, diag));
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", arch);
    KVANT_TRY(gguf_bool(g, key, 0, &rope, diag));
    hp->logit_scale = 1.0f / logits;
    hp->rope.none_step = rope ? 0 : 1;
    return KVANT_OK;
}

int request_plain_layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_attention(m, l, diag));
    if (m->hp.norm.post)
        KVANT_TRY(request_norms_after(m, l, diag));
    return request_ffn(m, l, diag);
}

/* Attention and the FFN read the same norm.  The rows that give logits are chosen after attention: it adds to all. */
static void build_beside(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int e = hp->n_embd, width = hp->n_head * hp->d_v;

    build_norm(b, w->attn_norm);
    build_attention_rows(b, l);
    build_matmul(b, w->attn.out, b->buf.att, width, b->buf.delta, e, b->n);
    build_bias(b, w->attn.out_bias, b->buf.delta, e, e, b->n);
    BUILD(b, ADD, { b->x, b->buf.delta, b->n, e });
    b->in = build_keep_output_rows(b, l, b->in, e, b->buf.keep);
    build_ffn(b, l);
}

void build_plain_layer(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    if (b->m->hp.parallel) {
        build_beside(b, l);
        return;
    }
    build_norm(b, w->attn_norm);
    build_attention(b, l);
    build_norm_after(b, w->attn_post_norm);
    build_norm(b, w->ffn_norm);
    build_ffn(b, l);
    build_norm_after(b, w->ffn_post_norm);
}
