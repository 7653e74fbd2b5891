/* arg_check.c: what the argument checks of ops share; see arg_check.h. */
#include "ops/arg_check.h"

const char *arg_op(int id)
{
    const kvant_op_info *info = kvant_op_get(id);

    return info != NULL ? info->name : "op";
}

int arg_need(int id, const void *const *pointers, const char *names, kvant_diag *diag)
{
    for (int i = 0; pointers[i] != (const void *)names; i++)
        if (pointers[i] == NULL)
            BAD("%s: argument %d of (%s) is NULL", arg_op(id), i, names);
    return KVANT_OK;
}

int arg_positive(int id, const char *name, int64_t value, kvant_diag *diag)
{
    if (value < 1)
        BAD("%s: %s = %lld, wanted at least 1", arg_op(id), name, (long long)value);
    return KVANT_OK;
}

int arg_count(int id, const char *name, int64_t value, kvant_diag *diag)
{
    if (value < 0)
        BAD("%s: %s = %lld, wanted at least 0", arg_op(id), name, (long long)value);
    return KVANT_OK;
}

int arg_range(int id, const char *name, int64_t value, int64_t low, int64_t high, kvant_diag *diag)
{
    if (value < low || value > high)
        BAD("%s: %s = %lld, wanted %lld to %lld", arg_op(id), name, (long long)value, (long long)low, (long long)high);
    return KVANT_OK;
}

int arg_narrow(int id, const char *name, long long value, long long least, const char *width, kvant_diag *diag)
{
    BAD("%s: %s = %lld, wanted at least %s = %lld", arg_op(id), name, value, width, least);
}

int arg_compute(int id, int compute, kvant_diag *diag)
{
    if (compute != KVANT_COMPUTE_AUTO && compute != KVANT_COMPUTE_F32)
        BAD("%s: compute = %d, wanted 0 (auto) or 1 (f32)", arg_op(id), compute);
    return KVANT_OK;
}

int arg_weight(int id, const kvant_weight *w, int single, kvant_diag *diag)
{
    if (w == NULL || w->type == NULL || (w->data == NULL && w->packed == NULL))
        BAD("%s: the weight, its type or its data is NULL", arg_op(id));
    if (w->n_in < 1 || w->n_out < 1 || w->n_expert < 1)
        BAD("%s: weight %s is [%d][%lld][%lld], wanted positive sizes", arg_op(id), w->name ? w->name : "?",
            w->n_expert, (long long)w->n_out, (long long)w->n_in);
    if (w->n_in % w->type->block != 0)
        BAD("%s: weight %s has n_in = %lld, %s needs a multiple of %d", arg_op(id), w->name ? w->name : "?",
            (long long)w->n_in, w->type->name, w->type->block);
    if (w->scale != NULL && w->n_scale != 1 && w->n_scale != w->n_expert)
        BAD("%s: weight %s has %d scales, wanted 1 or %d", arg_op(id), w->name ? w->name : "?", w->n_scale,
            w->n_expert);
    if (single && w->n_expert != 1)
        BAD("%s: n_expert = %d, wanted 1", arg_op(id), w->n_expert);
    return KVANT_OK;
}

static int seqs(int id, const kvant_seqs *s, kvant_diag *diag)
{
    if (s->n_seqs > MAX_SEQS)
        BAD("%s: n_seqs = %d, wanted at most %d", arg_op(id), s->n_seqs, MAX_SEQS);
    if (s->n_seqs < 0 || s->n_tokens < 0)
        BAD("%s: n_seqs = %d, n_tokens = %d, wanted at least 0", arg_op(id), s->n_seqs, s->n_tokens);
    if (s->n_few < 0 || s->n_few > s->n_seqs)
        BAD("%s: n_few = %d, wanted 0 to n_seqs = %d", arg_op(id), s->n_few, s->n_seqs);
    if (s->few_rows < 0 || s->few_rows > (s->n_few ? s->n_tokens : 0))
        BAD("%s: few_rows = %d, wanted 0 to %d, of %d sequences", arg_op(id), s->few_rows, s->n_few ? s->n_tokens : 0,
            s->n_few);
    if (s->n_tokens > 0 && s->n_seqs == 0)
        BAD("%s: %d tokens but no sequence", arg_op(id), s->n_tokens);
    if (s->n_tokens > 0)
        NEED(id, "seqs.q0, seqs.pos0", s->q0, s->pos0);
    return KVANT_OK;
}

int arg_seqs_pages(int id, const kvant_seqs *s, kvant_diag *diag)
{
    KVANT_TRY(seqs(id, s, diag));
    if (s->n_tokens == 0)
        return KVANT_OK;
    NEED(id, "seqs.table", s->table);
    return arg_positive(id, "seqs.table_stride", s->table_stride, diag);
}

int arg_seqs_slots(int id, const kvant_seqs *s, kvant_diag *diag)
{
    KVANT_TRY(seqs(id, s, diag));
    if (s->n_tokens > 0)
        NEED(id, "seqs.prompt, seqs.slot_in, seqs.slot_out", s->prompt, s->slot_in, s->slot_out);
    return KVANT_OK;
}

int arg_rows_in(int id, const char *which, const kvant_kv_side *c, kvant_diag *diag)
{
    if ((c->fmt->flags & KVANT_FORMAT_PAGE) != 0 && c->tail == NULL)
        BAD("%s: %s is %s, which is encoded a page at a time and needs an exact tail", arg_op(id), which, c->fmt->name);
    return KVANT_OK;
}

int arg_side(int id, const char *which, const kvant_kv_side *c, int h, int d, const kvant_seqs *s, kvant_diag *diag)
{
    size_t rows, bytes;

    if (c->fmt == NULL || c->pages == NULL)
        BAD("%s: the format or the pages of %s are NULL", arg_op(id), which);
    KVANT_TRY(arg_positive(id, "h_kv", h, diag));
    if (h > MAX_HEADS)
        BAD("%s: h_kv = %d, wanted at most %d", arg_op(id), h, MAX_HEADS);
    KVANT_TRY(arg_positive(id, "head_dim", d, diag));
    KVANT_TRY(kvant_format_check(c->fmt, d, diag));
    if ((c->fmt->flags & KVANT_FORMAT_PARAM) != 0 && c->param == NULL)
        BAD("%s: %s is %s, which needs its parameter", arg_op(id), which, c->fmt->name);
    rows = kvant_format_row_bytes(c->fmt, d);
    if (c->row_bytes != rows)
        BAD("%s: row_bytes of %s = %zu, %s with head_dim %d has %zu", arg_op(id), which, c->row_bytes, c->fmt->name, d,
            rows);
    if (c->head_bytes != rows * KVANT_PAGE)
        BAD("%s: head_bytes of %s = %zu, wanted %zu", arg_op(id), which, c->head_bytes, rows * KVANT_PAGE);
    bytes = c->head_bytes * (size_t)h;
    if (c->page_bytes < bytes)
        BAD("%s: page_bytes of %s = %zu, wanted at least %zu", arg_op(id), which, c->page_bytes, bytes);
    if (c->encoder != KVANT_ENCODER_UPSTREAM && c->encoder != KVANT_ENCODER_BEST)
        BAD("%s: encoder of %s = %d, wanted 0 (upstream) or 1 (best)", arg_op(id), which, c->encoder);
    if (s != NULL && c->tail != NULL && s->n_tokens > 0 && s->tail_table == NULL)
        BAD("%s: %s has an exact tail but seqs.tail_table is NULL", arg_op(id), which);
    return KVANT_OK;
}
