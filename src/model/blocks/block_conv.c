/* blocks/block_conv.c: the gated short convolution and the layers of models that have it: b, c, x = in_proj(a);
 * y = out_proj(c * conv(b * x)).  The window of the convolution holds b * x and is the block's whole state. */
#include <stdio.h>

#include "model/build.h"

int read_short_conv_shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    gguf_str arch;
    char key[96];
    uint32_t k = 0;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &arch, diag));
    snprintf(key, sizeof key, "%.*s.shortconv.l_cache", (int)arch.n, arch.s);
    KVANT_TRY(gguf_u32(g, key, 1, &k, diag));
    if (k < 2 || k > 8)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted 2 to 8", key, k);
    hp->rec.conv_k = (int)k;
    hp->rec.conv_channels = hp->rec.out = hp->n_embd;
    hp->rec.in = 3 * hp->n_embd;
    return KVANT_OK;
}

static int request_short_conv(kvant_model *m, int l, kvant_diag *diag)
{
    const int e = m->hp.n_embd;
    layer_weights *w = &m->layers[l];

    w->is_state = 1;
    KVANT_TRY(weight_layer_matrix(m, l, "shortconv.in_proj.weight", e, 3 * (int64_t)e, 1, WEIGHT_REQUIRED,
                                  &w->rec.conv_in, diag));
    KVANT_TRY(weight_layer_vector(m, l, "shortconv.conv.weight", (int64_t)e * m->hp.rec.conv_k, WEIGHT_REQUIRED,
                                  &w->rec.conv, diag));
    return weight_layer_matrix(m, l, "shortconv.out_proj.weight", e, e, 1, WEIGHT_REQUIRED, &w->rec.conv_out, diag);
}

int request_short_conv_layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(m->hp.no_attn[l] ? request_short_conv(m, l, diag) : request_attention(m, l, diag));
    return request_ffn(m, l, diag);
}

static void convolve(builder *b, int l, const float *x, int ld)
{
    const int e = b->m->hp.n_embd;
    const kvant_conv_args conv = { b->seqs, x, b->vec[b->m->layers[l].rec.conv], b->states.conv[l], b->buf.att,
                                   e, b->m->hp.rec.conv_k, b->states.conv_stride, ld, NULL, 1 };

    build_conv(b, &conv);
}

void fold_short_conv(builder *b, int l, const float *x, int ldx)
{
    convolve(b, l, x, ldx);
}

static void build_short_conv(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];
    const int e = b->m->hp.n_embd, ld = 3 * e;
    float *in = b->buf.qkv, *c = in + e, *x = in + 2 * (size_t)e, *y = b->buf.att;

    build_matmul(b, w->rec.conv_in, b->in, e, in, ld, b->n);
    BUILD(b, MUL, { x, in, b->n, e, ld, ld });
    convolve(b, l, x, ld);
    build_ring_keep(b, l, x, ld);
    BUILD(b, MUL, { y, c, b->n, e, e, ld });
    const float *rows = build_keep_output_rows(b, l, y, e, b->buf.keep);
    build_matmul(b, w->rec.conv_out, rows, e, b->buf.delta, e, b->rows);
    b->have_delta = 1;
}

void build_short_conv_layer(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    if (w->is_attn)
        build_attention(b, l);
    else
        build_short_conv(b, l);
    build_norm(b, w->ffn_norm);
    build_ffn(b, l);
}
