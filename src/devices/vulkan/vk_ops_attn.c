/* vk_ops_attn.c: attn and attn_score over pages of any pair of formats, decode and prefill, exact tail, any GQA.
 *
 * attn is three dispatches: prep_q once per query row and head; partial sums per (tile of query rows, KV head, part of
 * the context); the merge of the parts in ascending order with finish_out once per head.  The parts are the splits of
 * KVANT_SPLIT keys, and one more for the pages that are read exactly. */
#include "devices/vulkan/vk_dev.h"

enum { LEAST_SPLIT = 256, MOST_SPLIT = 8192, MAX_ROWS = 8, SOFTWARE_ROWS = 2 };     /* software: less to compile */
static const size_t SCRATCH_CAP = 128u << 20;

typedef struct attn_job {
    const kvant_attn_args *a;
    vk_side k, v;
    int heads, head_tiles, tokens; /* heads of a tile; tiles that cover the heads of one KV head; tokens of a tile */
    int rows, n_split, n_part, width;
    int split;                     /* keys of a part: KVANT_SPLIT, or what split_of chose */
    int tile0, n_tiles;            /* of this dispatch */
    int part_from, parts;          /* of this dispatch */
    int direct;                    /* one part, no rotation back: attn_half writes the result, nothing is merged */
    const float *qp;               /* prepared queries; q itself where nothing is to be done */
    int64_t ldp, gp;               /* their strides */
    void *part;
} attn_job;

static size_t shared_bytes(const attn_job *p)
{
    const size_t rows = (size_t)p->rows, weights = rows > 8 ? rows : 8;
    return 4 * (rows * (size_t)p->k.sdim + weights * VK_GROUP + rows * 32 + VK_GROUP + p->k.decode + p->v.decode + 32);
}

static int has_tail(const kvant_attn_args *a)
{
    return (a->k.tail || a->v.tail) && a->seqs.tail_table && a->tail_pages > 0;
}

/* Who takes the parts of encoded pages. */
typedef enum attn_kernel { ATTN_ANY, ATTN_DECODE, ATTN_HALF, ATTN_MATRIX } attn_kernel;
static attn_kernel kernel_of(const vk_device *d, const attn_job *p);

/* attn_half, attn_matrix: parts as large as leave enough workgroups for the device: each costs its start and its share
 * of the merge. */
static void split_of(const vk_device *d, attn_job *p)
{
    const kvant_attn_args *a = p->a;
    const int64_t tiles = (int64_t)a->seqs.n_seqs * a->h_kv * p->head_tiles, want = 3 * (int64_t)d->caps.cores;
    const int whole = kernel_of(d, p) >= ATTN_HALF;
    p->split = whole ? MOST_SPLIT : KVANT_SPLIT;
    while (p->split > LEAST_SPLIT && whole && tiles * (a->max_pos / p->split + 1) < want)
        p->split /= 2;
    p->n_split = a->max_pos / p->split + 1;
    p->n_part = p->n_split + has_tail(a);
    p->direct = p->n_part == 1 && whole && p->v.space == VK_SPACE_REAL;
}

/* Fills everything but addresses of scratch; KVANT_EUNSUPPORTED where no tile fits. */
static int attn_shape(vk_device *d, const kvant_attn_args *a, attn_job *p, kvant_diag *diag)
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

static int attn_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    attn_job p;
    KVANT_TRY(vk_fits("attn", (int64_t)a->seqs.n_tokens * (a->ldq > a->ldo ? a->ldq : a->ldo), diag));
    return attn_shape(d, a, &p, diag);
}

/* Tiles that the tokens can touch at most. */
static int most_tiles(const attn_job *p)
{
    const int64_t a = p->a->seqs.n_tokens, b = a / p->tokens + 2 * (int64_t)p->a->seqs.n_seqs;
    return (int)(a < b ? a : b);
}

static size_t tile_bytes(const attn_job *p)
{
    return (size_t)p->a->h_kv * (size_t)p->head_tiles * (size_t)p->n_part * (size_t)p->rows * (size_t)p->width * 4;
}

static int raw_queries(const attn_job *p)
{
    return p->k.space == VK_SPACE_REAL && p->k.sdim == p->k.d;
}

static size_t prep_bytes(const attn_job *p)
{
    if (raw_queries(p))
        return 0;
    const size_t rows = (size_t)p->a->seqs.n_tokens * (size_t)p->a->h;
    return (rows * (size_t)p->k.sdim * 4 + 255) & ~(size_t)255;
}

static int tiles_per_dispatch(const vk_device *d, const attn_job *p)
{
    const size_t fit = SCRATCH_CAP / tile_bytes(p), most = (size_t)most_tiles(p),
                 grid = d->caps.max_groups / ((size_t)p->a->h_kv * (size_t)p->head_tiles);
    const size_t n = fit < grid ? fit : grid;
    return (int)(n < 1 ? 1 : n < most ? n : most);
}

static size_t attn_scratch(vk_device *d, const void *args)
{
    const kvant_attn_args *a = args;
    attn_job p;
    if (a->seqs.n_tokens <= 0 || attn_shape(d, a, &p, NULL) < 0)
        return 0;
    return prep_bytes(&p) + (size_t)tiles_per_dispatch(d, &p) * tile_bytes(&p);
}

static size_t q_bytes(const kvant_seqs *s, int64_t ldq, int64_t gq, int h, int d)
{
    return (size_t)((s->n_tokens - 1) * ldq + (h - 1) * gq + d) * 4;
}

static size_t table_bytes(const kvant_seqs *s)
{
    return (size_t)s->n_seqs * (size_t)s->table_stride * 4;
}

static int prep(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    const kvant_attn_args *a = p->a;
    vk_call c;
    if (raw_queries(p))
        return KVANT_OK;
    vk_call_begin(&c, VK_SHADER_attn_prep);
    vk_ptr(&c, a->q, q_bytes(&a->seqs, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(&c, p->qp, prep_bytes(p), VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &p->k);
    vk_uint(&c, a->seqs.n_tokens);
    vk_uint(&c, a->h);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->gq);
    vk_spec(&c, (uint32_t)p->k.space);
    vk_spec(&c, (uint32_t)p->k.d);
    vk_spec(&c, (uint32_t)p->k.dp);
    vk_spec(&c, (uint32_t)p->k.sdim);
    return vk_dispatch(d, l, &c, (uint64_t)a->seqs.n_tokens * (uint64_t)a->h, 1, 1, diag);
}

static size_t out_bytes(const kvant_attn_args *a)
{
    return (size_t)((a->seqs.n_tokens - 1) * a->ldo + (int64_t)a->h * a->d_v) * 4;
}

static void tile_ptrs(const vk_device *d, vk_call *c, const attn_job *p)
{
    const kvant_attn_args *a = p->a;
    const kvant_seqs *q = &a->seqs;
    const int tail = p->n_part > p->n_split;
    vk_ptr(c, a->q, q_bytes(q, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(c, p->qp, q_bytes(q, p->ldp, p->gp, a->h, p->k.sdim), VK_READ);
    if (p->direct)
        vk_ptr(c, a->out, out_bytes(a), VK_WRITE);
    else
        vk_ptr(c, p->part, (size_t)p->n_tiles * tile_bytes(p), VK_WRITE);
    vk_side_pages(d, c, &p->k, VK_READ);
    vk_side_tail(d, c, &p->k, VK_READ);
    vk_side_pages(d, c, &p->v, VK_READ);
    vk_side_tail(d, c, &p->v, VK_READ);
    vk_side_param(c, &p->k);
    vk_side_param(c, &p->v);
    vk_books_ptr(d, c);
    vk_ptr(c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
    vk_ptr(c, q->table, table_bytes(q), VK_READ);
    vk_ptr(c, tail ? q->tail_table : NULL, tail ? table_bytes(q) : 0, VK_READ);
}

/* Arguments that attn_tile and attn_decode share. */
static void tile_args(const vk_device *d, vk_call *c, const attn_job *p)
{
    const kvant_attn_args *a = p->a;
    tile_ptrs(d, c, p);
    vk_uint(c, a->seqs.n_seqs);
    vk_uint(c, a->seqs.table_stride);
    vk_uint(c, a->ldq);
    vk_uint(c, a->gq);
    vk_uint(c, a->h);
    vk_uint(c, a->h_kv);
    vk_uint(c, p->heads);
    vk_uint(c, p->head_tiles);
    vk_uint(c, p->tokens);
    vk_uint(c, p->n_split);
    vk_uint(c, p->n_part);
    vk_uint(c, a->tail_pages);
    vk_uint(c, p->tile0);
    vk_uint(c, p->direct ? a->ldo : p->width);
    vk_side_strides(c, &p->k);
    vk_side_strides(c, &p->v);
    vk_uint(c, a->k.tail != NULL);
    vk_uint(c, a->v.tail != NULL);
    vk_uint(c, p->k.param != NULL);
    vk_uint(c, p->v.param != NULL);
    vk_float(c, a->scale);
    vk_uint(c, p->part_from);
    vk_uint(c, p->ldp);
    vk_uint(c, p->gp);
}

/* A pass over the parts: arguments and the constants that its shaders begin with. */
static void parts_begin(const vk_device *d, vk_call *c, int shader, const attn_job *p)
{
    vk_call_begin(c, shader);
    tile_args(d, c, p);
    vk_spec(c, (uint32_t)p->k.fmt);
    vk_spec(c, (uint32_t)p->v.fmt);
    vk_spec(c, (uint32_t)p->rows);
    vk_spec(c, (uint32_t)p->k.d);
    vk_spec(c, (uint32_t)p->v.d);
    vk_spec(c, p->k.book);
    vk_spec(c, p->v.book);
}

static int parts_dispatch(vk_device *d, vk_list *l, const attn_job *p, const vk_call *c, kvant_diag *diag)
{
    return vk_dispatch(d, l, c, (uint64_t)p->n_tiles * (uint64_t)(p->a->h_kv * p->head_tiles), (uint32_t)p->parts, 1,
                       diag);
}

static int any_run(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_tile, p);
    vk_spec(&c, (uint32_t)p->k.sdim);
    vk_spec(&c, (uint32_t)p->v.sdim);
    vk_spec(&c, p->k.decode);
    vk_spec(&c, p->v.decode);
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_decode: records of nibbles, one query per sequence ---- */

static int nibble_side(const vk_side *s)
{
    const int known = s->fmt == VK_FMT_q4_0 || s->fmt == VK_FMT_tbq4_0 || s->fmt == VK_FMT_turbo4;
    return known && s->d == s->sdim && s->d % 64 == 0 && s->d <= 256;
}

static int aligned_pages(const kvant_kv_side *s)
{
    return (((uintptr_t)s->pages | s->page_bytes | s->head_bytes) & 15) == 0;
}

static size_t decode_shared(const attn_job *p)
{
    const size_t row = (size_t)p->k.d * 18 / 128, rows = (size_t)p->rows;
    return 4 * (256 * (row | 1) + (size_t)p->k.d * rows + 256 * rows + VK_GROUP * rows + VK_GROUP + 64);
}

static int decode_takes(const vk_device *d, const attn_job *p)
{
    return p->tokens == 1 && nibble_side(&p->k) && nibble_side(&p->v) && decode_shared(p) <= d->caps.max_shared;
}

static int decode_run(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_decode, p);
    vk_spec(&c, aligned_pages(&p->a->k));
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_half: records of nibbles with 16-bit products, where the caller leaves the arithmetic to the device;
 * f16 and bf16 with f32 ---- */

static int wide_side(const vk_side *s)
{
    return (s->fmt == VK_FMT_f16 || s->fmt == VK_FMT_bf16) && (s->d == 64 || s->d == 128 || s->d == 256);
}

static int half_side(const vk_side *s)
{
    return wide_side(s) || (nibble_side(s) && (s->d == 64 || s->d == 128 || s->d == 256));
}

static size_t half_shared(const attn_job *p, uint32_t copies)
{
    const int kw = wide_side(&p->k), vw = wide_side(&p->v);
    const size_t tables = p->k.fmt == p->v.fmt || kw ? 1 : 2, rows = (size_t)p->rows, quads = (rows + 3) / 4,
                 records = (size_t)p->k.d / 32,
                 words = (size_t)((kw ? 0 : p->k.d) + (vw ? 0 : 2 * p->v.d)) * 18 / 128;
    return 1024 * copies * tables + 4 * (64 * words + records * 17 * quads * (kw ? 8 : 4) + records * (64 * rows + 8) +
                                         256 * quads + VK_GROUP + 4 * rows + MOST_SPLIT / KVANT_PAGE + 40);
}

/* Copies of the tables that fit; 0: not taken. */
static uint32_t half_copies(const vk_device *d, const attn_job *p)
{
    const int wide = wide_side(&p->k) && wide_side(&p->v);
    if (!d->caps.half || (p->a->compute != KVANT_COMPUTE_AUTO && !wide) || p->tokens != 1 ||
        (p->rows & (p->rows - 1)) != 0 || !half_side(&p->k) || !half_side(&p->v))
        return 0;
    for (uint32_t copies = wide ? 8 : 16; copies >= 8; copies /= 2)
        if (half_shared(p, copies) <= d->caps.max_shared)
            return copies;
    return 0;
}

static int half_run(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_half, p);
    vk_spec(&c, half_copies(d, p));
    vk_spec(&c, d->caps.subgroup_size);
    vk_spec(&c, aligned_pages(&p->a->k) && aligned_pages(&p->a->v));
    vk_spec(&c, !d->caps.subnormal16);
    vk_spec(&c, (uint32_t)p->split);
    vk_spec(&c, (uint32_t)p->direct);
    vk_spec(&c, (uint64_t)p->n_tiles * (uint64_t)(p->a->h_kv * p->head_tiles * p->parts) <= d->caps.cores);
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_matrix: rows of 128 values in records of nibbles, both sides alike, on matrix units ---- */

static int matrix_takes(const vk_device *d, const attn_job *p)
{
    enum { MOST_HEADS = 4, HEAD_DIM = 128 };
    return d->caps.matrix && p->a->compute == KVANT_COMPUTE_AUTO && p->tokens == 1 && p->rows <= MOST_HEADS &&
           nibble_side(&p->k) && p->k.fmt == p->v.fmt && p->k.d == HEAD_DIM && p->v.d == HEAD_DIM &&
           aligned_pages(&p->a->k) && aligned_pages(&p->a->v);
}

/* As many as shared memory has banks: no two threads of a team meet in one. */
enum { TABLE_COPIES = 32 };

static int matrix_run(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_matrix, p);
    vk_spec(&c, (uint32_t)p->split);
    vk_spec(&c, (uint32_t)p->direct);
    vk_spec(&c, TABLE_COPIES);
    vk_spec(&c, VK_GROUP);
    return parts_dispatch(d, l, p, &c, diag);
}

static attn_kernel kernel_of(const vk_device *d, const attn_job *p)
{
    return matrix_takes(d, p)   ? ATTN_MATRIX
           : half_copies(d, p)  ? ATTN_HALF
           : decode_takes(d, p) ? ATTN_DECODE
                                : ATTN_ANY;
}

/* All parts: the splits by the fastest kernel that takes them, the exact pages by attn_tile. */
static int tiles(vk_device *d, vk_list *l, attn_job *p, kvant_diag *diag)
{
    static int (*const runs[])(vk_device *, vk_list *, const attn_job *, kvant_diag *) = {
        [ATTN_ANY] = any_run, [ATTN_DECODE] = decode_run, [ATTN_HALF] = half_run, [ATTN_MATRIX] = matrix_run
    };
    const attn_kernel kernel = kernel_of(d, p);
    p->part_from = 0;
    p->parts = kernel != ATTN_ANY ? p->n_split : p->n_part;
    KVANT_TRY(runs[kernel](d, l, p, diag));
    p->part_from = p->n_split;
    p->parts = p->n_part - p->n_split;
    return kernel != ATTN_ANY && p->parts ? any_run(d, l, p, diag) : KVANT_OK;
}

static int merge(vk_device *d, vk_list *l, const attn_job *p, kvant_diag *diag)
{
    const kvant_attn_args *a = p->a;
    const kvant_seqs *q = &a->seqs;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_attn_merge);
    vk_ptr(&c, p->part, (size_t)p->n_tiles * tile_bytes(p), VK_READ);
    vk_ptr(&c, a->out, out_bytes(a), VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &p->v);
    vk_ptr(&c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(&c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
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
    vk_spec(&c, (uint32_t)p->v.space);
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
    attn_job p;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(attn_shape(d, a, &p, diag));
    const int all = most_tiles(&p), per = tiles_per_dispatch(d, &p);
    const int raw = raw_queries(&p);
    p.qp = raw ? a->q : d->scratch;
    p.ldp = raw ? a->ldq : (int64_t)a->h * p.k.sdim;
    p.gp = raw ? a->gq : p.k.sdim;
    p.part = (char *)d->scratch + prep_bytes(&p);
    KVANT_TRY(prep(d, l, &p, diag));
    for (p.tile0 = 0; p.tile0 < all; p.tile0 += per) {
        p.n_tiles = all - p.tile0 < per ? all - p.tile0 : per;
        KVANT_TRY(tiles(d, l, &p, diag));
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
    vk_ptr(&c, a->q, q_bytes(q, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(&c, a->s, (size_t)q->n_tokens * (size_t)a->h * (size_t)a->lds * 4, VK_WRITE);
    vk_side_pages(d, &c, &k, VK_READ);
    vk_side_tail(d, &c, &k, VK_READ);
    vk_side_param(&c, &k);
    vk_books_ptr(d, &c);
    vk_ptr(&c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(&c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
    vk_ptr(&c, q->table, table_bytes(q), VK_READ);
    vk_ptr(&c, tail ? q->tail_table : NULL, tail ? table_bytes(q) : 0, VK_READ);
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
    vk_uint(&c, k.param != NULL);
    vk_float(&c, a->scale);
    vk_spec(&c, (uint32_t)k.fmt);
    vk_spec(&c, (uint32_t)k.space);
    vk_spec(&c, (uint32_t)k.d);
    vk_spec(&c, (uint32_t)k.dp);
    vk_spec(&c, (uint32_t)k.sdim);
    vk_spec(&c, k.book);
    vk_spec(&c, k.decode);
    return vk_dispatch(d, l, &c, (uint64_t)q->n_tokens * (uint64_t)a->h, 16, 1, diag);
}

const vk_op vk_op_attn = { .supports = attn_supports, .scratch = attn_scratch, .run = attn_run };
const vk_op vk_op_attn_score = { .supports = score_supports, .run = score_run };
