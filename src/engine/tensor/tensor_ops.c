/* tensor_ops.c: the ops that work on parts: products on rows of their matrix, ops of heads and of columns on those that
 * a place has, the cache's on its KV heads.  An op here does to each value what it does to it on one device. */
#include <string.h>

#include "engine/tensor/tensor.h"

/* Which of h heads, or columns, each place has: from[i] up to from[i + 1]. */
typedef struct head_cut { int from[KV_MOST_PLACES + 1]; } head_cut;

/* ---- views ---- */

/* Heads at `at` in rows ld apart, g values from one to the next.  1: they are cut, so; 0: they are whole; -1: cut in
 * another way. */
static int cut_of(kvant_engine *e, const float *at, int64_t ld, int h, int64_t g, head_cut *out)
{
    const tensor_rows *r = tensor_find(e->way.tensor, at);
    int k = 0;

    if (!r)
        return 0;
    int64_t col = at - r->base;
    while (k < r->shape.n && col >= r->shape.cols[k])
        col -= r->shape.cols[k++];
    if (k == r->shape.n || (r->rows > 1 && ld != r->ld) || col >= g || h * g != r->shape.cols[k] ||
        r->shape.unit[k] % g)
        return -1;
    for (int i = 0; i <= e->way.tensor->n; i++)
        out->from[i] = tensor_from(&e->split, &r->shape, k, i) / (int)g;
    return 1;
}

static int same_cut(const kvant_engine *e, const head_cut *a, const head_cut *b)
{
    return memcmp(a->from, b->from, ((size_t)e->way.tensor->n + 1) * sizeof a->from[0]) == 0;
}

/* Every operand is whole or cut like the others, at least one is, and the last, which the op writes, is. */
typedef struct heads { const float *at; int64_t ld, g; } heads;

static int agree(kvant_engine *e, const heads *list, int n, int h, head_cut *out)
{
    head_cut one;
    int any = 0;

    for (int i = 0; i < n; i++) {
        const int cut = cut_of(e, list[i].at, list[i].ld, h, list[i].g, &one);
        if (cut < 0 || (cut == 0 && i == n - 1) || (any && cut && !same_cut(e, &one, out)))
            return 0;
        *out = cut ? one : *out;
        any |= cut;
    }
    return any;
}

/* Place i's first head of these, and the distance of its rows. */
static float *view(kvant_engine *e, int i, const heads *of, const head_cut *c, int64_t *ld)
{
    const tensor_rows *r = tensor_find(e->way.tensor, of->at);
    int k = 0;

    *ld = of->ld;
    if (!r)
        return (float *)(uintptr_t)tensor_there(e->way.tensor, i, of->at) + c->from[i] * of->g;
    int64_t col = of->at - r->base;
    while (col >= r->shape.cols[k])
        col -= r->shape.cols[k++];
    *ld = tensor_width(&e->split, &r->shape, i);
    return tensor_local(e, r, i, k, tensor_from(&e->split, &r->shape, k, i)) + col;
}

static int count(const head_cut *c, int i)
{
    return c->from[i + 1] - c->from[i];
}

/* ---- products ---- */

static int spec_of(const kvant_engine *e, const kvant_weight *w)
{
    return (int)(w - e->place[0].weights.w);
}

static int cut_matmul(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const kvant_matmul_args *a = op->args;
    engine_tensor *t = e->way.tensor;
    const int id = spec_of(e, a->w);
    const tensor_rows r = { a->y, a->ldy, a->m, t->shape[id] };

    if (!r.shape.n)
        return 0;
    tensor_settle(e, i, NULL, 0);
    for (int p = 0; p < t->n; p++) {
        kvant_matmul_args *m = t->place[p].part[id].n_out > 0 ? tensor_args(e, p, op) : NULL;
        if (!m)
            continue;
        m->w = &t->place[p].part[id];
        m->y = tensor_local(e, &r, p, 0, tensor_from(&e->split, &r.shape, 0, p));
        m->ldy = tensor_width(&e->split, &r.shape, p);
        tensor_put(t, p, op->id, m);
    }
    tensor_mark(t, &r);
    return 1;
}

static int cut_matmul_id(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const kvant_matmul_id_args *a = op->args;
    engine_tensor *t = e->way.tensor;
    const int id = spec_of(e, a->w);
    const tensor_rows r = { a->y, a->w->n_out, a->n * a->k, t->shape[id] };

    if (!r.shape.n)
        return 0;
    tensor_settle(e, i, NULL, 0);
    for (int p = 0; p < t->n; p++) {
        kvant_matmul_id_args *m = t->place[p].part[id].n_out > 0 ? tensor_args(e, p, op) : NULL;
        if (!m)
            continue;
        m->w = &t->place[p].part[id];
        m->y = tensor_local(e, &r, p, 0, tensor_from(&e->split, &r.shape, 0, p));
        tensor_put(t, p, op->id, m);
    }
    tensor_mark(t, &r);
    return 1;
}

/* The first place has the table; its rows go to all. */
static int cut_embed(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const kvant_embed_args *a = op->args;
    const int width = (int)a->w->n_in;
    const tensor_rows r = { a->y, width, a->n, { 1, { width }, { width } } };
    kvant_embed_args *m;

    tensor_settle(e, i, NULL, 0);
    m = tensor_args(e, 0, op);
    if (m)
        m->y = tensor_local(e, &r, 0, 0, 0);
    tensor_put(e->way.tensor, 0, op->id, m);
    tensor_mark(e->way.tensor, &r);
    return 1;
}

/* ---- heads and columns of rows ---- */

static int cut_norm_rms(kvant_engine *e, int i)
{
    const kvant_norm_rms_args *a = e->ops[i].args;
    const heads list[] = { { a->x, a->ldx, a->gx }, { a->y, a->ldy, a->gy } };
    head_cut c;

    if (!agree(e, list, 2, a->h, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_norm_rms_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = view(e, p, &list[0], &c, &m->ldx);
        m->y = view(e, p, &list[1], &c, &m->ldy);
        m->h = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_norm_layer(kvant_engine *e, int i)
{
    const kvant_norm_layer_args *a = e->ops[i].args;
    const heads list[] = { { a->x, a->ldx, a->gx }, { a->y, a->ldy, a->gy } };
    head_cut c;

    if (!agree(e, list, 2, a->h, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_norm_layer_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = view(e, p, &list[0], &c, &m->ldx);
        m->y = view(e, p, &list[1], &c, &m->ldy);
        m->h = count(&c, p);
        m->w += c.from[p] * m->gw;
        m->b = m->b ? m->b + c.from[p] * m->gw : NULL;
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_rope(kvant_engine *e, int i)
{
    const kvant_rope_args *a = e->ops[i].args;
    const heads x = { a->x, a->ldx, a->gx };
    head_cut c;

    if (!agree(e, &x, 1, a->h, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_rope_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = view(e, p, &x, &c, &m->ldx);
        m->h = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_attn_temp(kvant_engine *e, int i)
{
    const kvant_attn_temp_args *a = e->ops[i].args;
    const heads x = { a->x, a->ldx, 1 };
    head_cut c;

    if (!agree(e, &x, 1, a->d, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_attn_temp_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = view(e, p, &x, &c, &m->ldx);
        m->d = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_gate_mul(kvant_engine *e, int i)
{
    const kvant_gate_mul_args *a = e->ops[i].args;
    const heads list[] = { { a->gate, a->ldg, a->gg }, { a->y, a->ldy, a->gy } };
    head_cut c;

    if (!agree(e, list, 2, a->h, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_gate_mul_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->gate = view(e, p, &list[0], &c, &m->ldg);
        m->y = view(e, p, &list[1], &c, &m->ldy);
        m->h = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_swiglu(kvant_engine *e, int i)
{
    const kvant_swiglu_args *a = e->ops[i].args;
    const heads list[] = { { a->gate, a->ldg, 1 }, { a->up, a->ldu, 1 }, { a->y, a->ldy, 1 } };
    head_cut c;

    if (!agree(e, list, 3, a->f, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_swiglu_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->gate = view(e, p, &list[0], &c, &m->ldg);
        m->up = view(e, p, &list[1], &c, &m->ldu);
        m->y = view(e, p, &list[2], &c, &m->ldy);
        m->f = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_glu(kvant_engine *e, int i)
{
    const kvant_glu_args *a = e->ops[i].args;
    const heads list[] = { { a->gate, a->ldg, 1 }, { a->up, a->ldu, 1 }, { a->y, a->ldy, 1 } };
    head_cut c;

    if (!agree(e, list, 3, a->f, &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_glu_args *m = count(&c, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->gate = view(e, p, &list[0], &c, &m->ldg);
        m->up = view(e, p, &list[1], &c, &m->ldu);
        m->y = view(e, p, &list[2], &c, &m->ldy);
        m->f = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

/* The whole of rows that are cut, d values each and nothing between; NULL: they are not. */
static const tensor_rows *dense(kvant_engine *e, const float *at, int n, int d)
{
    const tensor_rows *r = tensor_find(e->way.tensor, at);

    return r && r->base == at && r->rows == n && r->ld == d && tensor_col(&r->shape, r->shape.n) == d ? r : NULL;
}

static float *first(const kvant_engine *e, const tensor_rows *r, int p)
{
    return tensor_local(e, r, p, 0, tensor_from(&e->split, &r->shape, 0, p));
}

static int same_shape(const tensor_rows *a, const tensor_rows *b)
{
    return a && b && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0;
}

static int cut_scale(kvant_engine *e, int i)
{
    const kvant_scale_args *a = e->ops[i].args;
    const tensor_rows *r = dense(e, a->x, a->n, a->d);

    for (int p = 0; r && p < e->way.tensor->n; p++) {
        kvant_scale_args *m = tensor_width(&e->split, &r->shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, r, p);
        m->d = tensor_width(&e->split, &r->shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return r != NULL;
}

static int cut_softcap(kvant_engine *e, int i)
{
    const kvant_softcap_args *a = e->ops[i].args;
    const tensor_rows *r = dense(e, a->x, a->n, a->d);

    for (int p = 0; r && p < e->way.tensor->n; p++) {
        kvant_softcap_args *m = tensor_width(&e->split, &r->shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, r, p);
        m->d = tensor_width(&e->split, &r->shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return r != NULL;
}

static int cut_add(kvant_engine *e, int i)
{
    const kvant_add_args *a = e->ops[i].args;
    const tensor_rows *x = dense(e, a->x, a->n, a->d), *y = dense(e, a->y, a->n, a->d);

    if (!same_shape(x, y))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_add_args *m = tensor_width(&e->split, &x->shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, x, p);
        m->y = first(e, y, p);
        m->d = tensor_width(&e->split, &x->shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_gate_add(kvant_engine *e, int i)
{
    const kvant_gate_add_args *a = e->ops[i].args;
    const tensor_rows *x = dense(e, a->x, a->n, a->d), *y = dense(e, a->y, a->n, a->d);

    if (!same_shape(x, y) || tensor_find(e->way.tensor, a->gate))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_gate_add_args *m = tensor_width(&e->split, &x->shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, x, p);
        m->y = first(e, y, p);
        m->d = tensor_width(&e->split, &x->shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

/* Columns [col, col + d) of cut rows are whole stretches. */
static int are_stretches(const tensor_shape *t, int64_t col, int d)
{
    int begins = 0, ends = 0;

    for (int k = 0; k < t->n; k++) {
        begins |= tensor_col(t, k) == col;
        ends |= tensor_col(t, k + 1) == col + d;
    }
    return begins && ends;
}

/* Place p's columns of stretch k; the bias begins at column `col`. */
static void bias_part(kvant_engine *e, int i, const tensor_rows *r, int p, int k, int64_t col)
{
    const int from = tensor_from(&e->split, &r->shape, k, p), n = tensor_part(&e->split, &r->shape, k, p);
    kvant_bias_args *m = n ? tensor_args(e, p, &e->ops[i]) : NULL;

    if (!m)
        return;
    m->y = tensor_local(e, r, p, k, from);
    m->b += tensor_col(&r->shape, k) - col + from;
    m->d = n;
    m->ldy = tensor_width(&e->split, &r->shape, p);
    tensor_put(e->way.tensor, p, e->ops[i].id, m);
}

/* One bias for all rows, over one stretch or several: an op for each. */
static int cut_bias(kvant_engine *e, int i)
{
    const kvant_bias_args *a = e->ops[i].args;
    const tensor_rows *r = tensor_find(e->way.tensor, a->y);
    const int64_t col = r ? a->y - r->base : 0;

    if (!r || a->ids || r->rows != a->n || r->ld != a->ldy || !are_stretches(&r->shape, col, a->d))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++)
        for (int k = 0; k < r->shape.n; k++)
            if (tensor_col(&r->shape, k) >= col && tensor_col(&r->shape, k + 1) <= col + a->d)
                bias_part(e, i, r, p, k, col);
    return 1;
}

static int cut_combine(kvant_engine *e, int i)
{
    const kvant_moe_combine_args *a = e->ops[i].args;
    const tensor_rows *x = dense(e, a->x, a->n * a->k, a->d);
    const void *keep[] = { a->x };

    if (!x || x->shape.n != 1)
        return 0;
    tensor_settle(e, i, keep, 1);
    x = dense(e, a->x, a->n * a->k, a->d); /* settling moves the list */
    const tensor_rows y = { a->y, a->d, a->n, x->shape };
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_moe_combine_args *m = tensor_width(&e->split, &y.shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, x, p);
        m->y = first(e, &y, p);
        m->d = tensor_width(&e->split, &y.shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    tensor_mark(e->way.tensor, &y);
    return 1;
}

static int cut_rows_gather(kvant_engine *e, int i)
{
    const kvant_rows_gather_args *a = e->ops[i].args;
    const tensor_rows *x = tensor_find(e->way.tensor, a->x);
    const void *keep[] = { a->x };

    if (!x || x->base != a->x || x->ld != a->d || tensor_col(&x->shape, x->shape.n) != a->d)
        return 0;
    tensor_settle(e, i, keep, 1);
    x = tensor_find(e->way.tensor, a->x);
    const tensor_rows y = { a->y, a->d, a->n, x->shape };
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_rows_gather_args *m = tensor_width(&e->split, &y.shape, p) ? tensor_args(e, p, &e->ops[i]) : NULL;
        if (!m)
            continue;
        m->x = first(e, x, p);
        m->y = first(e, &y, p);
        m->d = tensor_width(&e->split, &y.shape, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    tensor_mark(e->way.tensor, &y);
    return 1;
}

/* ---- the cache ---- */

/* The layer whose pages these are on the first place. */
static int layer_of(const kvant_engine *e, const kvant_kv_side *side)
{
    const kv_cache *kv = &e->kv;

    for (int l = 0; l < kv->cfg.n_layer; l++)
        if (kv_has_attn(&kv->cfg, l) && (kv->k[l].pages == side->pages || kv->v[l].pages == side->pages))
            return l;
    return -1;
}

/* Heads of an op on layer l, `each` of them for a KV head, `all` together.  A place that has all KV heads, which is
 * one, has its share of them. */
static head_cut cut_heads(const kvant_engine *e, int l, int each, int all)
{
    head_cut c = { { 0 } };

    for (int i = 0; kv_is_copied(&e->kv.cfg, l) && i <= e->way.tensor->n; i++)
        c.from[i] = tensor_share(&e->split, all, i);
    if (kv_is_copied(&e->kv.cfg, l))
        return c;
    for (int i = 0; i < e->way.tensor->n; i++)
        c.from[i + 1] = c.from[i] + each * kv_heads(&e->kv.cfg, i, l);
    return c;
}

/* Rows that are cut in another way are gathered. */
static void want_cut(kvant_engine *e, int i, const heads *x, int h, const head_cut *c)
{
    const void *keep[] = { x->at };
    head_cut now;

    tensor_settle(e, i, keep, 1);
    const int cut = cut_of(e, x->at, x->ld, h, x->g, &now);
    if (cut < 0 || (cut && !same_cut(e, &now, c)))
        tensor_settle(e, i, NULL, 0);
}

static int cut_cache_write(kvant_engine *e, int i)
{
    const kvant_cache_write_args *a = e->ops[i].args;
    const int l = layer_of(e, &a->side);
    const heads x = { a->x, a->ldx, a->d };

    if (l < 0 || kv_is_copied(&e->kv.cfg, l))
        return 0;
    const head_cut c = cut_heads(e, l, 1, a->h);
    want_cut(e, i, &x, a->h, &c);
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_cache_write_args *m = tensor_args(e, p, &e->ops[i]);
        if (!m)
            continue;
        m->x = view(e, p, &x, &c, &m->ldx);
        m->h = count(&c, p);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_page_seal(kvant_engine *e, int i)
{
    const kvant_page_seal_args *a = e->ops[i].args;
    const int l = layer_of(e, &a->side);

    if (l < 0 || kv_is_copied(&e->kv.cfg, l))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_page_seal_args *m = tensor_args(e, p, &e->ops[i]);
        if (!m)
            continue;
        m->h = kv_heads(&e->kv.cfg, p, l);
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    return 1;
}

static int cut_attn(kvant_engine *e, int i)
{
    const kvant_attn_args *a = e->ops[i].args;
    const int l = layer_of(e, &a->k), each = a->h / a->h_kv, copied = l >= 0 && kv_is_copied(&e->kv.cfg, l);
    const heads q = { a->q, a->ldq, a->gq };

    if (l < 0 || (copied && (a->h_kv > 1 || a->h < e->way.tensor->n)))
        return 0;
    const head_cut c = cut_heads(e, l, each, a->h);
    const tensor_rows out = { a->out, a->ldo, a->seqs.n_tokens,
                              { 1, { a->h * a->d_v }, { (copied ? 1 : each) * a->d_v } } };
    want_cut(e, i, &q, a->h, &c);
    for (int p = 0; p < e->way.tensor->n; p++) {
        kvant_attn_args *m = tensor_args(e, p, &e->ops[i]);
        if (!m)
            continue;
        m->q = view(e, p, &q, &c, &m->ldq);
        m->out = first(e, &out, p);
        m->ldo = tensor_width(&e->split, &out.shape, p);
        m->h = count(&c, p);
        m->h_kv = kv_heads(&e->kv.cfg, p, l);
        m->sinks = m->sinks ? m->sinks + c.from[p] : NULL;
        tensor_put(e->way.tensor, p, e->ops[i].id, m);
    }
    tensor_mark(e->way.tensor, &out);
    return 1;
}

int tensor_op(kvant_engine *e, int i)
{
    static int (*const by_op[KVANT_OP_COUNT])(kvant_engine *, int) = {
        [KVANT_OP_MATMUL] = cut_matmul,           [KVANT_OP_MATMUL_ID] = cut_matmul_id,
        [KVANT_OP_EMBED] = cut_embed,             [KVANT_OP_NORM_RMS] = cut_norm_rms,
        [KVANT_OP_NORM_LAYER] = cut_norm_layer,   [KVANT_OP_ROPE] = cut_rope,
        [KVANT_OP_ATTN_TEMP] = cut_attn_temp,     [KVANT_OP_GATE_MUL] = cut_gate_mul,
        [KVANT_OP_SWIGLU] = cut_swiglu,           [KVANT_OP_GLU] = cut_glu,
        [KVANT_OP_SCALE] = cut_scale,             [KVANT_OP_SOFTCAP] = cut_softcap,
        [KVANT_OP_ADD] = cut_add,                 [KVANT_OP_GATE_ADD] = cut_gate_add,
        [KVANT_OP_BIAS] = cut_bias,               [KVANT_OP_MOE_COMBINE] = cut_combine,
        [KVANT_OP_ROWS_GATHER] = cut_rows_gather, [KVANT_OP_CACHE_WRITE] = cut_cache_write,
        [KVANT_OP_PAGE_SEAL] = cut_page_seal,     [KVANT_OP_ATTN] = cut_attn,
    };

    return by_op[e->ops[i].id] ? by_op[e->ops[i].id](e, i) : 0;
}
