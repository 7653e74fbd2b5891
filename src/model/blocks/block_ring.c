/* blocks/block_ring.c: rows that may be taken back, in recurrent layers.  A state needs of a row what the row gives
 * to the ops that write the state.  That is kept in the layer's ring; folding runs those ops over it, so that the
 * state has the bits that steps of one token give it. */
#include "model/build.h"

enum ring_kind { KIND_NONE, KIND_GDN, KIND_KDA, KIND_SSM, KIND_SHORT_CONV };

static enum ring_kind kind_of(const kvant_model *m, int l)
{
    const layer_weights *w = &m->layers[l];

    if (!w->is_state)
        return KIND_NONE;
    return w->rec.conv_in >= 0  ? KIND_SHORT_CONV
           : w->rec.ssm_in >= 0 ? KIND_SSM
           : m->hp.gdn.channels ? KIND_KDA
                                : KIND_GDN;
}

/* All recurrent layers of a model are of one kind. */
ring_widths build_ring_widths(const kvant_model *m)
{
    const hparams *hp = &m->hp;
    enum ring_kind kind = KIND_NONE;

    for (int l = 0; l < hp->n_layer && kind == KIND_NONE; l++)
        kind = kind_of(m, l);
    if (kind == KIND_NONE)
        return (ring_widths){ 0, 0, 0 };
    if (kind == KIND_SSM || kind == KIND_SHORT_CONV)
        return (ring_widths){ hp->rec.conv_channels + (kind == KIND_SSM ? hp->gdn.hv : 0), 0, 0 };
    return (ring_widths){ hp->rec.conv_channels, hp->gdn.hv * (kind == KIND_KDA ? hp->gdn.dk : 1), hp->gdn.hv };
}

static void keep(builder *b, const float *x, int64_t ldx, float *ring, int width)
{
    const build_ring *r = &b->ring;

    if (width > 0)
        BUILD(b, ROWS_COPY, { x + r->row0 * ldx, ring + (int64_t)r->at * width, r->n, 1, width, ldx, width, width,
                              width });
}

void build_ring_keep(builder *b, int l, const float *x, int64_t ldx)
{
    const build_ring *r = &b->ring;
    const ring_widths w = build_ring_widths(b->m);

    if (r->n == 0)
        return;
    float *xs = r->layer[l], *alphas = xs + (int64_t)r->rows * w.x, *betas = alphas + (int64_t)r->rows * w.alpha;
    keep(b, x, ldx, xs, w.x);
    if (w.alpha == w.beta && w.alpha > 0) { /* both at once: a launch less in every layer */
        const int64_t from = (int64_t)r->row0 * w.alpha, to = (int64_t)r->at * w.alpha;
        BUILD(b, ROWS_COPY, { b->buf.alpha + from, alphas + to, 2, r->n, w.alpha, b->buf.beta - b->buf.alpha, w.alpha,
                              betas - alphas, w.alpha });
        return;
    }
    keep(b, b->buf.alpha, w.alpha, alphas, w.alpha);
    keep(b, b->buf.beta, w.beta, betas, w.beta);
}

void build_fold(builder *b, int l)
{
    static void (*const fold[])(builder *, int, const float *, int) = {
        [KIND_GDN] = fold_gdn, [KIND_KDA] = fold_kda, [KIND_SSM] = fold_ssm, [KIND_SHORT_CONV] = fold_short_conv
    };
    const ring_widths w = build_ring_widths(b->m);
    const enum ring_kind kind = kind_of(b->m, l);
    float *xs = b->ring.layer[l];

    if (kind == KIND_NONE)
        return;
    b->buf.alpha = xs + (int64_t)b->ring.rows * w.x;
    b->buf.beta = b->buf.alpha + (int64_t)b->ring.rows * w.alpha;
    fold[kind](b, l, xs, w.x);
}
