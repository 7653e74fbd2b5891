/* cases_weights.c: cases of embed, matmul and matmul_id over every weight type, in both compute modes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"
#include "verify/cases.h"

enum { EXPERTS = 6 };

/* A weight on the host (for the reference) and as the device loaded it. */
typedef struct pair {
    kvant_weight host, on;
    float scale[EXPERTS];
    void *rows;
} pair;

/* Random rows that the type can hold; 0: no memory.  scaled: with second-level scales, which only f32 products of whole
 * blocks carry in real files (NVFP4), so every type is given them. */
static int weight_make(pair *p, const kvant_wtype *t, int64_t n_in, int64_t n_out, int n_expert, int scaled)
{
    const size_t n = (size_t)(n_in * n_out * n_expert), bytes = n / (size_t)t->block * (size_t)t->bytes;

    p->rows = kvant_alloc(bytes);
    for (int e = 0; e < EXPERTS; e++)
        p->scale[e] = 0.5f + 0.25f * (float)e;
    p->host = (kvant_weight){ .type = t, .data = p->rows, .n_in = n_in, .n_out = n_out, .n_expert = n_expert,
                              .scale = scaled ? p->scale : NULL, .n_scale = scaled ? n_expert : 0, .name = "test",
                              .use = KVANT_WEIGHT_MATMUL | KVANT_WEIGHT_EMBED };
    p->on = p->host;
    return p->rows && vcase_weights(p->rows, t, n);
}

/* Makes the weight and loads it; 0: no memory, or the device refuses it (which the case then records). */
static int weight_open(vcase *c, pair *p, const kvant_wtype *t, int64_t n_in, int64_t n_out, int n_expert, int scaled,
                       int compute)
{
    kvant_diag why = { "" };
    int rc = KVANT_ENOMEM;

    if (weight_make(p, t, n_in, n_out, n_expert, scaled))
        rc = c->dev->vt->weight_load(c->dev, &p->on, compute, &why);
    if (rc != KVANT_OK) {
        vcase_refused(c, rc, rc == KVANT_ENOMEM ? "out of memory" : why.text);
        kvant_free(p->rows);
        return 0;
    }
    c->swap_from = &p->host;
    c->swap_to = &p->on;
    return 1;
}

static void weight_close(vcase *c, pair *p)
{
    c->dev->vt->weight_free(c->dev, &p->on);
    kvant_free(p->rows);
}

/* f32: sums of products in any order, measured worst-case far below; auto: 16- or 8-bit activations (ops.def). */
static double matmul_limit(int compute)
{
    return compute == KVANT_COMPUTE_F32 ? 1e-6 : 5e-4;
}

static void shape_name(char *shape, size_t cap, int m, int compute)
{
    snprintf(shape, cap, "%s %s", m == 0 ? "empty" : m == 1 ? "row" : m <= 8 ? "few rows" : "rows",
             compute == KVANT_COMPUTE_F32 ? "f32" : "auto");
}

static void matmul(vcase *c, const kvant_wtype *t, int n_in, int n_out, int m, int compute)
{
    char shape[16];
    pair p;

    shape_name(shape, sizeof shape, m, compute);
    if (!vcase_begin(c, KVANT_OP_MATMUL, shape, t->name) ||
        !weight_open(c, &p, t, n_in, n_out, 1, m % 2, compute))
        return;
    float *x = vcase_normal(c, (size_t)(m * (n_in + 4)), 2), *y = vcase_out(c, (size_t)(m * (n_out + 1)));
    const kvant_matmul_args a = { &p.host, x, y, m, n_in + 4, n_out + 1, compute };
    vcase_about(c, "%dx%d, %d rows", n_out, n_in, m);
    vcase_run(c, &a, matmul_limit(compute));
    weight_close(c, &p);
}

static void embed(vcase *c, const kvant_wtype *t, int n_in, int n_out, int n)
{
    pair p;

    if (!vcase_begin(c, KVANT_OP_EMBED, n ? "rows" : "empty", t->name) ||
        !weight_open(c, &p, t, n_in, n_out, 1, n % 2, KVANT_COMPUTE_F32))
        return;
    int32_t *ids = vcase_take(c, (size_t)n * sizeof *ids);
    float *y = vcase_out(c, (size_t)(n * n_in));
    const kvant_embed_args a = { &p.host, ids, y, n };
    for (int i = 0; i < n; i++)
        ids[i] = i % 4 == 2 ? (i % 8 == 2 ? -1 : n_out) : (int32_t)(i * 7 % n_out); /* some are no row's */
    vcase_about(c, "%dx%d, %d ids", n_out, n_in, n);
    vcase_run(c, &a, 0.0);
    weight_close(c, &p);
}

static void type_weights(vcase *c, const kvant_wtype *t)
{
    static const int rows[] = { 1, 70, 0, 3, 8, 9, 30, 150 }, widths[] = { 4096, 1024, 12288 };
    const int some = c->quick || c->unaligned ? 2 : (int)(sizeof rows / sizeof *rows);

    for (int compute = 0; compute < 2; compute++) {
        for (int i = 0; i < some; i++)
            matmul(c, t, 512, 130, rows[i], compute);
        for (int i = 0; i < 3 && t->block == 1; i++)       /* odd widths, for one row, few and many */
            matmul(c, t, 77, 33, i == 0 ? 1 : i == 1 ? 3 : 70, compute);
        for (int i = 0; i < 2 && t->block > 1 && t->block <= 32; i++) /* a width that ends within 256 values */
            matmul(c, t, 288, 35, i ? 70 : 5, compute);
        for (int i = 0; i < (t->block == 1 ? 3 : 1); i++)  /* wide ones, which devices treat on their own */
            matmul(c, t, widths[i], 39, 1, compute);
    }
    for (int i = 0; i < 3 && some > 2; i++)                 /* long rows, for tiles of all sizes */
        matmul(c, t, 2304, 270, i == 0 ? 20 : i == 1 ? 40 : 129, KVANT_COMPUTE_AUTO);
    for (int i = 0; i < 2 && some > 2 && t->block == 1; i++) /* longer ones, for rings of panels that turn */
        matmul(c, t, 8192, 130, i ? 20 : 40, KVANT_COMPUTE_AUTO);
    embed(c, t, 512, 130, 9);
    embed(c, t, 256, 5, 0);
}

void cases_weights(vcase *c)
{
    for (int i = 0; i < kvant_wtype_count(); i++)
        if (verify_listed(c->o->formats, kvant_wtype_at(i)->name))
            type_weights(c, kvant_wtype_at(i));
}

/* n tokens, k experts each; x_div as in ops.h.  One expert gets most of the rows, the last one few. */
static void experts(vcase *c, const kvant_wtype *t, int n_in, int n_out, int n, int k, int x_div, int compute)
{
    const int slots = n * k;
    char shape[16];
    rng r = { 4 };
    pair p;

    shape_name(shape, sizeof shape, slots, compute);
    if (!vcase_begin(c, KVANT_OP_MATMUL_ID, shape, t->name) ||
        !weight_open(c, &p, t, n_in, n_out, EXPERTS, n % 2, compute))
        return;
    float *x = vcase_normal(c, (size_t)(slots / x_div * n_in), 2), *y = vcase_out(c, (size_t)(slots * n_out));
    int32_t *ids = vcase_take(c, (size_t)slots * sizeof *ids);
    for (int i = 0; i < n; i++)
        for (int j = 0, first = (int)rng_below(&r, EXPERTS); j < k; j++)
            ids[i * k + j] = (first + j) % (EXPERTS - 1) + (first == 0 && j == 0);
    const kvant_matmul_id_args a = { &p.host, x, ids, y, n, k, x_div, n_in, compute };
    vcase_about(c, "%dx%d, n %d k %d x_div %d", n_out, n_in, n, k, x_div);
    vcase_run(c, &a, matmul_limit(compute));
    weight_close(c, &p);
}

void cases_experts(vcase *c)
{
    const int many = c->quick || c->unaligned ? 20 : 90;

    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        if (!verify_listed(c->o->formats, t->name))
            continue;
        for (int compute = 0; compute < 2; compute++) {
            experts(c, t, 256, 70, 0, 2, 2, compute);
            experts(c, t, 256, 70, 1, 2, 2, compute);
            experts(c, t, 256, 70, 5, 2, 2, compute);
            experts(c, t, 256, 70, many, 2, 1, compute);
            experts(c, t, 256, 70, many + 1, 3, 3, compute);
        }
        if (many > 20)
            experts(c, t, 1280, 270, 150, 4, 4, KVANT_COMPUTE_AUTO);
    }
}
