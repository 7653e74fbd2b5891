/* cache.c: scalar references of cache_write, page_seal and cache_read, through the formats' reference kernels.
 * A head_dim that is not a multiple of the format's group is zero-padded before encode and cut after decode. */
#include <string.h>
#include "base/half.h"
#include "ops/op_util.h"

/* Encodes one row of d values; pad is scratch of the padded size. */
static void encode_row(const kvant_kv_side *side, const float *x, uint8_t *row, int d, float *pad)
{
    const int dp = kvant_format_padded(side->fmt, d);

    memset(pad, 0, (size_t)dp * sizeof(float));
    memcpy(pad, x, (size_t)d * sizeof(float));
    side->fmt->ref.encode(side->param, pad, row, dp, side->encoder);
}

/* A row that no tail page takes is encoded at once; of a format of page scope there is none (kvant_op_check). */
static void write_row(const kvant_cache_write_args *a, int32_t page, int h, int r, const float *x, float *pad)
{
    if (!(a->side.fmt->flags & KVANT_FORMAT_PAGE))
        encode_row(&a->side, x, kv_row(&a->side, page, h, r), a->d, pad);
}

/* Writes all heads of one token at position pos of sequence s. */
static void write_token(const kvant_cache_write_args *a, int s, int pos, const float *x, float *pad)
{
    const kvant_kv_side *side = &a->side;
    const int j = pos / KVANT_PAGE, r = pos % KVANT_PAGE;
    const int32_t t = kv_tail_page(side, &a->seqs, s, j, j, (exact_pages){ 1, 0 });

    for (int h = 0; h < a->h; h++) {
        if (t < 0) {
            write_row(a, kv_page(&a->seqs, s, j), h, r, x + (int64_t)h * a->d, pad);
            continue;
        }
        uint16_t *row = kv_tail_row(side, t, a->h, h, r, a->d);
        for (int e = 0; e < a->d; e++)
            row[e] = f32_to_half(x[(int64_t)h * a->d + e]);
    }
}

static void cache_write(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_cache_write_args *a = args;
    int64_t lo, hi;

    part_range(a->seqs.n_tokens, part, parts, &lo, &hi);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++)
            if (i >= lo && i < hi)
                write_token(a, s, a->seqs.pos0[s] + i - a->seqs.q0[s], a->x + i * a->ldx, work->local);
}

static size_t cache_local(const void *args)
{
    (void)args;
    return (size_t)KVANT_MAX_HEAD_DIM * 4 * sizeof(float);
}

const kvant_cpu_kernel kvant_cache_write_ref = { .stages = 1, .fn = { cache_write }, .local_bytes = cache_local };

static void tail_values(const kvant_page_seal_args *a, int i, int h, int r, float *x)
{
    const uint16_t *row = kv_tail_row(&a->side, a->src[i], a->h, h, r, a->d);

    for (int e = 0; e < a->d; e++)
        x[e] = half_to_f32(row[e]);
}

/* A page of one head of a format of page scope; x: scratch of the rows. */
static void seal_page(const kvant_page_seal_args *a, int i, int h, float *x)
{
    const int dp = kvant_format_padded(a->side.fmt, a->d);

    memset(x, 0, (size_t)(KVANT_PAGE * dp) * sizeof *x);
    for (int r = 0; r < KVANT_PAGE; r++)
        tail_values(a, i, h, r, x + r * dp);
    a->side.fmt->ref.encode_page(a->side.param, x, (size_t)dp, kv_row(&a->side, a->dst[i], h, 0), dp, a->side.encoder);
}

static void page_seal(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_page_seal_args *a = args;
    const int paged = a->side.fmt->flags & KVANT_FORMAT_PAGE;
    float *pad = work->local, *x = pad + KVANT_MAX_HEAD_DIM * 2;
    int64_t lo, hi;

    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int i = (int)(u / a->h), h = (int)(u % a->h);

        if (paged)
            seal_page(a, i, h, work->local);
        for (int r = 0; r < KVANT_PAGE && !paged; r++) {
            tail_values(a, i, h, r, x);
            encode_row(&a->side, x, kv_row(&a->side, a->dst[i], h, r), a->d, pad);
        }
    }
}

static size_t seal_local(const void *args)
{
    const kvant_page_seal_args *a = args;

    return a->side.fmt->flags & KVANT_FORMAT_PAGE ? (size_t)KVANT_PAGE * KVANT_MAX_HEAD_DIM * sizeof(float)
                                                  : cache_local(args);
}

const kvant_cpu_kernel kvant_page_seal_ref = { .stages = 1, .fn = { page_seal }, .local_bytes = seal_local };

static void cache_read(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_cache_read_args *a = args;
    const kvant_format *f = a->side.fmt;
    const int dp = kvant_format_padded(f, a->d);
    float *acc = work->local, *x = acc + KVANT_MAX_HEAD_DIM * 2;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int h = 0; h < a->h; h++) {
            kvant_page_decode_acc(f, a->side.param, kv_row(&a->side, a->page[i], h, 0), a->row[i], acc, dp);
            f->ref.finish_out(a->side.param, acc, x, dp);
            memcpy(a->y + (i * a->h + h) * a->d, x, (size_t)a->d * sizeof(float));
        }
}

const kvant_cpu_kernel kvant_cache_read_ref = { .stages = 1, .fn = { cache_read }, .local_bytes = cache_local };
