/* blocks/block_attention.c: the attention block: q, k, v (one matrix where types allow), optional per-head norms, RoPE,
 * cache write, page seal, attention, optional output gate, output projection. */
#include <stdio.h>

#include "model/build.h"

int request_attention(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, q = (int64_t)hp->n_head * hp->d_k * (hp->attn_gate ? 2 : 1);
    char name[80];

    w->is_attn = 1;
    KVANT_TRY(weight_layer_matrix(m, l, "attn_q.weight", e, q, 1, WEIGHT_REQUIRED, &w->q, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_k.weight", e, (int64_t)hp->n_head_kv * hp->d_k, 1, WEIGHT_REQUIRED, &w->k,
                                  diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_v.weight", e, (int64_t)hp->n_head_kv * hp->d_v, 1, WEIGHT_REQUIRED, &w->v,
                                  diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_output.weight", (int64_t)hp->n_head * hp->d_v, e, 1, WEIGHT_REQUIRED,
                                  &w->attn_out, diag));
    if (hp->qk_norm) {
        KVANT_TRY(weight_layer_vector(m, l, "attn_q_norm.weight", hp->d_k, WEIGHT_REQUIRED, &w->q_norm, diag));
        KVANT_TRY(weight_layer_vector(m, l, "attn_k_norm.weight", hp->d_k, WEIGHT_REQUIRED, &w->k_norm, diag));
    }
    snprintf(name, sizeof name, "blk.%d.attn_q+k+v.weight", l);
    return weight_join(m, name, (int[]){ w->q, w->k, w->v }, 3, &w->qkv, diag);
}

/* Where q, k and v of a token row lie in buf.qkv. */
typedef struct qkv_view {
    float *q, *k, *v;
    int64_t ld, gq; /* row stride; floats between query heads (twice d_k with gates) */
} qkv_view;

static qkv_view project(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    qkv_view p;
    int e = hp->n_embd, q_width = hp->n_head * hp->d_k * (hp->attn_gate ? 2 : 1);

    p.gq = hp->attn_gate ? 2 * hp->d_k : hp->d_k;
    p.ld = q_width + (int64_t)hp->n_head_kv * (hp->d_k + hp->d_v);
    p.q = b->buf.qkv;
    p.k = p.q + q_width;
    p.v = p.k + (int64_t)hp->n_head_kv * hp->d_k;
    if (w->qkv >= 0) {
        build_matmul(b, w->qkv, b->buf.a, e, p.q, p.ld, b->n);
        return p;
    }
    build_matmul(b, w->q, b->buf.a, e, p.q, p.ld, b->n);
    build_matmul(b, w->k, b->buf.a, e, p.k, p.ld, b->n);
    build_matmul(b, w->v, b->buf.a, e, p.v, p.ld, b->n);
    return p;
}

static void norm_and_rotate(builder *b, const layer_weights *w, const qkv_view *p)
{
    const hparams *hp = &b->m->hp;
    int d = hp->d_k;

    if (hp->qk_norm) {
        BUILD(b, NORM_RMS,
              { p->q, b->vec[w->q_norm], p->q, hp->rms_eps, b->n, hp->n_head, d, p->ld, p->gq, p->ld, p->gq });
        BUILD(b, NORM_RMS, { p->k, b->vec[w->k_norm], p->k, hp->rms_eps, b->n, hp->n_head_kv, d, p->ld, d, p->ld, d });
    }
    BUILD(b, ROPE,
          { p->q, b->pos, b->inv_freq, hp->rope_mscale, hp->rope_neox, hp->n_rot, b->n, hp->n_head, p->ld, p->gq });
    BUILD(b, ROPE,
          { p->k, b->pos, b->inv_freq, hp->rope_mscale, hp->rope_neox, hp->n_rot, b->n, hp->n_head_kv, p->ld, d });
}

/* K's and V's steps are neighbours: a device may run two as one. */
static void write_sides(builder *b, int l, const qkv_view *p)
{
    const kvant_kv_side *k = &b->k[l], *v = &b->v[l];
    const int h = b->m->hp.n_head_kv, d_k = b->m->hp.d_k, d_v = b->m->hp.d_v;
    BUILD(b, CACHE_WRITE, { b->seqs, *k, p->k, p->ld, h, d_k });
    BUILD(b, CACHE_WRITE, { b->seqs, *v, p->v, p->ld, h, d_v });
    if (k->tail && b->n_seal > 0)
        BUILD(b, PAGE_SEAL, { *k, b->seal_src, b->seal_dst, b->n_seal, h, d_k });
    if (v->tail && b->n_seal > 0)
        BUILD(b, PAGE_SEAL, { *v, b->seal_src, b->seal_dst, b->n_seal, h, d_v });
}

void build_attention(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const qkv_view p = project(b, w);
    int width = hp->n_head * hp->d_v;

    norm_and_rotate(b, w, &p);
    write_sides(b, l, &p);
    BUILD(b, ATTN,
          { b->seqs, b->k[l], b->v[l], p.q, b->buf.att, p.ld, p.gq, width, hp->n_head, hp->n_head_kv, hp->d_k, hp->d_v,
            hp->attn_scale, b->tail_pages, b->compute, b->max_pos });
    if (hp->attn_gate)
        BUILD(b, GATE_MUL, { b->buf.att, p.q + hp->d_k, b->n, hp->n_head, hp->d_v, width, hp->d_v, p.ld, p.gq });
    const float *att = build_keep_output_rows(b, l, b->buf.att, width, b->buf.keep);
    build_matmul(b, w->attn_out, att, width, b->buf.delta, hp->n_embd, b->rows);
    b->have_delta = 1;
}
