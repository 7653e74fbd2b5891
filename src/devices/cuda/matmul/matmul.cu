/* matmul.cu: embed and matmul for every weight type in file layout: which kernel runs, what is fused (few.cuh).
 *
 * Mode auto: few rows of 4- to 8-bit weights in integers (int8.cuh); more rows of weights with blocks, and experts', in
 * bf16 (coded.cuh); many of any by cuBLASLt (matmul_blas.cu).  Else few rows: gemv.cu, gemv_stream.cu; many:
 * matmul_tiles.cu.  Nothing is read back. */
#include "devices/cuda/matmul/blas_chain.cuh"
#include "devices/cuda/matmul/coded.cuh"
#include "devices/cuda/matmul/few.cuh"
#include "devices/cuda/gdn/gdn_front.cuh"
#include "devices/cuda/ops/row_norm.cuh"

mm cuda_mm_of(const kvant_weight *w, const float *x, float *y, int64_t ldx, int64_t ldy, int rows, int x_div)
{
    const cuda_weight *c = (const cuda_weight *)w->packed;
    mm p;
    memset(&p, 0, sizeof p);
    p.w = c->data;
    p.scale = c->scale;
    p.x = x;
    p.y = y;
    p.n_in = w->n_in;
    p.n_out = w->n_out;
    p.row_bytes = (int64_t)c->row_bytes;
    p.ldx = ldx;
    p.ldy = ldy;
    p.rows = rows;
    p.n_expert = w->n_expert;
    p.n_scale = w->n_scale;
    p.x_div = x_div;
    p.x_vec = (((uintptr_t)x | (uintptr_t)(ldx * 4)) & 15) == 0;
    p.w_vec = (c->row_bytes & 15) == 0;
    return p;
}

int cuda_weight_supports(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (cuda_wtype_find(w->type) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s: weight type %s has no kernels here", op,
                         w->type->name);
    return KVANT_OK;
}

int cuda_weight_loaded(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (!w->packed)
        return cuda_fail(diag, KVANT_EINVAL, "device cuda: %s: weight %.64s was not loaded", op,
                         w->name ? w->name : "?");
    return KVANT_OK;
}

int cuda_wtype_of(const kvant_weight *w)
{
    return ((const cuda_weight *)w->packed)->type;
}

static int matmul_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)d;
    return cuda_weight_supports(((const kvant_matmul_args *)args)->w, "matmul", diag);
}

static mm mm_of_args(const kvant_matmul_args *a)
{
    return cuda_mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
}

/* Returns true if it goes by coded.cuh: enough rows, and too few for copies of the matrix. */
static bool in_registers(const cuda_device *d, const kvant_matmul_args *a)
{
    if (a->compute == KVANT_COMPUTE_F32 || !a->w->packed)
        return false;
    return cuda_coded_pays(d, cuda_wtype_of(a->w), a->m) && cuda_coded_takes(d, cuda_wtype_of(a->w), mm_of_args(a));
}

/* Returns true if the product goes by int8.cuh. */
static bool in_integers(const cuda_device *d, const kvant_matmul_args *a)
{
    return a->compute != KVANT_COMPUTE_F32 && a->w->packed && a->m > 0 && !in_registers(d, a) &&
           cuda_int8_takes(d, cuda_wtype_of(a->w), mm_of_args(a));
}

static size_t matmul_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    return in_integers(d, a)    ? cuda_int8_scratch(mm_of_args(a))
           : in_registers(d, a) ? cuda_coded_scratch(d, cuda_wtype_of(a->w), mm_of_args(a))
                                : cuda_blas_scratch(d, args);
}

bool cuda_by_blas(const cuda_device *d, const kvant_op *op)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)op->args;
    return op->id == KVANT_OP_MATMUL && a->m > 0 && a->w->packed && !in_registers(d, a) && !in_integers(d, a) &&
           cuda_blas_bf16(d, a);
}

/* Returns true if gemv.cu takes a product that is neither in_registers nor in_integers nor cuBLAS's. */
static bool by_gemv(const kvant_matmul_args *a)
{
    return a->m <= GEMV_ROWS || cuda_gemv_small(a->m, a->w->n_out, mm_of_args(a).row_bytes);
}

static int matmul_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    CUDA_TRY(cuda_weight_loaded(a->w, "matmul", diag));
    if (a->m <= 0)
        return KVANT_OK;
    const mm p = mm_of_args(a);
    const int type = cuda_wtype_of(a->w);
    if (in_registers(d, a)) {
        cuda_coded(d, type, p);
        return KVANT_OK;
    }
    if (in_integers(d, a)) {
        cuda_int8(d, type, p, 0);
        return KVANT_OK;
    }
    if (cuda_blas_takes(d, a))
        return cuda_blas_run(d, a, NULL, NULL, diag);
    if (by_gemv(a))
        cuda_gemv(d, type, p, 0);
    else
        cuda_tiles(d, type, p, a->compute == KVANT_COMPUTE_F32);
    return KVANT_OK;
}

int64_t cuda_glu_of(const kvant_op *op, const float *y, int64_t ldy, int rows, int64_t n_out)
{
    const kvant_swiglu_args *s = (const kvant_swiglu_args *)op->args;
    const bool fits = op->id == KVANT_OP_SWIGLU && s->gate == y && s->y == y && s->up == y + s->f && s->ldg == ldy &&
                      s->ldu == ldy && s->ldy == ldy && s->n == rows && n_out == 2 * (int64_t)s->f;
    return fits ? s->f : 0;
}

int64_t cuda_swiglu_after(const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args;
    return n < 2 ? 0 : cuda_glu_of(&ops[1], a->y, a->ldy, a->m, a->w->n_out);
}

/* As a product of few rows, if it is one; false else. */
static bool few_rows(const cuda_device *d, const kvant_op *op, few *f)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)op->args;
    if (op->id != KVANT_OP_MATMUL || a->m < 1 || !a->w->packed)
        return false;
    f->int8 = in_integers(d, a);
    if (!f->int8 && (!by_gemv(a) || in_registers(d, a) || cuda_blas_takes(d, a)))
        return false;
    f->p = mm_of_args(a);
    f->type = cuda_wtype_of(a->w);
    return true;
}

/* Returns true if its kernel can add to a residual row, and normalise its own. */
static bool one_row(const few *f)
{
    return f->int8 ? f->p.rows == 1 : cuda_gemv_streams(f->type, f->p);
}

static void run_few(cuda_device *d, const few *f, int64_t pair)
{
    if (f->int8)
        cuda_int8(d, f->type, f->p, pair);
    else
        cuda_gemv(d, f->type, f->p, pair);
}

enum { BESIDE_MOST = 4 };

/* The product at ops[1] of the row that the norm at ops[0] gives (and its swiglu). */
static int product_next(const cuda_device *d, const kvant_op *ops, int n, norm_next *o)
{
    const kvant_norm_add_rms_args *s = (const kvant_norm_add_rms_args *)ops[0].args;
    few *b = &o->b;
    if (!few_rows(d, &ops[1], b) || !one_row(b))
        return 0;
    mm *q = &b->p;
    if (s->y != q->x || s->d != q->n_in || !apart(s->x, s->d, q->y, q->n_out) || !apart(s->y, s->d, q->y, q->n_out))
        return 0;
    q->x = s->x;
    q->x_vec = 1;
    q->norm = s->w;
    q->normed = s->y;
    q->eps = s->eps;
    if (b->int8 && !cuda_int8_takes(d, b->type, *q))
        return 0;
    o->pair = cuda_swiglu_after(ops + 1, n - 1);
    return o->pair ? 3 : 2;
}

bool cuda_norm_next(const cuda_device *d, const kvant_op *ops, int n, const float *add, norm_next *o)
{
    memset(o, 0, sizeof *o);
    if (n < 2 || ops[0].id != KVANT_OP_NORM_ADD_RMS)
        return false;
    const kvant_norm_add_rms_args *s = (const kvant_norm_add_rms_args *)ops[0].args;
    if (s->n != 1 || s->add != add || !row_fits(s->x, s->y, s->w, 0, 0, s->d) || !apart(s->x, s->d, add, s->d) ||
        !apart(s->x, s->d, s->y, s->d))
        return false;
    o->x = s->x;
    o->d = s->d;
    o->ops = ops;
    o->took = cuda_router_takes(d, ops, n);
    o->route = o->took > 0;
    if (!o->route)
        o->took = product_next(d, ops, n, o);
    return o->took > 0;
}

void cuda_norm_next_run(cuda_device *d, const norm_next *o)
{
    if (o->route)
        cuda_router(d, o->ops, o->took);
    else
        run_few(d, &o->b, o->pair);
}

/* matmul, norm_add_rms of its result, and what takes the norm's row: two launches.  The first adds to the residual row,
 * every block of the second normalises that row for itself. */
static int fuse_norm(cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_args *m = (const kvant_matmul_args *)ops[0].args;
    few a;
    norm_next next;
    if (n < 3 || !few_rows(d, &ops[0], &a) || !one_row(&a) || !cuda_norm_next(d, ops + 1, n - 1, m->y, &next) ||
        next.d != a.p.n_out || !apart(next.x, next.d, a.p.x, a.p.n_in))
        return 0;
    a.p.add = next.x;
    run_few(d, &a, 0);
    cuda_norm_next_run(d, &next);
    return 1 + next.took;
}

static bool outputs_apart(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return apart(a->y, (a->m - 1) * a->ldy + a->w->n_out, b->y, (b->m - 1) * b->ldy + b->w->n_out);
}

/* Returns true if ops[k] is a product of the x of ops[0] that may run beside those before it: of equal kind and size,
 * written elsewhere. */
static bool of_same_x(const cuda_device *d, const kvant_op *ops, int k)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args, *b = (const kvant_matmul_args *)ops[k].args;
    if (ops[k].id != KVANT_OP_MATMUL || !same_rows(a, b) || b->compute != a->compute || !b->w->packed)
        return false;
    for (int i = 0; i < k; i++)
        if (!outputs_apart((const kvant_matmul_args *)ops[i].args, b))
            return false;
    return in_registers(d, b) == in_registers(d, a) && in_integers(d, b) == in_integers(d, a) &&
           wshapes[cuda_wtype_of(b->w)].integers == wshapes[cuda_wtype_of(a->w)].integers && rows_stay(b);
}

/* Products of one x (query, key and value): their kernels side by side. */
static int fuse_beside(cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args;
    int k = 0;
    if (a->m < 1 || !a->w->packed || (!in_registers(d, a) && !in_integers(d, a)))
        return 0;
    while (k < n && k < BESIDE_MOST && of_same_x(d, ops, k))
        k++;
    for (int i = 0; k > 1 && i < k; i++) {
        const kvant_matmul_args *b = (const kvant_matmul_args *)ops[i].args;
        mm p = mm_of_args(b);
        p.beside = (i > 0 ? BESIDE_LAST : 0) | (i < k - 1 ? BESIDE_NEXT : 0);
        if (in_registers(d, b))
            cuda_coded(d, cuda_wtype_of(b->w), p);
        else
            cuda_int8(d, cuda_wtype_of(b->w), p, 0);
    }
    return k > 1 ? k : 0;
}

/* Two products of one x, of one type and shape, by gemv.cu: one launch. */
static int fuse_twins(cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args;
    few f, g;
    if (n < 2 || !few_rows(d, &ops[0], &f) || !few_rows(d, &ops[1], &g) || f.int8 || g.int8 || f.type != g.type ||
        cuda_gemv_streams(f.type, f.p) || f.p.scale || g.p.scale)
        return 0;
    const kvant_matmul_args *b = (const kvant_matmul_args *)ops[1].args;
    if (!same_rows(a, b) || b->w->n_out != a->w->n_out || f.p.w_vec != g.p.w_vec || !outputs_apart(a, b))
        return 0;
    f.p.w2 = g.p.w;
    f.p.y2 = g.p.y;
    f.p.ldy2 = g.p.ldy;
    f.p.rows2 = g.p.rows;
    cuda_gemv(d, f.type, f.p, 0);
    return 2;
}

static int matmul_fuse(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    int took = fuse_norm(d, ops, n);
    if (!took)
        took = cuda_gdn_fuse(d, ops, n);
    if (!took)
        took = fuse_beside(d, ops, n);
    if (!took)
        took = fuse_twins(d, ops, n);
    if (!took)
        took = cuda_blas_side_by_side(d, ops, n, diag);
    if (took)
        return took;
    const int64_t pair = cuda_swiglu_after(ops, n);
    few f;
    if (!pair || !few_rows(d, ops, &f))
        return 0;
    run_few(d, &f, pair);
    return 2;
}

/* ---- embed ---- */

template <int T> static __global__ void embed_kernel(mm p)
{
    const uint8_t *row = p.w + (int64_t)p.ids[blockIdx.x] * p.row_bytes;
    float *y = p.y + (int64_t)blockIdx.x * p.ldy;
    const int64_t chunks = wide<T>() ? 0 : p.n_in / 8;
    for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x) {
        float w[8];
        chunk8<T>(row, c, w);
        for (int i = 0; i < 8; i++)
            y[8 * c + i] = p.scale ? w[i] * p.scale[0] : w[i];
    }
    if (wide<T>())
        for (int64_t k = threadIdx.x; k < p.n_in; k += blockDim.x) {
            const float w = value1<T>(row, k);
            y[k] = p.scale ? w * p.scale[0] : w;
        }
}

template <int T> static void embed_launch(const mm &p, cudaStream_t s)
{
    embed_kernel<T><<<(unsigned)p.rows, 128, 0, s>>>(p);
}

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) embed_launch<WT_##sym>,
static void (*const embed_launches[])(const mm &p, cudaStream_t s) = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

static int embed_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)d;
    return cuda_weight_supports(((const kvant_embed_args *)args)->w, "embed", diag);
}

static int embed_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = (const kvant_embed_args *)args;
    CUDA_TRY(cuda_weight_loaded(a->w, "embed", diag));
    if (a->n <= 0)
        return KVANT_OK;
    mm p = cuda_mm_of(a->w, NULL, a->y, 0, a->w->n_in, a->n, 1);
    p.ids = a->ids;
    embed_launches[cuda_wtype_of(a->w)](p, d->stream);
    return KVANT_OK;
}

const cuda_op cuda_op_embed = { embed_supports, NULL, embed_run };
const cuda_op cuda_op_matmul = { matmul_supports, matmul_scratch, matmul_run, matmul_fuse };
