/* cases_cache.c: cases of cache_write, page_seal and cache_read: every format, head size and encoder. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "ops/op_util.h"
#include "verify/cases.h"

enum { HEADS = 2, BULK = 160, SEARCHED = 32 };
static const int len[VCASE_SEQS] = { 70, 1, 150 };

static void about(vcase *c, int d, int encoder)
{
    vcase_about(c, "d %d %s", d, encoder == KVANT_ENCODER_BEST ? "best" : "upstream");
}

static void shape_name(char *shape, size_t cap, const char *phase, int encoder)
{
    snprintf(shape, cap, "%s%s", phase, encoder == KVANT_ENCODER_BEST ? " best" : "");
}

/* Notes the row of x that the page row of every query token will encode. */
static void set_origins(const vscene *s, const float *x, int64_t ldx, int heads, int d)
{
    for (int i = 0; i < VCASE_SEQS; i++)
        for (int t = s->seqs.q0[i]; t < s->seqs.q0[i + 1]; t++) {
            const int pos = s->seqs.pos0[i] + t - s->seqs.q0[i], page = kv_page(&s->seqs, i, pos / KVANT_PAGE);
            for (int h = 0; h < heads; h++)
                s->rows[0].origin[(page * heads + h) * KVANT_PAGE + pos % KVANT_PAGE] = x + t * ldx + h * d;
        }
}

/* pad: floats between the tokens' rows. */
static void write_heads(vcase *c, const kvant_format *f, int heads, int d, int encoder, int tail, const int *ask,
                        int pad, const char *phase)
{
    const int64_t ldx = heads * d + pad;
    char shape[16];
    vscene s;

    shape_name(shape, sizeof shape, phase, encoder);
    if (!vcase_begin(c, KVANT_OP_CACHE_WRITE, shape, f->name))
        return;
    vscene_seqs(c, &s, len, ask);
    vscene_side(c, &s, 0, f, heads, d, tail, encoder);
    const int n = s.seqs.n_tokens;
    float *x = vcase_normal(c, (size_t)(n * ldx), 5);
    if (n > 0)
        memset(x, 0, (size_t)d * sizeof *x);            /* a row of zeros */
    if (n > 2)
        for (int e = 0; e < d; e++)                     /* and two of other magnitudes */
            x[ldx + e] *= 1e-4f, x[2 * ldx + e] *= 300.0f;
    if (n > 3 && encoder == KVANT_ENCODER_BEST && f->group <= 32)
        for (int e = 0; e < d; e++)                     /* and, where a scale is finite all the same, a huge one */
            x[3 * ldx + e] *= 1e18f;
    if (!tail && s.rows[0].origin) {
        set_origins(&s, x, ldx, heads, d);
        vcase_encoded(c, s.side[0].pages, &s.rows[0]);
    }
    const kvant_cache_write_args a = { s.seqs, s.side[0], x, ldx, heads, d };
    about(c, d, encoder);
    vcase_run(c, &a, 0.0);
    vscene_close(&s);
}

static void write(vcase *c, const kvant_format *f, int d, int encoder, int tail, const int *ask, int pad,
                  const char *phase)
{
    write_heads(c, f, HEADS, d, encoder, tail, ask, pad, phase);
}

/* The first n of two tail pages into each other's encoded pages. */
static void seal(vcase *c, const kvant_format *f, int heads, int d, int encoder, int n)
{
    static const int none[VCASE_SEQS] = { 0 };
    char shape[16];
    vscene s;

    shape_name(shape, sizeof shape, n ? "pages" : "empty", encoder);
    if (!vcase_begin(c, KVANT_OP_PAGE_SEAL, shape, f->name))
        return;
    vscene_seqs(c, &s, len, none);
    vscene_side(c, &s, 0, f, heads, d, 1, encoder);
    const int32_t from[2] = { s.all.tail_table[2 * VCASE_TABLE], s.all.tail_table[0] }, to[2] = { from[1], from[0] };
    const int32_t *src = vcase_ints(c, from, 2), *dst = vcase_ints(c, to, 2);
    const size_t row = (size_t)d * sizeof(float);
    float *x = kvant_alloc((size_t)(2 * KVANT_PAGE * heads) * row);
    if (!x || !s.rows[0].origin)
        c->rc = KVANT_ENOMEM;
    for (int k = 0; k < 2 * KVANT_PAGE * heads && c->rc == KVANT_OK; k++) {
        const int i = k / KVANT_PAGE / heads, h = k / KVANT_PAGE % heads, r = k % KVANT_PAGE;
        uint16_t *tail = kv_tail_row(&s.side[0], from[i], heads, h, r, d);
        float *v = x + (size_t)k * (size_t)d;
        vcase_fill(v, (size_t)d, 50u + (unsigned)k);
        for (int e = 0; e < d; e++)
            v[e] = half_to_f32(tail[e] = f32_to_half(k == 3 ? 0.0f : v[e]));
        if (i < n)
            s.rows[0].origin[(to[i] * heads + h) * KVANT_PAGE + r] = v;
    }
    if (c->rc == KVANT_OK) {
        const kvant_page_seal_args a = { s.side[0], src, dst, n, heads, d };
        vcase_encoded(c, s.side[0].pages, &s.rows[0]);
        about(c, d, encoder);
        vcase_run(c, &a, 0.0);
    }
    kvant_free(x);
    vscene_close(&s);
}

/* DOT for finish_out: sums of at most sdim terms of an orthonormal map, or of a projection with entries below 5. */
static void read_bounds(const vscene *s, const int32_t *page, const int32_t *row, int n, int d, double *bound)
{
    const kvant_format *f = s->side[0].fmt;
    const int dp = kvant_format_padded(f, d), sdim = kvant_format_sdim(f, dp);
    float acc[2 * KVANT_MAX_HEAD_DIM];

    for (int i = 0; i < n; i++)
        for (int h = 0; h < HEADS; h++) {
            double sum = 0;
            kvant_page_decode_acc(f, s->side[0].param, kv_row(&s->side[0], page[i], h, 0), row[i], acc, dp);
            for (int e = 0; e < sdim; e++)
                sum += fabs((double)acc[e]);
            for (int e = 0; e < d; e++)
                bound[(i * HEADS + h) * d + e] = (sdim / 4 + 16) * 0x1p-24 * sum * (s->side[0].param ? 5.0 : 1.0);
        }
}

static void read_rows(vcase *c, const kvant_format *f, int d, int n)
{
    static const int one[VCASE_SEQS] = { 1, 1, 1 };
    double bound[5 * HEADS * KVANT_MAX_PLAIN_HEAD_DIM];
    int32_t page[5], row[5];
    vscene s;

    if (!vcase_begin(c, KVANT_OP_CACHE_READ, n ? "rows" : "empty", f->name))
        return;
    vscene_seqs(c, &s, len, one);
    vscene_side(c, &s, 0, f, HEADS, d, 0, 0);
    vscene_fill(c, &s, 0, HEADS, d);
    for (int i = 0; i < 5; i++) {
        page[i] = s.all.table[2 * VCASE_TABLE + i % 2];
        row[i] = 13 * i;
    }
    float *y = vcase_out(c, (size_t)(n * HEADS * d));
    const kvant_cache_read_args a = { s.side[0], vcase_ints(c, page, 5), vcase_ints(c, row, 5), y, n, HEADS, d };
    read_bounds(&s, page, row, n, d, bound);
    vcase_bounds(c, y, bound);
    about(c, d, 0);
    vcase_run(c, &a, 0.0);
    vscene_close(&s);
}

static void format_cases(vcase *c, const kvant_format *f)
{
    static const int dims[] = { 128, 64, 80, 96, 192, 256, 512, 576 };
    static const int one[VCASE_SEQS] = { 1, 1, 1 }, prompt[VCASE_SEQS] = { 3, 1, 20 }, none[VCASE_SEQS] = { 0 };
    const int some = c->quick || c->unaligned ? 2 : (int)(sizeof dims / sizeof *dims);
    const int paged = (f->flags & KVANT_FORMAT_PAGE) != 0;      /* its rows are written to the tail alone */

    write(c, f, 128, KVANT_ENCODER_UPSTREAM, paged, none, 3, "empty");
    seal(c, f, 1, 128, KVANT_ENCODER_UPSTREAM, 0);
    read_rows(c, f, 128, 0);
    write(c, f, 128, KVANT_ENCODER_UPSTREAM, 1, prompt, 3, "tail");
    write(c, f, 128, KVANT_ENCODER_UPSTREAM, 1, len, 0, "tail");
    for (int i = 0; i < some; i++) {
        if (kvant_format_check(f, dims[i], NULL) != KVANT_OK)
            continue;
        read_rows(c, f, dims[i], 5);
        for (int e = 0; e < 2 && !paged; e++) {
            /* a search that settles elsewhere: as below in page_seal */
            const int heads = e == KVANT_ENCODER_BEST ? SEARCHED : HEADS;
            write_heads(c, f, heads, dims[i], e, 0, one, 3, "decode");
            if (dims[i] <= 128)
                write_heads(c, f, heads, dims[i], e, 0, prompt, 3, "prompt");
            if (dims[i] % 128 == 0 && dims[i] <= 256)
                write(c, f, dims[i], e, 0, len, 0, "many");     /* rows that wide loads may read */
        }
        if (i < 2)
            seal(c, f, 1, dims[i], i, 2);
    }
    if (!c->quick) {
        seal(c, f, HEADS, 128, KVANT_ENCODER_BEST, 2);  /* rows enough for a mean of 1 % to say something */
        for (int e = 0; e < 2 && kvant_format_check(f, 256, NULL) == KVANT_OK; e++)
            seal(c, f, 1, 256, e, 1);
    }
    if (!c->quick && strcmp(f->name, "qjl1_256") == 0)  /* more rows than a GPU's warps take at once */
        write_heads(c, f, BULK, 128, KVANT_ENCODER_UPSTREAM, 0, len, 0, "bulk");
}

void cases_cache(vcase *c)
{
    for (int i = 0; i < kvant_format_count(); i++)
        if (verify_listed(c->o->formats, kvant_format_at(i)->name))
            format_cases(c, kvant_format_at(i));
}
