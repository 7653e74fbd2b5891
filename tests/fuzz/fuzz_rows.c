/* fuzz_rows.c: libFuzzer target of the cache formats: any bytes are rows, any floats are values.
 *
 * Input: [format][head_dim][rows][stride, bit 7: encode][bytes...].  The bytes are decoded, scored and accumulated as
 * rows through every variant this CPU may run (its integer path too), out of a heap block of exactly their size, for 1
 * query and for 3; or they are taken as floats and encoded.
 * Promises: nothing outside is touched (AddressSanitizer), variants decode to the reference's values, and what `encode`
 * wrote decodes without reading anything but the row. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kvant/format.h"
#include "kvant/qjl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ROWS = 5, QUERIES = 3 };

static float projection[KVANT_QJL_VALUES];
static volatile float sink;

/* Only qjl1_256 takes the projection; the parameter of others (an FP8 scale) is left out. */
static const void *param_of(const kvant_format *f)
{
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

static void promise(int ok, const char *format, const char *variant)
{
    if (!ok) {
        fprintf(stderr, "broken promise: %s %s\n", format, variant);
        abort();
    }
}

static float *floats(size_t n)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)i * 0.25f - 1.0f;
    return p;
}

/* Equal values; any NaN equals any NaN. */
static int same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i])))
            return 0;
    return 1;
}

/* score and axpy in integers, where the variant has them. */
static void read_q8(const kvant_format *f, const kvant_format_kernels *k, const float *qp, const uint8_t *rows,
                    size_t stride, int n, float *s, float *acc, int d)
{
    const size_t ldq8 = kvant_format_q8_bytes(f, d), sdim = (size_t)kvant_format_sdim(f, d);
    uint8_t *block = malloc(QUERIES * ldq8 + 32), *q8 = block + (-(uintptr_t)block & 31);

    for (int j = 0; j < QUERIES; j++)
        k->prep_q8(param_of(f), qp + (size_t)j * sdim, q8 + (size_t)j * ldq8, d);
    k->score_q8(param_of(f), q8, ldq8, 1, rows, stride, n, s, (size_t)n, d);
    k->score_q8(param_of(f), q8, ldq8, QUERIES, rows, stride, n, s, (size_t)n, d);
    k->axpy_q8(param_of(f), s, (size_t)n, QUERIES, rows, stride, n, acc, sdim, d);
    free(block);
}

static void read_rows(const kvant_format *f, const uint8_t *rows, size_t stride, int n, int d)
{
    size_t sdim = (size_t)kvant_format_sdim(f, d), rb = kvant_format_row_bytes(f, d);
    size_t bytes = n ? (size_t)(n - 1) * stride + rb : 0;
    uint8_t *exact = malloc(bytes ? bytes : 1);
    float *want = floats((size_t)n * sdim), *got = floats((size_t)n * sdim);
    float *q = floats((size_t)d), *qp = floats(QUERIES * sdim), *s = floats(QUERIES * (size_t)n);
    float *acc = floats(QUERIES * sdim), *x = floats((size_t)d);
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    memcpy(exact, rows, bytes);
    f->ref.decode_acc(param_of(f), exact, stride, n, want, d);
    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->decode_acc(param_of(f), exact, stride, n, got, d);
        promise(same(got, want, (size_t)n * sdim), f->name, name);
        k->prep_q(param_of(f), q, qp, d);
        k->score(param_of(f), qp, sdim, 1, exact, stride, n, s, (size_t)n, d);
        k->score(param_of(f), qp, sdim, QUERIES, exact, stride, n, s, (size_t)n, d);
        k->axpy(param_of(f), s, (size_t)n, 1, exact, stride, n, acc, sdim, d);
        k->axpy(param_of(f), s, (size_t)n, QUERIES, exact, stride, n, acc, sdim, d);
        if (k->prep_q8)
            read_q8(f, k, qp, exact, stride, n, s, acc, d);
        k->finish_out(param_of(f), acc, x, d);
        sink = x[0];
    }
    free(exact);
    free(want);
    free(got);
    free(q);
    free(qp);
    free(s);
    free(acc);
    free(x);
}

static void read_page_q8(const kvant_format *f, const kvant_format_kernels *k, const float *qp, const uint8_t *page,
                         int first, int n, float *s, float *acc, int d)
{
    const size_t ldq8 = kvant_format_q8_bytes(f, d);
    uint8_t *block = malloc(QUERIES * ldq8 + 32), *q8 = block + (-(uintptr_t)block & 31);

    for (int j = 0; j < QUERIES; j++)
        k->prep_q8(NULL, qp + (size_t)(j * d), q8 + (size_t)j * ldq8, d);
    k->score_page_q8(NULL, q8, ldq8, QUERIES, page, first, n, s, (size_t)n, d);
    k->axpy_page_q8(NULL, s, (size_t)n, QUERIES, page, first, n, acc, (size_t)d, d);
    free(block);
}

/* The bytes as a page, repeated to its length; rows of it, through every variant. */
static void read_page(const kvant_format *f, const uint8_t *data, size_t size, int first, int n, int d)
{
    const size_t bytes = KVANT_PAGE * kvant_format_row_bytes(f, d), sdim = (size_t)d;
    uint8_t *page = malloc(bytes);
    float *want = floats((size_t)n * sdim), *got = floats((size_t)n * sdim), *q = floats(QUERIES * sdim);
    float *s = floats(QUERIES * (size_t)n), *acc = floats(QUERIES * sdim);
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (size_t i = 0; i < bytes; i++)
        page[i] = size ? data[i % size] : 0;
    f->ref.decode_page(NULL, page, first, n, want, d);
    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->decode_page(NULL, page, first, n, got, d);
        promise(same(got, want, (size_t)n * sdim), f->name, name);
        k->score_page(NULL, q, sdim, QUERIES, page, first, n, s, (size_t)n, d);
        k->axpy_page(NULL, s, (size_t)n, QUERIES, page, first, n, acc, sdim, d);
        if (k->prep_q8)
            read_page_q8(f, k, q, page, first, n, s, acc, d);
        sink = acc[0];
    }
    free(page);
    free(want);
    free(got);
    free(q);
    free(s);
    free(acc);
}

/* The bytes as a page's values, repeated; what is encoded decodes, and all variants agree on it. */
static void write_page(const kvant_format *f, const uint8_t *data, size_t size, int d)
{
    const size_t bytes = KVANT_PAGE * kvant_format_row_bytes(f, d), values = (size_t)(KVANT_PAGE * d);
    uint8_t *page = malloc(bytes), *want = malloc(bytes);
    float *x = floats(values), *y = floats(values);
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (size_t i = 0; i < values * sizeof *x && size; i++)
        ((uint8_t *)x)[i] = data[(i + i / size) % size];
    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->encode_page(NULL, x, (size_t)d, i ? page : want, d, KVANT_ENCODER_BEST);
        promise(i == 0 || memcmp(page, want, bytes) == 0, f->name, name);
        k->decode_page(NULL, i ? page : want, 0, KVANT_PAGE, y, d);
        sink = y[0];
    }
    free(page);
    free(want);
    free(x);
    free(y);
}

static void write_row(const kvant_format *f, const uint8_t *data, size_t size, int d)
{
    size_t rb = kvant_format_row_bytes(f, d);
    float *x = floats((size_t)d), *y = floats((size_t)d);
    uint8_t *row = malloc(rb);
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    memcpy(x, data, size < (size_t)d * sizeof *x ? size : (size_t)d * sizeof *x);
    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++)
        for (int encoder = 0; usable && encoder < 2; encoder++) {
            k->encode(param_of(f), x, row, d, encoder);
            kvant_row_decode(f, param_of(f), row, y, d);
            sink = y[0];
        }
    free(x);
    free(y);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int dims[] = { 32, 64, 80, 96, 128, 192, 256, 512 };
    static int ready;
    if (!ready) {
        kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
        ready = 1;
    }
    if (size < 4)
        return 0;
    const kvant_format *f = kvant_format_at(data[0] % kvant_format_count());
    int d = dims[data[1] % 8];
    if (kvant_format_check(f, d, NULL) != KVANT_OK)
        return 0;
    d = kvant_format_padded(f, d);
    size_t rb = kvant_format_row_bytes(f, d), stride = rb + data[3] % 4;
    int n = data[2] % (MAX_ROWS + 1), encode = data[3] & 128, first = data[2] % (KVANT_PAGE - MAX_ROWS);
    data += 4;
    size -= 4;
    if (f->flags & KVANT_FORMAT_PAGE) {
        if (encode)
            write_page(f, data, size, d);
        else
            read_page(f, data, size, first, n, d);
        return 0;
    }
    while (n && (size_t)(n - 1) * stride + rb > size)
        n--;
    if (encode)
        write_row(f, data, size, d);
    else
        read_rows(f, data, stride, n, d);
    return 0;
}
