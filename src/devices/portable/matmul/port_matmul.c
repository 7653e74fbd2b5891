/* port_matmul.c: matmul, matmul_id and embed: one dispatch for each part of the weight. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/matmul/matmul_params.h"

enum { MOST_ROWS = 8 };                    /* activation rows that a group takes at once; more: matrices */
enum { ROWS_PER_EXPERT = 4, TILE = 32 };   /* rows from which an expert's are worth finding; TILE: matmul_matrix.k */

/* The generated decoder of the type; types without blocks have one of single values too. */
static void define_type(port_call *c, const kvant_weight *w)
{
    const char *type = ((const port_weight *)w->packed)->type;
    port_define(c, "WT wt_%s", type);
    if (w->type->block == 1)
        port_define(c, "WT_ONE wt_%s_one", type);
}

/* Rows of part i: *from .. *to-1. */
static void part_rows(const port_weight *v, int i, int64_t *from, int64_t *to)
{
    *from = i * v->rows_per;
    *to = *from + v->rows_per < v->rows ? *from + v->rows_per : v->rows;
}

typedef struct product {
    const kvant_weight *w;
    const float *x;
    const int32_t *ids;
    float *y;
    int rows, x_rows, x_div, compute;
    int64_t ldx, ldy;
} product;

/* --compute f32 keeps the sums of few rows: there a row's bits do not depend on how many the pass has. */
static int takes_matrices(const port_device *d, const product *m)
{
    const int64_t least = m->ids ? ROWS_PER_EXPERT * m->w->n_expert : MOST_ROWS + 1;
    return d->matrices && m->compute == KVANT_COMPUTE_AUTO && m->rows >= least;
}

static int rows_at_once(const product *m)
{
    return m->ids || m->rows == 1 ? 1 : MOST_ROWS;         /* two programs a type: compiling is not free */
}

static int product_part(port_device *d, const product *m, int i, kvant_diag *diag)
{
    const port_weight *v = m->w->packed;
    const int matrices = takes_matrices(d, m), at_once = matrices ? TILE : rows_at_once(m);
    struct p_matmul p = { .row_bytes = (int64_t)v->row_bytes, .ldx = m->ldx, .ldy = m->ldy, .n_in = (int32_t)m->w->n_in,
                          .n_out = (int32_t)m->w->n_out, .rows = m->rows, .x_div = m->x_div,
                          .n_scale = v->scale ? m->w->n_scale : 0, .has_ids = m->ids != NULL };
    int64_t groups = m->w->n_out;
    port_call c = PORT_CALL(matmul, p);
    part_rows(v, i, &p.row_from, &p.row_to);
    if (!m->ids) {                         /* only the outputs of this part */
        p.out_from = (int32_t)p.row_from;
        groups = p.row_to - p.row_from;
    }
    define_type(&c, m->w);
    if (matrices) {
        c.kernel = PORT_KERNEL_matmul_matrix;
        port_define(&c, "TILE %s", v->halves ? "half" : "float");
    } else {
        port_define(&c, "ROWS %d", at_once);
    }
    port_read(&c, v->part[i], (size_t)(p.row_to - p.row_from) * v->row_bytes);
    port_read(&c, v->scale, v->scale ? (size_t)m->w->n_scale * sizeof(float) : 0);
    port_read(&c, m->x, (size_t)((m->x_rows - 1) * m->ldx + m->w->n_in) * sizeof(float));
    port_write(&c, m->y, (size_t)((m->rows - 1) * m->ldy + m->w->n_out) * sizeof(float));
    port_read(&c, m->ids, m->ids ? (size_t)m->rows * sizeof(int32_t) : 0);
    if (matrices)
        groups = (groups + TILE - 1) / TILE;
    const int64_t tiles = matrices && m->ids ? m->w->n_expert : (m->rows + at_once - 1) / at_once;
    return port_dispatch(d, &c, groups, tiles, 1, diag);
}

static int product_run(port_device *d, const product *m, kvant_diag *diag)
{
    const port_weight *v = m->w->packed;
    for (int i = 0; m->rows > 0 && i < v->n_parts; i++)
        KVANT_TRY(product_part(d, m, i, diag));
    return KVANT_OK;
}

static int matmul_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = args;
    const product m = { .w = a->w, .x = a->x, .y = a->y, .rows = a->m, .x_rows = a->m, .x_div = 1,
                        .compute = a->compute, .ldx = a->ldx, .ldy = a->ldy };
    return product_run(d, &m, diag);
}
PORT_OP(matmul, NULL, matmul_run)

static int matmul_id_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = args;
    const product m = { .w = a->w, .x = a->x, .ids = a->ids, .y = a->y, .rows = a->n * a->k,
                        .x_rows = a->n * a->k / a->x_div, .x_div = a->x_div, .compute = a->compute,
                        .ldx = a->ldx, .ldy = a->w->n_out };
    return product_run(d, &m, diag);
}
PORT_OP(matmul_id, NULL, matmul_id_run)

static int embed_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = args;
    const port_weight *v = a->w->packed;
    for (int i = 0; i < v->n_parts; i++) {
        struct p_embed p = { .row_bytes = (int64_t)v->row_bytes, .n_in = (int32_t)a->w->n_in,
                             .has_scale = v->scale != NULL };
        port_call c = PORT_CALL(embed, p);
        part_rows(v, i, &p.row_from, &p.row_to);
        define_type(&c, a->w);
        port_read(&c, v->part[i], (size_t)(p.row_to - p.row_from) * v->row_bytes);
        port_read(&c, v->scale, v->scale ? (size_t)a->w->n_scale * sizeof(float) : 0);
        port_read(&c, a->ids, (size_t)a->n * sizeof(int32_t));
        port_write(&c, a->y, (size_t)a->n * (size_t)a->w->n_in * sizeof(float));
        KVANT_TRY(port_dispatch(d, &c, a->n, 1, 1, diag));
    }
    return KVANT_OK;
}
PORT_OP(embed, NULL, embed_run)
