/* fuzz_pages.c: libFuzzer target of the formats of page scope: hostile pages, and pages that an encoder wrote and
 * somebody changed.
 *
 * Input: [format, bit 7: head_dim 256][first][rows][mode][bytes...].  Modes 0 to 31 of 64: the bytes are the page,
 * repeated; 32 to 62: they change bytes of a good page, three each: [offset, 2 bytes][value]; 63: they are any floats,
 * repeated, which are encoded (seldom: a search of all variants takes longer than a thousand pages that are read).
 * Promises, of every variant that this CPU may run, with the page in a heap block of exactly its size:
 *   nothing outside is touched (AddressSanitizer);
 *   variants encode the same bytes, and decode the reference's values;
 *   rows decode, score and sum alone as among all rows of the page;
 *   score is the product with what decode gives, within the bound of reordered f32 sums; not finite where that is not;
 *   the integer path gives finite numbers for finite rows, and a row's values one by one. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "kvant/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { QUERIES = 2, MOST_D = 256, HALF = 128, EDIT = 3, MOST_ROWS = 6 };

/* A page, what the reference decodes it to, and the size of the terms that a value is the sum of. */
typedef struct scene {
    const kvant_format *f;
    uint8_t *page;
    size_t bytes;
    int d, first, n;
    float values[KVANT_PAGE * MOST_D], terms[KVANT_PAGE * MOST_D];
    float q[QUERIES * MOST_D], s[QUERIES * KVANT_PAGE], w[QUERIES * KVANT_PAGE], acc[QUERIES * MOST_D];
} scene;

static scene now;

static void promise(int ok, const scene *s, const char *variant, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "broken promise: %s %s, head_dim %d, rows %d + %d: %s\n", s->f->name, variant, s->d, s->first, s->n,
            what);
    abort();
}

static int same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i])))
            return 0;
    return 1;
}

/* Sizes of the terms of each value: of the mean, and of the row beside it (the layout: docs/formats/ptcq.md). */
static void find_terms(scene *s, int k)
{
    const size_t half_bytes = (size_t)(1024 * k + 320);

    for (int e = 0; e < s->d; e++) {
        const uint8_t *half = s->page + (size_t)(e / HALF) * half_bytes, *tail = half + 1024 * (size_t)k;
        uint16_t step = 0;

        for (int i = 0; i < 16; i++)
            step = (uint16_t)(step | (tail[256 + i] >> 7 << i));
        const float mean = (float)(int8_t)tail[128 + e % HALF] * half_to_f32(step);
        for (int r = 0; r < KVANT_PAGE; r++) {
            const float x = s->values[r * s->d + e];
            s->terms[r * s->d + e] = fabsf(mean) + fabsf(x - mean) + fabsf(x);
        }
    }
}

static void check_scores(const scene *s, const char *variant)
{
    for (int j = 0; j < QUERIES; j++)
        for (int i = 0; i < s->n; i++) {
            const float *x = s->values + (s->first + i) * s->d, *t = s->terms + (s->first + i) * s->d;
            double want = 0, size = 0;
            for (int e = 0; e < s->d; e++) {
                want += (double)s->q[j * s->d + e] * (double)x[e];
                size += fabs((double)s->q[j * s->d + e] * (double)t[e]);
            }
            const double got = (double)s->s[j * s->n + i];
            if (isfinite(size))
                promise(fabs(got - want) <= (s->d / 4 + 32) * 0x1p-23 * size + 1e-30, s, variant, "a score is wrong");
            else
                promise(!isfinite(got), s, variant, "a row that is not finite has a finite score");
        }
}

static void check_alone(scene *s, const kvant_format_kernels *k, const char *variant)
{
    float one[MOST_D], score;

    for (int i = 0; i < s->n; i += s->n > MOST_ROWS ? 9 : 1) {
        k->decode_page(NULL, s->page, s->first + i, 1, one, s->d);
        promise(same(one, s->values + (s->first + i) * s->d, (size_t)s->d), s, variant, "alone a row differs");
        k->score_page(NULL, s->q, (size_t)s->d, 1, s->page, s->first + i, 1, &score, 1, s->d);
        promise(same(&score, s->s + i, 1), s, variant, "a row's score depends on its neighbours");
    }
}

/* Rows of weight 0 are in a sum of their own only as zeros: what is finite stays as it is. */
static void check_sums(scene *s, const kvant_format_kernels *k, const char *variant)
{
    double size = 0;

    memset(s->acc, 0, sizeof s->acc);
    k->axpy_page(NULL, s->w, (size_t)s->n, QUERIES, s->page, s->first, s->n, s->acc, (size_t)s->d, s->d);
    for (int e = 0; e < s->d; e++) {
        double want = 0;
        size = 0;
        for (int i = 0; i < s->n; i++) {
            want += (double)s->w[i] * (double)s->values[(s->first + i) * s->d + e];
            size += fabs((double)s->w[i] * (double)s->terms[(s->first + i) * s->d + e]);
        }
        if (isfinite(size))
            promise(fabs((double)s->acc[e] - want) <= (s->n + 32) * 0x1p-23 * size + 1e-30, s, variant, "a sum");
    }
}

static int rows_finite(const scene *s)
{
    for (int i = s->first * s->d; i < (s->first + s->n) * s->d; i++)
        if (!isfinite(s->values[i]))
            return 0;
    return 1;
}

/* The row's scale of its half h of 128 values. */
static float scale_at(const scene *s, int h, int k_bits)
{
    const uint8_t *at = s->page + h * (1024 * k_bits + 320) + 1024 * k_bits + 2 * s->first;

    return fabsf(half_to_f32((uint16_t)(at[0] | at[1] << 8)));
}

/* A query that is one value, and a weight that is one row, are exact in integers: what remains is the rounding of the
 * book to 8 bits, below a 40th of the row's scale; and of weight times scale to 16 bits of the largest of the row's
 * scales, times a book that ends below 4.  The first values tell a wrong initial state. */
static void check_one(scene *s, const kvant_format_kernels *k, const char *variant, int k_bits)
{
    const size_t ldq8 = kvant_format_q8_bytes(s->f, s->d);
    uint8_t *block = malloc(ldq8 + 32), *q8 = block + (-(uintptr_t)block & 31);
    const float one = 1.0f, *row = s->values + s->first * s->d;
    float q[MOST_D] = { 0 }, score;

    const float largest = fmaxf(scale_at(s, 0, k_bits), scale_at(s, s->d / HALF - 1, k_bits));
    memset(s->acc, 0, sizeof s->acc);
    k->axpy_page_q8(NULL, &one, 1, 1, s->page, s->first, 1, s->acc, (size_t)s->d, s->d);
    for (int e = 0; e < s->d; e += e % HALF == 3 ? HALF - 3 : 1) {
        const float room = scale_at(s, e / HALF, k_bits) / 40 + s->terms[s->first * s->d + e] * 1e-4f + largest * 1e-4f;
        q[e] = 1.0f;
        k->prep_q8(NULL, q, q8, s->d);
        k->score_page_q8(NULL, q8, ldq8, 1, s->page, s->first, 1, &score, 1, s->d);
        promise(fabsf(score - row[e]) <= room, s, variant, "an integer score of one value is wrong");
        promise(fabsf(s->acc[e] - row[e]) <= room, s, variant, "an integer sum of one row is wrong");
        q[e] = 0.0f;
    }
    free(block);
}

static void check_integers(scene *s, const kvant_format_kernels *k, const char *variant)
{
    const size_t ldq8 = kvant_format_q8_bytes(s->f, s->d);
    uint8_t *block = malloc(QUERIES * ldq8 + 32), *q8 = block + (-(uintptr_t)block & 31);
    int finite = 1;

    for (int j = 0; j < QUERIES; j++)
        k->prep_q8(NULL, s->q + j * s->d, q8 + (size_t)j * ldq8, s->d);
    k->score_page_q8(NULL, q8, ldq8, QUERIES, s->page, s->first, s->n, s->s, (size_t)s->n, s->d);
    memset(s->acc, 0, sizeof s->acc);
    k->axpy_page_q8(NULL, s->w, (size_t)s->n, QUERIES, s->page, s->first, s->n, s->acc, (size_t)s->d, s->d);
    for (int i = 0; i < QUERIES * s->n; i++)
        finite &= isfinite(s->s[i]) != 0;
    for (int i = 0; i < QUERIES * s->d; i++)
        finite &= isfinite(s->acc[i]) != 0;
    promise(finite || !rows_finite(s), s, variant, "integers of finite rows are not finite");
    free(block);
}

static void read_page(scene *s, int k_bits)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    float *got = malloc(sizeof s->values);

    for (int i = 0; i < QUERIES * s->d; i++)
        s->q[i] = (float)(i * 37 % 101 - 50) / 32.0f;
    for (int i = 0; i < QUERIES * s->n; i++)
        s->w[i] = i % 5 == 4 ? 0.0f : (float)(i * 29 % 64) / 256.0f;
    s->f->ref.decode_page(NULL, s->page, 0, KVANT_PAGE, s->values, s->d);
    find_terms(s, k_bits);
    for (int i = 0; (k = kvant_format_variant(s->f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->decode_page(NULL, s->page, s->first, s->n, got, s->d);
        promise(same(got, s->values + s->first * s->d, (size_t)(s->n * s->d)), s, name, "a value differs");
        k->score_page(NULL, s->q, (size_t)s->d, QUERIES, s->page, s->first, s->n, s->s, (size_t)s->n, s->d);
        check_scores(s, name);
        check_alone(s, k, name);
        check_sums(s, k, name);
        if (k->prep_q8)
            check_integers(s, k, name);
        if (k->prep_q8 && rows_finite(s))
            check_one(s, k, name, k_bits);
    }
    free(got);
}

/* All variants encode the same bytes. */
static void write_page(scene *s, const float *x)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    uint8_t *other = malloc(s->bytes);

    s->f->ref.encode_page(NULL, x, (size_t)s->d, s->page, s->d, KVANT_ENCODER_BEST);
    for (int i = 1; (k = kvant_format_variant(s->f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->encode_page(NULL, x, (size_t)s->d, other, s->d, KVANT_ENCODER_BEST);
        promise(memcmp(other, s->page, s->bytes) == 0, s, name, "a page is encoded otherwise");
    }
    free(other);
}

/* A page of every format and head_dim, encoded once: rows around a mean. */
static const uint8_t *good_page(const scene *s, int which)
{
    static uint8_t *pages[3][2];
    uint8_t **page = &pages[which][s->d == MOST_D];
    float *x = *page ? NULL : malloc(KVANT_PAGE * MOST_D * sizeof *x);

    for (int i = 0; x && i < KVANT_PAGE * s->d; i++)
        x[i] = (float)(i * 7919 % 1009) / 256.0f - 2.0f + (float)(i % s->d) / 64.0f;
    if (x) {
        *page = malloc(s->bytes);
        s->f->ref.encode_page(NULL, x, (size_t)s->d, *page, s->d, KVANT_ENCODER_BEST);
    }
    free(x);
    return *page;
}

static void make_page(scene *s, int which, int mode, const uint8_t *data, size_t size)
{
    if (mode < 32) {
        for (size_t i = 0; i < s->bytes; i++)
            s->page[i] = size ? data[i % size] : 0;
    } else if (mode < 63) {
        memcpy(s->page, good_page(s, which), s->bytes);
        for (size_t i = 0; i + EDIT <= size; i += EDIT)
            s->page[((size_t)data[i] | (size_t)data[i + 1] << 8) % s->bytes] = data[i + 2];
    } else {
        float *x = calloc(KVANT_PAGE * MOST_D, sizeof *x);
        for (size_t i = 0; i < (size_t)(KVANT_PAGE * s->d) * sizeof *x && size; i++)
            ((uint8_t *)x)[i] = data[(i + i / size) % size];
        write_page(s, x);
        free(x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "ptcq2", "ptcq3", "ptcq4" };

    if (size < 4)
        return 0;
    const int which = (data[0] & 127) % 3, mode = data[3] % 64;
    now.f = kvant_format_find(names[which]);
    now.d = data[0] & 128 ? MOST_D : HALF;
    now.bytes = KVANT_PAGE * kvant_format_row_bytes(now.f, now.d);
    now.first = data[1] % KVANT_PAGE;
    now.n = data[2] % (KVANT_PAGE - now.first) + 1;
    now.n = now.n > MOST_ROWS && data[2] < 224 ? MOST_ROWS : now.n; /* whole pages now and then: they take long */
    now.page = malloc(now.bytes);
    make_page(&now, which, mode, data + 4, size - 4);
    read_page(&now, which + 2);
    free(now.page);
    return 0;
}
