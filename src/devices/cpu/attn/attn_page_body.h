/* attn_page_body.h: the rows of one block (attn_body.h) over the pages of one split: queries, scores, weights, sums.
 *
 * A few rows read pages through the format's own score and axpy; many rows decode the page once into f32 scratch,
 * which gives the same bits (contract of kvant_format_kernels).  On the page of the query itself, and on one that the
 * window cuts, each token is handled alone with its own keys: no mask, and keys that it does not see cannot touch it
 * even when they are NaN.
 * The format's integer path (score_q8, axpy_q8, or those of a page) serves the rows of decode sequences in compute mode
 * auto, always and only those: which path a row takes depends on its kind, never on its neighbours. */
#include <string.h>
#include "ops/op_util.h"

enum { FEW_ROWS = 12 }; /* up to here a format's kernels decode each row about once; arbitrary, not tuned */

/* One side of the cache with the kernels that read it. */
typedef struct side_reader {
    const kvant_kv_side *side;
    const kvant_format_kernels *k;
    int d, dp, sdim;  /* head_dim, padded, acc space */
    int scratch_only; /* no fast kernels: always decode, so that all row counts agree */
    size_t q8_bytes;  /* one query prepared for score_q8; 0: no integer path, or not in this compute mode */
} side_reader;

/* One call of attn or attn_score. */
typedef struct page_call {
    const kvant_seqs *seqs;
    side_reader k, v;
    const kvant_format_kernels *f16, *f32;
    const float *q;
    int64_t ldq, gq;
    int h_kv, g, window;
    exact_pages exact;
    float scale, softcap;
    const float *sinks;
} page_call;

/* Tokens first .. first+n-1 of the batch: sequence s, positions from pos, all in page `page`. */
typedef struct block {
    int s, first, n, pos, page;
    int q8; /* decode rows: they take the integer path where there is one */
} block;

/* The state of a set of rows inside one split. */
typedef struct state {
    float *m, *l;      /* maximum (of scores in powers of two), sum of weights */
    float *enc, *tail; /* weighted sums of V: encoded rows (ld_enc), exact tail rows (ld_tail) */
    int used_tail;
} state;

/* Scratch of one part. */
typedef struct part_scratch {
    uint8_t *q8;    /* queries for the integer path [rows][q8_bytes] */
    float *q, *raw; /* prepared and raw queries [rows][ld] */
    float *s;       /* scores, then weights [rows][KVANT_PAGE] */
    float *page;    /* one decoded page */
    float *pad;     /* one row */
    state now, total;
    int ld_q, ld_raw, ld_enc, ld_tail;
} part_scratch;

static int round16(int n)
{
    return (n + 15) & ~15;
}

static side_reader reader_of(const kvant_kv_side *side, int d, const kvant_format_kernels *f32, int compute)
{
    const kvant_format_kernels *k = kvant_format_best(side->fmt);
    const int dp = kvant_format_padded(side->fmt, d);
    const int plain = k->score_page != NULL ? k->score_page == side->fmt->ref.score_page
                                            : k->score == side->fmt->ref.score || k->axpy == side->fmt->ref.axpy;

    const int q8 = compute == KVANT_COMPUTE_AUTO && k->prep_q8 != NULL;

    return (side_reader){ side,
                          k,
                          d,
                          dp,
                          kvant_format_sdim(side->fmt, dp),
                          plain && k->score != f32->score,
                          q8 ? kvant_format_q8_bytes(side->fmt, dp) : 0 };
}

static page_call call_of(const kvant_attn_args *a)
{
    const kvant_format_kernels *f16 = kvant_format_best(kvant_format_find("f16"));
    const kvant_format_kernels *f32 = kvant_format_best(kvant_format_find("f32"));

    return (page_call){ &a->seqs,
                        reader_of(&a->k, a->d_k, f32, a->compute),
                        reader_of(&a->v, a->d_v, f32, a->compute),
                        f16,
                        f32,
                        a->q,
                        a->ldq,
                        a->gq,
                        a->h_kv,
                        a->h / a->h_kv,
                        a->window,
                        { a->tail_pages, a->sink_pages },
                        a->scale,
                        a->softcap,
                        a->sinks };
}

/* Rows of the largest block. */
static size_t max_rows(const page_call *c)
{
    int tokens = 0;

    for (int s = 0; s < c->seqs->n_seqs; s++) {
        const int n = c->seqs->q0[s + 1] - c->seqs->q0[s];

        tokens = n > tokens ? n : tokens;
    }
    return (size_t)(tokens < KVANT_PAGE ? tokens : KVANT_PAGE) * (size_t)c->g;
}

/* Floats of scratch, and its layout when base is not NULL. */
static size_t bench_layout(const page_call *c, float *base, part_scratch *b)
{
    const size_t rows = max_rows(c), k_tail = c->k.side->tail != NULL, v_tail = c->v.side->tail != NULL;
    const int ld_q = round16(c->k.sdim), ld_raw = round16(c->k.d), ld_enc = round16(c->v.sdim),
              ld_tail = round16(c->v.d);
    const int ld_page = ld_q > ld_enc ? ld_q : ld_enc;
    const size_t lines = (rows + 15) & ~(size_t)15;
    const size_t sizes[14] = { rows * c->k.q8_bytes / sizeof(float), /* first: aligned as the scratch is */
                               rows * (size_t)ld_q,
                               k_tail * rows * (size_t)ld_raw,
                               rows * KVANT_PAGE,
                               (size_t)ld_page * KVANT_PAGE,
                               (size_t)ld_page + KVANT_MAX_HEAD_DIM,
                               lines,
                               lines,
                               rows * (size_t)ld_enc,
                               v_tail * rows * (size_t)ld_tail,
                               lines,
                               lines,
                               rows * (size_t)ld_enc,
                               v_tail * rows * (size_t)ld_tail };
    float *at[14];
    size_t total = 0;

    for (int i = 0; i < 14; i++) {
        at[i] = base != NULL ? base + total : NULL;
        total += sizes[i];
    }
    if (base != NULL)
        *b = (part_scratch){ (uint8_t *)at[0],
                             at[1],
                             at[2],
                             at[3],
                             at[4],
                             at[5],
                             { at[6], at[7], at[8], at[9], 0 },
                             { at[10], at[11], at[12], at[13], 0 },
                             ld_q,
                             ld_raw,
                             ld_enc,
                             ld_tail };
    return total;
}

/* The next block of sequence s at batch row `first`. */
static block block_at(const kvant_seqs *seqs, int s, int first)
{
    const int pos = seqs->pos0[s] + first - seqs->q0[s], left = seqs->q0[s + 1] - first;
    const int room = KVANT_PAGE - pos % KVANT_PAGE;

    const int q8 = seqs->prompt != NULL && !seqs->prompt[s];

    return (block){ s, first, left < room ? left : room, pos, pos / KVANT_PAGE, q8 };
}

/* Rows are token-major: row t*g + j is query head h*g + j of token t. */
static void load_queries(const page_call *c, const block *bl, int h, const part_scratch *b)
{
    for (int t = 0; t < bl->n; t++)
        for (int j = 0; j < c->g; j++) {
            const float *q = c->q + (int64_t)(bl->first + t) * c->ldq + (int64_t)(h * c->g + j) * c->gq;
            const size_t row = (size_t)(t * c->g + j);

            if (c->k.side->tail != NULL)
                memcpy(b->raw + row * (size_t)b->ld_raw, q, (size_t)c->k.d * sizeof(float));
            memset(b->pad, 0, (size_t)c->k.dp * sizeof(float));
            memcpy(b->pad, q, (size_t)c->k.d * sizeof(float));
            c->k.k->prep_q(c->k.side->param, b->pad, b->q + row * (size_t)b->ld_q, c->k.dp);
            if (bl->q8 && c->k.q8_bytes)
                c->k.k->prep_q8(c->k.side->param, b->q + row * (size_t)b->ld_q, b->q8 + row * c->k.q8_bytes, c->k.dp);
        }
}

/* Rows of one page as some kernels read them. */
typedef struct source {
    const kvant_format_kernels *k;
    const void *param;
    const uint8_t *rows;
    size_t stride;
    int d, exact; /* exact: from the tail, real space */
    size_t q8;    /* not 0: through the integer path, with queries of so many bytes */
    int paged;    /* rows are those of a page of page scope */
} source;

/* The first n rows of page j for a block: the tail or the encoded page; decoded into scratch where many rows use it. */
static source page_source(const page_call *c, const side_reader *r, const block *bl, int h, int j, int n,
                          const part_scratch *b)
{
    const int32_t t = kv_tail_page(r->side, c->seqs, bl->s, j, bl->page, c->exact);
    source src;

    if (t >= 0)
        src = (source){ c->f16,
                        NULL,
                        (const uint8_t *)kv_tail_row(r->side, t, c->h_kv, h, 0, r->d),
                        (size_t)r->d * sizeof(uint16_t),
                        r->d,
                        1,
                        0,
                        0 };
    else
        src = (source){
            r->k, r->side->param,          kv_row(r->side, kv_page(c->seqs, bl->s, j), h, 0), r->side->row_bytes, r->dp,
            0,    bl->q8 ? r->q8_bytes : 0,   r->k->decode_page != NULL
        };
    if (!src.q8 && (bl->n * c->g > FEW_ROWS || (r->scratch_only && t < 0))) {
        const int width = t >= 0 ? r->d : r->sdim;

        if (src.paged)
            src.k->decode_page(src.param, src.rows, 0, n, b->page, src.d);
        else
            src.k->decode_acc(src.param, src.rows, src.stride, n, b->page, src.d);
        src = (source){ c->f32, NULL, (const uint8_t *)b->page, (size_t)width * sizeof(float), width, src.exact, 0, 0 };
    }
    return src;
}

/* Rows of a page from row `from` on. */
static const uint8_t *rows_from(const source *src, int from)
{
    return src->rows + (size_t)from * src->stride;
}

/* Scores of the keys from .. from + n - 1 of a page, for `rows` rows from `row` on. */
static void score_rows(const source *src, int row, int rows, int from, int n, const part_scratch *b)
{
    const float *q = src->exact ? b->raw + (size_t)row * (size_t)b->ld_raw : b->q + (size_t)row * (size_t)b->ld_q;
    const int ld = src->exact ? b->ld_raw : b->ld_q;
    float *s = b->s + (size_t)row * KVANT_PAGE;

    if (src->q8 && src->paged)
        src->k->score_page_q8(src->param, b->q8 + (size_t)row * src->q8, src->q8, rows, src->rows, from, n, s,
                              KVANT_PAGE, src->d);
    else if (src->q8)
        src->k->score_q8(src->param, b->q8 + (size_t)row * src->q8, src->q8, rows, rows_from(src, from),
                         src->stride, n, s, KVANT_PAGE, src->d);
    else if (src->paged)
        src->k->score_page(src->param, q, (size_t)ld, rows, src->rows, from, n, s, KVANT_PAGE, src->d);
    else
        src->k->score(src->param, q, (size_t)ld, rows, rows_from(src, from), src->stride, n, s, KVANT_PAGE, src->d);
}

static void axpy_rows(const source *src, int row, int rows, int from, int n, const part_scratch *b)
{
    float *acc = src->exact ? b->now.tail + (size_t)row * (size_t)b->ld_tail
                            : b->now.enc + (size_t)row * (size_t)b->ld_enc;
    const int ld = src->exact ? b->ld_tail : b->ld_enc;
    const float *weights = b->s + (size_t)row * KVANT_PAGE;

    if (src->q8 && src->paged)
        src->k->axpy_page_q8(src->param, weights, KVANT_PAGE, rows, src->rows, from, n, acc, (size_t)ld, src->d);
    else if (src->q8)
        src->k->axpy_q8(src->param, weights, KVANT_PAGE, rows, rows_from(src, from), src->stride, n, acc, (size_t)ld,
                        src->d);
    else if (src->paged)
        src->k->axpy_page(src->param, weights, KVANT_PAGE, rows, src->rows, from, n, acc, (size_t)ld, src->d);
    else
        src->k->axpy(src->param, weights, KVANT_PAGE, rows, rows_from(src, from), src->stride, n, acc, (size_t)ld,
                     src->d);
}

/* 2^x of one float, the same bits as in vectors. */
static float exp2_one(float x)
{
    float y[VF_LANES];

    vf_store(y, vf_exp2(vf_set1(x)));
    return y[0];
}

static void scale_floats(float *x, int n, float by)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store(x + i, vf_mul(vf_load(x + i), vf_set1(by)));
}

/* Scores beyond 2^20 to weights: an exact product less a rounded maximum would be anything but 0 for the greatest. */
static void weigh_great(float *s, int n, float scale, float m)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store(s + i, vf_exp2(vf_sub(vf_mul(vf_load(s + i), vf_set1(scale)), vf_set1(m))));
}

/* One row of a page: scores s[n] -> weights 2^(scale*s - max), with the row's state brought to the new maximum.
 * Everything is in powers of two: scale > 0 includes log2(e). */
static void softmax_row(float *s, int n, float scale, int row, const part_scratch *b)
{
    const state *w = &b->now;
    const int whole = (n + VF_LANES - 1) / VF_LANES * VF_LANES;
    vf top, sum = vf_zero();

    for (int i = n; i < whole; i++)
        s[i] = s[0]; /* no new maximum from the lanes behind n, ... */
    top = vf_load(s);
    for (int i = VF_LANES; i < whole; i += VF_LANES)
        top = vf_max(top, vf_load(s + i));
    const float here = vf_reduce_max(top) * scale, m = here > w->m[row] ? here : w->m[row];
    if (m > 0x1p20f || m < -0x1p20f)
        weigh_great(s, whole, scale, m);
    else
        for (int i = 0; i < whole; i += VF_LANES)
            vf_store(s + i, vf_exp2(vf_fma(vf_load(s + i), vf_set1(scale), vf_set1(-m))));
    for (int i = n; i < whole; i++)
        s[i] = 0.0f; /* ... and no weight */
    for (int i = 0; i < whole; i += VF_LANES)
        sum = vf_add(sum, vf_load(s + i));
    if (m > w->m[row] && w->l[row] != 0.0f) { /* a first page has nothing to rescale */
        const float fade = exp2_one(w->m[row] - m);

        w->l[row] *= fade;
        scale_floats(w->enc + (size_t)row * (size_t)b->ld_enc, b->ld_enc, fade);
        if (w->used_tail)
            scale_floats(w->tail + (size_t)row * (size_t)b->ld_tail, b->ld_tail, fade);
    }
    w->m[row] = m;
    w->l[row] += vf_reduce_add(sum);
}

/* Keys of page j that a row of the block sees: all before the block's own page, on it those up to its token. */
static int keys_seen(const page_call *c, const block *bl, int j, int row)
{
    const int first_keys = bl->pos % KVANT_PAGE + 1;

    return j == bl->page ? first_keys + row / c->g : KVANT_PAGE;
}

/* The first key that a token at position pos sees. */
static int window_start(const page_call *c, int pos)
{
    return c->window > 0 && pos >= c->window ? pos - c->window + 1 : 0;
}

/* The first key of page j that a row of the block sees; KVANT_PAGE or more: none. */
static int keys_from(const page_call *c, const block *bl, int j, int row)
{
    const int first = c->window > 0 ? window_start(c, bl->pos + row / c->g) - j * KVANT_PAGE : 0;

    return first > 0 ? first : 0;
}

/* Scores in b->s of page j for all rows of a block, `once` rows at a time. */
static void score_page(const page_call *c, const block *bl, const source *k, int j, int once, const part_scratch *b)
{
    const int rows = bl->n * c->g;

    for (int row = 0; row < rows; row += once) {
        const int from = keys_from(c, bl, j, row), n = keys_seen(c, bl, j, row) - from;

        if (n > 0)
            score_rows(k, row, once, from, n, b);
    }
}

/* s = cap * tanh(scale * s / cap), as cap - 2 cap / (1 + e^(2 scale s / cap)). */
static void cap_row(float *s, int n, float scale, float cap)
{
    const vf by = vf_set1(2.0f * 0x1.715476p+0f * scale / cap), one = vf_set1(1.0f), two = vf_set1(2.0f * cap);

    for (int i = 0; i < n; i += VF_LANES) {
        const vf e = vf_exp2(vf_min(vf_set1(126.0f), vf_mul(vf_load(s + i), by)));

        vf_store(s + i, vf_sub(vf_set1(cap), vf_div(two, vf_add(one, e))));
    }
}

/* Scores of page j to weights, row by row: each with its own keys. */
static void softmax_page(const page_call *c, const block *bl, int j, const part_scratch *b)
{
    const float scale = (c->softcap > 0.0f ? 1.0f : c->scale) * 0x1.715476p+0f; /* log2(e) */

    for (int row = 0; row < bl->n * c->g; row++) {
        const int n = keys_seen(c, bl, j, row) - keys_from(c, bl, j, row);
        float *s = b->s + (size_t)row * KVANT_PAGE;

        if (n > 0 && c->softcap > 0.0f)
            cap_row(s, n, c->scale, c->softcap);
        if (n > 0)
            softmax_row(s, n, scale, row, b);
    }
}

/* Page j of a block: all rows at once; on the block's own page, and where the window begins, token by token. */
static void attend_page(const page_call *c, const block *bl, int h, int j, part_scratch *b)
{
    const int rows = bl->n * c->g, n = keys_seen(c, bl, j, rows - 1);
    const int once = j == bl->page || keys_from(c, bl, j, rows - 1) > 0 ? c->g : rows;
    const source k = page_source(c, &c->k, bl, h, j, n, b);

    score_page(c, bl, &k, j, once, b);
    softmax_page(c, bl, j, b);
    const source v = page_source(c, &c->v, bl, h, j, n, b);
    if (v.exact && !b->now.used_tail) {
        memset(b->now.tail, 0, (size_t)rows * (size_t)b->ld_tail * sizeof(float));
        b->now.used_tail = 1;
    }
    for (int row = 0; row < rows; row += once) {
        const int from = keys_from(c, bl, j, row), seen = keys_seen(c, bl, j, row) - from;

        if (seen > 0)
            axpy_rows(&v, row, once, from, seen, b);
    }
}

/* One split of a block into b->now; pages before the window of its first token are not read. */
static void attend_split(const page_call *c, const block *bl, int h, int split, part_scratch *b)
{
    const int rows = bl->n * c->g, per = KVANT_SPLIT / KVANT_PAGE, first = window_start(c, bl->pos) / KVANT_PAGE;
    const int end = (split + 1) * per < bl->page + 1 ? (split + 1) * per : bl->page + 1;

    for (int row = 0; row < rows; row++) {
        b->now.m[row] = -INFINITY;
        b->now.l[row] = 0.0f;
    }
    memset(b->now.enc, 0, (size_t)rows * (size_t)b->ld_enc * sizeof(float));
    b->now.used_tail = 0;
    for (int j = split * per > first ? split * per : first; j < end; j++)
        attend_page(c, bl, h, j, b);
}
