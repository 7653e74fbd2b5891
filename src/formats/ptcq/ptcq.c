/* ptcq.c: the encoder and decoder that ptcq2, ptcq3 and ptcq4 share.  REFERENCE; the encoder of the vector kernels too,
 * around their own search.  Sums over values are in double, rounded once to f32.
 * Source: docs/formats/ptcq.md. */
#include "formats/ptcq/ptcq.h"

#include <math.h>
#include "base/half.h"
#include "formats/rotate/rotate.h"

enum { G = PTCQ_GROUP, ROWS = KVANT_PAGE };

static const float TINY = 1e-9f;           /* keeps a division by the size of a row of zeros a number */
static const float MOST = 65504.0f;        /* what an f16 holds */

/* A page while it is encoded. */
typedef struct page_search {
    float y[ROWS][G], mean[G];             /* rotated rows, then what they have beside the mean; the mean as decoded */
    float scaled[ROWS][G];                 /* rows as the trellis takes them */
    int8_t q[G];
    float step, rms[ROWS], scale[ROWS];
    double fit[ROWS];
    int finite[ROWS];                      /* other rows get the scale NaN, and nothing else knows of them */
    ptcq_path try[ROWS], path[ROWS];
} page_search;

/* ---- the search ---- */

static void walk_one(const float *book, int k, const float *y, ptcq_path *path)
{
    const int low = PTCQ_STATES >> k, per = 1 << k;
    float cost[PTCQ_STATES] = { 0 }, best[PTCQ_STATES / 4];
    uint8_t back[G][PTCQ_STATES / 4];

    for (int t = 0; t < G; t++) {
        for (int g = 0; g < low; g++) {
            best[g] = cost[g << k];
            back[t][g] = 0;
            for (int p = 1; p < per; p++)
                if (cost[g << k | p] < best[g]) {
                    best[g] = cost[g << k | p];
                    back[t][g] = (uint8_t)p;
                }
        }
        for (int s = 0; s < PTCQ_STATES; s++) {
            const float e = y[t] - book[s];
            cost[s] = best[s & (low - 1)] + e * e;
        }
    }
    int s = 0;
    for (int i = 1; i < PTCQ_STATES; i++)
        s = cost[i] < cost[s] ? i : s;
    for (int t = G - 1; t >= 0; t--) {
        path->symbol[t] = (uint8_t)(s >> (PTCQ_STATE_BITS - k));
        s = (s & (low - 1)) << k | back[t][s & (low - 1)];
    }
    path->start = s >> k;
}

void ptcq_walk_ref(const float *book, int k, const float (*y)[PTCQ_GROUP], ptcq_path *path)
{
    for (int i = 0; i < ROWS; i++)
        walk_one(book, k, y[i], &path[i]);
}

static void path_values(const float *book, int k, const ptcq_path *path, float *c)
{
    int state = path->start << k;

    for (int t = 0; t < G; t++) {
        state = state >> k | path->symbol[t] << (PTCQ_STATE_BITS - k);
        c[t] = book[state];
    }
}

/* ---- the mean ---- */

/* The nearest mean that a page can hold, in w->q, w->step and w->mean. */
static void quantize_mean(page_search *w, const float *m)
{
    float top = 0.0f;

    for (int j = 0; j < G; j++)
        top = fabsf(m[j]) > top ? fabsf(m[j]) : top;
    w->step = half_to_f32(f32_to_half(top / 127.0f + TINY));
    for (int j = 0; j < G; j++) {
        const float v = w->step > 0.0f ? rintf(m[j] / w->step) : 0.0f;
        w->q[j] = (int8_t)(v > 127.0f ? 127 : v < -127.0f ? -127 : (int)v);
        w->mean[j] = (float)w->q[j] * w->step;
    }
}

/* m: the average of column j over the finite rows, less `scale` times their paths' values where values are given. */
static void average(const page_search *w, const float (*values)[PTCQ_GROUP], float *m)
{
    int n = 0;

    for (int i = 0; i < ROWS; i++)
        n += w->finite[i];
    for (int j = 0; j < G; j++) {
        double sum = 0.0;
        for (int i = 0; i < ROWS; i++)
            if (w->finite[i])
                sum += (double)(values ? w->y[i][j] - values[i][j] * w->scale[i] : w->y[i][j]);
        m[j] = n ? (float)(sum / n) : 0.0f;
    }
}

/* ---- the rows ---- */

static void load_rows(page_search *w, ptcq_rotate_fn *rotate, const float *x, size_t ldx)
{
    for (int i = 0; i < ROWS; i++) {
        memcpy(w->y[i], x + (size_t)i * ldx, sizeof w->y[i]);
        rotate(w->y[i]);
        w->finite[i] = 1;
        for (int j = 0; j < G; j++)
            w->finite[i] &= isfinite(w->y[i][j]) != 0;
        for (int j = 0; j < G && !w->finite[i]; j++)
            w->y[i][j] = 0.0f;
    }
}

static void take_mean(page_search *w)
{
    float m[G];

    average(w, NULL, m);
    quantize_mean(w, m);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0.0;
        for (int j = 0; j < G; j++) {
            w->y[i][j] = w->finite[i] ? w->y[i][j] - w->mean[j] : 0.0f;
            sum += (double)w->y[i][j] * w->y[i][j];
        }
        w->rms[i] = (float)sqrt(sum / G) + TINY;
        w->fit[i] = -1.0;
    }
}

/* Takes the path of row i that w->try holds where it fits better: the scale is unbiased in the row's direction. */
static void take_path(page_search *w, const float *book, int k, int i)
{
    float c[G];
    double cc = 0.0, cy = 0.0, yy = 0.0;

    path_values(book, k, &w->try[i], c);
    for (int j = 0; j < G; j++) {
        cc += (double)c[j] * c[j];
        cy += (double)c[j] * w->y[i][j];
        yy += (double)w->y[i][j] * w->y[i][j];
    }
    const double fit = yy > 0.0 ? cy * cy / (cc * yy) : 0.0;
    if (!(fit > w->fit[i]))
        return;
    w->fit[i] = fit;
    w->path[i] = w->try[i];
    const float scale = yy > 0.0 && cy > 0.0 ? (float)(yy / cy) : 0.0f;
    w->scale[i] = half_to_f32(f32_to_half(scale < MOST ? scale : MOST));
}

static void code_rows(page_search *w, ptcq_walk_fn *walk, const float *book, int k)
{
    static const float larger[PTCQ_TRIES] = { 1.0f, 1.0f / 0.94f };    /* the trellis likes its rows a little larger */

    for (int t = 0; t < PTCQ_TRIES; t++) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < G; j++)
                w->scaled[i][j] = w->y[i][j] / w->rms[i] * larger[t];
        walk(book, k, (const float(*)[G])w->scaled, w->try);
        for (int i = 0; i < ROWS; i++)
            take_path(w, book, k, i);
    }
}

/* The mean takes what the rows' errors have in common. */
static void correct_mean(page_search *w, const float *book, int k)
{
    float m[G];

    for (int i = 0; i < ROWS; i++)
        path_values(book, k, &w->path[i], w->scaled[i]);
    average(w, (const float(*)[G])w->scaled, m);
    for (int j = 0; j < G; j++)
        m[j] = w->mean[j] + m[j];
    quantize_mean(w, m);
}

static void put_page(const page_search *w, int k, uint8_t *page)
{
    const uint16_t step = f32_to_half(w->step);

    memset(page, 0, (size_t)PTCQ_PAGE_BYTES(k));
    memcpy(page + PTCQ_MEAN_AT(k), w->q, sizeof w->q);
    for (int i = 0; i < ROWS; i++) {
        uint8_t *codes = page + i * 16 * k;
        for (int t = 0; t < G; t++) {
            const int bit = t * k % 8, word = w->path[i].symbol[t] << bit;
            codes[t * k / 8] = (uint8_t)(codes[t * k / 8] | word);
            if (bit + k > 8)
                codes[t * k / 8 + 1] = (uint8_t)(codes[t * k / 8 + 1] | word >> 8);
        }
        store_u16(page + PTCQ_SCALE_AT(k) + 2 * i, w->finite[i] ? f32_to_half(w->scale[i]) : 0x7e00);
        page[PTCQ_START_AT(k) + i] = (uint8_t)(w->path[i].start | (i < 16 ? (step >> i & 1) << 7 : 0));
    }
}

void ptcq_encode_group(ptcq_walk_fn *walk, ptcq_rotate_fn *rotate, const float *book, int k, const float *x, size_t ldx,
                       uint8_t *page)
{
    page_search w;

    load_rows(&w, rotate, x, ldx);
    take_mean(&w);
    code_rows(&w, walk, book, k);
    correct_mean(&w, book, k);
    put_page(&w, k, page);
}

/* ---- decoding ---- */

void ptcq_mean(int k, const uint8_t *page, float *mean)
{
    const int8_t *q = (const int8_t *)page + PTCQ_MEAN_AT(k);
    uint16_t bits = 0;

    for (int i = 0; i < 16; i++)
        bits = (uint16_t)(bits | page[PTCQ_START_AT(k) + i] >> 7 << i);
    const float step = half_to_f32(bits);
    for (int j = 0; j < G; j++)
        mean[j] = (float)q[j] * step;
}

void ptcq_decode_row(const float *book, int k, const uint8_t *page, int r, float *out)
{
    const uint8_t *codes = page + r * 16 * k;
    const float scale = half_to_f32(load_u16(page + PTCQ_SCALE_AT(k) + 2 * r));
    ptcq_path path = { .start = page[PTCQ_START_AT(k) + r] & ((PTCQ_STATES >> k) - 1) };
    float mean[G];

    for (int t = 0; t < G; t++) {
        const int bit = t * k % 8, next = bit + k > 8 ? codes[t * k / 8 + 1] << 8 : 0;
        path.symbol[t] = (uint8_t)((codes[t * k / 8] | next) >> bit & ((1 << k) - 1));
    }
    ptcq_mean(k, page, mean);
    path_values(book, k, &path, out);
    for (int t = 0; t < G; t++)
        out[t] = out[t] * scale + mean[t];
}

void ptcq_prep_q(const void *param, const float *q, float *qp, int d)
{
    (void)param;
    memcpy(qp, q, (size_t)d * sizeof *q);
    for (int g = 0; g < d; g += G)
        rotate_r128(qp + g);
}

void ptcq_finish_out(const void *param, const float *acc, float *out, int d)
{
    (void)param;
    memcpy(out, acc, (size_t)d * sizeof *acc);
    for (int g = 0; g < d; g += G)
        rotate_r128_inverse(out + g);
}
