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

void build_conv(builder *b, const kvant_conv_args *conv)
{
    if (b->any_prompt)
        build_emit(b, KVANT_OP_CONV_CHUNK, conv, sizeof *conv);
    if (b->any_decode)
        build_emit(b, KVANT_OP_CONV_STEP, conv, sizeof *conv);
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

    w.qkv = imax(hp->rec.in, hp->moe.n_ff_shared ? hp->n_embd : 0);
    w.att = imax(hp->rec.conv_channels, hp->moe.beside ? hp->n_embd : 0);
    for (int l = 0; l < hp->n_layer; l++) { /* that of MTP is as the others */
        const layer_shape *s = &hp->layer[l];
        w.qkv = imax(w.qkv, hp->n_head * s->d_k * (hp->attn_gate ? 2 : 1) + s->h_kv * (s->d_k + s->d_v));
        w.att = imax(w.att, hp->n_head * s->d_v);
    }
    w.o = imax(hp->rec.out, hp->n_head * imax(hp->mla.dk, hp->mla.dv));
    w.o = imax(w.o, hp->gdn.channels ? 2 * hp->gdn.dk : 0);
    w.att = imax(w.att, hp->mla.q_rank);
    w.ff = imax(2 * hp->n_ff, hp->n_embd_layer);
    if (hp->moe.n)
        w.ff = imax(w.ff, imax(2 * (hp->moe.n_ff * hp->moe.n_used + hp->moe.n_ff_shared), hp->moe.n_latent));
    w.ff2 = hp->moe.n ? hp->n_embd * hp->moe.n_used : 0;
    w.keep = imax(imax(w.att, 2 * hp->rec.out), hp->n_embd);
    return w;
}

static void *take(unsigned char *base, size_t *used, size_t count, size_t size)
{
    void *p = base ? base + *used : NULL;
    *used += (count * size + 63) & ~(size_t)63;
    return p;
}

size_t build_layout(const kvant_model *m, int n, int rows, int mtp_seqs, unsigned char *base, build_buffers *buf)
{
    const hparams *hp = &m->hp;
    const widths w = build_widths(hp);
    size_t used = 0, t = (size_t)n, f = sizeof(float), e = (size_t)hp->n_embd, k = (size_t)hp->moe.n_used;

    buf->x = take(base, &used, t * e, f);
    buf->a = take(base, &used, t * e, f);
    buf->delta = take(base, &used, t * e, f);
    buf->qkv = take(base, &used, t * (size_t)w.qkv, f);
    buf->att = take(base, &used, t * (size_t)w.att, f);
    buf->o = take(base, &used, t * (size_t)w.o, f);
    buf->alpha = take(base, &used, t * (size_t)hp->gdn.hv * (size_t)(hp->gdn.channels ? hp->gdn.dk : 1), f);
    buf->beta = take(base, &used, t * (size_t)hp->gdn.hv, f);
    buf->ff = take(base, &used, t * (size_t)w.ff, f);
    buf->ff2 = take(base, &used, t * (size_t)w.ff2, f);
    buf->router = take(base, &used, t * (size_t)hp->moe.n, f);
    buf->route_ids = take(base, &used, t * k, sizeof(int32_t));
    buf->route_wts = take(base, &used, t * k, f);
    buf->sh_gate = take(base, &used, t, f);
    buf->heads = take(base, &used, hp->mla.rank ? t * (size_t)hp->n_head : 0, sizeof(int32_t));
    const size_t own = t * (size_t)hp->n_layer * (size_t)hp->n_embd_layer;
    buf->embd = take(base, &used, own, f);
    buf->embd_proj = take(base, &used, own, f);
    buf->xs = take(base, &used, (size_t)rows * e, f);
    buf->keep = take(base, &used, (size_t)rows * (size_t)w.keep, f);
    buf->logits = take(base, &used, (size_t)rows * (size_t)hp->n_vocab, f);
    buf->out_top = take(base, &used, (size_t)rows * KVANT_STEP_TOP, f);
    buf->out_ids = take(base, &used, (size_t)rows * KVANT_STEP_TOP, sizeof(int32_t));
    buf->mtp.seqs = mtp_seqs;
    buf->mtp.h = take(base, &used, mtp_seqs ? ((size_t)mtp_seqs + t) * e : 0, f);
    buf->mtp.in = take(base, &used, mtp_seqs ? 2 * t * e : 0, f);
    buf->mtp.ids = take(base, &used, (size_t)mtp_seqs, sizeof(int32_t));
    buf->mtp.told = take(base, &used, mtp_seqs ? BUILD_MTP_ROUNDS * build_mtp_told(mtp_seqs) : 0, f);
    const size_t y = t * (size_t)m->lora.widest, out = (size_t)rows * (size_t)m->lora.widest_output;
    buf->lora_h = take(base, &used, t * (size_t)m->lora.rank, f);
    buf->lora_y = take(base, &used, y > out ? y : out, f);
    return used;
}

int build_max_ops(const kvant_model *m)
{
    /* Mamba2 has a norm per group */
    return (48 + m->hp.gdn.hk) * (m->hp.n_layer + 2 * m->n_mtp) + 48 + 4 * m->lora.n_sites;
}

size_t build_args_bytes(const kvant_model *m)
{
    return (size_t)build_max_ops(m) * 512;
}

/* y += B (s * A x) of the rows that have adapters.  The others are not touched. */
static void add_adapters(builder *b, int weight, const float *x, int64_t ldx, float *y, int64_t ldy, int rows)
{
    const kvant_model *m = b->m;
    const weight_spec *s = &m->specs[weight];
    const build_lora_rows *l = &b->lora[rows != b->n];
    const int rank = m->lora.rank, n = l->n;

    for (int i = 0; i < s->lora_n && n > 0; i++) {
        const lora_site *o = &m->lora.sites[s->lora_first + i];
        BUILD(b, MATMUL, { &b->w[o->a], x + l->row0 * ldx, b->buf.lora_h, n, ldx, rank, KVANT_COMPUTE_F32 });
        BUILD(b, MUL, { b->buf.lora_h, l->scale, n, rank, rank, rank });
        BUILD(b, MATMUL, { &b->w[o->b], b->buf.lora_h, b->buf.lora_y, n, rank, o->n_out, KVANT_COMPUTE_F32 });
        BUILD(b, BIAS, { y + l->row0 * ldy + o->row0, b->buf.lora_y, n, o->n_out, ldy, b->tables.lora_row, n });
    }
}

void build_matmul(builder *b, int weight, const float *x, int64_t ldx, float *y, int64_t ldy, int rows)
{
    if (rows > 0) {
        BUILD(b, MATMUL, { &b->w[weight], x, y, rows, ldx, ldy, b->compute });
        add_adapters(b, weight, x, ldx, y, ldy, rows);
    }
}

void build_bias(builder *b, int bias, float *y, int width, int64_t ldy, int rows)
{
    if (bias >= 0 && rows > 0)
        BUILD(b, BIAS, { y, b->vec[bias], rows, width, ldy, NULL, 1 });
}

/* a = norm(x), of the model's kind. */
static void norm_stream(builder *b, int weight)
{
    const hparams *hp = &b->m->hp;
    const int e = hp->n_embd, bias = b->m->specs[weight].bias;

    if (hp->norm.layer)
        BUILD(b, NORM_LAYER,
              { b->x, b->vec[weight], bias >= 0 ? b->vec[bias] : NULL, b->buf.a, hp->norm.eps, b->rows, 1, e, e, e, e,
                e, 0 });
    else
        BUILD(b, NORM_RMS, { b->x, b->vec[weight], b->buf.a, hp->norm.eps, b->rows, 1, e, e, e, e, e });
}

void build_norm(builder *b, int weight)
{
    const hparams *hp = &b->m->hp;
    int e = hp->n_embd;

    b->in = weight >= 0 ? b->buf.a : b->x;
    if (b->rows == 0)
        return;
    if (weight >= 0 && b->have_delta && !hp->norm.layer && b->fused[KVANT_OP_NORM_ADD_RMS]) {
        BUILD(b, NORM_ADD_RMS, { b->x, b->buf.delta, b->vec[weight], b->buf.a, hp->norm.eps, b->rows, e });
    } else {
        if (b->have_delta)
            BUILD(b, ADD, { b->x, b->buf.delta, b->rows, e });
        if (weight >= 0)
            norm_stream(b, weight);
    }
    b->have_delta = 0;
}

void build_scale(builder *b, float *x, float s, int width, int rows)
{
    if (s != 1.0f && rows > 0)
        BUILD(b, SCALE, { x, s, rows, width });
}

void build_norm_after(builder *b, int weight)
{
    const hparams *hp = &b->m->hp;
    int e = hp->n_embd;
    float *d = b->buf.delta;

    if (weight >= 0 && b->rows > 0)
        BUILD(b, NORM_RMS, { d, b->vec[weight], d, hp->norm.eps, b->rows, 1, e, e, e, e, e });
    build_scale(b, d, hp->residual_scale, e, b->rows);
}

const float *build_keep_output_rows(builder *b, int l, const float *rows, int width, float *scratch)
{
    const hparams *hp = &b->m->hp;
    const int all = hp->n_layer * hp->n_embd_layer;

    if (l != hp->n_layer - 1 - (b->early ? hp->n_kv_from : 0) || b->rows == b->out.n || b->buf.mtp.on)
        return rows;
    if (b->out.n > 0) {
        BUILD(b, ROWS_GATHER, { rows, b->out.rows, scratch, b->out.n, width });
        BUILD(b, ROWS_GATHER, { b->x, b->out.rows, b->buf.xs, b->out.n, hp->n_embd });
        if (all > 0)
            BUILD(b, ROWS_GATHER, { b->embd, b->out.rows, b->buf.embd_proj, b->out.n, all });
    }
    b->embd = b->buf.embd_proj;    /* the projection is no longer wanted */
    b->x = b->buf.xs;
    b->rows = b->out.n;
    return scratch;
}

/* in[rows][n_embd], normed -> logits, and the likeliest tokens that are wanted. */
static void build_head(builder *b, const float *in, int rows)
{
    const kvant_model *m = b->m;
    const int v = m->hp.n_vocab;

    build_matmul(b, m->output, in, m->hp.n_embd, b->buf.logits, v, rows);
    build_bias(b, m->output_bias, b->buf.logits, v, v, rows);
    build_scale(b, b->buf.logits, m->hp.logit_scale, v, rows);
    if (m->hp.logit_cap > 0.0f && rows > 0)
        BUILD(b, SOFTCAP, { b->buf.logits, m->hp.logit_cap, rows, v });
    if (b->tables.suppress && rows > 0)
        BUILD(b, BIAS, { b->buf.logits, b->tables.suppress, rows, v, v, NULL, 1 });
    if (b->top == 1 && rows > 0)
        BUILD(b, ARGMAX, { b->buf.logits, b->buf.out_ids, rows, v });
    if (b->top > 1 && rows > 0)
        BUILD(b, TOP_K, { b->buf.logits, b->buf.out_top, b->buf.out_ids, rows, v, b->top });
}

/* The end of the pass with MTP: hidden states of all rows, for which K and V of its block are written too. */
static void build_end_mtp(builder *b)
{
    const int e = b->m->hp.n_embd;
    float *a = b->buf.a, *h = b->buf.mtp.h + (size_t)b->buf.mtp.seqs * (size_t)e;
    const float *out = h;

    b->buf.a = h;
    build_norm(b, b->m->output_norm);
    b->buf.a = a;
    if (!b->hidden && b->out.n > 0) {
        if (b->out.n < b->n) {
            BUILD(b, ROWS_GATHER, { h, b->out.rows, b->buf.xs, b->out.n, e });
            out = b->buf.xs;
        }
        build_head(b, out, b->out.n);
    }
    build_mtp_rows(b);
}

void build_model(builder *b)
{
    const kvant_model *m = b->m;

    b->n_ops = b->error = b->have_delta = 0;
    b->x = b->buf.x;
    b->rows = b->n;
    BUILD(b, EMBED, { &b->w[m->token_embd], b->ids, b->buf.x, b->n });
    build_scale(b, b->buf.x, m->hp.embd_scale, m->hp.n_embd, b->n);
    if (m->hp.n_embd_layer)
        build_layer_inputs(b);
    for (int l = 0; l < m->hp.n_layer; l++) {
        if (b->hooks.enter)
            b->hooks.enter(b, l);
        m->arch->build(b, l);
    }
    if (b->hooks.enter)
        b->hooks.enter(b, m->hp.n_layer);
    if (b->buf.mtp.on) {
        build_end_mtp(b);
        return;
    }
    build_norm(b, m->output_norm);
    if (!b->hidden)
        build_head(b, b->buf.a, b->rows);
}
