/* build.c: activation layout, emission, the whole-model program and the pieces without a block of their own. */
#include "model/build.h"

#include <string.h>

void build_emit(builder *b, int id, const void *args, size_t bytes)
{
    void *copy = arena_alloc(b->args, bytes);
    if (!copy || b->n_ops == b->cap_ops) {
        b->error = 1;
        return;
    }
    memcpy(copy, args, bytes);
    b->ops[b->n_ops++] = (kvant_op){ id, copy };
}

static int imax(int a, int b)
{
    return a > b ? a : b;
}

/* Widths in floats per token row. */
typedef struct widths {
    int qkv, att, o, ff, ff2, keep;
} widths;

static widths build_widths(const hparams *hp)
{
    widths w = { 0 };
    int q = hp->n_head * hp->d_k * (hp->attn_gate ? 2 : 1);
    int channels = 2 * hp->gdn_hk * hp->gdn_dk + hp->gdn_hv * hp->gdn_dv;
    int dv_all = hp->gdn_hv * hp->gdn_dv;

    w.qkv = imax(q + hp->n_head_kv * (hp->d_k + hp->d_v), channels + dv_all);
    w.att = imax(hp->n_head * hp->d_v, channels);
    w.o = dv_all;
    w.ff = imax(2 * hp->n_ff, 2 * hp->n_ff_shexp);
    if (hp->n_expert)
        w.ff = imax(w.ff, 2 * hp->n_ff_exp * hp->n_expert_used);
    w.ff2 = hp->n_expert ? hp->n_embd * hp->n_expert_used : 0;
    w.keep = imax(imax(w.att, 2 * dv_all), hp->n_embd);
    return w;
}

static void *take(unsigned char *base, size_t *used, size_t count, size_t size)
{
    void *p = base ? base + *used : NULL;
    *used += (count * size + 63) & ~(size_t)63;
    return p;
}

size_t build_layout(const kvant_model *m, int n, int rows, unsigned char *base, build_buffers *buf)
{
    const hparams *hp = &m->hp;
    const widths w = build_widths(hp);
    size_t used = 0, t = (size_t)n, f = sizeof(float), e = (size_t)hp->n_embd, k = (size_t)hp->n_expert_used;

    buf->x = take(base, &used, t * e, f);
    buf->a = take(base, &used, t * e, f);
    buf->delta = take(base, &used, t * e, f);
    buf->qkv = take(base, &used, t * (size_t)w.qkv, f);
    buf->att = take(base, &used, t * (size_t)w.att, f);
    buf->o = take(base, &used, t * (size_t)w.o, f);
    buf->alpha = take(base, &used, t * (size_t)hp->gdn_hv, f);
    buf->beta = take(base, &used, t * (size_t)hp->gdn_hv, f);
    buf->ff = take(base, &used, t * (size_t)w.ff, f);
    buf->ff2 = take(base, &used, t * (size_t)w.ff2, f);
    buf->router = take(base, &used, t * (size_t)hp->n_expert, f);
    buf->route_ids = take(base, &used, t * k, sizeof(int32_t));
    buf->route_wts = take(base, &used, t * k, f);
    buf->sh_gate = take(base, &used, t, f);
    buf->xs = take(base, &used, (size_t)rows * e, f);
    buf->keep = take(base, &used, (size_t)rows * (size_t)w.keep, f);
    buf->logits = take(base, &used, (size_t)rows * (size_t)hp->n_vocab, f);
    buf->out_top = take(base, &used, (size_t)rows * KVANT_STEP_TOP, f);
    buf->out_ids = take(base, &used, (size_t)rows * KVANT_STEP_TOP, sizeof(int32_t));
    return used;
}

int build_max_ops(const kvant_model *m)
{
    return 40 * m->hp.n_layer + 32;
}

size_t build_args_bytes(const kvant_model *m)
{
    return (size_t)build_max_ops(m) * 512;
}

void build_matmul(builder *b, int weight, const float *x, int64_t ldx, float *y, int64_t ldy, int rows)
{
    if (rows > 0)
        BUILD(b, MATMUL, { &b->w[weight], x, y, rows, ldx, ldy, b->compute });
}

void build_norm(builder *b, int weight)
{
    const hparams *hp = &b->m->hp;
    int e = hp->n_embd;

    if (b->rows == 0)
        return;
    if (b->have_delta && b->fused[KVANT_OP_NORM_ADD_RMS]) {
        BUILD(b, NORM_ADD_RMS, { b->x, b->buf.delta, b->vec[weight], b->buf.a, hp->rms_eps, b->rows, e });
    } else {
        if (b->have_delta)
            BUILD(b, ADD, { b->x, b->buf.delta, b->rows, e });
        BUILD(b, NORM_RMS, { b->x, b->vec[weight], b->buf.a, hp->rms_eps, b->rows, 1, e, e, e, e, e });
    }
    b->have_delta = 0;
}

const float *build_keep_output_rows(builder *b, int l, const float *rows, int width, float *scratch)
{
    if (l != b->m->hp.n_layer - 1 || b->rows == b->n_out)
        return rows;
    if (b->n_out > 0) {
        BUILD(b, ROWS_GATHER, { rows, b->out_rows, scratch, b->n_out, width });
        BUILD(b, ROWS_GATHER, { b->x, b->out_rows, b->buf.xs, b->n_out, b->m->hp.n_embd });
    }
    b->x = b->buf.xs;
    b->rows = b->n_out;
    return scratch;
}

void build_model(builder *b)
{
    const kvant_model *m = b->m;

    b->n_ops = b->error = b->have_delta = 0;
    b->x = b->buf.x;
    b->rows = b->n;
    BUILD(b, EMBED, { &b->w[m->token_embd], b->ids, b->buf.x, b->n });
    for (int l = 0; l < m->hp.n_layer; l++)
        m->arch->build(b, l);
    build_norm(b, m->output_norm);
    if (b->hidden)
        return;
    build_matmul(b, m->output, b->buf.a, m->hp.n_embd, b->buf.logits, m->hp.n_vocab, b->rows);
    if (b->top == 1 && b->rows > 0)
        BUILD(b, ARGMAX, { b->buf.logits, b->buf.out_ids, b->rows, m->hp.n_vocab });
    if (b->top > 1 && b->rows > 0)
        BUILD(b, TOP_K, { b->buf.logits, b->buf.out_top, b->buf.out_ids, b->rows, m->hp.n_vocab, b->top });
}
