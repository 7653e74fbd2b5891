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

static float *first(const kvant_engine *e, const tensor_rows *r, int p)
{
    return tensor_local(e, r, p, 0, tensor_from(&e->split, &r->shape, 0, p));
}

/* Arguments get the address of their rows, and where at_ld is not -1 how far these lie apart. */
static void set_rows(void *args, size_t at, int at_ld, float *x, int64_t ld)
{
    memcpy((unsigned char *)args + at, &x, sizeof x);
    if (at_ld >= 0)
        memcpy((unsigned char *)args + at_ld, &ld, sizeof ld);
}

/* ---- products ---- */

static int spec_of(const kvant_engine *e, const kvant_weight *w)
{
    return (int)(w - e->place[0].weights.w);
}

/* A product with rows at `y`, whose arguments have the weight, the result and, where it is not -1, the distance of its
 * rows at these bytes. */
static int cut_product(kvant_engine *e, int i, const kvant_weight *w, const tensor_rows *y, size_t at_w, size_t at_y,
                       int at_ld)
{
    const kvant_op *op = &e->ops[i];
    engine_tensor *t = e->way.tensor;

    if (!y->shape.n)
        return 0;
    tensor_settle(e, i, NULL, 0);
    for (int p = 0; p < t->n; p++) {
        const kvant_weight *part = &t->place[p].part[spec_of(e, w)];
        unsigned char *m = part->n_out > 0 ? tensor_args(e, p, op) : NULL;
        if (!m)
            continue;
        memcpy(m + at_w, &part, sizeof part);
        set_rows(m, at_y, at_ld, first(e, y, p), tensor_width(&e->split, &y->shape, p));
        tensor_put(t, p, op->id, m);
    }
    tensor_mark(t, y);
    return 1;
}

static int cut_matmul(kvant_engine *e, int i)
{
    const kvant_matmul_args *a = e->ops[i].args;
    const tensor_rows y = { a->y, a->ldy, a->m, e->way.tensor->shape[spec_of(e, a->w)] };

    return cut_product(e, i, a->w, &y, offsetof(kvant_matmul_args, w), offsetof(kvant_matmul_args, y),
                       offsetof(kvant_matmul_args, ldy));
}

static int cut_matmul_id(kvant_engine *e, int i)
{
    const kvant_matmul_id_args *a = e->ops[i].args;
    const tensor_rows y = { a->y, a->w->n_out, a->n * a->k, e->way.tensor->shape[spec_of(e, a->w)] };

    return cut_product(e, i, a->w, &y, offsetof(kvant_matmul_id_args, w), offsetof(kvant_matmul_id_args, y), -1);
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

/* An op that treats each column, or each head of columns, by itself.  rows, count: the bytes of its arguments that say
 * how many rows and how many columns or heads there are.  of: the rows' address, distance and distance of heads, the
 * rows it writes last; -1: `count` values without gaps, or columns.  step: addresses that move from head to head.
 * moves: it reads other rows than those it writes. */
typedef struct column_op {
    size_t rows, count;
    int n, moves, n_steps;
    struct { int at, ld, g; } of[3];
    struct { int at, by; } step[2];
} column_op;

static const column_op column_ops[KVANT_OP_COUNT] = {
#include "ops/columns.inc"
};

static float *float_at(const void *args, int at)
{
    float *x;
    memcpy(&x, (const unsigned char *)args + at, sizeof x);
    return x;
}

static int64_t long_at(const void *args, int at, int64_t none)
{
    if (at >= 0)
        memcpy(&none, (const unsigned char *)args + at, sizeof none);
    return none;
}

static int int_at(const void *args, size_t at)
{
    int n;
    memcpy(&n, (const unsigned char *)args + at, sizeof n);
    return n;
}

/* An operand of the op that every column needs is in parts. */
static int others_cut(kvant_engine *e, const kvant_op *op, const column_op *o)
{
    const op_operands list = op_operands_of(op->id, op->args);
    int cut = 0;

    for (int k = 0; k < list.n; k++) {
        int mine = 0;
        for (int j = 0; j < o->n; j++)
            mine |= o->of[j].at == list.list[k].offset;
        cut |= !mine && tensor_find(e->way.tensor, list.list[k].at);
    }
    return cut;
}

static void heads_part(kvant_engine *e, int p, const kvant_op *op, const heads *list, const head_cut *c)
{
    const column_op *o = &column_ops[op->id];
    const int n = count(c, p);
    unsigned char *m = n ? tensor_args(e, p, op) : NULL;
    int64_t ld;

    if (!m)
        return;
    for (int k = 0; k < o->n; k++) {
        float *at = view(e, p, &list[k], c, &ld);
        set_rows(m, (size_t)o->of[k].at, o->of[k].ld, at, ld);
    }
    for (int k = 0; k < o->n_steps; k++) {
        float *at = float_at(m, o->step[k].at);
        if (at)
            set_rows(m, (size_t)o->step[k].at, -1, at + c->from[p] * long_at(m, o->step[k].by, 0), 0);
    }
    memcpy(m + o->count, &n, sizeof n);
    tensor_put(e->way.tensor, p, op->id, m);
}

static int cut_heads_of(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const column_op *o = &column_ops[op->id];
    heads list[3];
    head_cut c;

    for (int k = 0; k < o->n; k++)
        list[k] = (heads){ float_at(op->args, o->of[k].at), long_at(op->args, o->of[k].ld, 0),
                           long_at(op->args, o->of[k].g, 1) };
    if (!agree(e, list, o->n, int_at(op->args, o->count), &c))
        return 0;
    for (int p = 0; p < e->way.tensor->n; p++)
        heads_part(e, p, op, list, &c);
    return 1;
}

/* The whole of rows that are cut, d values each and nothing between; NULL: they are not. */
static const tensor_rows *dense(kvant_engine *e, const float *at, int n, int d)
{
    const tensor_rows *r = tensor_find(e->way.tensor, at);

    return r && r->base == at && r->rows == n && r->ld == d && tensor_col(&r->shape, r->shape.n) == d ? r : NULL;
}

static int same_shape(const tensor_rows *a, const tensor_rows *b)
{
    return a && b && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0;
}

/* Each place has its columns of rows that are cut alike. */
static void dense_parts(kvant_engine *e, const kvant_op *op, const tensor_rows *const *r)
{
    const column_op *o = &column_ops[op->id];

    for (int p = 0; p < e->way.tensor->n; p++) {
        const int d = tensor_width(&e->split, &r[0]->shape, p);
        unsigned char *m = d ? tensor_args(e, p, op) : NULL;
        if (!m)
            continue;
        for (int k = 0; k < o->n; k++)
            set_rows(m, (size_t)o->of[k].at, -1, first(e, r[k], p), 0);
        memcpy(m + o->count, &d, sizeof d);
        tensor_put(e->way.tensor, p, op->id, m);
    }
}

static int cut_dense(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const column_op *o = &column_ops[op->id];
    const tensor_rows *r[3];

    for (int k = 0; k < o->n; k++) {
        r[k] = dense(e, float_at(op->args, o->of[k].at), int_at(op->args, o->rows), int_at(op->args, o->count));
        if (!same_shape(r[k], r[0]))
            return 0;
    }
    dense_parts(e, op, r);
    return 1;
}

/* The rows that the op writes are cut as those it reads. */
static int cut_moved(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const column_op *o = &column_ops[op->id];
    const float *at = float_at(op->args, o->of[0].at);
    const int d = int_at(op->args, o->count);
    const tensor_rows *x = tensor_find(e->way.tensor, at);
    const void *keep[] = { at };

    if (!x || x->base != at || x->ld != d || tensor_col(&x->shape, x->shape.n) != d)
        return 0;
    tensor_settle(e, i, keep, 1);
    x = tensor_find(e->way.tensor, at); /* settling moves the list */
    const tensor_rows y = { float_at(op->args, o->of[1].at), d, int_at(op->args, o->rows), x->shape };
    dense_parts(e, op, (const tensor_rows *const[]){ x, &y });
    tensor_mark(e->way.tensor, &y);
    return 1;
}

static int cut_columns(kvant_engine *e, int i)
{
    const column_op *o = &column_ops[e->ops[i].id];

    if (!o->n || others_cut(e, &e->ops[i], o))
        return 0;
    return o->moves ? cut_moved(e, i) : o->of[0].ld < 0 ? cut_dense(e, i) : cut_heads_of(e, i);
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
        [KVANT_OP_MATMUL] = cut_matmul,       [KVANT_OP_MATMUL_ID] = cut_matmul_id,
        [KVANT_OP_EMBED] = cut_embed,         [KVANT_OP_BIAS] = cut_bias,
        [KVANT_OP_CACHE_WRITE] = cut_cache_write, [KVANT_OP_PAGE_SEAL] = cut_page_seal,
        [KVANT_OP_ATTN] = cut_attn,
    };

    return by_op[e->ops[i].id] ? by_op[e->ops[i].id](e, i) : cut_columns(e, i);
}
