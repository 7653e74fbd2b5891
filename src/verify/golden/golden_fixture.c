/* golden_fixture.c: the other form of golden file: the fixtures of the public Metal and Vulkan kernels, as their
 * generator writes them.  One query and a few rows of one format, decimal arrays:
 *
 *   kernel           "turbo3" "turbo4" "turbo3_tcq" "qjl" "polar" "polar_preht"
 *   block_bytes      of one block; tells the two layouts of turbo4 apart
 *   n_kv | n_tokens | n_rows   rows; qjl: also n_heads and n_kv_heads
 *   q | q_sketch     the query: in acc space but for polar, where it is a real one
 *   k_blocks         bytes of the rows
 *   expected_scores  one per head and row; polar_preht: a second set of rows and scores ends in _qjl
 *
 * Held to that project's bound, 1e-3, by the reference and by every variant that this CPU runs. */
#include "verify/golden/golden_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 4096 };
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
static float *numbers(golden_run *r, gjson v, size_t *n)
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

static uint8_t *bytes_of(golden_run *r, gjson v, size_t *n)
{
    const float *x = numbers(r, v, n);
    uint8_t *out = x ? arena_alloc(&r->memory, *n) : NULL;

    for (size_t i = 0; out && i < *n; i++) {
        if (!(x[i] >= 0.0f && x[i] <= 255.0f))
            return NULL;
        out[i] = (uint8_t)x[i];
    }
    return out;
}

static int count_of(gjson root, const char *key, int absent)
{
    const double v = gjson_number(gjson_get(root, key));

    return v >= 1 && v <= MAX_ROWS ? (int)v : absent;
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

static void run_kind(golden_run *r, gjson root, const fixture_kind *kind)
{
    size_t n_query, n_rows, n_want;
    const kvant_format_kernels *k;
    const char *variant;
    int usable;
    fixture x = { .run = r, .format = kvant_format_find(kind->format), .kind = kind };

    x.d = count_of(root, "head_dim", 0);
    x.n = count_of(root, "n_kv", count_of(root, "n_tokens", count_of(root, "n_rows", 0)));
    x.heads = count_of(root, "n_heads", 1);
    x.kv_heads = count_of(root, "n_kv_heads", 1);
    x.query = numbers(r, gjson_get(root, kind->query), &n_query);
    x.rows = bytes_of(r, gjson_get(root, kind->rows), &n_rows);
    x.want = numbers(r, gjson_get(root, kind->scores), &n_want);
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
    for (int i = 0; (k = kvant_format_variant(x.format, i, &variant, &usable)) != NULL; i++)
        if (usable)
            compare(&x, k, variant, got);
}

int golden_fixture(golden_run *r, gjson root)
{
    char kernel[32] = "", residual[8];
    int block = count_of(root, "block_bytes", 0), ran = 0, known = 0;

    if (!gjson_text(gjson_get(root, "kernel"), kernel, sizeof kernel))
        return 0;
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
