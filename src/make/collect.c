/* collect.c: see collect.h.  Owns the sums, one array for each matrix that the program multiplies with; tensors of the
 * file that are joined into one matrix share them. */
#include "make/collect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "make/imatrix.h"

typedef struct column_sums {
    double *sum2;  /* [n_expert][n_in]; NULL: never multiplied with */
    int64_t *rows; /* [n_expert] */
} column_sums;

struct collect {
    kvant_engine *e;
    column_sums *of; /* [n_specs] */
    int failed;
};

/* Matrices of layers; the output and what is no tensor of a layer are left alone, as the field's tool does. */
static column_sums *sums_of(collect *c, const kvant_weight *w)
{
    const kvant_weight *all = c->e->place[0].weights.w;

    if (w < all || w >= all + c->e->m->n_specs || strncmp(c->e->m->specs[w - all].name, "blk.", 4) != 0)
        return NULL;
    column_sums *s = &c->of[w - all];
    if (s->sum2)
        return s;
    s->sum2 = kvant_calloc((size_t)w->n_in * (size_t)w->n_expert, sizeof *s->sum2);
    s->rows = kvant_calloc((size_t)w->n_expert, sizeof *s->rows);
    if (s->sum2 && s->rows)
        return s;
    c->failed = 1;
    return NULL;
}

static void add_row(column_sums *s, const float *x, int64_t n, int expert)
{
    double *sum = s->sum2 + expert * n;

    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i] * x[i];
    s->rows[expert]++;
}

static void add_matmul(collect *c, const void *args)
{
    const kvant_matmul_args *a = args;
    column_sums *s = sums_of(c, a->w);

    for (int i = 0; s && i < a->m; i++)
        add_row(s, a->x + i * a->ldx, a->w->n_in, 0);
}

static void add_matmul_id(collect *c, const void *args)
{
    const kvant_matmul_id_args *a = args;
    column_sums *s = sums_of(c, a->w);

    for (int i = 0; s && i < a->n * a->k; i++)
        if (a->ids[i] >= 0 && a->ids[i] < a->w->n_expert)
            add_row(s, a->x + i / a->x_div * a->ldx, a->w->n_in, a->ids[i]);
}

static void (*const add_op[KVANT_OP_COUNT])(collect *c, const void *args) = {
    [KVANT_OP_MATMUL] = add_matmul,
    [KVANT_OP_MATMUL_ID] = add_matmul_id,
};

static void on_op(void *user, const kvant_op *op)
{
    if (add_op[op->id])
        add_op[op->id](user, op->args);
}

int collect_open(kvant_engine *e, collect **out, kvant_diag *diag)
{
    if (e->split.n > 1 || strcmp(e->place[0].dev->vt->name, "cpu") != 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "imatrix: device %s, cpu wanted: what a matrix is multiplied with is read there",
                          e->p.device);
    collect *c = kvant_calloc(1, sizeof *c);
    if (c)
        c->of = kvant_calloc((size_t)e->m->n_specs + 1, sizeof *c->of);
    if (!c || !c->of) {
        kvant_free(c);
        return kvant_fail(diag, KVANT_ENOMEM, "imatrix: out of memory");
    }
    c->e = e;
    e->watch.tap = on_op;
    e->watch.tap_user = c;
    *out = c;
    return KVANT_OK;
}

void collect_close(collect *c)
{
    if (!c)
        return;
    c->e->watch.tap = NULL;
    for (int i = 0; i < c->e->m->n_specs; i++) {
        kvant_free(c->of[i].sum2);
        kvant_free(c->of[i].rows);
    }
    kvant_free(c->of);
    kvant_free(c);
}

/* ---- the file ---- */

static int add_entry(imatrix_entry *list, int *n, const gguf_tensor *t, const kvant_weight *w, const column_sums *s)
{
    imatrix_entry *to = &list[*n];

    snprintf(to->name, sizeof to->name, "%.*s", (int)t->name.n, t->name.s);
    for (int i = 0; i < *n; i++)
        if (strcmp(list[i].name, to->name) == 0)
            return 0; /* another matrix of rows of the same tensor */
    to->n_in = w->n_in;
    to->n = w->n_expert;
    to->sum2 = s->sum2;
    to->rows = s->rows;
    (*n)++;
    return 1;
}

/* The tensors that matrix i is made of. */
static void add_tensors(const collect *c, int i, imatrix_entry *list, int *n)
{
    const weight_spec *spec = &c->e->m->specs[i];

    if (!spec->segs)
        add_entry(list, n, gguf_tensor_at(c->e->m->file, spec->tensor), &c->e->place[0].weights.w[i], &c->of[i]);
    for (int k = 0; k < spec->n_segs; k++)
        if (k == 0 || spec->segs[k].tensor != spec->segs[k - 1].tensor)
            add_entry(list, n, gguf_tensor_at(c->e->m->file, spec->segs[k].tensor), &c->e->place[0].weights.w[i],
                      &c->of[i]);
}

static int check_finite(const imatrix_entry *e, kvant_diag *diag)
{
    for (int64_t i = 0; i < e->n_in * e->n; i++)
        if (!isfinite((float)e->sum2[i]))
            return kvant_fail(diag, KVANT_ENUMERIC, "%s: column %lld was multiplied with a value that is not finite",
                              e->name, (long long)(i % e->n_in));
    return KVANT_OK;
}

int collect_save(collect *c, const char *path, const char *dataset, uint32_t chunks, uint32_t chunk_size, int *matrices,
                 kvant_diag *diag)
{
    imatrix_entry *list = kvant_calloc((size_t)gguf_tensor_count(c->e->m->file) + 1, sizeof *list);
    int rc = list && !c->failed ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "imatrix: out of memory for its sums");

    *matrices = 0;
    for (int i = 0; rc == KVANT_OK && i < c->e->m->n_specs; i++)
        if (c->of[i].sum2)
            add_tensors(c, i, list, matrices);
    for (int i = 0; rc == KVANT_OK && i < *matrices; i++)
        rc = check_finite(&list[i], diag);
    if (rc == KVANT_OK)
        rc = imatrix_save(path, list, *matrices, dataset, chunks, chunk_size, diag);
    kvant_free(list);
    return rc;
}
