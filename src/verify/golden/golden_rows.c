/* golden_rows.c: golden vectors of rows: bytes, decodes, scores, sketches; and of the 128-point rotation. */
#include "verify/golden/golden_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/half.h"
#include "formats/rotate/rotate.h"
#include "kvant/polar.h"
#include "kvant/qjl.h"

/* Field names of one format's vectors.  real 1: dec is in real space and scores take q through prep_q;
 * 0: dec is in acc space and q is used as given. */
typedef struct fields {
    const char *format, *enc, *dec, *score, *preht;
    int real, residual;
} fields;

static const fields special[] = {
    { "q4_polar", "enc_noqjl", "dec_noqjl_f32", "score_noqjl_f32", "score_preht_noqjl_f32", 1, 0 },
    { "q4_polar_r", "enc_qjl", "dec_qjl_f32", "score_qjl_f32", "score_preht_qjl_f32", 1, 1 },
};

/* One vector being compared. */
typedef struct row {
    golden_run *run;
    const kvant_format *format;
    const fields *fields;
    gjson vector, queries;
    char name[64];
    const float *x;
    const uint8_t *bytes; /* the golden encoding */
    size_t n_bytes;
    int d, sdim;
    float acc[FORMAT_MAX_SDIM];
} row;

static double dot_tolerance(int sdim, double bound)
{
    return (sdim / 4 + 16) * 0x1p-24 * bound + sdim * 0x1p-149; /* the last term: results that are subnormal */
}

/* qjl1_256: a sign may flip where the sketch is within rounding of zero, the norm may be one bf16 ulp away. */
static int sketch_close(const row *w, const uint8_t *got)
{
    float s[FORMAT_MAX_SDIM];
    double tiny = 1e-6 * golden_norm(w->x, (size_t)w->d);
    w->format->ref.prep_q(w->run->projection, w->x, s, w->d);
    for (int g = 0; g < w->d / KVANT_QJL_DIM; g++, got += 34) {
        const uint8_t *want = w->bytes + g * 34;
        if (abs(load_u16(got + 32) - load_u16(want + 32)) > 1)
            return 0;
        for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
            float v = fabsf(s[g * KVANT_QJL_SKETCH + j]);
            if (((got[j / 8] ^ want[j / 8]) >> (j % 8) & 1) && !(v > 0.0f && v <= tiny))
                return 0; /* a sum of exactly zero has one right sign bit: 0 */
        }
    }
    return 1;
}

static void check_bytes(row *w)
{
    uint8_t got[FORMAT_MAX_SDIM * 4];
    const kvant_format_kernels *k = &w->format->ref;
    k->encode(w->run->projection, w->x, got, w->d, KVANT_ENCODER_UPSTREAM);
    if (memcmp(got, w->bytes, w->n_bytes) == 0) {
        golden_check(w->run, 1, "bytes");
        return;
    }
    size_t i = 0;
    while (got[i] == w->bytes[i])
        i++;
    unsigned first = got[i];
    int ok = w->format->flags & KVANT_FORMAT_PARAM && sketch_close(w, got);
    if (!ok) {
        k->encode(w->run->projection, w->x, got, w->d, FORMAT_ENCODER_HALF_UP);
        ok = memcmp(got, w->bytes, w->n_bytes) == 0;
    }
    w->run->file->count.ties += ok;
    golden_check(w->run, ok, "%s %s: byte %zu is %02x, want %02x", w->name, w->fields->enc, i, first, w->bytes[i]);
}

static void check_decode(row *w)
{
    float x[KVANT_MAX_HEAD_DIM];
    const float *got = w->acc;
    size_t n;
    const float *want = golden_floats(w->run, gjson_get(w->vector, w->fields->dec), &n);
    if (!want)
        return;
    double tol = 0.0; /* acc space: one multiplication, one right answer */
    if (w->fields->real) {
        w->format->ref.finish_out(w->run->projection, w->acc, x, w->d);
        got = x;
        tol = dot_tolerance(w->sdim, 2.0 * golden_norm(want, n));
    }
    int bad = n == (size_t)w->d ? golden_compare(got, want, n, tol) : 0;
    golden_check(w->run, bad < 0, "%s %s[%d]: %.9g, want %.9g within %.3g", w->name, w->fields->dec, bad,
                 (double)got[bad < 0 ? 0 : bad], n ? (double)want[bad < 0 ? 0 : bad] : 0.0, tol);
}

/* One score per query; `preht` goes through the pre-Hadamard path, whose golden values come from a program that
 * halves subnormal norms (docs/formats/q4_polar.md): those are skipped. */
static void check_scores(row *w, const char *field, int preht)
{
    size_t n, nq;
    const float *want = golden_floats(w->run, gjson_get(w->vector, field), &n);
    if (!want)
        return;
    if (preht && (load_u16(w->bytes) & 0x7fff) < 0x0400) {
        w->run->file->count.skipped++;
        return;
    }
    gjson it = { NULL, 0 };
    size_t i = 0;
    for (; i < n && gjson_next(w->queries, &it); i++) {
        float qp[FORMAT_MAX_SDIM], got;
        const float *q = golden_floats(w->run, it, &nq);
        if (!q || nq != (size_t)w->d)
            break;
        memcpy(qp, q, nq * sizeof *q);
        if (preht) {
            kvant_polar_preht_query(q, qp, w->d);
            kvant_polar_preht_score(qp, w->bytes, w->n_bytes, 1, &got, w->d, w->fields->residual);
        } else {
            if (w->fields->real)
                w->format->ref.prep_q(w->run->projection, q, qp, w->d);
            w->format->ref.score(w->run->projection, qp, (size_t)w->sdim, 1, w->bytes, w->n_bytes, 1, &got, 1, w->d);
        }
        double bound = golden_norm(qp, (size_t)w->sdim) * golden_norm(w->acc, (size_t)w->sdim);
        double tol = dot_tolerance(w->sdim, bound);
        golden_check(w->run, golden_compare(&got, want + i, 1, tol) < 0, "%s %s[%zu]: %.9g, want %.9g within %.3g",
                     w->name, field, i, (double)got, (double)want[i], tol);
    }
    golden_check(w->run, i == n, "%s %s: %zu scores, %zu queries of %d values", w->name, field, n, i, w->d);
}

static void check_vector(row *w)
{
    size_t n;
    double informative = gjson_number(gjson_get(w->vector, "informative_only"));
    snprintf(w->name, sizeof w->name, "?");
    gjson_text(gjson_get(w->vector, "name"), w->name, sizeof w->name);
    if (informative > 0.0) {
        w->run->file->count.informative++;
        return;
    }
    w->x = golden_floats(w->run, gjson_get(w->vector, "x_f32"), &n);
    w->d = (int)n;
    int fits = n <= KVANT_MAX_HEAD_DIM && kvant_format_check(w->format, (int)n, NULL) == KVANT_OK;
    golden_check(w->run, w->x && fits, "%s x_f32: %zu values do not fit %s", w->name, n, w->format->name);
    if (!w->x || !fits)
        return;
    w->sdim = kvant_format_sdim(w->format, w->d);
    w->bytes = golden_bytes(w->run, gjson_get(w->vector, w->fields->enc), &w->n_bytes);
    size_t want = kvant_format_row_bytes(w->format, w->d);
    if (!w->bytes || w->n_bytes != want) {
        golden_check(w->run, 0, "%s %s: %zu bytes, want %zu", w->name, w->fields->enc, w->n_bytes, want);
        return;
    }
    check_bytes(w);
    w->format->ref.decode_acc(w->run->projection, w->bytes, w->n_bytes, 1, w->acc, w->d);
    check_decode(w);
    check_scores(w, w->fields->score, 0);
    if (w->fields->preht)
        check_scores(w, w->fields->preht, 1);
}

/* file-level transforms of the queries: sketches, Hadamards. */
static void check_prepared(golden_run *r, gjson root, const kvant_format *f, const char *field, int preht)
{
    gjson queries = gjson_get(root, "q_f32"), prepared = gjson_get(root, field);
    gjson qi = { NULL, 0 }, pi = { NULL, 0 };
    while (gjson_next(queries, &qi) && gjson_next(prepared, &pi)) {
        float got[FORMAT_MAX_SDIM];
        size_t nq, np;
        const float *q = golden_floats(r, qi, &nq), *want = golden_floats(r, pi, &np);
        int shape = q && want && nq && nq <= KVANT_MAX_HEAD_DIM;
        shape = shape && np == (size_t)(preht ? (int)nq : kvant_format_sdim(f, (int)nq));
        int bad = 0;
        if (shape && preht)
            kvant_polar_preht_query(q, got, (int)nq);
        else if (shape)
            f->ref.prep_q(r->projection, q, got, (int)nq);
        if (shape) /* |column| of H and Pi is about sqrt(128), at most 4 sigma more */
            bad = golden_compare(got, want, np, dot_tolerance((int)nq, 16.0 * golden_norm(q, nq)));
        golden_check(r, bad < 0, "%s: value %d differs", field, bad);
    }
}

static float ulps_apart(float a, float b)
{
    return fabsf((float)(int32_t)(f32_bits(a) - f32_bits(b)));
}

static void check_projection(golden_run *r, gjson root)
{
    size_t n;
    const float *first = golden_floats(r, gjson_get(root, "projection_first16_f32"), &n);
    for (size_t i = 0; first && i < n; i++) /* 2 ulp: the builders call the C library's logarithm */
        golden_check(r, ulps_apart(first[i], r->projection[i]) <= 2.0f, "projection value %zu: %.9g, want %.9g", i,
                     (double)r->projection[i], (double)first[i]);
    const float *last = golden_floats(r, gjson_get(root, "projection_last16_f32"), &n);
    for (size_t i = 0; last && i < n; i++)
        golden_check(r, ulps_apart(last[i], r->projection[KVANT_QJL_VALUES - n + i]) <= 2.0f,
                     "projection value -%zu: "
                     "%.9g, want %.9g",
                     n - i, (double)r->projection[KVANT_QJL_VALUES - n + i], (double)last[i]);
}

/* Grouped heads: scores of f32 and of int8 queries over K blocks, KV head major. */
static void check_gqa(golden_run *r, gjson gqa, const kvant_format *f)
{
    int heads = (int)gjson_number(gjson_get(gqa, "n_heads")), kv = (int)gjson_number(gjson_get(gqa, "n_kv_heads"));
    int tokens = (int)gjson_number(gjson_get(gqa, "n_tokens"));
    size_t n_sketch, n_k, n_f32, n_i8;
    const float *sketch = golden_floats(r, gjson_get(gqa, "q_sketch_f32"), &n_sketch);
    const uint8_t *k = golden_bytes(r, gjson_get(gqa, "k_blocks"), &n_k);
    const float *want = golden_floats(r, gjson_get(gqa, "scores_f32"), &n_f32);
    const float *want_i8 = golden_floats(r, gjson_get(gqa, "scores_i8_f32"), &n_i8);
    float *got = arena_alloc(&r->memory, (n_f32 + 1) * sizeof *got);
    int shape = heads > 0 && kv > 0 && tokens > 0 && heads % kv == 0 && got && sketch && k && want && want_i8;
    shape = shape && n_sketch == (size_t)heads * KVANT_QJL_SKETCH && n_k == (size_t)kv * (size_t)tokens * 34 &&
            n_f32 == (size_t)heads * (size_t)tokens && n_i8 == n_f32;
    golden_check(r, shape, "gqa: shapes do not agree");
    gjson it = { NULL, 0 }, queries = gjson_get(gqa, "i8");
    for (int h = 0; shape && h < heads; h++) {
        const float *q = sketch + (size_t)h * KVANT_QJL_SKETCH, *w = want + (size_t)h * (size_t)tokens;
        const float *wi = want_i8 + (size_t)h * (size_t)tokens;
        const uint8_t *rows = k + (size_t)(h / (heads / kv)) * (size_t)tokens * 34;
        int8_t q8[KVANT_QJL_SKETCH], q8_want[KVANT_QJL_SKETCH];
        float scale, scale_want;
        f->ref.score(r->projection, q, KVANT_QJL_SKETCH, 1, rows, 34, tokens, got, (size_t)tokens, KVANT_QJL_DIM);
        /* |row| = 16 * 0.0049 * |k|; scores of these cases are far below 1e3 */
        golden_check(r, golden_compare(got, w, (size_t)tokens, 1e-4) < 0, "gqa: score of head %d differs", h);
        kvant_qjl_query_i8(q, q8, &scale);
        if (gjson_next(queries, &it) && gjson_hex(gjson_get(it, "values_i8"), q8_want, sizeof q8_want) &&
            gjson_hex(gjson_get(it, "scale_f32"), &scale_want, sizeof scale_want))
            golden_check(r, memcmp(q8, q8_want, sizeof q8) == 0 && scale == scale_want,
                         "gqa: int8 query of head %d differs", h);
        kvant_qjl_score_i8(q8, scale, rows, 34, tokens, got);
        golden_check(r, golden_compare(got, wi, (size_t)tokens, 1e-4) < 0, "gqa: int8 score of head %d differs", h);
    }
}

static void run_vectors(golden_run *r, gjson root, const kvant_format *f, const fields *names)
{
    gjson it = { NULL, 0 }, vectors = gjson_get(root, "vectors"), queries = gjson_get(root, "q_f32");
    size_t mark = r->memory.used;
    while (gjson_next(vectors, &it)) {
        fields own =
            names ? *names
                  : (fields){ .format = f->name, .enc = "enc", .dec = "dec_f32", .score = "score_f32", .real = 1 };
        if (gjson_get(it, "dec_rotated_f32").p) {
            own.dec = "dec_rotated_f32";
            own.real = 0;
        }
        row w = { .run = r, .format = f, .fields = &own, .vector = it, .queries = queries };
        check_vector(&w);
        r->memory.used = mark; /* the vector's fields are no longer needed */
    }
}

void golden_rows(golden_run *r, gjson root, const kvant_format *f)
{
    int named = 0;
    if (f->flags & KVANT_FORMAT_PARAM) {
        golden_check(r, r->projection != NULL, "projection: the file names no builder that is known");
        if (!r->projection)
            return;
        check_projection(r, root);
        check_prepared(r, root, f, "q_sketch_f32", 0);
        if (gjson_get(root, "gqa").p)
            check_gqa(r, gjson_get(root, "gqa"), f);
    }
    check_prepared(r, root, f, "q_preht_f32", 1);
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (strncmp(special[i].format, f->name, strlen(f->name)) == 0) {
            run_vectors(r, root, kvant_format_find(special[i].format), &special[i]);
            named = 1;
        }
    if (!named)
        run_vectors(r, root, f, NULL);
}

void golden_rotation(golden_run *r, gjson root)
{
    gjson it = { NULL, 0 }, vectors = gjson_get(root, "vectors");
    while (gjson_next(vectors, &it)) {
        size_t nx, ny;
        float *x = golden_floats(r, gjson_get(it, "x_f32"), &nx);
        const float *y = golden_floats(r, gjson_get(it, "y_f32"), &ny);
        if (gjson_number(gjson_get(it, "informative_only")) > 0.0) {
            r->file->count.informative++;
            continue;
        }
        int bad = 0;
        if (x && y && nx == 128 && ny == 128) {
            rotate_r128(x);
            bad = golden_compare(x, y, 128, 0.0); /* same operations in the same order: the same values */
        }
        golden_check(r, bad < 0, "rotation: value %d differs", bad);
    }
}
