/* format.h: cache row formats: how one token's K or V of one head is stored, and how attention reads it.
 *
 * A ROW is `d` values (one head of one token).  Formats work on independent GROUPS of `group` values; a
 * head_dim that is not a multiple of the group is zero-padded up to it (kvant_format_padded).  Four maps say all:
 *
 *   encode      d f32 (real space)      -> row_bytes bytes
 *   decode_acc  row                     -> sdim f32 in the format's own ("acc") space: rotated, or sketched
 *   prep_q      d f32 query             -> sdim f32 such that <prep_q(q), decode_acc(k)> ~ <q, k>
 *   finish_out  sdim f32, sum of w*decode_acc(v) -> d f32 in real space
 *
 * so rotation never happens inside the token loop.  score and axpy are decode_acc fused with the dot product and
 * with the weighted sum over n rows and r queries at once.  decode is finish_out(decode_acc(row)).
 *
 * SCOPE.  A row of most formats stands alone in its row_bytes.  A format of page scope (KVANT_FORMAT_PAGE) encodes the
 * KVANT_PAGE rows of a page of one head at once (encode_page), from what they have in common: a PAGE of a head is
 * KVANT_PAGE * row_bytes bytes, of which row_bytes is only each row's share.  Rows decode alone and in any order,
 * from the page and their number.  Such a format has encode_page, decode_page, score_page and axpy_page in place of
 * encode, decode_acc, score and axpy, which are NULL; rows that are not a whole page stay as they are (the exact tail).
 *
 * sdim = kvant_format_sdim(f, d): equals the padded d for all formats but qjl1_256 (256 per 128).
 * Threads: all functions are pure; no allocation, no globals but constant tables.
 * Outputs are overwritten (axpy adds to them) and may not overlap inputs.
 * Source: docs/formats, one page per format; why it is cut like this: docs/decisions/0001-one-format-contract.md. */
#ifndef KVANT_FORMAT_H
#define KVANT_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

/* Rows of codes; rows of single values (group 1), which latent attention keeps wider. */
enum { KVANT_MAX_HEAD_DIM = 512, KVANT_MAX_PLAIN_HEAD_DIM = 576 };

enum { KVANT_PAGE = 64 };          /* tokens per KV page; also the prompt grid and the GDN chunk */

/* Which search an encoder makes for the same bytes (docs/formats/encoders.md). */
enum kvant_encoder {
    KVANT_ENCODER_UPSTREAM = 0, /* the rule of the format's specification, bit for bit */
    KVANT_ENCODER_BEST = 1,     /* least error under the same decoder, unbiased scores */
};

enum {
    KVANT_FORMAT_WIDE = 1,   /* 16 bits or more per value: never needs the exact tail */
    KVANT_FORMAT_PARAM = 2,  /* encode/prep_q/finish_out need `param` (a projection): kvant_format_check_param */
    KVANT_FORMAT_PAGE = 4,   /* page scope: encoded a page at a time */
};

typedef struct kvant_format kvant_format;

/* The kernels of one format.  d is a multiple of `group` (padded), sdim follows from it.  Rows may be unaligned;
 * nothing outside the stated ranges is read or written.  `param` is the format's parameter or NULL; where the format
 * needs one, NULL gives NaN everywhere (kernels have no way to say why: kvant_format_check_param has). */
typedef struct kvant_format_kernels {
    /* x f32[d] -> row u8[row_bytes] */
    void (*encode)(const void *param, const float *x, uint8_t *row, int d, int encoder);
    /* n rows, `stride` bytes apart -> out f32[n][sdim] */
    void (*decode_acc)(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d);
    /* q f32[d] -> qp f32[sdim] */
    void (*prep_q)(const void *param, const float *q, float *qp, int d);
    /* s[j*lds + i] = <qp_j, decode_acc(row_i)>;  qp f32[r][ldq], rows u8[n], s f32[r][lds];  r >= 1, n >= 0 */
    void (*score)(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                  float *s, size_t lds, int d);
    /* acc[j*lda + :] += sum_i w[j*ldw + i] * decode_acc(row_i), i ascending;  w f32[r][ldw], acc f32[r][lda] */
    void (*axpy)(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                 float *acc, size_t lda, int d);
    /* acc f32[sdim] -> out f32[d] */
    void (*finish_out)(const void *param, const float *acc, float *out, int d);

    /* The integer path: OPTIONAL, NULL where absent, all three or none (of page scope: prep_q8, score_page_q8 and
     * axpy_page_q8); never in the reference.  For decode in the default compute mode; not for --compute f32.  A row's
     * result depends on nothing but its own inputs, but the bits differ from score and axpy: choose by the kind of a
     * row (prompt or decode), never by the size of a batch. */
    /* qp f32[sdim] (from prep_q) -> q8, kvant_format_q8_bytes bytes, 32-byte aligned: a query in 8 or 16 bits */
    void (*prep_q8)(const void *param, const float *qp, void *q8, int d);
    /* as score, with prepared queries `ldq8` BYTES (a multiple of 32) apart */
    void (*score_q8)(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride, int n,
                     float *s, size_t lds, int d);
    /* as axpy, for n <= 64; the weights of one call are rounded to 16 bits relative to their largest, so always call it
     * for the same ranges of rows (whole pages; zero weights change nothing) */
    void (*axpy_q8)(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                    float *acc, size_t lda, int d);
    /* OPTIONAL, NULL where absent: encode of n rows, x f32[n][ldx]; the same bytes as encode row by row, sooner where
     * rows share something large (the projection of qjl1_256) */
    void (*encode_rows)(const void *param, const float *x, size_t ldx, int n, uint8_t *rows, size_t stride, int d,
                        int encoder);

    /* Page scope; NULL in formats of row scope. */
    /* x f32[KVANT_PAGE][ldx] -> page u8[KVANT_PAGE * row_bytes] */
    void (*encode_page)(const void *param, const float *x, size_t ldx, uint8_t *page, int d, int encoder);
    /* as decode_acc, score and axpy, for rows first .. first + n - 1 of a page; 0 <= first, first + n <= KVANT_PAGE */
    void (*decode_page)(const void *param, const uint8_t *page, int first, int n, float *out, int d);
    void (*score_page)(const void *param, const float *qp, size_t ldq, int r, const uint8_t *page, int first, int n,
                       float *s, size_t lds, int d);
    void (*axpy_page)(const void *param, const float *w, size_t ldw, int r, const uint8_t *page, int first, int n,
                      float *acc, size_t lda, int d);
    /* the integer path of a page, OPTIONAL: score_q8 and axpy_q8 (their rules), for rows first .. first + n - 1 */
    void (*score_page_q8)(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *page, int first, int n,
                          float *s, size_t lds, int d);
    void (*axpy_page_q8)(const void *param, const float *w, size_t ldw, int r, const uint8_t *page, int first, int n,
                         float *acc, size_t lda, int d);
} kvant_format_kernels;

struct kvant_format {
    const char *name;        /* canonical: "tbq4_0" */
    const char *aliases;     /* space separated, or "" */
    int group;               /* values per independent group */
    int group_bytes;         /* bytes per group */
    int group_sdim;          /* acc-space values per group */
    int flags;               /* KVANT_FORMAT_* */
    kvant_format_kernels ref; /* the scalar reference: every pointer of its scope set */
};

/* Number of formats and the i-th one (0 <= i < count). */
int kvant_format_count(void);
const kvant_format *kvant_format_at(int i);
/* Lookup by canonical name or alias; NULL if unknown. */
const kvant_format *kvant_format_find(const char *name);
/* Lookup for a user's argument: KVANT_EINVAL with the list of known names in diag. */
int kvant_format_parse(const char *name, const kvant_format **out, kvant_diag *diag);

/* d rounded up to the group; bytes of one row; acc-space values of one row.  d >= 1. */
int kvant_format_padded(const kvant_format *f, int d);
size_t kvant_format_row_bytes(const kvant_format *f, int d);
int kvant_format_sdim(const kvant_format *f, int d);
/* Bytes of one query prepared by prep_q8: a multiple of 32. */
size_t kvant_format_q8_bytes(const kvant_format *f, int d);
/* KVANT_OK if head_dim d can be stored in f, else KVANT_EINVAL and the reason. */
int kvant_format_check(const kvant_format *f, int d, kvant_diag *diag);
/* KVANT_OK if the kernels of f may be called with this `param`: KVANT_EINVAL for NULL where f needs one. */
int kvant_format_check_param(const kvant_format *f, const void *param, kvant_diag *diag);

/* The fastest kernels this CPU may run (reference where nothing faster exists).  Never NULL. */
const kvant_format_kernels *kvant_format_best(const kvant_format *f);

/* Variants, for harnesses and benches: 0 is the reference; name is "ref", "avx2", "avx512", ...
 * Returns NULL past the last.  *usable tells whether this CPU (and the test mask) may run it. */
const kvant_format_kernels *kvant_format_variant(const kvant_format *f, int i, const char **name, int *usable);

/* Real-space decode of one row through the reference: x f32[d]. d is the padded head_dim. */
void kvant_row_decode(const kvant_format *f, const void *param, const uint8_t *row, float *x, int d);
/* Row r of a page of one head, of a format of either scope, through the reference: acc f32[sdim], acc space. */
void kvant_page_decode_acc(const kvant_format *f, const void *param, const uint8_t *page, int r, float *acc, int d);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
