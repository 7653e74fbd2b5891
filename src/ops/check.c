/* check.c: kvant_op_check: the arguments of every op, checked once before it is queued.
 * Checks shapes, strides, types and NULLs, not the contents of device buffers (ids, tables): those are the engine's.
 * An op over zero rows is valid with NULL buffers. */
#include "base/error.h"
#include "base/mem.h"
#include "ops/op_util.h"

#define BAD(...) return kvant_fail(diag, KVANT_EINVAL, __VA_ARGS__)

/* Far above any model; keeps every product of sizes (scratch of the kernels) inside 64 bits. */
enum { MAX_HEADS = 65536, MAX_SEQS = 65536, MAX_CHANNELS = 1 << 24 };

static const char *op_name(int id)
{
    const kvant_op_info *info = kvant_op_get(id);

    return info != NULL ? info->name : "op";
}

/* NULL terminated list of pointers that must be set. */
static int need(int id, const void *const *pointers, const char *names, kvant_diag *diag)
{
    for (int i = 0; pointers[i] != (const void *)names; i++)
        if (pointers[i] == NULL)
            BAD("%s: argument %d of (%s) is NULL", op_name(id), i, names);
    return KVANT_OK;
}

/* The list ends with the pointer to the names itself, which no argument can equal. */
#define NEED(id, names, ...)                                                                                           \
    do {                                                                                                               \
        static const char names_[] = names;                                                                            \
        const void *const list_[] = { __VA_ARGS__, names_ };                                                           \
        KVANT_TRY(need(id, list_, names_, diag));                                                                      \
    } while (0)

static int positive(int id, const char *name, int64_t value, kvant_diag *diag)
{
    if (value < 1)
        BAD("%s: %s = %lld, wanted at least 1", op_name(id), name, (long long)value);
    return KVANT_OK;
}

static int count(int id, int64_t n, kvant_diag *diag)
{
    if (n < 0)
        BAD("%s: n = %lld, wanted at least 0", op_name(id), (long long)n);
    return KVANT_OK;
}

/* n rows of h groups of d values: groups gx apart, rows ldx apart, none overlapping. */
static int groups(int id, const char *name, int64_t ld, int64_t g, int n, int h, int d, kvant_diag *diag)
{
    KVANT_TRY(positive(id, "h", h, diag));
    KVANT_TRY(positive(id, "d", d, diag));
    if (h > 1 && g < d)
        BAD("%s: group stride of %s = %lld, wanted at least d = %d", op_name(id), name, (long long)g, d);
    if (n > 1 && ld < (h - 1) * g + d)
        BAD("%s: row stride of %s = %lld, wanted at least %lld", op_name(id), name, (long long)ld,
            (long long)((h - 1) * g + d));
    return KVANT_OK;
}

static int row_stride(int id, const char *name, int64_t ld, int n, int64_t width, kvant_diag *diag)
{
    if (n > 1 && ld < width)
        BAD("%s: %s = %lld, wanted at least %lld", op_name(id), name, (long long)ld, (long long)width);
    return KVANT_OK;
}

static int epsilon(int id, float eps, kvant_diag *diag)
{
    if (!(eps >= 0.0f && eps <= 1.0f))
        BAD("%s: eps = %g, wanted 0 to 1", op_name(id), (double)eps);
    return KVANT_OK;
}

static int weight(int id, const kvant_weight *w, kvant_diag *diag)
{
    if (w == NULL || w->type == NULL || (w->data == NULL && w->packed == NULL))
        BAD("%s: the weight, its type or its data is NULL", op_name(id));
    if (w->n_in < 1 || w->n_out < 1 || w->n_expert < 1)
        BAD("%s: weight %s is [%d][%lld][%lld], wanted positive sizes", op_name(id), w->name ? w->name : "?",
            w->n_expert, (long long)w->n_out, (long long)w->n_in);
    if (w->n_in % w->type->block != 0)
        BAD("%s: weight %s has n_in = %lld, %s needs a multiple of %d", op_name(id), w->name ? w->name : "?",
            (long long)w->n_in, w->type->name, w->type->block);
    if (w->scale != NULL && w->n_scale != 1 && w->n_scale != w->n_expert)
        BAD("%s: weight %s has %d scales, wanted 1 or %d", op_name(id), w->name ? w->name : "?", w->n_scale,
            w->n_expert);
    return KVANT_OK;
}

static int compute_mode(int id, int compute, kvant_diag *diag)
{
    if (compute != KVANT_COMPUTE_AUTO && compute != KVANT_COMPUTE_F32)
        BAD("%s: compute = %d, wanted 0 (auto) or 1 (f32)", op_name(id), compute);
    return KVANT_OK;
}

static int seqs(int id, const kvant_seqs *s, kvant_diag *diag)
{
    if (s->n_seqs > MAX_SEQS)
        BAD("%s: n_seqs = %d, wanted at most %d", op_name(id), s->n_seqs, MAX_SEQS);
    if (s->n_seqs < 0 || s->n_tokens < 0)
        BAD("%s: n_seqs = %d, n_tokens = %d, wanted at least 0", op_name(id), s->n_seqs, s->n_tokens);
    if (s->n_tokens > 0 && s->n_seqs == 0)
        BAD("%s: %d tokens but no sequence", op_name(id), s->n_tokens);
    if (s->n_tokens > 0)
        NEED(id, "seqs.q0, seqs.pos0", s->q0, s->pos0);
    return KVANT_OK;
}

/* Sequences whose rows live in pages. */
static int paged_seqs(int id, const kvant_seqs *s, kvant_diag *diag)
{
    KVANT_TRY(seqs(id, s, diag));
    if (s->n_tokens == 0)
        return KVANT_OK;
    NEED(id, "seqs.table", s->table);
    return positive(id, "seqs.table_stride", s->table_stride, diag);
}

/* Sequences whose state lives in slots. */
static int slot_seqs(int id, const kvant_seqs *s, kvant_diag *diag)
{
    KVANT_TRY(seqs(id, s, diag));
    if (s->n_tokens > 0)
        NEED(id, "seqs.prompt, seqs.slot_in, seqs.slot_out", s->prompt, s->slot_in, s->slot_out);
    return KVANT_OK;
}

static int side(int id, const char *which, const kvant_kv_side *c, int h, int d, kvant_diag *diag)
{
    size_t rows, bytes;

    if (c->fmt == NULL || c->pages == NULL)
        BAD("%s: the format or the pages of %s are NULL", op_name(id), which);
    KVANT_TRY(positive(id, "h_kv", h, diag));
    if (h > MAX_HEADS)
        BAD("%s: h_kv = %d, wanted at most %d", op_name(id), h, MAX_HEADS);
    KVANT_TRY(positive(id, "head_dim", d, diag));
    KVANT_TRY(kvant_format_check(c->fmt, d, diag));
    if ((c->fmt->flags & KVANT_FORMAT_PARAM) != 0 && c->param == NULL)
        BAD("%s: %s is %s, which needs its parameter", op_name(id), which, c->fmt->name);
    rows = kvant_format_row_bytes(c->fmt, d);
    if (c->row_bytes != rows)
        BAD("%s: row_bytes of %s = %zu, %s with head_dim %d has %zu", op_name(id), which, c->row_bytes, c->fmt->name, d,
            rows);
    if (c->head_bytes != rows * KVANT_PAGE)
        BAD("%s: head_bytes of %s = %zu, wanted %zu", op_name(id), which, c->head_bytes, rows * KVANT_PAGE);
    bytes = c->head_bytes * (size_t)h;
    if (c->page_bytes < bytes)
        BAD("%s: page_bytes of %s = %zu, wanted at least %zu", op_name(id), which, c->page_bytes, bytes);
    if (c->encoder != KVANT_ENCODER_UPSTREAM && c->encoder != KVANT_ENCODER_BEST)
        BAD("%s: encoder of %s = %d, wanted 0 (upstream) or 1 (best)", op_name(id), which, c->encoder);
    return KVANT_OK;
}

static int tail_table(int id, const kvant_seqs *s, const kvant_kv_side *c, kvant_diag *diag)
{
    if (c->tail != NULL && s->n_tokens > 0 && s->tail_table == NULL)
        BAD("%s: a side has an exact tail but seqs.tail_table is NULL", op_name(id));
    return KVANT_OK;
}

static int check_embed(const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = args;

    KVANT_TRY(count(KVANT_OP_EMBED, a->n, diag));
    KVANT_TRY(weight(KVANT_OP_EMBED, a->w, diag));
    if (a->w->n_expert != 1)
        BAD("embed: n_expert = %d, wanted 1", a->w->n_expert);
    if (a->n > 0)
        NEED(KVANT_OP_EMBED, "ids, y", a->ids, a->y);
    return KVANT_OK;
}

static int check_norm_rms(const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = args;
    const int id = KVANT_OP_NORM_RMS;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(epsilon(id, a->eps, diag));
    KVANT_TRY(groups(id, "x", a->ldx, a->gx, a->n, a->h, a->d, diag));
    KVANT_TRY(groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    if (a->y == a->x && (a->ldx != a->ldy || a->gx != a->gy))
        BAD("norm_rms: in place needs equal strides");
    if (a->n > 0)
        NEED(id, "x, w, y", a->x, a->w, a->y);
    return KVANT_OK;
}

static int check_norm_add_rms(const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = args;
    const int id = KVANT_OP_NORM_ADD_RMS;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "d", a->d, diag));
    KVANT_TRY(epsilon(id, a->eps, diag));
    if (a->n > 0)
        NEED(id, "x, add, w, y", a->x, a->add, a->w, a->y);
    if (a->n > 0 && (a->y == a->x || a->add == a->x || a->add == a->y))
        BAD("norm_add_rms: x, add and y must be three buffers");
    return KVANT_OK;
}

static int check_add(const void *args, kvant_diag *diag)
{
    const kvant_add_args *a = args;

    KVANT_TRY(count(KVANT_OP_ADD, a->n, diag));
    KVANT_TRY(positive(KVANT_OP_ADD, "d", a->d, diag));
    if (a->n > 0)
        NEED(KVANT_OP_ADD, "x, y", a->x, a->y);
    return KVANT_OK;
}

static int check_norm_l2(const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = args;
    const int id = KVANT_OP_NORM_L2;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(epsilon(id, a->eps, diag));
    KVANT_TRY(groups(id, "x", a->ldx, a->gx, a->n, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "x", a->x);
    return KVANT_OK;
}

static int check_rope(const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    const int id = KVANT_OP_ROPE;

    KVANT_TRY(count(id, a->n, diag));
    if (a->n_rot < 2 || a->n_rot % 2 != 0)
        BAD("rope: n_rot = %d, wanted an even number of at least 2", a->n_rot);
    if (a->neox != 0 && a->neox != 1)
        BAD("rope: neox = %d, wanted 0 or 1", a->neox);
    KVANT_TRY(groups(id, "x", a->ldx, a->gx, a->n, a->h, a->n_rot, diag));
    if (a->n > 0)
        NEED(id, "x, pos, inv_freq", a->x, a->pos, a->inv_freq);
    return KVANT_OK;
}

static int check_swiglu(const void *args, kvant_diag *diag)
{
    const kvant_swiglu_args *a = args;
    const int id = KVANT_OP_SWIGLU;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "f", a->f, diag));
    KVANT_TRY(row_stride(id, "ldg", a->ldg, a->n, a->f, diag));
    KVANT_TRY(row_stride(id, "ldu", a->ldu, a->n, a->f, diag));
    KVANT_TRY(row_stride(id, "ldy", a->ldy, a->n, a->f, diag));
    if (a->y == a->gate && a->ldy != a->ldg)
        BAD("swiglu: in place needs equal strides");
    if (a->n > 0)
        NEED(id, "gate, up, y", a->gate, a->up, a->y);
    return KVANT_OK;
}

static int check_gate_mul(const void *args, kvant_diag *diag)
{
    const kvant_gate_mul_args *a = args;
    const int id = KVANT_OP_GATE_MUL;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    KVANT_TRY(groups(id, "gate", a->ldg, a->gg, a->n, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "y, gate", a->y, a->gate);
    return KVANT_OK;
}

static int check_gate_add(const void *args, kvant_diag *diag)
{
    const kvant_gate_add_args *a = args;

    KVANT_TRY(count(KVANT_OP_GATE_ADD, a->n, diag));
    KVANT_TRY(positive(KVANT_OP_GATE_ADD, "d", a->d, diag));
    if (a->n > 0)
        NEED(KVANT_OP_GATE_ADD, "y, x, gate", a->y, a->x, a->gate);
    return KVANT_OK;
}

static int check_matmul(const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = args;
    const int id = KVANT_OP_MATMUL;

    KVANT_TRY(count(id, a->m, diag));
    KVANT_TRY(weight(id, a->w, diag));
    KVANT_TRY(compute_mode(id, a->compute, diag));
    if (a->w->n_expert != 1)
        BAD("matmul: n_expert = %d, wanted 1", a->w->n_expert);
    KVANT_TRY(row_stride(id, "ldx", a->ldx, a->m, a->w->n_in, diag));
    KVANT_TRY(row_stride(id, "ldy", a->ldy, a->m, a->w->n_out, diag));
    if (a->m > 0)
        NEED(id, "x, y", a->x, a->y);
    if (a->m > 0 && a->x == a->y)
        BAD("matmul: y must not be x");
    return KVANT_OK;
}

static int check_matmul_id(const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = args;
    const int id = KVANT_OP_MATMUL_ID;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(weight(id, a->w, diag));
    KVANT_TRY(compute_mode(id, a->compute, diag));
    KVANT_TRY(positive(id, "k", a->k, diag));
    if (a->k > a->w->n_expert)
        BAD("matmul_id: k = %d, wanted at most n_expert = %d", a->k, a->w->n_expert);
    if (a->x_div != 1 && a->x_div != a->k)
        BAD("matmul_id: x_div = %d, wanted 1 or k = %d", a->x_div, a->k);
    KVANT_TRY(row_stride(id, "ldx", a->ldx, a->n, a->w->n_in, diag));
    if (a->n > 0)
        NEED(id, "x, ids, y", a->x, a->ids, a->y);
    return KVANT_OK;
}

static int check_moe_route(const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    const int id = KVANT_OP_MOE_ROUTE;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "n_expert", a->n_expert, diag));
    if (a->k < 1 || a->k > a->n_expert)
        BAD("moe_route: k = %d, wanted 1 to n_expert = %d", a->k, a->n_expert);
    if (a->n > 0)
        NEED(id, "logits, ids, wts", a->logits, a->ids, a->wts);
    return KVANT_OK;
}

static int check_moe_combine(const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const int id = KVANT_OP_MOE_COMBINE;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "k", a->k, diag));
    KVANT_TRY(positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, wts, y", a->x, a->wts, a->y);
    if (a->n > 0 && a->x == a->y)
        BAD("moe_combine: y must not be x");
    return KVANT_OK;
}

static int check_rows_gather(const void *args, kvant_diag *diag)
{
    const kvant_rows_gather_args *a = args;
    const int id = KVANT_OP_ROWS_GATHER;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, idx, y", a->x, a->idx, a->y);
    if (a->n > 0 && a->x == a->y)
        BAD("rows_gather: y must not be x");
    return KVANT_OK;
}

static int check_argmax(const void *args, kvant_diag *diag)
{
    const kvant_argmax_args *a = args;
    const int id = KVANT_OP_ARGMAX;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, ids", a->x, a->ids);
    return KVANT_OK;
}

static int check_top_k(const void *args, kvant_diag *diag)
{
    const kvant_top_k_args *a = args;
    const int id = KVANT_OP_TOP_K;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "d", a->d, diag));
    if (a->k < 1 || a->k > KVANT_TOP_K_MOST)
        BAD("top_k: k %d, wanted 1 to %d", a->k, KVANT_TOP_K_MOST);
    if (a->n > 0)
        NEED(id, "x, values, ids", a->x, a->values, a->ids);
    return KVANT_OK;
}

static int check_cache_write(const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    const int id = KVANT_OP_CACHE_WRITE;

    KVANT_TRY(paged_seqs(id, &a->seqs, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    KVANT_TRY(tail_table(id, &a->seqs, &a->side, diag));
    KVANT_TRY(row_stride(id, "ldx", a->ldx, a->seqs.n_tokens, (int64_t)a->h * a->d, diag));
    if (a->seqs.n_tokens > 0)
        NEED(id, "x", a->x);
    return KVANT_OK;
}

static int check_page_seal(const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    const int id = KVANT_OP_PAGE_SEAL;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "side.tail, src, dst", a->side.tail, a->src, a->dst);
    return KVANT_OK;
}

static int check_cache_read(const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    const int id = KVANT_OP_CACHE_READ;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "page, row, y", a->page, a->row, a->y);
    return KVANT_OK;
}

static int heads(int id, int h, int h_kv, int tail_pages, kvant_diag *diag)
{
    if (h < 1 || h_kv < 1 || h % h_kv != 0)
        BAD("%s: h = %d, h_kv = %d, wanted h to be a multiple of h_kv", op_name(id), h, h_kv);
    if (h > MAX_HEADS)
        BAD("%s: h = %d, wanted at most %d", op_name(id), h, MAX_HEADS);
    if (tail_pages < 0)
        BAD("%s: tail_pages = %d, wanted at least 0", op_name(id), tail_pages);
    return KVANT_OK;
}

static int check_attn(const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    const int id = KVANT_OP_ATTN;

    KVANT_TRY(paged_seqs(id, &a->seqs, diag));
    KVANT_TRY(heads(id, a->h, a->h_kv, a->tail_pages, diag));
    KVANT_TRY(side(id, "k", &a->k, a->h_kv, a->d_k, diag));
    KVANT_TRY(side(id, "v", &a->v, a->h_kv, a->d_v, diag));
    KVANT_TRY(compute_mode(id, a->compute, diag));
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    KVANT_TRY(tail_table(id, &a->seqs, &a->k, diag));
    KVANT_TRY(tail_table(id, &a->seqs, &a->v, diag));
    NEED(id, "q, out", a->q, a->out);
    KVANT_TRY(groups(id, "q", a->ldq, a->gq, a->seqs.n_tokens, a->h, a->d_k, diag));
    KVANT_TRY(row_stride(id, "ldo", a->ldo, a->seqs.n_tokens, (int64_t)a->h * a->d_v, diag));
    if (a->q == a->out)
        BAD("attn: out must not be q");
    if (!(a->scale > 0.0f && a->scale < 1e30f))
        BAD("attn: scale = %g, wanted a positive number", (double)a->scale);
    if (a->max_pos < 0 || a->max_pos / KVANT_PAGE >= a->seqs.table_stride)
        BAD("attn: max_pos = %d does not fit a table of %d pages", a->max_pos, a->seqs.table_stride);
    return KVANT_OK;
}

static int check_attn_score(const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = args;
    const int id = KVANT_OP_ATTN_SCORE;

    KVANT_TRY(paged_seqs(id, &a->seqs, diag));
    KVANT_TRY(heads(id, a->h, a->h_kv, a->tail_pages, diag));
    KVANT_TRY(side(id, "k", &a->k, a->h_kv, a->d_k, diag));
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    KVANT_TRY(tail_table(id, &a->seqs, &a->k, diag));
    NEED(id, "q, s", a->q, a->s);
    KVANT_TRY(groups(id, "q", a->ldq, a->gq, a->seqs.n_tokens, a->h, a->d_k, diag));
    return positive(id, "lds", a->lds, diag);
}

static int check_conv(int id, const kvant_conv_args *a, kvant_diag *diag)
{
    KVANT_TRY(slot_seqs(id, &a->seqs, diag));
    KVANT_TRY(positive(id, "c", a->c, diag));
    if (a->c > MAX_CHANNELS)
        BAD("%s: c = %d, wanted at most %d", op_name(id), a->c, MAX_CHANNELS);
    if (a->k < 2 || a->k > 8)
        BAD("%s: k = %d, wanted 2 to 8 taps", op_name(id), a->k);
    if (a->ldx < a->c)
        BAD("%s: ldx = %lld, wanted at least c = %d", op_name(id), (long long)a->ldx, a->c);
    if (a->slot_stride < (int64_t)a->c * (a->k - 1))
        BAD("%s: slot_stride = %lld, wanted at least c*(k-1) = %lld", op_name(id), (long long)a->slot_stride,
            (long long)a->c * (a->k - 1));
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    NEED(id, "x, w, state, y", a->x, a->w, a->state, a->y);
    if (a->x == a->y)
        BAD("%s: y must not be x", op_name(id));
    return KVANT_OK;
}

static int check_conv_step(const void *args, kvant_diag *diag)
{
    return check_conv(KVANT_OP_CONV_STEP, args, diag);
}

static int check_conv_chunk(const void *args, kvant_diag *diag)
{
    return check_conv(KVANT_OP_CONV_CHUNK, args, diag);
}

static int check_gdn_gates(const void *args, kvant_diag *diag)
{
    const kvant_gdn_gates_args *a = args;
    const int id = KVANT_OP_GDN_GATES;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "h", a->h, diag));
    if (a->n > 0)
        NEED(id, "alpha, beta, a, dt", a->alpha, a->beta, a->a, a->dt);
    return KVANT_OK;
}

static int check_gdn(int id, const kvant_gdn_args *a, kvant_diag *diag)
{
    const int64_t state = (int64_t)a->hv * a->dv * a->dk;

    KVANT_TRY(slot_seqs(id, &a->seqs, diag));
    if (a->hk < 1 || a->hv < 1 || a->hv % a->hk != 0)
        BAD("%s: hk = %d, hv = %d, wanted hv to be a multiple of hk", op_name(id), a->hk, a->hv);
    if (a->hv > MAX_HEADS)
        BAD("%s: hv = %d, wanted at most %d", op_name(id), a->hv, MAX_HEADS);
    if (a->dk < 1 || a->dk > KVANT_MAX_HEAD_DIM || a->dv < 1 || a->dv > KVANT_MAX_HEAD_DIM)
        BAD("%s: dk = %d, dv = %d, wanted 1 to %d", op_name(id), a->dk, a->dv, KVANT_MAX_HEAD_DIM);
    if (a->interleaved != 0 && a->interleaved != 1)
        BAD("%s: interleaved = %d, wanted 0 or 1", op_name(id), a->interleaved);
    if (a->state_type != KVANT_STATE_F32 && a->state_type != KVANT_STATE_BF16)
        BAD("%s: state_type = %d, wanted %d (f32) or %d (bf16)", op_name(id), a->state_type, KVANT_STATE_F32,
            KVANT_STATE_BF16);
    if (a->slot_stride < state)
        BAD("%s: slot_stride = %lld, wanted at least hv*dv*dk = %lld", op_name(id), (long long)a->slot_stride,
            (long long)state);
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    NEED(id, "q, k, v, g, beta, state, o", a->q, a->k, a->v, a->g, a->beta, a->state, a->o);
    KVANT_TRY(row_stride(id, "ldq", a->ldq, a->seqs.n_tokens, (int64_t)a->hk * a->dk, diag));
    KVANT_TRY(row_stride(id, "ldk", a->ldk, a->seqs.n_tokens, (int64_t)a->hk * a->dk, diag));
    KVANT_TRY(row_stride(id, "ldv", a->ldv, a->seqs.n_tokens, (int64_t)a->hv * a->dv, diag));
    if (a->o == a->q || a->o == a->k || a->o == a->v)
        BAD("%s: o must not be an input", op_name(id));
    return KVANT_OK;
}

static int check_gdn_step(const void *args, kvant_diag *diag)
{
    return check_gdn(KVANT_OP_GDN_STEP, args, diag);
}

static int check_gdn_chunk(const void *args, kvant_diag *diag)
{
    return check_gdn(KVANT_OP_GDN_CHUNK, args, diag);
}

static int check_norm_gated(const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = args;
    const int id = KVANT_OP_NORM_GATED;

    KVANT_TRY(count(id, a->n, diag));
    KVANT_TRY(positive(id, "h", a->h, diag));
    KVANT_TRY(positive(id, "dv", a->dv, diag));
    KVANT_TRY(epsilon(id, a->eps, diag));
    KVANT_TRY(row_stride(id, "ldz", a->ldz, a->n, (int64_t)a->h * a->dv, diag));
    if (a->n > 0)
        NEED(id, "o, z, w, y", a->o, a->z, a->w, a->y);
    return KVANT_OK;
}

static int slots(int id, const uint8_t *base, int n, size_t stride, size_t bytes, kvant_diag *diag)
{
    size_t total;

    KVANT_TRY(count(id, n, diag));
    if (n > 0 && !size_mul((size_t)n, stride, &total))
        BAD("%s: n = %d slots of %zu bytes overflow", op_name(id), n, stride);
    if (bytes > stride)
        BAD("%s: bytes = %zu, wanted at most stride = %zu", op_name(id), bytes, stride);
    if (n > 0 && base == NULL)
        BAD("%s: base is NULL", op_name(id));
    return KVANT_OK;
}

static int check_slot_copy(const void *args, kvant_diag *diag)
{
    const kvant_slot_copy_args *a = args;

    KVANT_TRY(slots(KVANT_OP_SLOT_COPY, a->base, a->n, a->stride, a->bytes, diag));
    if (a->n > 0)
        NEED(KVANT_OP_SLOT_COPY, "src, dst", a->src, a->dst);
    return KVANT_OK;
}

static int check_slot_zero(const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = args;

    KVANT_TRY(slots(KVANT_OP_SLOT_ZERO, a->base, a->n, a->stride, a->bytes, diag));
    if (a->n > 0)
        NEED(KVANT_OP_SLOT_ZERO, "dst", a->dst);
    return KVANT_OK;
}

typedef int (*op_check)(const void *args, kvant_diag *diag);

/* One line of ops.def without its check_<name> above does not compile. */
static const op_check CHECKS[KVANT_OP_COUNT] = {
#define KVANT_OP(ID, name, args, tol, fused, text) [KVANT_OP_##ID] = check_##name,
#include "kvant/ops.def"
#undef KVANT_OP
};

int kvant_op_check(int id, const void *args, kvant_diag *diag)
{
    if (id < 0 || id >= KVANT_OP_COUNT)
        BAD("op %d is unknown, wanted 0 to %d", id, KVANT_OP_COUNT - 1);
    if (args == NULL)
        BAD("%s: the arguments are NULL", op_name(id));
    return CHECKS[id](args, diag);
}
