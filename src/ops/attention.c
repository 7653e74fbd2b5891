/* attention.c: scalar references of attn and attn_score: one query row at a time, softmax over all keys in double.
 *
 * A key comes from one of two places: the exact tail (f16, real space) or its encoded row (the format's acc space).
 * The two spaces differ, so the weighted sum of V has two accumulators: out = finish_out(acc_enc) + acc_tail.
 * Key j of a query at position i is exact iff i/64 - j/64 < tail_pages or j/64 < sink_pages, and the side has a tail;
 * K and V each for itself. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "ops/op_util.h"

/* One query row: where it is, and its two forms. */
typedef struct query {
    int s, pos, h, h_kv; /* sequence, absolute position, head, KV head */
    const float *raw;    /* d_k values as given */
    const float *prep;   /* prep_q of the zero-padded query */
} query;

/* Scratch of one part, in floats. */
typedef struct scratch {
    float *pad, *prep, *acc_enc, *acc_tail, *out;
    double *score;
} scratch;

enum { ROW_FLOATS = KVANT_MAX_HEAD_DIM * 2 };

static scratch scratch_at(const kvant_work *work)
{
    float *p = work->local;

    return (scratch){ p,
                      p + ROW_FLOATS,
                      p + 2 * ROW_FLOATS,
                      p + 3 * ROW_FLOATS,
                      p + 4 * ROW_FLOATS,
                      (double *)(void *)(p + 5 * ROW_FLOATS) };
}

/* prep_q of d values zero-padded to the format's group. */
static void prepare(const kvant_kv_side *k, const float *q, int d, const scratch *w)
{
    const int dp = kvant_format_padded(k->fmt, d);

    memset(w->pad, 0, (size_t)dp * sizeof(float));
    memcpy(w->pad, q, (size_t)d * sizeof(float));
    k->fmt->ref.prep_q(k->param, w->pad, w->prep, dp);
}

/* <q, k_j>, unscaled. */
static double key_score(const kvant_kv_side *k, const kvant_seqs *seqs, const query *q, int h_kv, int d,
                        exact_pages exact, int j)
{
    const int page = j / KVANT_PAGE, r = j % KVANT_PAGE;
    const int32_t t = kv_tail_page(k, seqs, q->s, page, q->pos / KVANT_PAGE, exact);

    if (t >= 0) {
        const uint16_t *row = kv_tail_row(k, t, h_kv, q->h_kv, r, d);
        double sum = 0.0;

        for (int e = 0; e < d; e++)
            sum += (double)q->raw[e] * (double)half_to_f32(row[e]);
        return sum;
    }
    const int dp = kvant_format_padded(k->fmt, d);
    float s;
    if (k->fmt->flags & KVANT_FORMAT_PAGE) {
        k->fmt->ref.score_page(k->param, q->prep, (size_t)dp, 1, kv_row(k, kv_page(seqs, q->s, page), q->h_kv, 0), r, 1,
                               &s, 1, dp);
        return s;
    }
    k->fmt->ref.score(k->param, q->prep, (size_t)kvant_format_sdim(k->fmt, dp), 1,
                      kv_row(k, kv_page(seqs, q->s, page), q->h_kv, r), k->row_bytes, 1, &s, 1, dp);
    return s;
}

/* acc_enc or acc_tail += weight * v_j. */
static void value_add(const kvant_attn_args *a, const query *q, int j, float weight, const scratch *w)
{
    const kvant_kv_side *v = &a->v;
    const int page = j / KVANT_PAGE, r = j % KVANT_PAGE, d = a->d_v;
    const int32_t t = kv_tail_page(v, &a->seqs, q->s, page, q->pos / KVANT_PAGE,
                                   (exact_pages){ a->tail_pages, a->sink_pages });

    if (t >= 0) {
        const uint16_t *row = kv_tail_row(v, t, a->h_kv, q->h_kv, r, d);

        for (int e = 0; e < d; e++)
            w->acc_tail[e] += weight * half_to_f32(row[e]);
        return;
    }
    const int dp = kvant_format_padded(v->fmt, d);
    if (v->fmt->flags & KVANT_FORMAT_PAGE) {
        v->fmt->ref.axpy_page(v->param, &weight, 1, 1, kv_row(v, kv_page(&a->seqs, q->s, page), q->h_kv, 0), r, 1,
                              w->acc_enc, (size_t)dp, dp);
        return;
    }
    v->fmt->ref.axpy(v->param, &weight, 1, 1, kv_row(v, kv_page(&a->seqs, q->s, page), q->h_kv, r), v->row_bytes, 1,
                     w->acc_enc, (size_t)kvant_format_sdim(v->fmt, dp), dp);
}

static void attend(const kvant_attn_args *a, const query *q, float *out, const scratch *w)
{
    const int dp = kvant_format_padded(a->v.fmt, a->d_v);
    const int first = a->window > 0 && q->pos >= a->window ? q->pos - a->window + 1 : 0;
    const double cap = (double)a->softcap, sink = a->sinks != NULL ? (double)a->sinks[q->h] : -INFINITY;
    const exact_pages exact = { a->tail_pages, a->sink_pages };
    double top = sink, sum = 0.0;

    for (int j = first; j <= q->pos; j++) {
        w->score[j] = key_score(&a->k, &a->seqs, q, a->h_kv, a->d_k, exact, j) * (double)a->scale;
        if (cap > 0.0)
            w->score[j] = cap * tanh(w->score[j] / cap);
        if (!(w->score[j] <= top))
            top = w->score[j];
    }
    if (a->sinks != NULL)
        sum = exp(sink - top);
    memset(w->acc_enc, 0, ROW_FLOATS * sizeof(float));
    memset(w->acc_tail, 0, ROW_FLOATS * sizeof(float));
    for (int j = first; j <= q->pos; j++)
        sum += w->score[j] = exp(w->score[j] - top);
    for (int j = first; j <= q->pos; j++)
        value_add(a, q, j, (float)(w->score[j] / sum), w);
    a->v.fmt->ref.finish_out(a->v.param, w->acc_enc, w->out, dp);
    for (int e = 0; e < a->d_v; e++)
        out[e] = w->out[e] + w->acc_tail[e];
}

static void attn(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_args *a = args;
    const scratch w = scratch_at(work);
    int64_t lo, hi;

    part_range(a->seqs.n_tokens, part, parts, &lo, &hi);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++) {
            if (i < lo || i >= hi)
                continue;
            for (int h = 0; h < a->h; h++) {
                const float *raw = a->q + i * a->ldq + h * a->gq;
                const query q = { s, a->seqs.pos0[s] + i - a->seqs.q0[s], h, h / (a->h / a->h_kv), raw, w.prep };

                prepare(&a->k, raw, a->d_k, &w);
                attend(a, &q, a->out + i * a->ldo + (int64_t)h * a->d_v, &w);
            }
        }
}

static size_t attn_local(const void *args)
{
    const kvant_attn_args *a = args;

    return (size_t)5 * ROW_FLOATS * sizeof(float) + ((size_t)a->max_pos + 1) * sizeof(double);
}

const kvant_cpu_kernel kvant_attn_ref = { .stages = 1, .fn = { attn }, .local_bytes = attn_local };

static void attn_score(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_score_args *a = args;
    const exact_pages exact = { a->tail_pages, a->sink_pages };
    const scratch w = scratch_at(work);
    int64_t lo, hi;

    part_range(a->seqs.n_tokens, part, parts, &lo, &hi);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++) {
            if (i < lo || i >= hi)
                continue;
            for (int h = 0; h < a->h; h++) {
                const float *raw = a->q + i * a->ldq + h * a->gq;
                const query q = { s, a->seqs.pos0[s] + i - a->seqs.q0[s], h, h / (a->h / a->h_kv), raw, w.prep };
                float *row = a->s + ((int64_t)i * a->h + h) * a->lds;

                prepare(&a->k, raw, a->d_k, &w);
                for (int j = 0; j <= q.pos; j++)
                    row[j] = (float)(key_score(&a->k, &a->seqs, &q, a->h_kv, a->d_k, exact, j) * (double)a->scale);
            }
        }
}

static size_t attn_score_local(const void *args)
{
    (void)args;
    return (size_t)5 * ROW_FLOATS * sizeof(float);
}

const kvant_cpu_kernel kvant_attn_score_ref = { .stages = 1, .fn = { attn_score }, .local_bytes = attn_score_local };
