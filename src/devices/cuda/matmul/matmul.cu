/* matmul.cu: embed and matmul for every weight type in file layout: which kernel runs, what is fused (few.cuh).
 *
 * Mode auto: few rows of 4- to 8-bit weights in integers (int8.cuh); more rows of weights with blocks, and experts', in
 * bf16 (coded.cuh); many of any by cuBLASLt (matmul_blas.cu).  Else few rows: gemv.cu, gemv_stream.cu; many:
 * matmul_tiles.cu.  Nothing is read back. */
#include "devices/cuda/matmul/coded.cuh"
#include "devices/cuda/matmul/few.cuh"
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

bool cuda_by_blas(const cuda_device *d, const kvant_matmul_args *a)
{
    return a->m > 0 && a->w->packed && !in_registers(d, a) && !in_integers(d, a) && cuda_blas_bf16(d, a);
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

/* ---- forms: products of few rows ---- */

/* As a product of few rows, if it is one; false else. */
static bool few_rows(const cuda_device *d, const kvant_matmul_args *a, few *f)
{
    if (a->m < 1 || !a->w->packed)
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

static int not_few(kvant_diag *diag)
{
    return cuda_fail(diag, KVANT_EINTERNAL, "device cuda: matmul: another product than before");
}

static bool glu_takes(cuda_device *d, const kvant_op *ops)
{
    few f;
    return OP_ARGS(swiglu, 1)->f > 0 && few_rows(d, OP_ARGS(matmul, 0), &f);
}

static int glu_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    few f;
    if (!few_rows(d, OP_ARGS(matmul, 0), &f))
        return not_few(diag);
    run_few(d, &f, OP_ARGS(swiglu, 1)->f);
    return KVANT_OK;
}

/* It adds its row to the residual row of the norm behind it. */
static bool add_takes(cuda_device *d, const kvant_op *ops)
{
    few f;
    return few_rows(d, OP_ARGS(matmul, 0), &f) && one_row(&f);
}

static int add_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    few f;
    if (!few_rows(d, OP_ARGS(matmul, 0), &f))
        return not_few(diag);
    f.p.add = OP_ARGS(norm_add_rms, 1)->x;
    run_few(d, &f, 0);
    return KVANT_OK;
}

/* The product of the row that a norm gives of its residual row: every block normalises it for itself. */
static bool normed_row(const cuda_device *d, const kvant_op *ops, few *b)
{
    const kvant_norm_add_rms_args *s = OP_ARGS(norm_add_rms, 0);
    if (!row_fits(s->x, s->y, s->w, 0, 0, s->d) || !few_rows(d, OP_ARGS(matmul, 1), b) || !one_row(b))
        return false;
    b->p.x = s->x;
    b->p.x_vec = 1;
    b->p.norm = s->w;
    b->p.normed = s->y;
    b->p.eps = s->eps;
    return !b->int8 || cuda_int8_takes(d, b->type, b->p);
}

static bool added_takes(cuda_device *d, const kvant_op *ops)
{
    few b;
    return normed_row(d, ops, &b);
}

static int added_run_pair(cuda_device *d, const kvant_op *ops, int64_t pair, kvant_diag *diag)
{
    few b;
    if (!normed_row(d, ops, &b))
        return not_few(diag);
    run_few(d, &b, pair);
    return KVANT_OK;
}

static int added_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    return added_run_pair(d, ops, 0, diag);
}

static int added_glu_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    return added_run_pair(d, ops, OP_ARGS(swiglu, 2)->f, diag);
}

const cuda_form cuda_fused_matmul_swiglu = { glu_takes, glu_run };
const cuda_form cuda_fused_matmul_add = { add_takes, add_run };
const cuda_form cuda_fused_added_matmul = { added_takes, added_run };
const cuda_form cuda_fused_added_matmul_swiglu = { added_takes, added_glu_run };

/* ---- forms: products of one x (query, key and value) ---- */

/* Kernels that can run side by side: of equal kind and size. */
static bool alike(const cuda_device *d, const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return b->w->packed && in_registers(d, b) == in_registers(d, a) && in_integers(d, b) == in_integers(d, a) &&
           wshapes[cuda_wtype_of(b->w)].integers == wshapes[cuda_wtype_of(a->w)].integers;
}

template <int N> static bool beside_takes(cuda_device *d, const kvant_op *ops)
{
    const kvant_matmul_args *a = OP_ARGS(matmul, 0);
    if (a->m < 1 || !a->w->packed || (!in_registers(d, a) && !in_integers(d, a)))
        return false;
    for (int i = 1; i < N; i++)
        if (!alike(d, a, OP_ARGS(matmul, i)))
            return false;
    return true;
}

template <int N> static int beside_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    for (int i = 0; i < N; i++) {
        const kvant_matmul_args *b = OP_ARGS(matmul, i);
        mm p = mm_of_args(b);
        p.beside = (i > 0 ? BESIDE_LAST : 0) | (i < N - 1 ? BESIDE_NEXT : 0);
        if (in_registers(d, b))
            cuda_coded(d, cuda_wtype_of(b->w), p);
        else
            cuda_int8(d, cuda_wtype_of(b->w), p, 0);
    }
    return KVANT_OK;
}

/* Two of one type and shape, by gemv.cu: one launch. */
static bool twins_takes(cuda_device *d, const kvant_op *ops)
{
    few f, g;
    return few_rows(d, OP_ARGS(matmul, 0), &f) && few_rows(d, OP_ARGS(matmul, 1), &g) && !f.int8 && !g.int8 &&
           f.type == g.type && !cuda_gemv_streams(f.type, f.p) && !f.p.scale && !g.p.scale && f.p.w_vec == g.p.w_vec;
}

static int twins_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    few f, g;
    if (!few_rows(d, OP_ARGS(matmul, 0), &f) || !few_rows(d, OP_ARGS(matmul, 1), &g))
        return not_few(diag);
    f.p.w2 = g.p.w;
    f.p.y2 = g.p.y;
    f.p.ldy2 = g.p.ldy;
    f.p.rows2 = g.p.rows;
    cuda_gemv(d, f.type, f.p, 0);
    return KVANT_OK;
}

const cuda_form cuda_fused_matmuls_2 = { beside_takes<2>, beside_run<2> };
const cuda_form cuda_fused_matmuls_3 = { beside_takes<3>, beside_run<3> };
const cuda_form cuda_fused_matmuls_4 = { beside_takes<4>, beside_run<4> };
const cuda_form cuda_fused_matmul_twins = { twins_takes, twins_run };

/* ---- embed ---- */

template <int T> static __global__ void embed_kernel(mm p)
{
    const int64_t id = p.ids[blockIdx.x];
    if (id < 0 || id >= p.n_out)
        return;
    const uint8_t *row = p.w + id * p.row_bytes;
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
const cuda_op cuda_op_matmul = { matmul_supports, matmul_scratch, matmul_run };
