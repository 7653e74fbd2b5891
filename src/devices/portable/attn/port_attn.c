/* port_attn.c: attn and attn_score over pages of any pair of formats, decode and prefill, exact tail, any grouping of
 * heads. */
#include "devices/portable/core/port_side.h"
#include "devices/portable/attn/attn_params.h"

enum { LOCAL_BYTES = 16384, MOST_HEADS = 8 };
/* attn_matrix.k: rows of a tile (fewer where it does not fit), its DEEP, sums that a thread may hold in registers, and
 * from how many tokens more than sequences on a pass takes it. */
enum { MATRIX_BYTES = 32768, MATRIX_ROWS = 16, LEAST_ROWS = 8, DEEP = 32, MOST_SUMS = 64, LEAST_MORE = 8 };

static struct p_side side_params(const port_side *s, const kvant_seqs *q)
{
    return (struct p_side){ .page_bytes = (int64_t)s->s->page_bytes, .head_bytes = (int64_t)s->s->head_bytes,
                            .row_bytes = (int64_t)s->s->row_bytes, .has_tail = s->s->tail && q->tail_table,
                            .has_factor = s->factor };
}

static void side_defines(port_call *c, char which, const port_side *s)
{
    port_define(c, "%c_FMT %s", which, s->card->name);
    port_define(c, "D_%c %d", which, s->d);
    port_define(c, "P_%c %d", which, s->dp);
    port_define(c, "S_%c %d", which, s->sdim);
}

static void side_buffers(const port_device *d, port_call *c, const port_side *s)
{
    port_side_pages(d, c, s, 0);
    port_side_tail(d, c, s, 0);
    port_side_param(c, s);
}

static size_t query_bytes(const kvant_seqs *s, int64_t ldq, int64_t gq, int h, int d)
{
    return (size_t)((s->n_tokens - 1) * ldq + (h - 1) * gq + d) * 4;
}

/* Bytes of local memory that attn.k wants for so many heads. */
static int local_bytes(const port_side *k, const port_side *v, int heads)
{
    const int real = k->dp > v->dp ? k->dp : v->dp;
    const int shared = (port_paged(k) ? k->sdim : 1) + (port_paged(v) ? v->sdim : 1);
    return 4 * (shared + heads * (k->d + k->sdim + KVANT_PAGE) + real + v->sdim + PORT_THREADS);
}

static int heads_of(const kvant_attn_args *a, const port_side *k, const port_side *v)
{
    const int group = a->h / a->h_kv;
    int heads = group < MOST_HEADS ? group : MOST_HEADS;
    while (heads > 1 && local_bytes(k, v, heads) > LOCAL_BYTES)
        heads--;
    return heads;
}

static int largest(int a, int b)
{
    return a > b ? a : b;
}

/* Bytes of threadgroup memory that attn_matrix.k wants for tiles of so many rows. */
static int matrix_bytes(const port_side *k, const port_side *v, int rows)
{
    const int width = (k->sdim + 7) / 8 * 8, value = k->card->halves && v->card->halves ? 2 : 4;
    return 4 * (largest(rows * width, v->sdim) + largest(rows * KVANT_PAGE, largest(k->dp, v->dp)) + rows * DEEP +
                PORT_THREADS + rows) + value * KVANT_PAGE * DEEP;
}

/* Rows of a tile on matrices, or 0: attn.k is taken.  --compute f32 keeps it: there a row's bits do not depend on how
 * many the pass has.  Exact first pages too: matrices read exact pages last. */
static int matrix_rows(const port_device *d, const kvant_attn_args *a, const port_side *k, const port_side *v)
{
    if (!d->matrices || a->sink_pages > 0 || a->compute != KVANT_COMPUTE_AUTO ||
        a->seqs.n_tokens - a->seqs.n_seqs < LEAST_MORE)
        return 0;
    for (int rows = MATRIX_ROWS; rows >= LEAST_ROWS; rows /= 2)
        if (matrix_bytes(k, v, rows) <= MATRIX_BYTES &&
            rows * ((v->sdim + DEEP - 1) / DEEP * DEEP) <= MOST_SUMS * PORT_THREADS)
            return rows;
    return 0;
}

static int attn_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    KVANT_TRY(port_side_supports(d, &a->k, a->d_k, diag));
    return port_side_supports(d, &a->v, a->d_v, diag);
}

static struct p_attn attn_params(const kvant_attn_args *a, const port_side *k, const port_side *v, int heads)
{
    const int group = a->h / a->h_kv;
    return (struct p_attn){
        .k = side_params(k, &a->seqs), .v = side_params(v, &a->seqs), .ldq = a->ldq, .gq = a->gq, .ldo = a->ldo,
        .n_seqs = a->seqs.n_seqs, .stride = a->seqs.table_stride, .h = a->h, .h_kv = a->h_kv,
        .tiles = (group + heads - 1) / heads, .tail_pages = a->tail_pages,
        .sink_pages = a->sink_pages, .window = a->window,
        .has_sinks = a->sinks != NULL, .scale = a->scale, .softcap = a->softcap,
    };
}

/* Query heads and tokens of a tile of so many rows; tokens: a power of two. */
static void matrix_shape(const kvant_attn_args *a, int rows, int *heads, int *tokens)
{
    const int group = a->h / a->h_kv, tiles = (group + rows - 1) / rows;
    *heads = (group + tiles - 1) / tiles;
    *tokens = 1;
    while (2 * *tokens * *heads <= rows)
        *tokens *= 2;
}

static int attn_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    const kvant_seqs *q = &a->seqs;
    port_side k, v;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(port_side_of(d, &a->k, a->d_k, &k, diag));
    KVANT_TRY(port_side_of(d, &a->v, a->d_v, &v, diag));
    const int rows = matrix_rows(d, a, &k, &v);
    int heads = heads_of(a, &k, &v), tokens = 1;
    if (rows)
        matrix_shape(a, rows, &heads, &tokens);
    const struct p_attn p = attn_params(a, &k, &v, heads);
    port_call c = PORT_CALL(attn, p);
    port_read(&c, a->q, query_bytes(q, a->ldq, a->gq, a->h, a->d_k));
    port_write(&c, a->out, (size_t)((q->n_tokens - 1) * a->ldo + (int64_t)a->h * a->d_v) * 4);
    side_buffers(d, &c, &k);
    side_buffers(d, &c, &v);
    port_seqs(&c, q, p.k.has_tail || p.v.has_tail);
    port_read(&c, a->sinks, a->sinks ? (size_t)a->h * 4 : 0);
    side_defines(&c, 'K', &k);
    side_defines(&c, 'V', &v);
    port_define(&c, "HEADS %d", heads);
    if (rows) {
        c.kernel = PORT_KERNEL_attn_matrix;
        port_define(&c, "ROWS %d", rows);
        port_define(&c, "TOKENS %d", tokens);
        port_define(&c, "TILE %s", k.card->halves && v.card->halves ? "half" : "float");
    }
    return port_dispatch(d, &c, rows ? port_spans(q, tokens) : q->n_tokens, (int64_t)a->h_kv * p.tiles, 1, diag);
}

static int score_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = args;
    return port_side_supports(d, &a->k, a->d_k, diag);
}

static int score_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = args;
    const kvant_seqs *q = &a->seqs;
    port_side k;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(port_side_of(d, &a->k, a->d_k, &k, diag));
    const struct p_attn_score p = {
        .k = side_params(&k, q), .ldq = a->ldq, .gq = a->gq, .lds = a->lds, .n_seqs = q->n_seqs,
        .stride = q->table_stride, .h = a->h, .h_kv = a->h_kv, .tail_pages = a->tail_pages, .sink_pages = a->sink_pages,
        .scale = a->scale,
    };
    port_call c = PORT_CALL(attn_score, p);
    port_read(&c, a->q, query_bytes(q, a->ldq, a->gq, a->h, a->d_k));
    port_write(&c, a->s, (size_t)q->n_tokens * (size_t)a->h * (size_t)a->lds * 4);
    side_buffers(d, &c, &k);
    port_seqs(&c, q, p.k.has_tail);
    side_defines(&c, 'K', &k);
    return port_dispatch(d, &c, q->n_tokens, a->h, 1, diag);
}

PORT_OP(attn, attn_supports, attn_run)
PORT_OP(attn_score, score_supports, score_run)
