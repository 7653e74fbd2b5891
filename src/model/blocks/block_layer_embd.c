/* blocks/block_layer_embd.c: embeddings that every layer has of its own (Gemma 3n, Gemma 4): a second table has for
 * each token n_embd_layer values of each layer; the token's first embedding, projected and normed, is added to them.
 * Behind its two blocks a layer gates its values with the stream, projects and norms them, and adds them to it. */
#include <math.h>

#include "model/build.h"

int request_layer_embds(kvant_model *m, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const int64_t all = (int64_t)hp->n_layer * hp->n_embd_layer;

    m->layer_embd = m->layer_embd_proj = m->layer_embd_norm = -1;
    if (all == 0)
        return KVANT_OK;
    KVANT_TRY(weight_matrix(m, "per_layer_token_embd.weight", all, hp->n_vocab, 1, WEIGHT_REQUIRED, &m->layer_embd,
                            diag));
    KVANT_TRY(weight_matrix(m, "per_layer_model_proj.weight", hp->n_embd, all, 1, WEIGHT_REQUIRED, &m->layer_embd_proj,
                            diag));
    return weight_vector(m, "per_layer_proj_norm.weight", hp->n_embd_layer, WEIGHT_REQUIRED, &m->layer_embd_norm, diag);
}

int request_layer_embd(kvant_model *m, int l, kvant_diag *diag)
{
    const int64_t e = m->hp.n_embd, p = m->hp.n_embd_layer;
    layer_weights *w = &m->layers[l];

    KVANT_TRY(weight_layer_matrix(m, l, "inp_gate.weight", e, p, 1, WEIGHT_REQUIRED, &w->embd_gate, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "proj.weight", p, e, 1, WEIGHT_REQUIRED, &w->embd_proj, diag));
    return weight_layer_vector(m, l, "post_norm.weight", e, WEIGHT_REQUIRED, &w->embd_post_norm, diag);
}

int request_layer_scale(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    int id;

    KVANT_TRY(weight_layer_vector(m, l, "layer_output_scale.weight", 1, WEIGHT_OPTIONAL, &id, diag));
    if (id < 0)
        return KVANT_OK;
    weight_copy_f32(m, &m->specs[id], &w->out_scale);
    if (!(fabsf(w->out_scale) < 1e6f))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %g, wanted a finite number", m->specs[id].name,
                          (double)w->out_scale);
    return KVANT_OK;
}

void build_layer_inputs(builder *b)
{
    const kvant_model *m = b->m;
    const hparams *hp = &m->hp;
    const int p = hp->n_embd_layer, all = hp->n_layer * p;
    float *sum = b->buf.embd, *y = b->buf.embd_proj;

    b->embd = sum;
    BUILD(b, EMBED, { &b->w[m->layer_embd], b->ids, sum, b->n });
    build_scale(b, sum, sqrtf((float)p), all, b->n);
    build_matmul(b, m->layer_embd_proj, b->buf.x, hp->n_embd, y, all, b->n);
    build_scale(b, y, 1.0f / sqrtf((float)hp->n_embd), all, b->n);
    BUILD(b, NORM_RMS, { y, b->vec[m->layer_embd_norm], y, hp->norm.eps, b->n, hp->n_layer, p, all, p, all, p });
    BUILD(b, ADD, { sum, y, b->n, all });
    build_scale(b, sum, 1.0f / sqrtf(2.0f), all, b->n);
}

/* The block's output is part of the stream before anything reads it. */
static void add_delta(builder *b)
{
    if (b->have_delta && b->rows > 0)
        BUILD(b, ADD, { b->x, b->buf.delta, b->rows, b->m->hp.n_embd });
    b->have_delta = 0;
}

void build_layer_embd(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int p = hp->n_embd_layer, all = hp->n_layer * p, e = hp->n_embd;

    add_delta(b);
    if (b->rows == 0)
        return;
    build_matmul(b, w->embd_gate, b->x, e, b->buf.ff, p, b->rows);
    BUILD(b, GLU, { b->buf.ff, b->embd + (int64_t)l * p, b->buf.ff, b->rows, p, p, all, p, KVANT_GLU_GELU, 1.702f,
                    7.0f });
    build_matmul(b, w->embd_proj, b->buf.ff, p, b->buf.delta, e, b->rows);
    build_norm_after(b, w->embd_post_norm);
    b->have_delta = 1;
}

void build_layer_scale(builder *b, int l)
{
    const float s = b->m->layers[l].out_scale;

    if (s == 1.0f)
        return;
    add_delta(b);
    build_scale(b, b->x, s, b->m->hp.n_embd, b->rows);
}
