/* kernels.c: see kernels.h: the walk over head sizes, queries and rows, and what every case shares. */
#include "verify/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "verify/kernels_case.h"
#include "verify/vcase.h"

typedef void (*case_fn)(kcase *c);

/* shapes: run for every r and n; the others make their own rows. */
static const struct {
    const char *name, *class_name;
    case_fn fn;
    int shapes;
} ops[VERIFY_KERNEL_OPS] = {
    [VERIFY_DECODE] = { "decode_acc", "EXACT", kcase_decode, 0 },
    [VERIFY_SCORE] = { "score", "DOT", kcase_score, 1 },
    [VERIFY_AXPY] = { "axpy", "DOT", kcase_axpy, 1 },
    [VERIFY_PREP_Q] = { "prep_q", "DOT", kcase_prep_q, 0 },
    [VERIFY_FINISH] = { "finish_out", "DOT", kcase_finish, 0 },
    [VERIFY_ENCODE] = { "encode", "CODE", kcase_encode, 0 },
    [VERIFY_SCORE_Q8] = { "score_q8", "QDOT", kcase_score_q8, 1 },
    [VERIFY_AXPY_Q8] = { "axpy_q8", "QDOT", kcase_axpy_q8, 1 },
};

const char *verify_kernel_name(int op)
{
    return ops[op].name;
}

const char *verify_kernel_class(int op)
{
    return ops[op].class_name;
}

/* ---- what cases share ---- */

#if defined(KVANT_SANITIZE_ADDRESS)
static const size_t guard_bytes = 0;            /* over-reads are seen only outside of the heap block */
#else
static const size_t guard_bytes = 256;
#endif

void *kcase_take(kcase *c, size_t n, size_t misalign)
{
    kcase_block *b = &c->blocks[c->n_blocks++];

    *b = (kcase_block){ malloc(guard_bytes * 2 + misalign + n + 1), guard_bytes + misalign, n, guard_bytes };
    if (!b->block) {
        c->rc = KVANT_ENOMEM;
        return NULL;
    }
    if (guard_bytes == 0 && misalign + n) {     /* exact: nothing of the block lies behind the last byte */
        unsigned char *exact = realloc(b->block, misalign + n);
        b->block = exact ? exact : b->block;
    }
    memset(b->block, 0xFF, b->lead + n + b->guard);
    return b->block + b->lead;
}

int kcase_ready(const kcase *c)
{
    return c->rc == KVANT_OK;
}

static int intact(const kcase_block *b)
{
    for (size_t i = 0; i < b->lead; i++)
        if (b->block[i] != 0xFF)
            return 0;
    for (size_t i = b->lead + b->n; i < b->lead + b->n + b->guard; i++)
        if (b->block[i] != 0xFF)
            return 0;
    return 1;
}

static void fail(kcase *c, const char *what)
{
    char text[VERIFY_TEXT];

    if (c->failed++)
        return;                                 /* one text per case */
    snprintf(text, sizeof text, "%s %s %s: %s; rerun: check_kernels %s %s %s %d %d %d", c->f->name, c->variant,
             ops[c->op].name, what, c->f->name, c->variant, ops[c->op].name, c->d, c->r, c->n);
    report_failure(c->texts, text);
}

void kcase_end(kcase *c)
{
    int clean = 1;

    for (int i = 0; i < c->n_blocks; i++) {
        clean &= !kcase_ready(c) || intact(&c->blocks[i]);
        free(c->blocks[i].block);
    }
    c->n_blocks = 0;
    if (!clean)
        fail(c, "wrote outside its buffers");
}

void kcase_note(kcase *c, double err, double bound, const char *what)
{
    const double part = err == 0 ? 0 : bound > 0 ? err / bound : INFINITY;
    verify_tally *t = &c->out->op[c->op];
    char text[120];

    t->worst = !(part <= t->worst) ? part : t->worst;
    if (part <= 1)
        return;
    snprintf(text, sizeof text, "%s: error of %.3g, allowed %.3g", what, err, bound);
    fail(c, text);
}

void kcase_want(kcase *c, int ok, const char *what)
{
    if (!ok)
        fail(c, what);
}

void kcase_fill_row(float *x, int d, int kind, uint64_t seed)
{
    vcase_fill(x, (size_t)d, seed);
    for (int j = 0; j < d; j++) {
        const float v[] = { x[j], 0.0f, j % 32 == 5 ? 3.0f : 0.0f, j % 32 == 1 || j % 32 == 9 ? -1.0f : 0.0f,
                            x[j] * 1e-6f, x[j] * 900.0f, 0.25f, x[j] + 4.0f };
        x[j] = kind < 8 ? v[kind] : x[j];
    }
}

size_t kcase_rows_bytes(const kcase *c, int n)
{
    return (size_t)(c->k->encode_page ? KVANT_PAGE : n) * c->stride;
}

static uint8_t *page_rows(kcase *c)
{
    uint8_t *page = kcase_take(c, kcase_rows_bytes(c, KVANT_PAGE), 1);
    float *x = malloc((size_t)(KVANT_PAGE * c->d) * sizeof *x);

    c->rc = x ? c->rc : KVANT_ENOMEM;
    for (int i = 0; page && x && i < KVANT_PAGE; i++)
        kcase_fill_row(x + i * c->d, c->d, i % 11, 77u + (unsigned)i);
    if (page && x)
        kvant_format_best(c->f)->encode_page(c->param, x, (size_t)c->d, page, c->d, KVANT_ENCODER_UPSTREAM);
    free(x);
    return page;
}

uint8_t *kcase_rows(kcase *c, int n)
{
    if (c->k->encode_page)
        return page_rows(c);
    uint8_t *rows = kcase_take(c, (size_t)n * c->stride, 1);
    float x[KVANT_MAX_HEAD_DIM];

    for (int i = 0; rows && i < n; i++) {
        kcase_fill_row(x, c->d, i % 11, 77u + (unsigned)i);
        kvant_format_best(c->f)->encode(c->param, x, rows + (size_t)i * c->stride, c->d, KVANT_ENCODER_UPSTREAM);
    }
    return rows;
}

void kcase_run_decode(const kcase *c, const kvant_format_kernels *k, const uint8_t *rows, int first, int n, float *out)
{
    if (k->decode_page)
        k->decode_page(c->param, rows, first, n, out, c->d);
    else
        k->decode_acc(c->param, rows + (size_t)first * c->stride, c->stride, n, out, c->d);
}

void kcase_run_score(const kcase *c, const float *q, size_t ldq, int r, const uint8_t *rows, int first, int n, float *s,
                     size_t lds)
{
    if (c->k->score_page)
        c->k->score_page(c->param, q, ldq, r, rows, first, n, s, lds, c->d);
    else
        c->k->score(c->param, q, ldq, r, rows + (size_t)first * c->stride, c->stride, n, s, lds, c->d);
}

void kcase_run_axpy(const kcase *c, const float *w, size_t ldw, int r, const uint8_t *rows, int first, int n,
                    float *acc, size_t lda)
{
    if (c->k->axpy_page)
        c->k->axpy_page(c->param, w, ldw, r, rows, first, n, acc, lda, c->d);
    else
        c->k->axpy(c->param, w, ldw, r, rows + (size_t)first * c->stride, c->stride, n, acc, lda, c->d);
}

int kcase_same(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

double kcase_row_error(const kcase *c, const uint8_t *row, const float *x)
{
    float y[KVANT_MAX_HEAD_DIM];
    double err = 0;

    kvant_row_decode(c->f, c->param, row, y, c->d);
    for (int j = 0; j < c->d; j++)
        err += ((double)y[j] - (double)x[j]) * ((double)y[j] - (double)x[j]);
    return err;
}

/* ---- the walk ---- */

static void run(kcase *c, int r, int n)
{
    c->r = r;
    c->n = n;
    c->failed = 0;
    ops[c->op].fn(c);
    kcase_end(c);
    c->out->op[c->op].cases++;
    c->out->op[c->op].failed += c->failed > 0;
}

static int picked(int want, int value)
{
    return want == 0 || want == value;
}

static void run_shapes(kcase *c, const verify_kernel_filter *f)
{
    static const int rs[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 64 }, ns[] = { 0, 1, 2, 3, 5, 8, 31, 64 };

    for (size_t a = 0; a < sizeof rs / sizeof *rs; a++)
        for (size_t b = 0; b < sizeof ns / sizeof *ns; b++) {
            if ((rs[a] == 64 || c->d > 256) && ns[b] != 3 && ns[b] != 64)
                continue;
            if ((f->quick || f->few_shapes) &&
                ((rs[a] != 1 && rs[a] != 5 && rs[a] != 8) || (ns[b] && ns[b] != 31 && ns[b] != 64)))
                continue;
            if (picked(f->r, rs[a]) && picked(f->n, ns[b]) && kcase_ready(c))
                run(c, rs[a], ns[b]);
        }
}

static void run_size(kcase *c, const verify_kernel_filter *f)
{
    for (int op = 0; op < VERIFY_KERNEL_OPS && kcase_ready(c); op++) {
        if (f->op && strcmp(f->op, ops[op].name) != 0)
            continue;
        c->op = op;
        if ((op == VERIFY_SCORE_Q8 || op == VERIFY_AXPY_Q8) && !c->k->prep_q8)
            continue;
        if (ops[op].shapes)
            run_shapes(c, f);
        else
            run(c, 1, 64);
    }
}

static const kvant_format_kernels *f32_of(const char *variant)
{
    const kvant_format *f = kvant_format_find("f32");
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (int i = 1; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++)
        if (strcmp(name, variant) == 0)
            return k;
    return NULL;
}

/* The projection of a format that needs one, with entries of at most 5: the bound of prep_q counts on it. */
static const void *param_of(const kvant_format *f)
{
    static float projection[128 * 256];         /* constant after the first call; one call at a time (kernels.h) */

    if (projection[0] == 0.0f) {
        vcase_fill(projection, 128 * 256, 42);
        for (int i = 0; i < 128 * 256; i++)
            projection[i] = projection[i] > 5.0f ? 5.0f : projection[i] < -5.0f ? -5.0f : projection[i];
    }
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

static void run_sizes(kcase *c, const verify_kernel_filter *filter)
{
    static const int dims[] = { 128, 64, 96, 256, 32, 41, 67, 80, 192, 512 };
    const int some = filter->quick ? 4 : (int)(sizeof dims / sizeof *dims);

    for (int i = 0; i < some; i++) {
        c->d = dims[i];
        if (c->d % c->f->group || kvant_format_check(c->f, c->d, NULL) || !picked(filter->d, c->d))
            continue;
        c->sdim = kvant_format_sdim(c->f, c->d);
        c->row_bytes = kvant_format_row_bytes(c->f, c->d);
        c->stride = c->row_bytes + (c->k->encode_page ? 0 : KCASE_PAD);
        run_size(c, filter);
    }
}

static int half_a_path(const kvant_format_kernels *k)
{
    const int score = k->encode_page ? k->score_page_q8 != NULL : k->score_q8 != NULL;
    const int axpy = k->encode_page ? k->axpy_page_q8 != NULL : k->axpy_q8 != NULL;

    return (k->prep_q8 != NULL) != score || (k->prep_q8 != NULL) != axpy;
}

int verify_kernels(const kvant_format *f, int i, const verify_kernel_filter *filter, verify_kernel *out,
                   verify_report *texts, kvant_diag *diag)
{
    kcase c = { .f = f, .out = out, .texts = texts };

    memset(out, 0, sizeof *out);
    out->f = f;
    c.k = kvant_format_variant(f, i, &out->variant, &out->usable);
    if (!c.k)
        return 0;
    if (!out->usable)
        return 1;
    c.variant = out->variant;
    c.f32 = f32_of(c.variant);
    c.param = param_of(f);
    c.op = VERIFY_SCORE_Q8;
    if (half_a_path(c.k)) {
        fail(&c, "half an integer path");
        out->op[c.op].failed++;
    }
    run_sizes(&c, filter);
    return c.rc == KVANT_OK ? 1 : kvant_fail(diag, c.rc, "verify: out of memory");
}
