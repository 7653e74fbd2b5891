/* check_seqs.c: arguments of the ops on sequences: their rows in pages, their states in slots. */
#include "ops/arg_check.h"

#include "base/size.h"

static int seqs(int id, const kvant_seqs *s, kvant_diag *diag)
{
    if (s->n_seqs > MAX_SEQS)
        BAD("%s: n_seqs = %d, wanted at most %d", arg_op(id), s->n_seqs, MAX_SEQS);
    if (s->n_seqs < 0 || s->n_tokens < 0)
        BAD("%s: n_seqs = %d, n_tokens = %d, wanted at least 0", arg_op(id), s->n_seqs, s->n_tokens);
    if (s->n_ones < 0 || s->n_ones > s->n_seqs || s->n_ones > s->n_tokens)
        BAD("%s: n_ones = %d, wanted 0 to n_seqs = %d and n_tokens = %d", arg_op(id), s->n_ones, s->n_seqs,
            s->n_tokens);
    if (s->n_tokens > 0 && s->n_seqs == 0)
        BAD("%s: %d tokens but no sequence", arg_op(id), s->n_tokens);
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
    return arg_positive(id, "seqs.table_stride", s->table_stride, diag);
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
    return KVANT_OK;
}

static int tail_table(int id, const kvant_seqs *s, const kvant_kv_side *c, kvant_diag *diag)
{
    if (c->tail != NULL && s->n_tokens > 0 && s->tail_table == NULL)
        BAD("%s: a side has an exact tail but seqs.tail_table is NULL", arg_op(id));
    return KVANT_OK;
}

/* ---- caches and attention ---- */

int check_cache_write(const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    const int id = KVANT_OP_CACHE_WRITE;

    KVANT_TRY(paged_seqs(id, &a->seqs, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    KVANT_TRY(tail_table(id, &a->seqs, &a->side, diag));
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->seqs.n_tokens, (int64_t)a->h * a->d, diag));
    if (a->seqs.n_tokens > 0)
        NEED(id, "x", a->x);
    return KVANT_OK;
}

int check_page_seal(const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    const int id = KVANT_OP_PAGE_SEAL;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "side.tail, src, dst", a->side.tail, a->src, a->dst);
    return KVANT_OK;
}

int check_cache_read(const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    const int id = KVANT_OP_CACHE_READ;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(side(id, "side", &a->side, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "page, row, y", a->page, a->row, a->y);
    return KVANT_OK;
}

static int heads(int id, int h, int h_kv, int tail_pages, kvant_diag *diag)
{
    if (h < 1 || h_kv < 1 || h % h_kv != 0)
        BAD("%s: h = %d, h_kv = %d, wanted h to be a multiple of h_kv", arg_op(id), h, h_kv);
    if (h > MAX_HEADS)
        BAD("%s: h = %d, wanted at most %d", arg_op(id), h, MAX_HEADS);
    if (tail_pages < 0)
        BAD("%s: tail_pages = %d, wanted at least 0", arg_op(id), tail_pages);
    return KVANT_OK;
}

int check_attn(const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = args;
    const int id = KVANT_OP_ATTN;

    KVANT_TRY(paged_seqs(id, &a->seqs, diag));
    KVANT_TRY(heads(id, a->h, a->h_kv, a->tail_pages, diag));
    KVANT_TRY(side(id, "k", &a->k, a->h_kv, a->d_k, diag));
    KVANT_TRY(side(id, "v", &a->v, a->h_kv, a->d_v, diag));
    KVANT_TRY(arg_compute(id, a->compute, diag));
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    KVANT_TRY(tail_table(id, &a->seqs, &a->k, diag));
    KVANT_TRY(tail_table(id, &a->seqs, &a->v, diag));
    NEED(id, "q, out", a->q, a->out);
    KVANT_TRY(arg_groups(id, "q", a->ldq, a->gq, a->seqs.n_tokens, a->h, a->d_k, diag));
    KVANT_TRY(arg_row_stride(id, "ldo", a->ldo, a->seqs.n_tokens, (int64_t)a->h * a->d_v, diag));
    if (a->q == a->out)
        BAD("attn: out must not be q");
    if (!(a->scale > 0.0f && a->scale < 1e30f))
        BAD("attn: scale = %g, wanted a positive number", (double)a->scale);
    if (a->max_pos < 0 || a->max_pos / KVANT_PAGE >= a->seqs.table_stride)
        BAD("attn: max_pos = %d does not fit a table of %d pages", a->max_pos, a->seqs.table_stride);
    if (a->window < 0)
        BAD("attn: window = %d, wanted at least 0", a->window);
    if (!(a->softcap >= 0.0f && a->softcap < 1e30f))
        BAD("attn: softcap = %g, wanted 0 or a positive number", (double)a->softcap);
    return KVANT_OK;
}

int check_attn_score(const void *args, kvant_diag *diag)
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
    KVANT_TRY(arg_groups(id, "q", a->ldq, a->gq, a->seqs.n_tokens, a->h, a->d_k, diag));
    return arg_positive(id, "lds", a->lds, diag);
}

static int check_conv(int id, const kvant_conv_args *a, kvant_diag *diag)
{
    KVANT_TRY(slot_seqs(id, &a->seqs, diag));
    KVANT_TRY(arg_positive(id, "c", a->c, diag));
    if (a->c > MAX_CHANNELS)
        BAD("%s: c = %d, wanted at most %d", arg_op(id), a->c, MAX_CHANNELS);
    if (a->linear != 0 && a->linear != 1)
        BAD("%s: linear = %d, wanted 0 or 1", arg_op(id), a->linear);
    if (a->k < 2 || a->k > 8)
        BAD("%s: k = %d, wanted 2 to 8 taps", arg_op(id), a->k);
    if (a->ldx < a->c)
        BAD("%s: ldx = %lld, wanted at least c = %d", arg_op(id), (long long)a->ldx, a->c);
    if (a->slot_stride < (int64_t)a->c * (a->k - 1))
        BAD("%s: slot_stride = %lld, wanted at least c*(k-1) = %lld", arg_op(id), (long long)a->slot_stride,
            (long long)a->c * (a->k - 1));
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    NEED(id, "x, w, state, y", a->x, a->w, a->state, a->y);
    if (a->x == a->y)
        BAD("%s: y must not be x", arg_op(id));
    return KVANT_OK;
}

int check_conv_step(const void *args, kvant_diag *diag)
{
    return check_conv(KVANT_OP_CONV_STEP, args, diag);
}

int check_conv_chunk(const void *args, kvant_diag *diag)
{
    return check_conv(KVANT_OP_CONV_CHUNK, args, diag);
}

int check_gdn_gates(const void *args, kvant_diag *diag)
{
    const kvant_gdn_gates_args *a = args;
    const int id = KVANT_OP_GDN_GATES;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "h", a->h, diag));
    if (a->channels < 0 || a->channels > KVANT_MAX_HEAD_DIM)
        BAD("%s: channels = %d, wanted 0 to %d", arg_op(id), a->channels, KVANT_MAX_HEAD_DIM);
    if (a->n > 0)
        NEED(id, "alpha, beta, a, dt", a->alpha, a->beta, a->a, a->dt);
    return KVANT_OK;
}

static int check_gdn(int id, const kvant_gdn_args *a, kvant_diag *diag)
{
    const int64_t state = (int64_t)a->hv * a->dv * a->dk;

    KVANT_TRY(slot_seqs(id, &a->seqs, diag));
    if (a->hk < 1 || a->hv < 1 || a->hv % a->hk != 0)
        BAD("%s: hk = %d, hv = %d, wanted hv to be a multiple of hk", arg_op(id), a->hk, a->hv);
    if (a->hv > MAX_HEADS)
        BAD("%s: hv = %d, wanted at most %d", arg_op(id), a->hv, MAX_HEADS);
    if (a->dk < 1 || a->dk > KVANT_MAX_HEAD_DIM || a->dv < 1 || a->dv > KVANT_MAX_HEAD_DIM)
        BAD("%s: dk = %d, dv = %d, wanted 1 to %d", arg_op(id), a->dk, a->dv, KVANT_MAX_HEAD_DIM);
    if (a->interleaved != 0 && a->interleaved != 1)
        BAD("%s: interleaved = %d, wanted 0 or 1", arg_op(id), a->interleaved);
    if (a->per_channel != 0 && a->per_channel != 1)
        BAD("%s: per_channel = %d, wanted 0 or 1", arg_op(id), a->per_channel);
    KVANT_TRY(arg_compute(id, a->compute, diag));
    if (a->state_type != KVANT_STATE_F32 && a->state_type != KVANT_STATE_BF16)
        BAD("%s: state_type = %d, wanted %d (f32) or %d (bf16)", arg_op(id), a->state_type, KVANT_STATE_F32,
            KVANT_STATE_BF16);
    if (a->slot_stride < state)
        BAD("%s: slot_stride = %lld, wanted at least hv*dv*dk = %lld", arg_op(id), (long long)a->slot_stride,
            (long long)state);
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    NEED(id, "q, k, v, g, beta, state, o", a->q, a->k, a->v, a->g, a->beta, a->state, a->o);
    KVANT_TRY(arg_row_stride(id, "ldq", a->ldq, a->seqs.n_tokens, (int64_t)a->hk * a->dk, diag));
    KVANT_TRY(arg_row_stride(id, "ldk", a->ldk, a->seqs.n_tokens, (int64_t)a->hk * a->dk, diag));
    KVANT_TRY(arg_row_stride(id, "ldv", a->ldv, a->seqs.n_tokens, (int64_t)a->hv * a->dv, diag));
    if (a->o == a->q || a->o == a->k || a->o == a->v)
        BAD("%s: o must not be an input", arg_op(id));
    return KVANT_OK;
}

int check_gdn_step(const void *args, kvant_diag *diag)
{
    return check_gdn(KVANT_OP_GDN_STEP, args, diag);
}

int check_gdn_chunk(const void *args, kvant_diag *diag)
{
    return check_gdn(KVANT_OP_GDN_CHUNK, args, diag);
}

static int check_ssm(int id, const kvant_ssm_args *a, kvant_diag *diag)
{
    const int64_t state = (int64_t)a->h * a->p * a->n;

    KVANT_TRY(slot_seqs(id, &a->seqs, diag));
    if (a->h < 1 || a->h > MAX_HEADS || a->g < 1 || a->h % a->g != 0)
        BAD("%s: h = %d, g = %d, wanted 1 to %d heads, a multiple of the groups", arg_op(id), a->h, a->g, MAX_HEADS);
    if (a->p < 1 || a->p > KVANT_MAX_HEAD_DIM || a->n < 1 || a->n > KVANT_MAX_HEAD_DIM)
        BAD("%s: p = %d, n = %d, wanted 1 to %d", arg_op(id), a->p, a->n, KVANT_MAX_HEAD_DIM);
    if (a->state_type != KVANT_STATE_F32 && a->state_type != KVANT_STATE_BF16)
        BAD("%s: state_type = %d, wanted %d (f32) or %d (bf16)", arg_op(id), a->state_type, KVANT_STATE_F32,
            KVANT_STATE_BF16);
    if (a->slot_stride < state)
        BAD("%s: slot_stride = %lld, wanted at least h*p*n = %lld", arg_op(id), (long long)a->slot_stride,
            (long long)state);
    if (a->seqs.n_tokens == 0)
        return KVANT_OK;
    NEED(id, "x, dt, b, c, a, d, dt_bias, state, y", a->x, a->dt, a->b, a->c, a->a, a->d, a->dt_bias, a->state, a->y);
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->seqs.n_tokens, (int64_t)a->h * a->p, diag));
    KVANT_TRY(arg_row_stride(id, "lddt", a->lddt, a->seqs.n_tokens, a->h, diag));
    KVANT_TRY(arg_row_stride(id, "ldb", a->ldb, a->seqs.n_tokens, (int64_t)a->g * a->n, diag));
    if (a->y == a->x || a->y == a->b || a->y == a->c || a->y == a->dt)
        BAD("%s: y must not be an input", arg_op(id));
    return KVANT_OK;
}

int check_ssm_step(const void *args, kvant_diag *diag)
{
    return check_ssm(KVANT_OP_SSM_STEP, args, diag);
}

int check_ssm_chunk(const void *args, kvant_diag *diag)
{
    return check_ssm(KVANT_OP_SSM_CHUNK, args, diag);
}

int check_norm_gated(const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = args;
    const int id = KVANT_OP_NORM_GATED;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "h", a->h, diag));
    KVANT_TRY(arg_positive(id, "dv", a->dv, diag));
    KVANT_TRY(arg_epsilon(id, a->eps, diag));
    KVANT_TRY(arg_row_stride(id, "ldz", a->ldz, a->n, (int64_t)a->h * a->dv, diag));
    if (a->n > 0)
        NEED(id, "o, z, w, y", a->o, a->z, a->w, a->y);
    return KVANT_OK;
}

static int slots(int id, const uint8_t *base, int n, size_t stride, size_t bytes, kvant_diag *diag)
{
    size_t total;

    KVANT_TRY(arg_count(id, n, diag));
    if (n > 0 && !size_mul((size_t)n, stride, &total))
        BAD("%s: n = %d slots of %zu bytes overflow", arg_op(id), n, stride);
    if (bytes > stride)
        BAD("%s: bytes = %zu, wanted at most stride = %zu", arg_op(id), bytes, stride);
    if (n > 0 && base == NULL)
        BAD("%s: base is NULL", arg_op(id));
    return KVANT_OK;
}

int check_slot_copy(const void *args, kvant_diag *diag)
{
    const kvant_slot_copy_args *a = args;

    KVANT_TRY(slots(KVANT_OP_SLOT_COPY, a->base, a->n, a->stride, a->bytes, diag));
    if (a->n > 0)
        NEED(KVANT_OP_SLOT_COPY, "src, dst", a->src, a->dst);
    return KVANT_OK;
}

int check_slot_zero(const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = args;

    KVANT_TRY(slots(KVANT_OP_SLOT_ZERO, a->base, a->n, a->stride, a->bytes, diag));
    if (a->n > 0)
        NEED(KVANT_OP_SLOT_ZERO, "dst", a->dst);
    return KVANT_OK;
}
