/* formats/format.h: what a format file needs: the descriptor macro, and the two lists as declarations.
 *
 * A format's file holds its byte layout and four static functions on ONE group, each readable alone:
 *
 *   <f>_encode_group(param, x, bytes, encoder)    group f32 -> group_bytes
 *   <f>_decode_group(param, bytes, acc)           group_bytes -> group_sdim f32 (acc space)
 *   <f>_prep_group(param, q, qp)                  group f32 -> group_sdim f32
 *   <f>_finish_group(param, acc, x)               group_sdim f32 -> group f32
 *
 * KVANT_FORMAT_DEFINE makes rows of them (encode, decode_acc, prep_q, score, axpy, finish_out) and the descriptor
 * kvant_format_<f>.  The reference score and axpy are the same for all formats: decode, then multiply.
 * Faster versions come from the format's card (<f>.toml): tools/cards/kernels.py joins the code of its class (classes/)
 * with that of its space (encoders/) in a source per instruction set, and lists them in cards/variants.inc. */
#ifndef KVANT_FORMATS_FORMAT_H
#define KVANT_FORMATS_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "kvant/format.h"

enum { FORMAT_MAX_SDIM = 2 * KVANT_MAX_HEAD_DIM };   /* qjl1_256: 256 sketch values per 128 */

/* A third encoder, for golden tests only: upstream with fp16 ties away from zero, as some published vectors have
 * them (docs/formats/golden.md).  The references know it; variants need not. */
enum { FORMAT_ENCODER_HALF_UP = 2 };

/* A stored norm or scale: fp16, to nearest even (half up under FORMAT_ENCODER_HALF_UP). */
uint16_t format_norm(float v, int encoder);

/* kvant_format_f32, ... : every descriptor of formats.def. */
#define KVANT_FORMAT(name) extern const kvant_format kvant_format_##name;
#include "formats/formats.def"
#undef KVANT_FORMAT

/* kvant_tbq4_0_kernels_avx2, ... : every variant of variants.inc that this processor family can hold. */
#define KVANT_FORMAT_VARIANT(format, isa, mask) extern const kvant_format_kernels kvant_##format##_kernels_##isa;
#include "cards/variants.inc"
#undef KVANT_FORMAT_VARIANT

typedef void (*format_decode_fn)(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d);

/* The reference score: each dot in double, over ascending j, rounded once to f32. */
void format_ref_score(format_decode_fn decode, const void *param, const float *qp, size_t ldq, int r,
                      const uint8_t *rows, size_t stride, int n, float *s, size_t lds, int d, int sdim);

/* The reference axpy: acc = f32(acc + w*v), one rounding per row, so that any split of the rows over calls
 * gives the same bits. */
void format_ref_axpy(format_decode_fn decode, const void *param, const float *w, size_t ldw, int r,
                     const uint8_t *rows, size_t stride, int n, float *acc, size_t lda, int d, int sdim);

/* The references of score_page and axpy_page: as above, for rows of a page. */
typedef void (*format_decode_page_fn)(const void *param, const uint8_t *page, int first, int n, float *out, int d);
void format_ref_score_page(format_decode_page_fn decode, const void *param, const float *qp, size_t ldq, int r,
                           const uint8_t *page, int first, int n, float *s, size_t lds, int d);
void format_ref_axpy_page(format_decode_page_fn decode, const void *param, const float *w, size_t ldw, int r,
                          const uint8_t *page, int first, int n, float *acc, size_t lda, int d);

/* identity prep and finish, for formats whose acc space is the real space */
#define KVANT_FORMAT_REAL_SPACE(f, group_n)                                                        \
    static void f##_prep_group(const void *param, const float *q, float *qp)                       \
    {                                                                                              \
        (void)param;                                                                               \
        memcpy(qp, q, (group_n) * sizeof *q);                                                      \
    }                                                                                              \
    static void f##_finish_group(const void *param, const float *acc, float *x)                    \
    {                                                                                              \
        (void)param;                                                                               \
        memcpy(x, acc, (group_n) * sizeof *x);                                                     \
    }

/* Rows from groups, and the descriptor.  group_n values <-> group_b bytes <-> group_s acc-space values. */
#define KVANT_FORMAT_DEFINE(f, alias_list, group_n, group_b, group_s, flag_bits)                   \
    static void f##_encode_ref(const void *param, const float *x, uint8_t *row, int d, int encoder) \
    {                                                                                              \
        for (int g = 0; g < d / (group_n); g++)                                                    \
            f##_encode_group(param, x + g * (group_n), row + g * (group_b), encoder);              \
    }                                                                                              \
    static void f##_decode_acc_ref(const void *param, const uint8_t *rows, size_t stride, int n,   \
                                   float *out, int d)                                              \
    {                                                                                              \
        for (int i = 0; i < n; i++, rows += stride)                                                \
            for (int g = 0; g < d / (group_n); g++, out += (group_s))                              \
                f##_decode_group(param, rows + g * (group_b), out);                                \
    }                                                                                              \
    static void f##_prep_q_ref(const void *param, const float *q, float *qp, int d)                \
    {                                                                                              \
        for (int g = 0; g < d / (group_n); g++)                                                    \
            f##_prep_group(param, q + g * (group_n), qp + g * (group_s));                          \
    }                                                                                              \
    static void f##_score_ref(const void *param, const float *qp, size_t ldq, int r,               \
                              const uint8_t *rows, size_t stride, int n, float *s, size_t lds, int d) \
    {                                                                                              \
        format_ref_score(f##_decode_acc_ref, param, qp, ldq, r, rows, stride, n, s, lds, d,        \
                         d / (group_n) * (group_s));                                               \
    }                                                                                              \
    static void f##_axpy_ref(const void *param, const float *w, size_t ldw, int r,                 \
                             const uint8_t *rows, size_t stride, int n, float *acc, size_t lda, int d) \
    {                                                                                              \
        format_ref_axpy(f##_decode_acc_ref, param, w, ldw, r, rows, stride, n, acc, lda, d,        \
                        d / (group_n) * (group_s));                                                \
    }                                                                                              \
    static void f##_finish_out_ref(const void *param, const float *acc, float *out, int d)         \
    {                                                                                              \
        for (int g = 0; g < d / (group_n); g++)                                                    \
            f##_finish_group(param, acc + g * (group_s), out + g * (group_n));                     \
    }                                                                                              \
    const kvant_format kvant_format_##f = {                                                        \
        .name = #f, .aliases = (alias_list), .group = (group_n), .group_bytes = (group_b),         \
        .group_sdim = (group_s), .flags = (flag_bits),                                             \
        .ref = { f##_encode_ref, f##_decode_acc_ref, f##_prep_q_ref, f##_score_ref, f##_axpy_ref,  \
                 f##_finish_out_ref, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL },      \
    }

#endif
