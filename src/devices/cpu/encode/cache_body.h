/* cache_body.h: cache_write, page_seal and cache_read through the fastest kernels of the format; included by
 * cache_<isa>.c after vf_<isa>.h.  Units are (row, head) pairs. */
#include <string.h>
#include "ops/op_util.h"

enum {
    ROW_FLOATS = KVANT_MAX_HEAD_DIM * 2, /* acc space of the widest format */
    SEAL_ROWS = 16,                      /* a unit of page_seal */
};

static void to_half(const float *x, uint16_t *y, int d)
{
    int i = 0;

    for (; i + VF_LANES <= d; i += VF_LANES)
        vf_store_f16(y + i, vf_load(x + i));
    if (i < d) {
        uint16_t tail[VF_LANES];

        vf_store_f16(tail, vf_load_n(x + i, d - i));
        memcpy(y + i, tail, (size_t)(d - i) * sizeof(uint16_t));
    }
}

static void from_half(const uint16_t *x, float *y, int d)
{
    int i = 0;

    for (; i + VF_LANES <= d; i += VF_LANES)
        vf_store(y + i, vf_load_f16(x + i));
    if (i < d) {
        uint16_t tail[VF_LANES] = { 0 };

        memcpy(tail, x + i, (size_t)(d - i) * sizeof(uint16_t));
        vf_store_n(y + i, vf_load_f16(tail), d - i);
    }
}

/* Encodes d values; pad holds the zero-padded copy where the format's group does not divide d. */
static void encode_row(const kvant_kv_side *side, const kvant_format_kernels *k, const float *x, uint8_t *row, int d,
                       float *pad)
{
    const int dp = kvant_format_padded(side->fmt, d);

    if (dp != d) {
        memset(pad, 0, (size_t)dp * sizeof(float));
        memcpy(pad, x, (size_t)d * sizeof(float));
        x = pad;
    }
    k->encode(side->param, x, row, dp, side->encoder);
}

static void write_head(const kvant_cache_write_args *a, const kvant_format_kernels *k, int s, int pos, int h,
                       const float *x, float *pad)
{
    const int j = pos / KVANT_PAGE, r = pos % KVANT_PAGE;
    const int32_t t = kv_tail_page(&a->side, &a->seqs, s, j, j, (exact_pages){ 1, 0 });

    if (t >= 0)
        to_half(x, kv_tail_row(&a->side, t, a->h, h, r, a->d), a->d);
    else if (k->encode != NULL) /* of page scope: nothing, as in the reference */
        encode_row(&a->side, k, x, kv_row(&a->side, kv_page(&a->seqs, s, j), h, r), a->d, pad);
}

static void cache_write(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_cache_write_args *a = args;
    const kvant_format_kernels *k = kvant_format_best(a->side.fmt);
    int64_t lo, hi;
    int s = 0;

    part_range((int64_t)a->seqs.n_tokens * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int i = (int)(u / a->h), h = (int)(u % a->h);

        while (i >= a->seqs.q0[s + 1])
            s++;
        write_head(a, k, s, a->seqs.pos0[s] + i - a->seqs.q0[s], h, a->x + i * a->ldx + (int64_t)h * a->d, work->local);
    }
}

static size_t cache_local(const void *args)
{
    (void)args;
    return (size_t)ROW_FLOATS * 2 * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(cache_write) = { .stages = 1, .fn = { cache_write }, .local_bytes = cache_local };

/* Rows of one page and head, SEAL_ROWS from row r on. */
static void seal_rows(const kvant_page_seal_args *a, const kvant_format_kernels *k, int i, int h, int r, float *local)
{
    const int dp = kvant_format_padded(a->side.fmt, a->d);
    float *x = local + ROW_FLOATS;

    if (k->encode_rows == NULL) {
        for (int j = r; j < r + SEAL_ROWS; j++) {
            from_half(kv_tail_row(&a->side, a->src[i], a->h, h, j, a->d), x, a->d);
            encode_row(&a->side, k, x, kv_row(&a->side, a->dst[i], h, j), a->d, local);
        }
        return;
    }
    for (int j = 0; j < SEAL_ROWS; j++) {
        from_half(kv_tail_row(&a->side, a->src[i], a->h, h, r + j, a->d), x + j * dp, a->d);
        memset(x + j * dp + a->d, 0, (size_t)(dp - a->d) * sizeof(float));
    }
    k->encode_rows(a->side.param, x, (size_t)dp, SEAL_ROWS, kv_row(&a->side, a->dst[i], h, r), a->side.row_bytes, dp,
                   a->side.encoder);
}

/* A page of one head of a format of page scope. */
static void seal_page(const kvant_page_seal_args *a, const kvant_format_kernels *k, int i, int h, float *x)
{
    const int dp = kvant_format_padded(a->side.fmt, a->d);

    for (int r = 0; r < KVANT_PAGE; r++) {
        from_half(kv_tail_row(&a->side, a->src[i], a->h, h, r, a->d), x + r * dp, a->d);
        memset(x + r * dp + a->d, 0, (size_t)(dp - a->d) * sizeof(float));
    }
    k->encode_page(a->side.param, x, (size_t)dp, kv_row(&a->side, a->dst[i], h, 0), dp, a->side.encoder);
}

static void page_seal(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_page_seal_args *a = args;
    const kvant_format_kernels *k = kvant_format_best(a->side.fmt);
    const int paged = k->encode_page != NULL, per = paged ? 1 : KVANT_PAGE / SEAL_ROWS;
    int64_t lo, hi;

    part_range((int64_t)a->n * a->h * per, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++)
        if (paged)
            seal_page(a, k, (int)(u / a->h), (int)(u % a->h), work->local);
        else
            seal_rows(a, k, (int)(u / per / a->h), (int)(u / per % a->h), (int)(u % per) * SEAL_ROWS, work->local);
}

static size_t seal_local(const void *args)
{
    const kvant_page_seal_args *a = args;
    const size_t page = (size_t)KVANT_PAGE * (size_t)kvant_format_padded(a->side.fmt, a->d);

    return (a->side.fmt->flags & KVANT_FORMAT_PAGE ? page : (size_t)ROW_FLOATS * (1 + SEAL_ROWS)) * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(page_seal) = { .stages = 1, .fn = { page_seal }, .local_bytes = seal_local };

static void cache_read(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_cache_read_args *a = args;
    const kvant_format_kernels *k = kvant_format_best(a->side.fmt);
    const int dp = kvant_format_padded(a->side.fmt, a->d);
    float *acc = work->local, *x = acc + ROW_FLOATS;
    int64_t lo, hi;

    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int i = (int)(u / a->h), h = (int)(u % a->h);

        const uint8_t *row = kv_row(&a->side, a->page[i], h, k->decode_page != NULL ? 0 : a->row[i]);

        if (k->decode_page != NULL)
            k->decode_page(a->side.param, row, a->row[i], 1, acc, dp);
        else
            k->decode_acc(a->side.param, row, a->side.row_bytes, 1, acc, dp);
        k->finish_out(a->side.param, acc, x, dp);
        memcpy(a->y + u * a->d, x, (size_t)a->d * sizeof(float));
    }
}

const kvant_cpu_kernel VF_KERNEL(cache_read) = { .stages = 1, .fn = { cache_read }, .local_bytes = cache_local };
