/* vk_parts.c: attention's second pass: the partial sums of every part of the context, by the fastest kernel that takes
 * them: attn_matrix and attn_half know pages of nibbles, attn_decode any formats of rows with one query per sequence,
 * attn_tile all, and it alone windows and capped scores. */
#include "devices/vulkan/attn/vk_attn.h"

static void tile_ptrs(const vk_device *d, vk_call *c, const vk_attn_job *p)
{
    const kvant_attn_args *a = p->a;
    const kvant_seqs *q = &a->seqs;
    vk_ptr(c, a->q, vk_q_bytes(q, a->ldq, a->gq, a->h, a->d_k), VK_READ);
    vk_ptr(c, p->qp, vk_q_bytes(q, p->ldp, p->gp, a->h, p->k.sdim), VK_READ);
    if (p->direct)
        vk_ptr(c, a->out, vk_out_bytes(a), VK_WRITE);
    else
        vk_ptr(c, p->part, (size_t)p->n_tiles * vk_tile_bytes(p), VK_WRITE);
    vk_side_pages(d, c, &p->k, VK_READ);
    vk_side_tail(d, c, &p->k, VK_READ);
    vk_side_pages(d, c, &p->v, VK_READ);
    vk_side_tail(d, c, &p->v, VK_READ);
    vk_side_param(c, &p->k);
    vk_side_param(c, &p->v);
    vk_books_ptr(d, c);
    vk_seqs_ptr(c, q, p->n_part > p->n_split);
}

/* Arguments that attn_tile and attn_decode share. */
static void tile_args(const vk_device *d, vk_call *c, const vk_attn_job *p)
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
    vk_uint(c, p->k.factor);
    vk_uint(c, p->v.factor);
    vk_float(c, a->scale);
    vk_uint(c, p->part_from);
    vk_uint(c, p->ldp);
    vk_uint(c, p->gp);
}

/* A pass over the parts: arguments and the constants that its shaders begin with. */
static void parts_begin(const vk_device *d, vk_call *c, int shader, const vk_attn_job *p)
{
    vk_call_begin(c, shader);
    tile_args(d, c, p);
    vk_spec(c, (uint32_t)p->k.fmt);
    vk_spec(c, (uint32_t)p->v.fmt);
    vk_spec(c, (uint32_t)p->rows);
    vk_spec(c, (uint32_t)p->k.d);
    vk_spec(c, (uint32_t)p->v.d);
    vk_spec(c, p->k.card.book);
    vk_spec(c, p->v.card.book);
}

static int parts_dispatch(vk_device *d, vk_list *l, const vk_attn_job *p, const vk_call *c, kvant_diag *diag)
{
    return vk_dispatch(d, l, c, (uint64_t)p->n_tiles * (uint64_t)(p->a->h_kv * p->head_tiles), (uint32_t)p->parts, 1,
                       diag);
}

/* Values of a row, and of the tables that decoders use. */
static void whole_rows(vk_call *c, const vk_attn_job *p)
{
    vk_spec(c, (uint32_t)p->k.sdim);
    vk_spec(c, (uint32_t)p->v.sdim);
    vk_spec(c, p->k.card.decode);
    vk_spec(c, p->v.card.decode);
}

static int any_run(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_tile, p);
    vk_uint(&c, p->a->window);
    vk_float(&c, p->a->softcap);
    whole_rows(&c, p);
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_decode: any formats, one query per sequence ---- */

static int aligned_pages(const kvant_kv_side *s)
{
    return (((uintptr_t)s->pages | s->page_bytes | s->head_bytes) & 15) == 0;
}

static size_t decode_shared(const vk_attn_job *p, int keys)
{
    const size_t k = p->a->k.row_bytes, v = p->a->v.row_bytes, rows = (size_t)p->rows, quads = (rows + 3) / 4,
                 raw = (size_t)keys * (k + 4 + v) / 4 + 4, sums = 8 * VK_GROUP;
    return 4 * ((raw > sums ? raw : sums) + 4 * quads * (size_t)(p->k.sdim + keys) + VK_GROUP * rows + 32 * rows +
                MOST_SPLIT / KVANT_PAGE + p->k.card.decode + p->v.card.decode + VK_GROUP + 16);
}

/* Keys of a turn: as many as shared memory holds; 0: not taken. */
static int decode_keys(const vk_device *d, const vk_attn_job *p)
{
    enum { MOST_COLUMNS = 8 * VK_GROUP };
    if (vk_paged(&p->k) || vk_paged(&p->v) || p->tokens != 1 || p->k.sdim % 8 || p->v.sdim % 8 ||
        p->v.sdim > MOST_COLUMNS || p->a->k.head_bytes % 4 || p->a->v.head_bytes % 4)
        return 0;
    for (int keys = KVANT_PAGE; keys >= 16; keys /= 2)
        if (decode_shared(p, keys) <= d->caps.max_shared)
            return keys;
    return 0;
}

static int decode_run(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_decode, p);
    whole_rows(&c, p);
    vk_spec(&c, (uint32_t)p->a->k.row_bytes);
    vk_spec(&c, (uint32_t)p->a->v.row_bytes);
    vk_spec(&c, (uint32_t)decode_keys(d, p));
    vk_spec(&c, (uint32_t)p->split);
    vk_spec(&c, (uint32_t)(p->direct + 2 * (aligned_pages(&p->a->k) && aligned_pages(&p->a->v))));
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_half: records of nibbles with 16-bit products, where the caller leaves the arithmetic to the device ---- */

static int nibble_side(const vk_side *s)
{
    return s->card.nibbles && s->d == s->sdim;
}

static int half_side(const vk_side *s)
{
    return nibble_side(s) && (s->d == 64 || s->d == 128 || s->d == 256);
}

static size_t half_shared(const vk_attn_job *p, uint32_t copies)
{
    const size_t tables = p->k.fmt == p->v.fmt ? 1 : 2, rows = (size_t)p->rows, quads = (rows + 3) / 4,
                 records = (size_t)p->k.d / 32, words = (size_t)(p->k.d + 2 * p->v.d) * 18 / 128;
    return 1024 * copies * tables + 4 * (64 * words + records * (68 * quads + 64 * rows + 8) + 256 * quads + VK_GROUP +
                                         4 * rows + MOST_SPLIT / KVANT_PAGE + 40);
}

/* Copies of the tables that fit; 0: not taken. */
static uint32_t half_copies(const vk_device *d, const vk_attn_job *p)
{
    if (!d->caps.half || p->a->compute != KVANT_COMPUTE_AUTO || p->tokens != 1 || (p->rows & (p->rows - 1)) != 0 ||
        !half_side(&p->k) || !half_side(&p->v))
        return 0;
    for (uint32_t copies = 16; copies >= 8; copies /= 2)
        if (half_shared(p, copies) <= d->caps.max_shared)
            return copies;
    return 0;
}

static int half_run(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_half, p);
    vk_spec(&c, half_copies(d, p));
    vk_spec(&c, d->caps.subgroup_size);
    vk_spec(&c, aligned_pages(&p->a->k) && aligned_pages(&p->a->v));
    vk_spec(&c, (uint32_t)p->split);
    vk_spec(&c, (uint32_t)p->direct);
    vk_spec(&c, (uint32_t)p->k.card.centre);
    vk_spec(&c, (uint32_t)p->v.card.centre);
    return parts_dispatch(d, l, p, &c, diag);
}

/* ---- attn_matrix: rows of 128 values in records of nibbles, both sides alike, on matrix units ---- */

static int matrix_takes(const vk_device *d, const vk_attn_job *p)
{
    enum { MOST_HEADS = 4, HEAD_DIM = 128 };
    return d->caps.matrix && p->a->compute == KVANT_COMPUTE_AUTO && p->tokens == 1 && p->rows <= MOST_HEADS &&
           nibble_side(&p->k) && p->k.fmt == p->v.fmt && p->k.d == HEAD_DIM && p->v.d == HEAD_DIM &&
           aligned_pages(&p->a->k) && aligned_pages(&p->a->v);
}

/* As many as shared memory has banks: no two threads of a team meet in one. */
enum { TABLE_COPIES = 32 };

static int matrix_run(vk_device *d, vk_list *l, const vk_attn_job *p, kvant_diag *diag)
{
    vk_call c;
    parts_begin(d, &c, VK_SHADER_attn_matrix, p);
    vk_spec(&c, (uint32_t)p->split);
    vk_spec(&c, (uint32_t)p->direct);
    vk_spec(&c, TABLE_COPIES);
    vk_spec(&c, VK_GROUP);
    vk_spec(&c, (uint32_t)p->k.card.centre);
    return parts_dispatch(d, l, p, &c, diag);
}

/* One of these kernels takes the parts of encoded pages. */
typedef enum attn_kernel { ATTN_ANY, ATTN_DECODE, ATTN_HALF, ATTN_MATRIX } attn_kernel;

static attn_kernel kernel_of(const vk_device *d, const vk_attn_job *p)
{
    if (p->a->window > 0 || p->a->softcap > 0.0f || p->a->sinks)
        return ATTN_ANY;
    return matrix_takes(d, p)   ? ATTN_MATRIX
           : half_copies(d, p)  ? ATTN_HALF
           : decode_keys(d, p)  ? ATTN_DECODE
                                : ATTN_ANY;
}

int vk_fast_parts(const vk_device *d, const vk_attn_job *p)
{
    return kernel_of(d, p) != ATTN_ANY;
}

int vk_parts(vk_device *d, vk_list *l, vk_attn_job *p, kvant_diag *diag)
{
    static int (*const runs[])(vk_device *, vk_list *, const vk_attn_job *, kvant_diag *) = {
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
