/* rows.c: the cache formats alone: encode the keys of a few tokens, score a query against them, compare with f32.
 *
 *     cc rows.c $(pkg-config --cflags --libs kvant-formats) -lm -o rows && ./rows tbq4_0 128
 *
 * No engine, no threads, no allocation inside the library: what another engine needs to store its cache in a format. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <kvant/format.h>
#include <kvant/qjl.h>

enum { ROWS = 64 };

/* A fixed sequence of values in [-1, 1). */
static float next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "tbq4_0";
    int d = argc > 2 ? atoi(argv[2]) : 128;
    const kvant_format *f;
    kvant_diag diag;
    unsigned state = 1;

    if (kvant_format_parse(name, &f, &diag) || kvant_format_check(f, d, &diag)) {
        fprintf(stderr, "rows: %s\n", diag.text);
        return 2;
    }
    /* A format that needs a parameter needs the same one for rows and queries: qjl1_256 its projection. */
    static float projection[KVANT_QJL_VALUES];
    const void *param = NULL;
    if (kvant_format_check_param(f, param, NULL)) {
        kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
        param = projection;
    }
    const kvant_format_kernels *k = kvant_format_best(f);
    int padded = kvant_format_padded(f, d), sdim = kvant_format_sdim(f, d);
    size_t row_bytes = kvant_format_row_bytes(f, d);
    static float keys[ROWS * KVANT_MAX_HEAD_DIM], query[KVANT_MAX_HEAD_DIM], prepared[2 * KVANT_MAX_HEAD_DIM];
    static uint8_t rows[ROWS * KVANT_MAX_HEAD_DIM * sizeof(float)];
    float scores[ROWS];
    double error = 0, size = 0;

    for (int i = 0; i < ROWS * padded; i++)
        keys[i] = i % padded < d ? next(&state) : 0.0f;
    for (int j = 0; j < d; j++)
        query[j] = next(&state);
    for (int i = 0; i < ROWS; i++)
        k->encode(param, keys + (size_t)i * (size_t)padded, rows + (size_t)i * row_bytes, padded, KVANT_ENCODER_BEST);
    k->prep_q(param, query, prepared, padded);
    k->score(param, prepared, (size_t)sdim, 1, rows, row_bytes, ROWS, scores, ROWS, padded);

    for (int i = 0; i < ROWS; i++) {
        double exact = 0;
        for (int j = 0; j < d; j++)
            exact += (double)query[j] * keys[(size_t)i * (size_t)padded + (size_t)j];
        error += (scores[i] - exact) * (scores[i] - exact);
        size += exact * exact;
    }
    printf("%s, head_dim %d: %zu bytes per row (f32: %zu), relative error of the scores %.4f\n", f->name, d, row_bytes,
           (size_t)d * sizeof(float), sqrt(error / size));
    return 0;
}
