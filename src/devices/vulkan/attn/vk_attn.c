/* vk_attn.c: attn and attn_score over pages of any pair of formats, decode and prefill, exact tail, any GQA.
 *
 * attn is three dispatches: prep_q once per query row and head; partial sums per (tile of query rows, KV head, part of
 * the context); the merge of the parts in ascending order with finish_out once per head.  The parts are the splits of
 * KVANT_SPLIT keys, and one more for the pages that are read exactly.  Prompts on matrix units: vk_wide.c. */
#include "devices/vulkan/attn/vk_attn.h"

enum { LEAST_SPLIT = 256, MAX_ROWS = 8, SOFTWARE_ROWS = 2 };     /* software: less to compile */
static const size_t SCRATCH_CAP = 128u << 20;

static size_t shared_bytes(const vk_attn_job *p)
{
    const size_t rows = (size_t)p->rows, weights = rows > 8 ? rows : 8;
    return 4 * (rows * (size_t)p->k.sdim + weights * VK_GROUP + rows * 32 + VK_GROUP + p->k.card.decode +
                p->v.card.decode + 32);
}

static int has_tail(const kvant_attn_args *a)
{
    return (a->k.tail || a->v.tail) && a->seqs.tail_table && a->tail_pages > 0;
}

/* All but attn_tile: parts as large as leave enough workgroups for the device: each costs its start and its share
 * of the merge. */
static void split_of(const vk_device *d, vk_attn_job *p)
{
    const kvant_attn_args *a = p->a;
    const int64_t tiles = (int64_t)a->seqs.n_seqs * a->h_kv * p->head_tiles, want = 3 * (int64_t)d->caps.cores;
    const int whole = vk_fast_parts(d, p);
    p->split = whole ? MOST_SPLIT : KVANT_SPLIT;
    while (p->split > LEAST_SPLIT && whole && tiles * (a->max_pos / p->split + 1) < want)
        p->split /= 2;
    p->n_split = a->max_pos / p->split + 1;
    p->n_part = p->n_split + has_tail(a);
    p->direct = p->n_part == 1 && whole && p->v.card.space == VK_SPACE_REAL;
}

/* Fills everything but addresses of scratch; KVANT_EUNSUPPORTED where no tile fits. */
static int attn_shape(vk_device *d, const kvant_attn_args *a, vk_attn_job *p, kvant_diag *diag)
{
    const int group = a->h / a->h_kv;
    memset(p, 0, sizeof *p);
    p->a = a;
    KVANT_TRY(vk_side_of(d, &a->k, a->d_k, &p->k, diag));
    KVANT_TRY(vk_side_of(d, &a->v, a->d_v, &p->v, diag));
    p->width = 2 + (p->v.sdim > a->d_v ? p->v.sdim : a->d_v);
    for (int rows = d->caps.software && !d->caps.matrix ? SOFTWARE_ROWS : MAX_ROWS; rows >= 1; rows /= 2) {
        p->heads = group < rows ? group : rows;
        p->head_tiles = (group + p->heads - 1) / p->heads;
        p->tokens = 1;
        while (a->seqs.n_tokens > a->seqs.n_seqs && 2 * p->tokens * p->heads <= rows && p->tokens < KVANT_PAGE)
            p->tokens *= 2;
        p->rows = p->tokens * p->heads;
        if (shared_bytes(p) <= d->caps.max_shared) {
            split_of(d, p);
            return KVANT_OK;
        }
    }
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: attn: %s x %s with head_dim %d, %d needs %zu bytes of "
                      "shared memory, this device has %u", a->k.fmt->name, a->v.fmt->name, a->d_k, a->d_v,
                      shared_bytes(p), d->caps.max_shared);
}

/* The parts of a tile are pages from the first on and the newest ones, which alone may be exact. */
static int no_sink(int pages, kvant_diag *diag)
{
    if (pages == 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %d exact first pages (--kv-sink), wanted 0", pages);
}

static int attn_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    vk_attn_job p;
    KVANT_TRY(no_sink(a->sink_pages, diag));
    KVANT_TRY(vk_fits("attn", (int64_t)a->seqs.n_tokens * (a->ldq > a->ldo ? a->ldq : a->ldo), diag));
    return attn_shape(d, a, &p, diag);
}

size_t vk_tile_bytes(const vk_attn_job *p)
{
    return (size_t)p->a->h_kv * (size_t)p->head_tiles * (size_t)p->n_part * (size_t)p->rows * (size_t)p->width * 4;
}

/* Tiles that the tokens can touch at most. */
static int most_tiles(const vk_attn_job *p)
{
    const int64_t a = p->a->seqs.n_tokens, b = a / p->tokens + 2 * (int64_t)p->a->seqs.n_seqs;
    return (int)(a < b ? a : b);
}

static int raw_queries(const vk_attn_job *p)
{
    return p->k.card.space == VK_SPACE_REAL && p->k.sdim == p->k.d;
}

static size_t prep_bytes(const vk_attn_job *p)
{
    if (raw_queries(p))
        return 0;
    const size_t rows = (size_t)p->a->seqs.n_tokens * (size_t)p->a->h;
    return (rows * (size_t)p->k.sdim * 4 + 255) & ~(size_t)255;
}

static int tiles_per_dispatch(const vk_device *d, const vk_attn_job *p)
{
    const size_t fit = SCRATCH_CAP / vk_tile_bytes(p), most = (size_t)most_tiles(p),
                 grid = d->caps.max_groups / ((size_t)p->a->h_kv * (size_t)p->head_tiles);
    const size_t n = fit < grid ? fit : grid;
    return (int)(n < 1 ? 1 : n < most ? n : most);
}

static size_t attn_scratch(vk_device *d, const void *args)
{
    const kvant_attn_args *a = args;
    vk_attn_job p;
    if (a->seqs.n_tokens <= 0 || attn_shape(d, a, &p, NULL) < 0)
        return 0;
    const size_t wide = vk_wide_scratch(d, a);
    if (wide)
        return wide;
    return prep_bytes(&p) + (size_t)tiles_per_dispatch(d, &p) * vk_tile_bytes(&p);
}

size_t vk_q_bytes(const kvant_seqs *s, int64_t ldq, int64_t gq, int h, int d)
{
    return (size_t)((s->n_tokens - 1) * ldq + (h - 1) * gq + d) * 4;
}

size_t vk_out_bytes(const kvant_attn_args *a)
{
    return (size_t)((a->seqs.n_tokens - 1) * a->ldo + (int64_t)a->h * a->d_v) * 4;
}

static int prep(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    const kvant_attn_args *a = p->a;
    vk_call c;
    if (raw_queries(p))
        return KVANT_OK;
    vk_call_begin(&c, VK_SHADER_attn_prep);
    vk_ptr(&c, a->q, vk_q_bytes(&a->seqs, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(&c, p->qp, prep_bytes(p), VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &p->k);
    vk_uint(&c, a->seqs.n_tokens);
    vk_uint(&c, a->h);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->gq);
    vk_spec(&c, (uint32_t)p->k.card.space);
    vk_spec(&c, (uint32_t)p->k.d);
    vk_spec(&c, (uint32_t)p->k.dp);
    vk_spec(&c, (uint32_t)p->k.sdim);
    return vk_dispatch(d, l, &c, (uint64_t)a->seqs.n_tokens * (uint64_t)a->h, 1, 1, diag);
}

static int merge(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    const kvant_attn_args *a = p->a;
    const kvant_seqs *q = &a->seqs;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_attn_merge);
    vk_ptr(&c, p->part, (size_t)p->n_tiles * vk_tile_bytes(p), VK_READ);
    vk_ptr(&c, a->out, vk_out_bytes(a), VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &p->v);
    vk_ptr(&c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(&c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
    vk_ptr(&c, a->sinks, a->sinks ? (size_t)a->h * 4 : 0, VK_READ);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, a->h);
    vk_uint(&c, a->h_kv);
    vk_uint(&c, p->heads);
    vk_uint(&c, p->head_tiles);
    vk_uint(&c, p->tokens);
    vk_uint(&c, p->n_split);
    vk_uint(&c, p->n_part);
    vk_uint(&c, p->tile0);
    vk_uint(&c, p->width);
    vk_uint(&c, a->ldo);
    vk_uint(&c, a->v.tail != NULL);
    vk_uint(&c, a->window);
    vk_uint(&c, a->sinks != NULL);
    vk_spec(&c, (uint32_t)p->v.card.space);
    vk_spec(&c, (uint32_t)p->v.d);
    vk_spec(&c, (uint32_t)p->v.dp);
    vk_spec(&c, (uint32_t)p->v.sdim);
    vk_spec(&c, (uint32_t)p->split);
    return vk_dispatch(d, l, &c, (uint64_t)p->n_tiles * (uint64_t)(a->h_kv * p->head_tiles), (uint32_t)p->rows, 1,
                       diag);
}

static int attn_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    vk_attn_job p;
    int took = 0;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(attn_shape(d, a, &p, diag));
    KVANT_TRY(vk_wide_run(d, l, a, &took, diag));
    if (took)
        return KVANT_OK;
    const int all = most_tiles(&p), per = tiles_per_dispatch(d, &p);
    const int raw = raw_queries(&p);
    p.qp = raw ? a->q : d->scratch;
    p.ldp = raw ? a->ldq : (int64_t)a->h * p.k.sdim;
    p.gp = raw ? a->gq : p.k.sdim;
    p.part = (char *)d->scratch + prep_bytes(&p);
    KVANT_TRY(prep(d, l, &p, diag));
    for (p.tile0 = 0; p.tile0 < all; p.tile0 += per) {
        p.n_tiles = all - p.tile0 < per ? all - p.tile0 : per;
        KVANT_TRY(vk_parts(d, l, &p, diag));
        if (!p.direct)
            KVANT_TRY(merge(d, l, &p, diag));
    }
    return KVANT_OK;
}

/* ---- attn_score ---- */

static int score_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = args;
    const int64_t rows = (int64_t)a->seqs.n_tokens * a->h;
    KVANT_TRY(no_sink(a->sink_pages, diag));
    KVANT_TRY(vk_side_supports(d, &a->k, a->d_k, diag));
    if (rows > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: attn_score: %lld rows, wanted at most %u",
                          (long long)rows, d->caps.max_groups);
    return vk_fits("attn_score", rows * a->lds, diag);
}

static int score_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = args;
    const kvant_seqs *q = &a->seqs;
    const int tail = a->k.tail && q->tail_table;
    vk_side k;
    vk_call c;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(score_supports(d, args, diag));
    KVANT_TRY(vk_side_of(d, &a->k, a->d_k, &k, diag));
    vk_call_begin(&c, VK_SHADER_attn_score);
    vk_ptr(&c, a->q, vk_q_bytes(q, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(&c, a->s, (size_t)q->n_tokens * (size_t)a->h * (size_t)a->lds * 4, VK_WRITE);
    vk_side_pages(d, &c, &k, VK_READ);
    vk_side_tail(d, &c, &k, VK_READ);
    vk_side_param(&c, &k);
    vk_books_ptr(d, &c);
    vk_seqs_ptr(&c, q, tail);
    vk_uint(&c, q->n_tokens);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, q->table_stride);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->gq);
    vk_uint(&c, a->lds);
    vk_uint(&c, a->h);
    vk_uint(&c, a->h_kv);
    vk_uint(&c, a->tail_pages);
    vk_side_strides(&c, &k);
    vk_uint(&c, tail);
    vk_uint(&c, k.factor);
    vk_float(&c, a->scale);
    vk_spec(&c, (uint32_t)k.fmt);
    vk_spec(&c, (uint32_t)k.card.space);
    vk_spec(&c, (uint32_t)k.d);
    vk_spec(&c, (uint32_t)k.dp);
    vk_spec(&c, (uint32_t)k.sdim);
    vk_spec(&c, k.card.book);
    vk_spec(&c, k.card.decode);
    return vk_dispatch(d, l, &c, (uint64_t)q->n_tokens * (uint64_t)a->h, 16, 1, diag);
}

const vk_op vk_op_attn = { .supports = attn_supports, .scratch = attn_scratch, .run = attn_run };
const vk_op vk_op_attn_score = { .supports = score_supports, .run = score_run };
