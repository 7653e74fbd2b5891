/* golden_fixture.c: the other form of golden file: the fixtures of the public Metal and Vulkan kernels, as their
 * generator writes them (golden_fixture_fused.c has those of attention).  One query and a few rows of one format,
 * decimal arrays:
 *
 *   kernel           "turbo3" "turbo4" "turbo3_tcq" "qjl" "polar" "polar_preht"
 *   block_bytes      of one block; tells the two layouts of turbo4 apart
 *   n_kv | n_tokens | n_rows   rows; qjl: also n_heads and n_kv_heads
 *   q | q_sketch     the query: in acc space but for polar, where it is a real one
 *   hq               polar_preht: the query's Hadamard transform, which is what the kernel takes
 *   k_blocks         bytes of the rows
 *   expected_scores  one per head and row; polar_preht: a second set of rows and scores ends in _qjl
 *
 * Held to that project's bound, 1e-3, by the device that was named; on the CPU by the reference and by every variant
 * too.  A kernel that is known and not run is a failure. */
#include "verify/golden/golden_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kvant/polar.h"

static const double tolerance = 1e-3;

typedef struct fixture_kind {
    const char *kernel, *residual; /* residual: "use_qjl" must be 1 for this row of the table; NULL: not looked at */
    int block_bytes;
    const char *format, *query, *rows, *scores;
    int real; /* the query goes through prep_q */
} fixture_kind;

static const fixture_kind kinds[] = {
    { "turbo3", NULL, 14, "turbo3", "q", "k_blocks", "expected_scores", 0 },
    { "turbo4", NULL, 18, "turbo4", "q", "k_blocks", "expected_scores", 0 },
    { "turbo4", NULL, 66, "turbo4_66", "q", "k_blocks", "expected_scores", 0 },
    { "turbo3_tcq", NULL, 52, "turbo3_tcq", "q", "k_blocks", "expected_scores", 0 },
    { "qjl", NULL, 34, "qjl1_256", "q_sketch", "k_blocks", "expected_scores", 0 },
    { "polar", "0", 82, "q4_polar", "q", "k_blocks", "expected_scores", 1 },
    { "polar", "1", 82, "q4_polar_r", "q", "k_blocks", "expected_scores", 1 },
    { "polar_preht", NULL, 82, "q4_polar", "q", "k_blocks", "expected_scores", 1 },
    { "polar_preht", NULL, 82, "q4_polar_r", "q", "k_blocks_qjl", "expected_scores_qjl", 1 },
};

/* The numbers of a decimal array in the arena, *n their count; NULL: absent, or the arena is full. */
float *golden_numbers(golden_run *r, gjson v, size_t *n)
{
    gjson it = { NULL, 0 };

    *n = 0;
    while (gjson_next(v, &it))
        ++*n;
    float *out = *n ? arena_alloc(&r->memory, *n * sizeof *out) : NULL;
    it = (gjson){ NULL, 0 };
    for (size_t i = 0; out && gjson_next(v, &it); i++)
        out[i] = (float)gjson_number(it);
    return out;
}

uint8_t *golden_decimal_bytes(golden_run *r, gjson v, size_t *n)
{
    const float *x = golden_numbers(r, v, n);
    uint8_t *out = x ? arena_alloc(&r->memory, *n) : NULL;

    for (size_t i = 0; out && i < *n; i++) {
        if (!(x[i] >= 0.0f && x[i] <= 255.0f))
            return NULL;
        out[i] = (uint8_t)x[i];
    }
    return out;
}

int golden_number_of(gjson root, const char *key, int absent)
{
    const double v = gjson_number(gjson_get(root, key));

    return v >= 1 && v <= GOLDEN_MAX_ROWS ? (int)v : absent;
}

/* One fixture and what it is compared with. */
typedef struct fixture {
    golden_run *run;
    const kvant_format *format;
    const fixture_kind *kind;
    const float *query, *want;
    const uint8_t *rows;
    int n, heads, kv_heads, d, sdim;
} fixture;

static void compare(const fixture *x, const kvant_format_kernels *k, const char *variant, float *got)
{
    const size_t row_bytes = kvant_format_row_bytes(x->format, x->d);
    float qp[FORMAT_MAX_SDIM];

    for (int h = 0; h < x->heads; h++) {
        const uint8_t *rows = x->rows + (size_t)(h / (x->heads / x->kv_heads)) * (size_t)x->n * row_bytes;
        const float *q = x->query + (size_t)h * (size_t)(x->kind->real ? x->d : x->sdim);
        const float *want = x->want + (size_t)h * (size_t)x->n;
        if (x->kind->real)
            k->prep_q(NULL, q, qp, x->d);
        else
            memcpy(qp, q, (size_t)x->sdim * sizeof *qp);
        k->score(NULL, qp, (size_t)x->sdim, 1, rows, row_bytes, x->n, got, (size_t)x->n, x->d);
        const int bad = golden_compare(got, want, (size_t)x->n, tolerance);
        golden_check(x->run, bad < 0, "%s %s: score %d of head %d: %.9g, want %.9g within %g", x->format->name, variant,
                     bad, h, (double)got[bad < 0 ? 0 : bad], (double)want[bad < 0 ? 0 : bad], tolerance);
    }
}

/* The query of polar_preht: out of hq, so that it is hq which is tested. */
static void take_preht(fixture *x, gjson root)
{
    size_t n;
    const float *hq = golden_numbers(x->run, gjson_get(root, "hq"), &n);
    float *q = arena_alloc(&x->run->memory, (size_t)x->d * sizeof *q);
    const int fits = hq && q && n == (size_t)x->d;

    golden_check(x->run, fits, "polar_preht: hq has %zu values, want %d", n, x->d);
    if (!fits)
        return;
    kvant_polar_preht_query(hq, q, x->d); /* the transform of a transform is 128 times the query */
    for (int i = 0; i < x->d; i++)
        q[i] /= 128.0f;
    golden_check(x->run, golden_compare(q, x->query, n, tolerance) < 0, "polar_preht: hq is not the transform of q");
    x->query = q;
}

/* Queries as an op takes them: rotated ones turned back; sketches as they are. */
static const float *real_queries(const fixture *x)
{
    float *q = arena_alloc(&x->run->memory, (size_t)(x->heads * x->d) * sizeof *q);

    if (x->kind->real || x->format->flags & KVANT_FORMAT_PARAM)
        return x->query;
    for (int h = 0; q && h < x->heads; h++)
        x->format->ref.finish_out(NULL, x->query + h * x->sdim, q + h * x->d, x->d);
    return q;
}

static void on_device(const fixture *x)
{
    golden_run *r = x->run;
    const size_t n = (size_t)(x->heads * x->n);
    const golden_task task = { .k = x->format,
                               .k_rows = x->rows,
                               .query = real_queries(x),
                               .heads = x->heads,
                               .kv_heads = x->kv_heads,
                               .n = x->n,
                               .visible = x->n,
                               .d = x->d,
                               .scale = 1.0f,
                               .out = arena_alloc(&r->memory, n * sizeof(float)) };
    kvant_diag why = { "out of memory" };
    const int code = task.query && task.out ? golden_device_run(r->dev, &task, &why) : KVANT_ENOMEM;
    const int bad = code == KVANT_OK ? golden_compare(task.out, x->want, n, tolerance) : 0;

    golden_check(r, code == KVANT_OK, "%s on %s: %s", x->kind->kernel, r->dev->vt->name, why.text);
    if (code == KVANT_OK)
        golden_check(r, bad < 0, "%s on %s: score %d of head %d: %.9g, want %.9g within %g", x->kind->kernel,
                     r->dev->vt->name, bad % x->n, bad / x->n, (double)task.out[bad < 0 ? 0 : bad],
                     (double)x->want[bad < 0 ? 0 : bad], tolerance);
}

static void run_kind(golden_run *r, gjson root, const fixture_kind *kind)
{
    size_t n_query, n_rows, n_want;
    const kvant_format_kernels *k;
    const char *variant;
    int usable;
    fixture x = { .run = r, .format = kvant_format_find(kind->format), .kind = kind };

    x.d = golden_number_of(root, "head_dim", 0);
    x.n = golden_number_of(root, "n_kv", golden_number_of(root, "n_tokens", golden_number_of(root, "n_rows", 0)));
    x.heads = golden_number_of(root, "n_heads", 1);
    x.kv_heads = golden_number_of(root, "n_kv_heads", 1);
    x.query = golden_numbers(r, gjson_get(root, kind->query), &n_query);
    x.rows = golden_decimal_bytes(r, gjson_get(root, kind->rows), &n_rows);
    x.want = golden_numbers(r, gjson_get(root, kind->scores), &n_want);
    if (!x.query || !x.rows || !x.want || x.n < 1 || x.heads % x.kv_heads != 0 || x.d % 128 != 0 ||
        kvant_format_check(x.format, x.d, NULL) != KVANT_OK) {
        golden_check(r, 0, "%s: wants head_dim, a count of rows, %s, %s and %s that fit each other", kind->kernel,
                     kind->query, kind->rows, kind->scores);
        return;
    }
    x.sdim = kvant_format_sdim(x.format, x.d);
    const size_t rows_want = (size_t)x.kv_heads * (size_t)x.n * kvant_format_row_bytes(x.format, x.d);
    const size_t query_want = (size_t)x.heads * (size_t)(kind->real ? x.d : x.sdim);
    float *got = arena_alloc(&r->memory, (size_t)x.n * sizeof *got);
    if (!got || n_rows != rows_want || n_query != query_want || n_want != (size_t)x.heads * (size_t)x.n) {
        golden_check(r, 0, "%s: %zu values, %zu bytes, %zu scores, want %zu, %zu, %d", kind->kernel, n_query, n_rows,
                     n_want, query_want, rows_want, x.heads * x.n);
        return;
    }
    for (int i = 0; r->host && (k = kvant_format_variant(x.format, i, &variant, &usable)) != NULL; i++)
        if (usable)
            compare(&x, k, variant, got);
    if (strcmp(kind->kernel, "polar_preht") == 0)
        take_preht(&x, root);
    if (r->dev)
        on_device(&x);
}

int golden_fixture(golden_run *r, gjson root)
{
    char kernel[32] = "", residual[8];
    int block = golden_number_of(root, "block_bytes", 0), ran = 0, known = 0;

    if (!gjson_text(gjson_get(root, "kernel"), kernel, sizeof kernel))
        return 0;
    if (golden_fixture_fused(r, root, kernel))
        return 1;
    snprintf(residual, sizeof residual, "%d", gjson_number(gjson_get(root, "use_qjl")) > 0.0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const fixture_kind *k = &kinds[i];
        known |= strcmp(k->kernel, kernel) == 0;
        if (strcmp(k->kernel, kernel) != 0 || k->block_bytes != block ||
            (k->residual && strcmp(k->residual, residual) != 0))
            continue;
        snprintf(r->file->format, sizeof r->file->format, "%s", k->format);
        run_kind(r, root, k);
        ran = 1;
    }
    if (known && !ran)
        golden_check(r, 0, "%s: block_bytes %d with use_qjl %s is no layout of this kernel", kernel, block, residual);
    r->file->count.skipped += !ran && !known;
    return 1;
}
