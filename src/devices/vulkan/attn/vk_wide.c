/* vk_wide.c: attention of prompts on matrix units.  The rows of K and V that a batch sees become halves in real space
 * in scratch memory (attn_expand), once for all query rows; then tiles of query rows go through them (wide.glsl).
 * If scratch memory does not hold the whole context, this is done part by part, the sums of tiles being kept. */
#include "devices/vulkan/attn/vk_attn.h"

/* LEAST_TOKENS: per sequence on average; fewer rows would leave most of a tile empty.  MOST_BYTES: of rows as halves,
 * both sides; LEAST_KEYS: of a part, if the context is longer. */
enum { LEAST_TOKENS = 16, MOST_BYTES = 128 << 20, LEAST_KEYS = 1024, ALIGN = 256, TEAM_ROWS = 16, TEAMS = 4 };

typedef struct wide {
    const kvant_attn_args *a;
    vk_side side[2];               /* K, V */
    int heads, head_tiles, tokens; /* as in attn_job */
    int keys, block, areas;        /* keys of a part; of a turn; areas of shared memory */
    int64_t parts, n_tiles;
    size_t side_bytes, state; /* of rows as halves; sums between parts, where there are several */
} wide;

static size_t up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Returns the bytes that wide.glsl has in shared memory, and a little for tiles.glsl. */
static size_t shared_bytes(const vk_device *d, size_t dim, size_t block, size_t areas)
{
    const size_t rows = TEAMS * TEAM_ROWS, tiles = areas * 2 * block * (dim / 8 + 1), sums = rows * (block / 4 + 1);
    return 16 * (tiles + sums) + dim * rows / 8 + 8 * rows + 4 * VK_GROUP + 64 + (d->caps.bda ? 0 : 16 * VK_GROUP);
}

/* Rows of 256 values: fewer keys at once, for the registers' sake. */
static int choose_block(const vk_device *d, wide *w)
{
    const size_t dim = (size_t)w->a->d_k, most = d->caps.max_shared;
    w->block = dim > 128 ? 16 : 32;
    w->areas = shared_bytes(d, dim, (size_t)w->block, 2) <= most ? 2 : 1;
    return shared_bytes(d, dim, (size_t)w->block, (size_t)w->areas) <= most;
}

/* Halves hold what these formats may hold: of the wide ones, those that are no wider. */
static int fits_halves(const vk_side *s, int head_dim)
{
    const kvant_format *f = s->s->fmt;
    const int narrow = !(f->flags & KVANT_FORMAT_WIDE) || kvant_format_row_bytes(f, head_dim) <= 2 * (size_t)head_dim;
    return narrow && strcmp(f->name, "bf16") != 0 && ((uintptr_t)s->s->tail & 15) == 0 && s->sdim % 8 == 0;
}

/* Queries are read four values at a time. */
static int aligned_queries(const kvant_attn_args *a)
{
    return ((uintptr_t)a->q & 15) == 0 && a->ldq % 4 == 0 && a->gq % 4 == 0;
}

static void choose_tiles(wide *w)
{
    const kvant_attn_args *a = w->a;
    const int group = a->h / a->h_kv, rows = TEAMS * TEAM_ROWS;
    w->heads = group < rows ? group : rows;
    w->head_tiles = (group + w->heads - 1) / w->heads;
    w->tokens = 1;
    while (2 * w->tokens * w->heads <= rows && w->tokens < KVANT_PAGE)
        w->tokens *= 2;
    const int64_t most = a->seqs.n_tokens / w->tokens + 2 * (int64_t)a->seqs.n_seqs;
    w->n_tiles = most < a->seqs.n_tokens ? most : a->seqs.n_tokens;
}

/* Keys at a time, whole pages. */
static int choose_part(const vk_device *d, wide *w)
{
    const kvant_attn_args *a = w->a;
    const size_t most = d->caps.bda || d->caps.max_range > MOST_BYTES ? MOST_BYTES : (size_t)d->caps.max_range,
                 key = (size_t)a->seqs.n_seqs * (size_t)a->h_kv * (size_t)a->d_k * 2,
                 rows = (size_t)w->n_tiles * (size_t)(a->h_kv * w->head_tiles * TEAMS * TEAM_ROWS);
    const int64_t all = (a->max_pos / KVANT_PAGE + 1) * (int64_t)KVANT_PAGE, fit = (int64_t)(most / 2 / key),
                  part = fit / KVANT_PAGE * KVANT_PAGE;
    w->keys = (int)(part < all ? part : all);
    if (w->keys < all && w->keys < LEAST_KEYS)
        return 0;
    w->parts = (all + w->keys - 1) / w->keys;
    w->side_bytes = up(key * (size_t)w->keys);
    w->state = w->parts > 1 ? up(rows * (size_t)(a->d_k + 2) * 4) : 0;
    return w->state <= MOST_BYTES && w->state <= d->caps.max_range;
}

static int wide_of(vk_device *d, const kvant_attn_args *a, wide *w)
{
    kvant_diag diag;
    memset(w, 0, sizeof *w);
    w->a = a;
    if (!d->caps.products || !d->caps.wide || a->compute != KVANT_COMPUTE_AUTO || a->d_k != a->d_v ||
        (a->d_k != 64 && a->d_k != 128 && a->d_k != 256) || a->seqs.n_tokens < LEAST_TOKENS * a->seqs.n_seqs ||
        vk_side_of(d, &a->k, a->d_k, &w->side[0], &diag) < 0 || vk_side_of(d, &a->v, a->d_v, &w->side[1], &diag) < 0 ||
        !aligned_queries(a) || !fits_halves(&w->side[0], a->d_k) || !fits_halves(&w->side[1], a->d_v))
        return 0;
    choose_tiles(w);
    return choose_block(d, w) && choose_part(d, w);
}

size_t vk_wide_scratch(vk_device *d, const kvant_attn_args *a)
{
    wide w;
    return wide_of(d, a, &w) ? 2 * w.side_bytes + w.state : 0;
}

static int has_tail(const wide *w, int v)
{
    return w->side[v].s->tail && w->a->seqs.tail_table && w->a->tail_pages > 0;
}

static void *rows_of(const vk_device *d, const wide *w, int v)
{
    return (char *)d->scratch + (size_t)v * w->side_bytes;
}

/* Keys of a workgroup: what space.glsl has room for. */
static int run_of(const vk_side *s)
{
    enum { MOST = 16, MOST_VALUES = 1024 };
    int run = MOST;
    while (run > 1 && run * s->sdim > MOST_VALUES)
        run /= 2;
    return run;
}

/* One side's rows of the part that begins at key `from`. */
static int expand(vk_device *d, vk_list *l, const wide *w, int v, int64_t from, kvant_diag *diag)
{
    const kvant_attn_args *a = w->a;
    const kvant_seqs *q = &a->seqs;
    const vk_side *s = &w->side[v];
    const int run = run_of(s);
    vk_call c;
    vk_call_begin(&c, VK_SHADER_attn_expand);
    vk_side_pages(d, &c, s, VK_READ);
    vk_ptr(&c, rows_of(d, w, v), w->side_bytes, VK_WRITE);
    vk_seqs_ptr(&c, q, has_tail(w, v));
    vk_books_ptr(d, &c);
    vk_side_param(&c, s);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, a->h_kv);
    vk_uint(&c, q->table_stride);
    vk_side_strides(&c, s);
    vk_uint(&c, s->factor);
    vk_uint(&c, from);
    vk_uint(&c, w->keys);
    vk_uint(&c, a->window);
    vk_uint(&c, has_tail(w, v) ? a->tail_pages : 0);
    vk_spec(&c, (uint32_t)s->fmt);
    vk_spec(&c, (uint32_t)s->card.space);
    vk_spec(&c, (uint32_t)s->d);
    vk_spec(&c, (uint32_t)s->dp);
    vk_spec(&c, (uint32_t)s->sdim);
    vk_spec(&c, s->card.book);
    vk_spec(&c, s->card.decode);
    vk_spec(&c, (uint32_t)run);
    return vk_dispatch(d, l, &c, (uint64_t)q->n_seqs * (uint64_t)a->h_kv * (uint64_t)(w->keys / run), 1, 1, diag);
}

static void attend_ptrs(const vk_device *d, vk_call *c, const wide *w)
{
    const kvant_attn_args *a = w->a;
    const kvant_seqs *q = &a->seqs;
    vk_ptr(c, a->q, vk_q_bytes(q, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(c, a->out, vk_out_bytes(a), VK_WRITE);
    vk_ptr(c, w->state ? (char *)d->scratch + 2 * w->side_bytes : NULL, w->state, VK_WRITE);
    vk_ptr(c, rows_of(d, w, 0), w->side_bytes, VK_READ);
    vk_ptr(c, rows_of(d, w, 1), w->side_bytes, VK_READ);
    vk_side_tail(d, c, &w->side[0], VK_READ);
    vk_side_tail(d, c, &w->side[1], VK_READ);
    vk_ptr(c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
    vk_tails_ptr(c, q, has_tail(w, 0) || has_tail(w, 1));
    vk_ptr(c, a->sinks, a->sinks ? (size_t)a->h * 4 : 0, VK_READ);
}

static void attend_args(vk_call *c, const wide *w, int64_t from)
{
    const kvant_attn_args *a = w->a;
    vk_uint(c, a->seqs.n_seqs);
    vk_uint(c, a->seqs.table_stride);
    vk_uint(c, a->ldq);
    vk_uint(c, a->gq);
    vk_uint(c, a->ldo);
    vk_uint(c, a->h);
    vk_uint(c, a->h_kv);
    vk_uint(c, w->heads);
    vk_uint(c, w->head_tiles);
    vk_uint(c, w->tokens);
    vk_uint(c, has_tail(w, 0) || has_tail(w, 1) ? a->tail_pages : 0);
    vk_uint(c, w->n_tiles);
    vk_uint(c, from);
    vk_uint(c, w->keys);
    vk_uint(c, 1);
    vk_uint(c, a->d_k + 2);
    vk_uint(c, has_tail(w, 0));
    vk_uint(c, has_tail(w, 1));
    vk_uint(c, a->sinks != NULL);
    vk_uint(c, a->window);
    vk_float(c, a->scale);
    vk_float(c, a->softcap);
}

static int attend(vk_device *d, vk_list *l, const wide *w, int64_t from, kvant_diag *diag)
{
    const int khr = d->caps.products == VK_PRODUCTS_KHR;
    vk_call c;
    vk_call_begin(&c, khr ? VK_SHADER_attn_wide_khr : VK_SHADER_attn_wide);
    attend_ptrs(d, &c, w);
    attend_args(&c, w, from);
    vk_spec(&c, (uint32_t)w->a->d_k);
    vk_spec(&c, (uint32_t)w->block);
    vk_spec(&c, (uint32_t)w->areas);
    vk_spec(&c, TEAMS * 32);
    vk_spec(&c, 16);
    return vk_dispatch(d, l, &c, (uint64_t)w->n_tiles * (uint64_t)(w->a->h_kv * w->head_tiles), 1, 1, diag);
}

int vk_wide_run(vk_device *d, vk_list *l, const kvant_attn_args *a, int *took, kvant_diag *diag)
{
    wide w;
    *took = wide_of(d, a, &w);
    for (int64_t from = 0; *took && from <= a->max_pos; from += w.keys) {
        KVANT_TRY(expand(d, l, &w, 0, from, diag));
        KVANT_TRY(expand(d, l, &w, 1, from, diag));
        KVANT_TRY(attend(d, l, &w, from, diag));
    }
    return KVANT_OK;
}
