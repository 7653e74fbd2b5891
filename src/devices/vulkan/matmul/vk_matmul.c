/* vk_matmul.c: embed, matmul, matmul_id.  Up to VEC_ROWS rows: a workgroup per few outputs; more: matrix units
 * (vk_halves.c), else tiles in f32.  In the plain form a weight larger than one storage buffer range is bound in
 * windows of whole rows, a dispatch each. */
#include "devices/vulkan/matmul/vk_mm.h"

enum { VEC_OUTS = 4, TILE_OUTS = 64, TILE_ROWS = 64 };

static int weight_supports(vk_device *d, const kvant_weight *w, const char *op, kvant_diag *diag)
{
    (void)d;
    if (vk_wtype_find(w->type) < 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: weight type %s has no kernel here", op,
                          w->type->name);
    return vk_fits(op, w->n_out * w->n_expert, diag);
}

int64_t vk_window_rows(const vk_device *d, const vk_weight *v, int64_t rows)
{
    const int64_t fit = (int64_t)((d->caps.max_range - 1024) / (v->row_bytes ? v->row_bytes : 1));
    return d->caps.bda || fit > rows ? rows : fit > 0 ? fit : 1;
}

void vk_weight_ptr(vk_call *c, const vk_weight *v, int64_t from, int64_t n)
{
    vk_ptr(c, (const char *)v->data + (size_t)from * v->row_bytes, (size_t)n * v->row_bytes, VK_READ);
}

void vk_scale_ptr(vk_call *c, const kvant_weight *w, const vk_weight *v)
{
    vk_ptr(c, v->scale, v->scale ? (size_t)w->n_scale * 4 : 0, VK_READ);
}

/* A window begins at a row that begins at a word. */
static int64_t aligned_rows(const vk_weight *v, int64_t n)
{
    return v->row_bytes % 4 == 0 || n < 4 ? n : n / 4 * 4;
}

/* ---- embed ---- */

static int embed_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = args;
    KVANT_TRY(weight_supports(d, a->w, "embed", diag));
    return vk_fits("embed", (int64_t)a->n * a->w->n_in, diag);
}

static int embed_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = args;
    const vk_weight *v = a->w->packed;
    const int64_t rows = a->w->n_out, per = aligned_rows(v, vk_window_rows(d, v, rows));
    for (int64_t from = 0; from < rows; from += per) {
        const int64_t n = rows - from < per ? rows - from : per;
        vk_call c;
        vk_call_begin(&c, VK_SHADER_embed);
        vk_weight_ptr(&c, v, from, n);
        vk_scale_ptr(&c, a->w, v);
        vk_ptr(&c, a->ids, (size_t)a->n * 4, VK_READ);
        vk_ptr(&c, a->y, (size_t)a->n * (size_t)a->w->n_in * 4, VK_WRITE);
        vk_grid_ptr(d, &c, v->type);
        vk_uint(&c, a->n);
        vk_uint(&c, a->w->n_in);
        vk_uint(&c, (int64_t)v->row_bytes);
        vk_uint(&c, from);
        vk_uint(&c, from + n);
        vk_uint(&c, v->scale != NULL);
        vk_spec(&c, (uint32_t)v->type);
        KVANT_TRY(vk_dispatch(d, l, &c, (uint64_t)a->n, 1, 1, diag));
    }
    return KVANT_OK;
}

/* ---- matmul ---- */

size_t vk_x_bytes(const vk_mm *p)
{
    const int64_t rows = (p->rows + p->x_div - 1) / p->x_div;
    return (size_t)((rows - 1) * p->ldx + p->w->n_in) * 4;
}

size_t vk_y_bytes(const vk_mm *p)
{
    return (size_t)((p->rows - 1) * p->ldy + p->w->n_out) * 4;
}

/* Weight rows from .. from+n-1 (of all experts) by matmul_vec. */
static int run_vec(vk_device *d, vk_list *l, const vk_mm *p, int64_t from, int64_t n, kvant_diag *diag)
{
    const vk_weight *v = p->w->packed;
    const int64_t first = p->ids ? 0 : from, outs = p->ids ? p->w->n_out : n;
    const uint32_t m = p->ids ? 1u : (uint32_t)(p->rows < VEC_ROWS ? p->rows : VEC_ROWS);
    vk_call c;
    vk_call_begin(&c, VK_SHADER_matmul_vec);
    vk_weight_ptr(&c, v, from, n);
    vk_scale_ptr(&c, p->w, v);
    vk_ptr(&c, p->x, vk_x_bytes(p), VK_READ);
    vk_ptr(&c, p->y, vk_y_bytes(p), VK_WRITE);
    vk_ptr(&c, p->ids, p->ids ? (size_t)p->rows * 4 : 0, VK_READ);
    vk_grid_ptr(d, &c, v->type);
    vk_uint(&c, p->w->n_in);
    vk_uint(&c, p->w->n_out);
    vk_uint(&c, (int64_t)v->row_bytes);
    vk_uint(&c, p->ldx);
    vk_uint(&c, p->ldy);
    vk_uint(&c, p->rows);
    vk_uint(&c, p->x_div);
    vk_uint(&c, v->scale ? p->w->n_scale : 0);
    vk_uint(&c, from);
    vk_uint(&c, from + n);
    vk_uint(&c, first);
    vk_spec(&c, (uint32_t)v->type);
    vk_spec(&c, m);
    vk_spec(&c, VEC_OUTS);
    vk_spec(&c, p->ids != NULL);
    vk_spec(&c, ((uintptr_t)p->x | (uintptr_t)p->ldx * 4) % 16 == 0);
    return vk_dispatch(d, l, &c, (uint64_t)((outs + VEC_OUTS - 1) / VEC_OUTS), ((uint32_t)p->rows + m - 1) / m, 1,
                       diag);
}

/* ---- matmul_dot: weights of 4 to 8 bits, 8-bit activations, up to VEC_ROWS rows ---- */

/* Loads ahead, workgroups per multiprocessor: of one row of bytes, of one of fewer bits (whose loads are longer), of
 * more rows.  Shared memory of 16 activations, of pairs of levels, and for the rest. */
enum { ROW_DEEP = 4, ROW_FILL = 4, QUANT_DEEP = 2, QUANT_FILL = 6, DOT_DEEP = 2, DOT_FILL = 3 };
enum { CHUNK_BYTES = 24, LEVELS_BYTES = 1024, DOT_REST = 2048 };

static int row_deep(const vk_weight *v)
{
    return v->dot == VK_DOT_BYTES ? ROW_DEEP : QUANT_DEEP;
}

static int row_fill(const vk_weight *v)
{
    return v->dot == VK_DOT_BYTES ? ROW_FILL : QUANT_FILL;
}

static int dot_fits(const vk_device *d, const vk_mm *p, int rows)
{
    const vk_weight *v = p->w->packed;
    const size_t rest = DOT_REST + (v->dot == VK_DOT_LEVELS ? LEVELS_BYTES : 0);
    return (size_t)rows * (size_t)(p->w->n_in / 16) * CHUNK_BYTES + rest <= d->caps.max_shared;
}

/* Returns 1 if rows are few enough; those of experts, each of which is multiplied by itself, must not be too many for
 * vk_halves.c, and all experts must fit one window. */
static int dot_takes_rows(const vk_device *d, const vk_mm *p)
{
    const int64_t rows = p->w->n_out * p->w->n_expert;
    if (!p->ids)
        return p->rows <= VEC_ROWS;
    return vk_window_rows(d, p->w->packed, rows) >= rows && (uint32_t)p->rows <= d->caps.max_groups &&
           !vk_halves_take(d, p);
}

/* Activation rows that one workgroup keeps; 0: not taken. */
static int dot_rows(const vk_device *d, const vk_mm *p)
{
    const vk_weight *v = p->w->packed;
    int rows = 1;
    if (v->dot == VK_DOT_NONE || p->compute != KVANT_COMPUTE_AUTO || (d->caps.bda && !d->caps.dot) ||
        !dot_takes_rows(d, p))
        return 0;
    while (!p->ids && rows < p->rows && dot_fits(d, p, rows * 2))
        rows *= 2;
    return dot_fits(d, p, rows) ? rows : 0;
}

/* The further work of a product's kernel. */
typedef struct dot_more {
    int parts;                           /* 2: swiglu of the halves of a row of y; else 1 */
    float *sum;                          /* rows of y are added to it; or NULL */
    const kvant_norm_add_rms_args *norm; /* x is its x, before the norm; or NULL */
} dot_more;

/* Workgroups that share the outputs of one set of `rows` activation rows. */
static uint64_t dot_groups(const vk_device *d, const vk_mm *p, int rows, int64_t outs)
{
    const vk_weight *v = p->w->packed;
    const uint64_t per = d->caps.bda ? VK_WIDE_GROUP / d->caps.subgroup_size : 1, sets = p->ids ? (uint64_t)p->rows : 1,
                   most = ((uint64_t)outs + per - 1) / per,
                   fill = (uint64_t)d->caps.cores * (uint64_t)(rows == 1 ? row_fill(v) : DOT_FILL),
                   each = (fill + sets - 1) / sets;
    return most < each ? most : each;
}

/* Weight rows from .. from+n-1; with ids, those of all experts. */
static int run_dot(vk_device *d, vk_list *l, const vk_mm *p, int64_t from, int64_t n, dot_more more, kvant_diag *diag)
{
    const vk_weight *v = p->w->packed;
    const int rows = dot_rows(d, p);
    const int64_t outs = p->ids ? p->w->n_out : n;
    const size_t norm_bytes = more.norm ? (size_t)more.norm->d * 4 : 0;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_matmul_dot);
    vk_weight_ptr(&c, v, from, n);
    vk_scale_ptr(&c, p->w, v);
    vk_ptr(&c, p->x, vk_x_bytes(p), VK_READ);
    vk_ptr(&c, p->y, vk_y_bytes(p), VK_WRITE);
    vk_ptr(&c, more.sum, more.sum ? vk_y_bytes(p) : 0, VK_WRITE);
    vk_ptr(&c, more.norm ? more.norm->w : NULL, norm_bytes, VK_READ);
    vk_ptr(&c, more.norm ? more.norm->y : NULL, norm_bytes * (size_t)p->rows, VK_WRITE);
    vk_ptr(&c, p->ids, p->ids ? (size_t)p->rows * 4 : 0, VK_READ);
    vk_uint(&c, outs);
    vk_uint(&c, from);
    vk_uint(&c, (int64_t)v->row_bytes);
    vk_uint(&c, p->ldx);
    vk_uint(&c, p->ldy);
    vk_uint(&c, p->rows);
    vk_uint(&c, p->x_div);
    vk_uint(&c, v->scale ? p->w->n_scale : 0);
    vk_float(&c, more.norm ? more.norm->eps : 0.0f);
    vk_spec(&c, (uint32_t)rows);
    vk_spec(&c, (uint32_t)(p->w->n_in / 16));
    vk_spec(&c, ((uintptr_t)p->x | (uintptr_t)p->ldx * 4 | (uintptr_t)(more.norm ? more.norm->w : NULL)) % 16 == 0);
    vk_spec(&c, (uint32_t)(rows == 1 ? row_deep(v) : DOT_DEEP));
    vk_spec(&c, (uint32_t)more.parts);
    vk_spec(&c, more.sum != NULL);
    vk_spec(&c, more.norm != NULL);
    vk_spec(&c, (uint32_t)v->dot);
    vk_spec(&c, (uint32_t)v->type);
    vk_spec(&c, p->ids != NULL);
    return vk_dispatch(d, l, &c, dot_groups(d, p, rows, outs / more.parts), (uint32_t)((p->rows + rows - 1) / rows), 1,
                       diag);
}

static int run_tile(vk_device *d, vk_list *l, const vk_mm *p, int64_t from, int64_t n, kvant_diag *diag)
{
    const vk_weight *v = p->w->packed;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_matmul_tile);
    vk_weight_ptr(&c, v, from, n);
    vk_scale_ptr(&c, p->w, v);
    vk_ptr(&c, p->x, vk_x_bytes(p), VK_READ);
    vk_ptr(&c, p->y, vk_y_bytes(p), VK_WRITE);
    vk_grid_ptr(d, &c, v->type);
    vk_uint(&c, p->w->n_in);
    vk_uint(&c, from + n);
    vk_uint(&c, (int64_t)v->row_bytes);
    vk_uint(&c, p->ldx);
    vk_uint(&c, p->ldy);
    vk_uint(&c, p->rows);
    vk_uint(&c, v->scale != NULL);
    vk_uint(&c, from);
    vk_spec(&c, (uint32_t)v->type);
    vk_spec(&c, ((uintptr_t)p->x | (uintptr_t)p->ldx * 4) % 16 == 0);
    return vk_dispatch(d, l, &c, (uint64_t)((n + TILE_OUTS - 1) / TILE_OUTS),
                       ((uint32_t)p->rows + TILE_ROWS - 1) / TILE_ROWS, 1, diag);
}

static int run_mm(vk_device *d, vk_list *l, const vk_mm *p, kvant_diag *diag)
{
    const vk_weight *v = p->w->packed;
    const int64_t rows = p->w->n_out * p->w->n_expert, per = aligned_rows(v, vk_window_rows(d, v, rows));
    if (p->rows <= 0)
        return KVANT_OK;
    if (vk_halves_take(d, p))
        return vk_halves_run(d, l, p, diag);
    for (int64_t from = 0; from < rows; from += per) {
        const int64_t n = rows - from < per ? rows - from : per;
        if (dot_rows(d, p) > 0)
            KVANT_TRY(run_dot(d, l, p, from, n, (dot_more){ 1, NULL, NULL }, diag));
        else if (p->ids || p->rows <= VEC_ROWS)
            KVANT_TRY(run_vec(d, l, p, from, n, diag));
        else
            KVANT_TRY(run_tile(d, l, p, from, n, diag));
    }
    return KVANT_OK;
}

static int matmul_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = args;
    KVANT_TRY(weight_supports(d, a->w, "matmul", diag));
    return vk_fits("matmul", (int64_t)a->m * (a->ldx > a->ldy ? a->ldx : a->ldy), diag);
}

static vk_mm mm_of(const kvant_matmul_args *a)
{
    return (vk_mm){
        .w = a->w, .x = a->x, .y = a->y, .ldx = a->ldx, .ldy = a->ldy, .rows = a->m, .x_div = 1, .compute = a->compute
    };
}

static vk_mm mm_id_of(const kvant_matmul_id_args *a)
{
    return (vk_mm){ .w = a->w,
                    .x = a->x,
                    .ids = a->ids,
                    .y = a->y,
                    .ldx = a->ldx,
                    .ldy = a->w->n_out,
                    .rows = a->n * a->k,
                    .x_div = a->x_div,
                    .compute = a->compute };
}

static size_t matmul_scratch(vk_device *d, const void *args)
{
    const vk_mm p = mm_of(args);
    return vk_halves_take(d, &p) ? vk_halves_scratch(d, &p) : 0;
}

static int matmul_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = args;
    const vk_mm p = mm_of(a);
    return run_mm(d, l, &p, diag);
}

/* ---- fused forms: the products by matmul_dot ---- */

/* One matmul_dot makes the whole product. */
static int one_dot(const vk_device *d, const vk_mm *p, const char *form, kvant_diag *diag)
{
    const int64_t rows = p->w->n_out * p->w->n_expert;
    if (p->rows > 0 && dot_rows(d, p) > 0 && vk_window_rows(d, p->w->packed, rows) >= rows)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: matmul_dot does not take %d rows of %s", form,
                      p->rows, p->w->type->name);
}

/* swiglu of the halves of every row of p. */
static int run_pair(vk_device *d, vk_list *l, const vk_mm *p, kvant_diag *diag)
{
    return run_dot(d, l, p, 0, p->w->n_out * p->w->n_expert, (dot_more){ 2, NULL, NULL }, diag);
}

static int matmul_swiglu_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const vk_mm p = mm_of(((const kvant_op *)args)[0].args);
    return one_dot(d, &p, "matmul_swiglu", diag);
}

static int matmul_swiglu_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const vk_mm p = mm_of(((const kvant_op *)args)[0].args);
    return run_pair(d, l, &p, diag);
}

static int matmul_id_swiglu_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const vk_mm p = mm_id_of(((const kvant_op *)args)[0].args);
    return one_dot(d, &p, "matmul_id_swiglu", diag);
}

static int matmul_id_swiglu_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const vk_mm p = mm_id_of(((const kvant_op *)args)[0].args);
    return run_pair(d, l, &p, diag);
}

static int matmul_norm_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_op *ops = args;
    const kvant_norm_add_rms_args *n = ops[1].args;
    const vk_mm first = mm_of(ops[0].args), second = mm_of(ops[2].args);
    const int most = 16 * (d->caps.bda ? VK_WIDE_GROUP : VK_GROUP);
    if (n->d > most)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: matmul_norm: rows of %d, wanted at most %d", n->d,
                          most);
    KVANT_TRY(one_dot(d, &first, "matmul_norm", diag));
    return one_dot(d, &second, "matmul_norm", diag);
}

/* The first product is added to the residual rows, the second norms these itself; parts: as dot_more. */
static int run_norm(vk_device *d, vk_list *l, const kvant_op *ops, int parts, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *norm = ops[1].args;
    const vk_mm first = mm_of(ops[0].args);
    vk_mm second = mm_of(ops[2].args);
    KVANT_TRY(run_dot(d, l, &first, 0, first.w->n_out, (dot_more){ 1, norm->x, NULL }, diag));
    second.x = norm->x;
    return run_dot(d, l, &second, 0, second.w->n_out, (dot_more){ parts, NULL, norm }, diag);
}

static int matmul_norm_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return run_norm(d, l, args, 1, diag);
}

static int matmul_norm_swiglu_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return run_norm(d, l, args, 2, diag);
}

static int matmul_id_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = args;
    const int64_t rows = (int64_t)a->n * a->k;
    KVANT_TRY(weight_supports(d, a->w, "matmul_id", diag));
    if (rows > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: matmul_id: %lld rows, wanted at most %u",
                          (long long)rows, d->caps.max_groups);
    return vk_fits("matmul_id", rows * (a->ldx > a->w->n_out ? a->ldx : a->w->n_out), diag);
}

static size_t matmul_id_scratch(vk_device *d, const void *args)
{
    const vk_mm p = mm_id_of(args);
    return vk_halves_take(d, &p) ? vk_halves_scratch(d, &p) : 0;
}

static int matmul_id_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const vk_mm p = mm_id_of(args);
    KVANT_TRY(matmul_id_supports(d, args, diag));
    return run_mm(d, l, &p, diag);
}

const vk_op vk_op_embed = { .supports = embed_supports, .run = embed_run };
const vk_op vk_op_matmul = { .supports = matmul_supports, .scratch = matmul_scratch, .run = matmul_run };
const vk_op vk_op_matmul_id = { .supports = matmul_id_supports, .scratch = matmul_id_scratch, .run = matmul_id_run };
const vk_op vk_fused_matmul_swiglu = { .supports = matmul_swiglu_supports, .run = matmul_swiglu_run };
const vk_op vk_fused_matmul_id_swiglu = { .supports = matmul_id_swiglu_supports, .run = matmul_id_swiglu_run };
const vk_op vk_fused_matmul_norm = { .supports = matmul_norm_supports, .run = matmul_norm_run };
const vk_op vk_fused_matmul_norm_swiglu = { .supports = matmul_norm_supports, .run = matmul_norm_swiglu_run };
