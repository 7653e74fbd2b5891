/* fuse_where.h: what `where` of the fused forms (fused.def) asks: sizes and strides.  For fuse.c alone. */
#ifndef KVANT_OPS_FUSE_WHERE_H
#define KVANT_OPS_FUSE_WHERE_H

#include "kvant/ops.h"

/* A norm in place and a rope of its rows. */
static int turns(const kvant_norm_rms_args *n, const kvant_rope_args *r)
{
    return n->ldx == n->ldy && n->gx == n->gy && r->ldx == n->ldx && r->gx == n->gx && r->n == n->n && r->h == n->h &&
           r->n_rot <= n->d && r->n_rot % 2 == 0;
}

/* The normed rows, whose heads lie side by side, are what the cache takes. */
static int writes_rows(const kvant_norm_rms_args *k, const kvant_cache_write_args *w)
{
    return w->ldx == k->ldx && k->gx == k->d && w->d == k->d && w->h == k->h && w->seqs.n_tokens == k->n;
}

/* swiglu of the halves of n rows of y, in place of the first. */
static int halves(const kvant_swiglu_args *s, const float *y, int64_t ldy, int64_t n, int64_t n_out)
{
    return s->up == y + s->f && s->ldg == ldy && s->ldu == ldy && s->ldy == ldy && s->n == n &&
           2 * (int64_t)s->f == n_out;
}

/* A product that is added to the residual rows, whose norm is what the next one takes. */
static int normed(const kvant_matmul_args *a, const kvant_norm_add_rms_args *n, const kvant_matmul_args *b)
{
    return n->n == a->m && n->d == a->w->n_out && a->ldy == n->d && b->m == n->n && b->ldx == n->d &&
           b->w->n_in == n->d;
}

/* ---- heads ---- */

/* Ropes of the same rows by the same angles. */
static int turn_alike(const kvant_rope_args *q, const kvant_rope_args *k)
{
    return q->n == k->n && q->pos == k->pos && q->n_rot == k->n_rot && q->inv_freq == k->inv_freq &&
           q->mscale == k->mscale && q->neox == k->neox && q->n > 0;
}

static int same_batch(const kvant_seqs *a, const kvant_seqs *b)
{
    return a->n_seqs == b->n_seqs && a->n_tokens == b->n_tokens && a->q0 == b->q0 && a->pos0 == b->pos0 &&
           a->tail_table == b->tail_table && a->table_stride == b->table_stride;
}

/* A write of one side, and the attention that reads it. */
static int writes_side(const kvant_cache_write_args *w, const kvant_kv_side *s, int d, const kvant_attn_args *a)
{
    return w->side.fmt == s->fmt && w->side.layout == s->layout && same_batch(&w->seqs, &a->seqs) && w->h == a->h_kv &&
           w->d == d;
}

static int writes_both(const kvant_cache_write_args *k, const kvant_cache_write_args *v, const kvant_attn_args *a)
{
    return writes_side(k, &a->k, a->d_k, a) && writes_side(v, &a->v, a->d_v, a) && a->seqs.n_tokens > 0 &&
           k->ldx == v->ldx;
}

/* Turned queries and keys are what attention and cache take. */
static int heads_go_on(const kvant_rope_args *q, const kvant_rope_args *k, const kvant_cache_write_args *w,
                       const kvant_attn_args *a)
{
    return q->ldx == a->ldq && k->ldx == w->ldx && q->gx == a->gq && k->gx == w->d && q->h == a->h && k->h == w->h &&
           q->n == a->seqs.n_tokens;
}

static int same_rows_sealed(const kvant_page_seal_args *k, const kvant_page_seal_args *v)
{
    return !k->side.layout == !v->side.layout && k->n >= 1 && k->n == v->n && k->h == v->h && k->d == v->d;
}

/* ---- products ---- */

static int apart(const float *a, int64_t n, const float *b, int64_t m)
{
    return a + n <= b || b + m <= a;
}

static int64_t out_reach(const kvant_matmul_args *a)
{
    return (a->m - 1) * a->ldy + a->w->n_out;
}

/* Products of the same rows. */
static int same_x(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return b->ldx == a->ldx && b->m == a->m && b->w->n_in == a->w->n_in;
}

/* A product leaves its rows alone, so that others may take them behind it. */
static int rows_stay(const kvant_matmul_args *a)
{
    return apart(a->x, (a->m - 1) * a->ldx + a->w->n_in, a->y, out_reach(a));
}

static int outputs_apart(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return apart(a->y, out_reach(a), b->y, out_reach(b));
}

/* b takes the rows that a takes, beside it. */
static int beside(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return same_x(a, b) && a->compute == b->compute && rows_stay(b) && outputs_apart(a, b);
}

/* gate and up, their swiglu in place, the product of that: dense rows of 2 f values. */
static int glu_product(const kvant_matmul_args *a, const kvant_swiglu_args *s, const kvant_matmul_args *b)
{
    return halves(s, a->y, a->ldy, a->m, a->w->n_out) && s->f > 0 && s->f % 8 == 0 && a->ldy == a->w->n_out &&
           rows_stay(a) && b->ldx == a->ldy && b->m == a->m && b->w->n_in == s->f &&
           apart(a->y, a->m * a->ldy, b->y, out_reach(b));
}

/* A product whose dense rows the norm adds. */
static int adds_rows(const kvant_matmul_args *a, const kvant_norm_add_rms_args *n)
{
    const int64_t values = a->m * a->ldy;
    return n->add == a->y && a->w->n_out % 8 == 0 && a->ldy == a->w->n_out && n->n == a->m && n->d == a->w->n_out &&
           apart(n->x, values, a->y, values) && apart(n->y, values, a->y, values);
}

/* The norm of one row, that a launch before it may add to. */
static int adds_row(const float *add, int64_t d, const kvant_norm_add_rms_args *n)
{
    return n->add == add && n->d == d && n->n == 1 && apart(n->x, d, add, d) && apart(n->x, d, n->y, d);
}

/* A product of the rows that a norm gives. */
static int takes_rows(const float *y, int64_t ldy, int n, int64_t d, const kvant_matmul_args *a)
{
    return a->x == y && a->ldx == ldy && a->m == n && a->w->n_in == d && rows_stay(a);
}

/* The product of what attention gives, all of it. */
static int takes_attn(const kvant_attn_args *a, const kvant_matmul_args *b)
{
    return b->x == a->out && b->ldx == a->ldo && b->m == a->seqs.n_tokens && b->w->n_in == a->ldo &&
           apart(b->x, b->m * b->ldx, b->y, out_reach(b));
}

/* The product of a norm's one row. */
static int row_product(const kvant_norm_add_rms_args *n, const kvant_matmul_args *a)
{
    return n->n == 1 && a->m == 1 && n->d == a->w->n_in;
}

/* A router's logits, and the choice among them. */
static int routes(const kvant_norm_add_rms_args *n, const kvant_matmul_args *a, const kvant_moe_route_args *r)
{
    return row_product(n, a) && r->n == 1 && r->n_expert == a->w->n_out;
}

/* ---- experts ---- */

/* One token's experts: gate and up, swiglu, down, the weighted sum. */
static int expert_sum(const kvant_matmul_id_args *g, const kvant_swiglu_args *s, const kvant_matmul_id_args *e,
                      const kvant_moe_combine_args *c)
{
    return g->n == 1 && g->compute != KVANT_COMPUTE_F32 && e->compute == g->compute && g->x_div == g->k &&
           halves(s, g->y, g->w->n_out, (int64_t)g->n * g->k, g->w->n_out) && s->f > 0 && e->n == g->n &&
           e->k == g->k && e->x_div == 1 && e->ldx == g->w->n_out && c->n == e->n && c->k == e->k &&
           c->d == e->w->n_out;
}

/* A shared expert beside them. */
static int shared_expert(const kvant_matmul_id_args *g, const kvant_matmul_args *a, const kvant_swiglu_args *s,
                         const kvant_matmul_args *b)
{
    return halves(s, a->y, a->ldy, a->m, a->w->n_out) && s->f > 0 && a->ldx == g->ldx && a->m == g->n &&
           b->ldx == a->ldy && b->m == g->n && a->compute == g->compute && b->compute == g->compute;
}

static int same_ids(const kvant_matmul_id_args *a, const kvant_matmul_id_args *b)
{
    return a->n == b->n && a->k == b->k && a->w->n_expert == b->w->n_expert;
}

/* ---- the gated delta rule ---- */

/* A step, and the norm of its result. */
static int gated(const kvant_gdn_args *g, const kvant_norm_gated_args *o)
{
    return !g->per_channel && o->n == g->seqs.n_tokens && o->h == g->hv && o->dv == g->dv && g->seqs.n_tokens > 0;
}

/* The convolution's rows, whose first heads are normed, in the same states as the rule's. */
static int normed_conv(const kvant_conv_args *c, const kvant_norm_l2_args *n, const kvant_gdn_args *g)
{
    return !c->linear && c->seqs.n_tokens == g->seqs.n_tokens && c->seqs.n_tokens > 0 && n->n == c->seqs.n_tokens &&
           n->gx == n->d && n->ldx == c->c && n->h * n->d <= c->c && c->seqs.q0 == g->seqs.q0 &&
           c->seqs.slot_in == g->seqs.slot_in && c->seqs.slot_out == g->seqs.slot_out;
}

/* With the gates of the same tokens. */
static int delta_front(const kvant_conv_args *c, const kvant_norm_l2_args *n, const kvant_gdn_gates_args *s,
                       const kvant_gdn_args *g)
{
    return normed_conv(c, n, g) && s->n == c->seqs.n_tokens && s->channels == 0;
}

/* The gates' products, of one x. */
static int gate_products(const kvant_matmul_args *b, const kvant_matmul_args *a, const kvant_gdn_gates_args *s)
{
    return a->m == s->n && a->ldy == s->h && a->w->n_out == s->h && b->m == s->n && b->ldy == s->h &&
           b->w->n_out == s->h && b->ldx == a->ldx && b->w->n_in == a->w->n_in;
}

#endif
