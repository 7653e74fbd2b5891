/* attn_body.h: attn over pages; included by attn_<isa>.c after vf_<isa>.h.
 *
 * A BLOCK is the tokens of one sequence that lie in one page; its rows are tokens x query heads of one KV head.  Every
 * row walks its context page by page with an online softmax, starts afresh at each split (KVANT_SPLIT tokens), and
 * merges the splits in ascending order.  That arithmetic is the same for one row and for 64*G rows, so decode, prefill,
 * any batch and any number of threads give the same bits:
 *   few tokens: each (block, KV head, split) is a unit; stage 0 leaves partial results, stage 1 merges them.
 *   many tokens: each (block, KV head) is a unit, which merges its splits as it goes.
 * A page of a block is in attn_page_body.h. */
#include "devices/cpu/attn/attn_page_body.h"

enum {
    FEW_TOKENS = 8, /* sequences with at most so many tokens are split over threads along the context, ... */
    FEW_UNITS = 64, /* ... if there are at most so many (sequence, KV head) pairs */
};

/* total (x, of row i) takes in a later split (y, of row j): both brought to the larger maximum. */
static void merge_row(state *x, int i, const state *y, int j, int ld_enc, int ld_tail)
{
    const float m = x->m[i] > y->m[j] ? x->m[i] : y->m[j];
    const vf cx = vf_set1(exp2_one(x->m[i] - m)), cy = vf_set1(exp2_one(y->m[j] - m));
    float *ex = x->enc + (size_t)i * (size_t)ld_enc, *tx = x->tail + (size_t)i * (size_t)ld_tail;
    const float *ey = y->enc + (size_t)j * (size_t)ld_enc, *ty = y->tail + (size_t)j * (size_t)ld_tail;
    float lanes[VF_LANES];

    vf_store(lanes, vf_fma(vf_set1(y->l[j]), cy, vf_mul(vf_set1(x->l[i]), cx)));
    x->l[i] = lanes[0];
    x->m[i] = m;
    for (int e = 0; e < ld_enc; e += VF_LANES)
        vf_store(ex + e, vf_fma(vf_load(ey + e), cy, vf_mul(vf_load(ex + e), cx)));
    for (int e = 0; e < ld_tail && (x->used_tail || y->used_tail); e += VF_LANES) {
        const vf tail_x = x->used_tail ? vf_load(tx + e) : vf_zero();
        const vf tail_y = y->used_tail ? vf_load(ty + e) : vf_zero();

        vf_store(tx + e, vf_fma(tail_y, cy, vf_mul(tail_x, cx)));
    }
}

/* total (x, of row i), which saw no key yet, becomes a split's (y, of the same row). */
static void take_row(state *x, const state *y, int i, int ld_enc, int ld_tail)
{
    const size_t enc = (size_t)i * (size_t)ld_enc, tail = (size_t)i * (size_t)ld_tail;

    x->m[i] = y->m[i];
    x->l[i] = y->l[i];
    memcpy(x->enc + enc, y->enc + enc, (size_t)ld_enc * sizeof(float));
    if (y->used_tail)
        memcpy(x->tail + tail, y->tail + tail, (size_t)ld_tail * sizeof(float));
    else if (x->used_tail)
        memset(x->tail + tail, 0, (size_t)ld_tail * sizeof(float));
}

/* Returns the factor of the weighted sum of a row's values (maximum m, sum of weights l); the head's sink, where there
 * are sinks, takes part in the sum of weights. */
static float row_share(const page_call *c, int head, float m, float l)
{
    if (c->sinks == NULL)
        return 1.0f / l;
    const float sink = c->sinks[head] * 0x1.715476p+0f, top = sink > m ? sink : m, by = exp2_one(m - top);

    return by / (l * by + exp2_one(sink - top));
}

/* Row i of a finished state of query head `head` -> d_v values. */
static void finish_row(const page_call *c, const state *x, int i, int head, int ld_enc, int ld_tail, float *pad,
                       float *out)
{
    const float inverse = row_share(c, head, x->m[i], x->l[i]);
    const float *tail = x->tail + (size_t)i * (size_t)ld_tail;

    c->v.k->finish_out(c->v.side->param, x->enc + (size_t)i * (size_t)ld_enc, pad, c->v.dp);
    for (int e = 0; e < c->v.d; e += VF_LANES) {
        const int n = c->v.d - e < VF_LANES ? c->v.d - e : VF_LANES;
        vf y = vf_load_n(pad + e, n);

        if (x->used_tail)
            y = vf_add(y, vf_load_n(tail + e, n));
        vf_store_n(out + e, vf_mul(y, vf_set1(inverse)), n);
    }
}

static float *out_row(const kvant_attn_args *a, const page_call *c, const block *bl, int h, int row)
{
    return a->out + (int64_t)(bl->first + row / c->g) * a->ldo + (int64_t)(h * c->g + row % c->g) * a->d_v;
}

/* The first split that a token at position pos sees. */
static int first_split(const page_call *c, int pos)
{
    return window_start(c, pos) / KVANT_SPLIT;
}

/* Many tokens: all splits of a block, merged as they come.  A window may begin a split later for the last tokens. */
static void whole_block(const kvant_attn_args *a, const page_call *c, const block *bl, int h, part_scratch *b)
{
    const int rows = bl->n * c->g, splits = bl->page * KVANT_PAGE / KVANT_SPLIT + 1, begin = first_split(c, bl->pos);

    load_queries(c, bl, h, b);
    for (int split = begin; split < splits; split++) {
        attend_split(c, bl, h, split, b);
        if (split == begin) {
            const state first = b->now;
            b->now = b->total;
            b->total = first;
            continue;
        }
        for (int row = 0; row < rows; row++)
            if (first_split(c, bl->pos + row / c->g) == split)
                take_row(&b->total, &b->now, row, b->ld_enc, b->ld_tail);
            else
                merge_row(&b->total, row, &b->now, row, b->ld_enc, b->ld_tail);
        b->total.used_tail |= b->now.used_tail;
    }
    for (int row = 0; row < rows; row++)
        finish_row(c, &b->total, row, h * c->g + row % c->g, b->ld_enc, b->ld_tail, b->pad,
                   out_row(a, c, bl, h, row));
}

/* Returns 1 if sequence s is cut along its context. */
static int is_split(const page_call *c, int s)
{
    return c->seqs->q0[s + 1] - c->seqs->q0[s] <= FEW_TOKENS && (int64_t)c->seqs->n_seqs * c->h_kv <= FEW_UNITS;
}

/* Partial results of split sequences: one record per (token row, head, split), in floats. */
static size_t record_floats(const page_call *c)
{
    return 16 + (size_t)round16(c->v.sdim) + (size_t)round16(c->v.d);
}

static int max_splits(const kvant_attn_args *a)
{
    return a->max_pos / KVANT_SPLIT + 1;
}

/* Record of the split_row-th token row of split sequences, head j. */
static float *record_at(const kvant_attn_args *a, const page_call *c, const kvant_work *work, int split_row, int j,
                        int split)
{
    const size_t i = ((size_t)split_row * (size_t)a->h + (size_t)j) * (size_t)max_splits(a) + (size_t)split;

    return (float *)work->shared + i * record_floats(c);
}

static void store_records(const kvant_attn_args *a, const page_call *c, const kvant_work *work, const block *bl, int h,
                          int split_row, int split, const part_scratch *b)
{
    for (int row = 0; row < bl->n * c->g; row++) {
        float *record = record_at(a, c, work, split_row + row / c->g, h * c->g + row % c->g, split);

        record[0] = b->now.m[row];
        record[1] = b->now.l[row];
        record[2] = (float)b->now.used_tail;
        memcpy(record + 16, b->now.enc + (size_t)row * (size_t)b->ld_enc, (size_t)b->ld_enc * sizeof(float));
        if (b->now.used_tail)
            memcpy(record + 16 + b->ld_enc, b->now.tail + (size_t)row * (size_t)b->ld_tail,
                   (size_t)b->ld_tail * sizeof(float));
    }
}

/* Stage 0.  Units are dealt out in turn, KV heads fastest: long and short blocks spread evenly. */
static void attn_units(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_args *a = args;
    const page_call c = call_of(a);
    int64_t unit = 0;
    int split_row = 0;
    part_scratch b;

    bench_layout(&c, work->local, &b);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int first = a->seqs.q0[s]; first < a->seqs.q0[s + 1];) {
            const block bl = block_at(&a->seqs, s, first);
            const int cut = is_split(&c, s), begin = cut ? first_split(&c, bl.pos) : 0;
            const int splits = cut ? bl.page * KVANT_PAGE / KVANT_SPLIT + 1 : 1;

            for (int split = begin; split < splits; split++)
                for (int h = 0; h < a->h_kv; h++, unit++) {
                    if (unit % parts != part)
                        continue;
                    if (!cut) {
                        whole_block(a, &c, &bl, h, &b);
                        continue;
                    }
                    load_queries(&c, &bl, h, &b);
                    attend_split(&c, &bl, h, split, &b);
                    store_records(a, &c, work, &bl, h, split_row, split, &b);
                }
            split_row += cut ? bl.n : 0;
            first += bl.n;
        }
}

/* Merges the records of one token row and head, in ascending order. */
static void merge_records(const kvant_attn_args *a, const page_call *c, const kvant_work *work, int split_row, int j,
                          int pos, float *pad, float *out)
{
    const int ld_enc = round16(c->v.sdim), ld_tail = round16(c->v.d), splits = pos / KVANT_SPLIT + 1;
    const int begin = first_split(c, pos);
    float *r = record_at(a, c, work, split_row, j, begin);
    state total = { r, r + 1, r + 16, r + 16 + ld_enc, r[2] != 0.0f };

    for (int split = begin + 1; split < splits; split++) {
        float *next = record_at(a, c, work, split_row, j, split);
        const state y = { next, next + 1, next + 16, next + 16 + ld_enc, next[2] != 0.0f };

        merge_row(&total, 0, &y, 0, ld_enc, ld_tail);
        total.used_tail |= y.used_tail;
    }
    finish_row(c, &total, 0, j, ld_enc, ld_tail, pad, out);
}

/* Stage 1. */
static void attn_merge(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_args *a = args;
    const page_call c = call_of(a);
    int64_t unit = 0;
    int split_row = 0;

    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1] && is_split(&c, s); i++, split_row++)
            for (int j = 0; j < a->h; j++)
                if (unit++ % parts == part)
                    merge_records(a, &c, work, split_row, j, a->seqs.pos0[s] + i - a->seqs.q0[s], work->local,
                                  a->out + i * a->ldo + (int64_t)j * a->d_v);
}

static size_t attn_shared(const void *args)
{
    const kvant_attn_args *a = args;
    const page_call c = call_of(a);
    size_t rows = 0;

    for (int s = 0; s < a->seqs.n_seqs; s++)
        if (is_split(&c, s))
            rows += (size_t)(a->seqs.q0[s + 1] - a->seqs.q0[s]);
    return rows * (size_t)a->h * (size_t)max_splits(a) * record_floats(&c) * sizeof(float);
}

static size_t attn_local(const void *args)
{
    const kvant_attn_args *a = args;
    const page_call c = call_of(a);

    return bench_layout(&c, NULL, NULL) * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(attn) = {
    .stages = 2, .fn = { attn_units, attn_merge }, .shared_bytes = attn_shared, .local_bytes = attn_local
};
