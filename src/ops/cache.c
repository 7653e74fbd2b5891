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

/* Writes all heads of one token at position pos of sequence s. */
static void write_token(const kvant_cache_write_args *a, int s, int pos, const float *x, float *pad)
{
    const kvant_kv_side *side = &a->side;
    const int j = pos / KVANT_PAGE, r = pos % KVANT_PAGE;
    const int32_t t = kv_tail_page(side, &a->seqs, s, j, j, 1);

    for (int h = 0; h < a->h; h++) {
        if (t < 0) {
            encode_row(side, x + (int64_t)h * a->d, kv_row(side, kv_page(&a->seqs, s, j), h, r), a->d, pad);
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

static void page_seal(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_page_seal_args *a = args;
    float *pad = work->local, *x = pad + KVANT_MAX_HEAD_DIM * 2;
    int64_t lo, hi;

    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int i = (int)(u / a->h), h = (int)(u % a->h);

        for (int r = 0; r < KVANT_PAGE; r++) {
            const uint16_t *row = kv_tail_row(&a->side, a->src[i], a->h, h, r, a->d);
            for (int e = 0; e < a->d; e++)
                x[e] = half_to_f32(row[e]);
            encode_row(&a->side, x, kv_row(&a->side, a->dst[i], h, r), a->d, pad);
        }
    }
}

const kvant_cpu_kernel kvant_page_seal_ref = { .stages = 1, .fn = { page_seal }, .local_bytes = cache_local };

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
            const uint8_t *row = kv_row(&a->side, a->page[i], h, a->row[i]);

            f->ref.decode_acc(a->side.param, row, a->side.row_bytes, 1, acc, dp);
            f->ref.finish_out(a->side.param, acc, x, dp);
            memcpy(a->y + (i * a->h + h) * a->d, x, (size_t)a->d * sizeof(float));
        }
}

const kvant_cpu_kernel kvant_cache_read_ref = { .stages = 1, .fn = { cache_read }, .local_bytes = cache_local };
