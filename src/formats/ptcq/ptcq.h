/* ptcq.h: the formats ptcq2, ptcq3, ptcq4: a page's mean, and a trellis of k bits a value for what the rows have beside
 * it.  A page of 64 rows of 128 values, 1024 k + 320 bytes:
 *
 *   codes u8[64][16 k]   symbol t of a row: bits t k .. t k + k - 1, lowest bit of byte 0 first
 *   scale f16[64]
 *   mean  i8[128]        in steps of `step`
 *   start u8[64]         bits 0 .. 8 - k: the initial state >> k; bit 7 of start[i], i < 16: bit i of step, an f16
 *
 * A state has 9 bits: state_t = state_(t-1) >> k | symbol_t << (9 - k), so it is the 9 bits of (start, codes) that end
 * with symbol t.  Value t of a row = book[state_t] * scale + mean[t] * step, two roundings, in the space R(x).
 * Source: docs/formats/ptcq.md.  Golden: tests/golden/ptcq*.json. */
#ifndef KVANT_FORMATS_PTCQ_H
#define KVANT_FORMATS_PTCQ_H

#include "formats/format.h"

enum { PTCQ_GROUP = 128, PTCQ_STATES = 512, PTCQ_STATE_BITS = 9, PTCQ_TRIES = 2 };

#define PTCQ_ROW_BYTES(k) (16 * (k) + 5)
#define PTCQ_PAGE_BYTES(k) (KVANT_PAGE * PTCQ_ROW_BYTES(k))
#define PTCQ_SCALE_AT(k) (1024 * (k))
#define PTCQ_MEAN_AT(k) (1024 * (k) + 128)
#define PTCQ_START_AT(k) (1024 * (k) + 256)

/* The path of one row: the symbols, and the initial state >> k. */
typedef struct ptcq_path {
    uint8_t symbol[PTCQ_GROUP];
    int start;
} ptcq_path;

/* The least-error paths of the rows of a page, y f32[64][128]: costs in f32, each step (y - c)^2 rounded before it is
 * added; ties take the smallest predecessor, and the smallest final state. */
typedef void ptcq_walk_fn(const float *book, int k, const float (*y)[PTCQ_GROUP], ptcq_path *path);
ptcq_walk_fn ptcq_walk_ref;

/* R of 128 values in place. */
typedef void ptcq_rotate_fn(float *x);

/* 64 rows of 128 values, ldx apart, to a page.  walk and rotate: any that equal the references to the bit. */
void ptcq_encode_group(ptcq_walk_fn *walk, ptcq_rotate_fn *rotate, const float *book, int k, const float *x, size_t ldx,
                       uint8_t *page);

/* The mean of a page, f32[128]. */
void ptcq_mean(int k, const uint8_t *page, float *mean);
/* Row r of a page, f32[128]. */
void ptcq_decode_row(const float *book, int k, const uint8_t *page, int r, float *out);

/* The rotations of whole heads. */
void ptcq_prep_q(const void *param, const float *q, float *qp, int d);
void ptcq_finish_out(const void *param, const float *acc, float *out, int d);

/* The descriptor kvant_format_<f>, and its reference. */
#define PTCQ_FORMAT_DEFINE(f, k, book)                                                                                 \
    static void f##_encode_page(const void *param, const float *x, size_t ldx, uint8_t *page, int d, int encoder)      \
    {                                                                                                                  \
        (void)param;                                                                                                   \
        (void)encoder;                                                                                                 \
        for (int g = 0; g < d / PTCQ_GROUP; g++)                                                                       \
            ptcq_encode_group(ptcq_walk_ref, rotate_r128, book, k, x + g * PTCQ_GROUP, ldx,                            \
                              page + g * PTCQ_PAGE_BYTES(k));                                                          \
    }                                                                                                                  \
    static void f##_decode_page(const void *param, const uint8_t *page, int first, int n, float *out, int d)           \
    {                                                                                                                  \
        (void)param;                                                                                                   \
        for (int i = first; i < first + n; i++)                                                                        \
            for (int g = 0; g < d / PTCQ_GROUP; g++, out += PTCQ_GROUP)                                                \
                ptcq_decode_row(book, k, page + g * PTCQ_PAGE_BYTES(k), i, out);                                       \
    }                                                                                                                  \
    static void f##_score_page(const void *param, const float *qp, size_t ldq, int r, const uint8_t *page, int first,  \
                               int n, float *s, size_t lds, int d)                                                     \
    {                                                                                                                  \
        format_ref_score_page(f##_decode_page, param, qp, ldq, r, page, first, n, s, lds, d);                          \
    }                                                                                                                  \
    static void f##_axpy_page(const void *param, const float *w, size_t ldw, int r, const uint8_t *page, int first,    \
                              int n, float *acc, size_t lda, int d)                                                    \
    {                                                                                                                  \
        format_ref_axpy_page(f##_decode_page, param, w, ldw, r, page, first, n, acc, lda, d);                          \
    }                                                                                                                  \
    const kvant_format kvant_format_##f = {                                                                            \
        .name = #f, .aliases = "", .group = PTCQ_GROUP, .group_bytes = PTCQ_ROW_BYTES(k), .group_sdim = PTCQ_GROUP,    \
        .flags = KVANT_FORMAT_PAGE,                                                                                    \
        .ref = { .prep_q = ptcq_prep_q, .finish_out = ptcq_finish_out, .encode_page = f##_encode_page,                 \
                 .decode_page = f##_decode_page, .score_page = f##_score_page, .axpy_page = f##_axpy_page },           \
    };

#endif
