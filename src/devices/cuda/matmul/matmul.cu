/* matmul.cu: embed, matmul, matmul_id for every weight type in file layout: which kernel runs, what is fused.
 *
 * Mode auto: few rows of 4- to 8-bit weights in integers (int8.cuh); more rows of weights with blocks, and experts', in
 * bf16 (coded.cuh); many of any by cuBLASLt (matmul_blas.cu).  Else few rows: gemv.cu, gemv_stream.cu; many:
 * matmul_tiles.cu.  Nothing is read back. */
#include "devices/cuda/matmul/coded.cuh"
#include "devices/cuda/ops/row_norm.cuh"

static mm mm_of(const kvant_weight *w, const float *x, float *y, int64_t ldx, int64_t ldy, int rows, int x_div)
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

static int weight_supports(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (cuda_wtype_find(w->type) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s: weight type %s has no kernels here", op,
                         w->type->name);
    return KVANT_OK;
}

static int loaded(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (!w->packed)
        return cuda_fail(diag, KVANT_EINVAL, "device cuda: %s: weight %.64s was not loaded", op,
                         w->name ? w->name : "?");
    return KVANT_OK;
}

/* Of a weight that was loaded. */
static int wtype_of(const kvant_weight *w)
{
    return ((const cuda_weight *)w->packed)->type;
}

static int matmul_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)d;
    return weight_supports(((const kvant_matmul_args *)args)->w, "matmul", diag);
}

static mm mm_of_args(const kvant_matmul_args *a)
{
    return mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
}

/* Whether it goes by coded.cuh: enough rows, and too few for copies of the matrix. */
static bool in_registers(const cuda_device *d, const kvant_matmul_args *a)
{
    if (a->compute == KVANT_COMPUTE_F32 || !a->w->packed)
        return false;
    return cuda_coded_pays(d, wtype_of(a->w), a->m) && cuda_coded_takes(d, wtype_of(a->w), mm_of_args(a));
}

/* Whether the product goes by int8.cuh. */
static bool in_integers(const cuda_device *d, const kvant_matmul_args *a)
{
    return a->compute != KVANT_COMPUTE_F32 && a->w->packed && a->m > 0 && !in_registers(d, a) &&
           cuda_int8_takes(d, wtype_of(a->w), mm_of_args(a));
}

static size_t matmul_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    return in_integers(d, a)    ? cuda_int8_scratch(mm_of_args(a))
           : in_registers(d, a) ? cuda_coded_scratch(d, wtype_of(a->w), mm_of_args(a))
                                : cuda_blas_scratch(d, args);
}

static int matmul_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    CUDA_TRY(loaded(a->w, "matmul", diag));
    if (a->m <= 0)
        return KVANT_OK;
    const mm p = mm_of_args(a);
    const int type = wtype_of(a->w);
    if (in_registers(d, a)) {
        cuda_coded(d, type, p);
        return KVANT_OK;
    }
    if (in_integers(d, a)) {
        cuda_int8(d, type, p, 0);
        return KVANT_OK;
    }
    if (cuda_blas_takes(d, a))
        return cuda_blas_run(d, a, p, diag);
    if (a->m <= GEMV_ROWS)
        cuda_gemv(d, type, p, 0);
    else
        cuda_tiles(d, type, p, a->compute == KVANT_COMPUTE_F32);
    return KVANT_OK;
}

/* Values of gate and up where the op after a matmul is their swiglu, in place over the gate half; else 0. */
static int64_t swiglu_after(const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args;
    if (n < 2 || ops[1].id != KVANT_OP_SWIGLU)
        return 0;
    const kvant_swiglu_args *s = (const kvant_swiglu_args *)ops[1].args;
    const bool fits = s->gate == a->y && s->y == a->y && s->up == a->y + s->f && s->ldg == a->ldy && s->ldu == a->ldy &&
                      s->ldy == a->ldy && s->n == a->m && a->w->n_out == 2 * (int64_t)s->f;
    return fits ? s->f : 0;
}

/* Of a product: its job, its type, and whether it goes by integers. */
struct few {
    mm p;
    int type;
    bool int8;
};

/* As a product of few rows, if it is one; false else. */
static bool few_rows(const cuda_device *d, const kvant_op *op, few *f)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)op->args;
    if (op->id != KVANT_OP_MATMUL || a->m < 1 || !a->w->packed)
        return false;
    f->int8 = in_integers(d, a);
    if (!f->int8 && (a->m > GEMV_ROWS || cuda_blas_takes(d, a)))
        return false;
    f->p = mm_of_args(a);
    f->type = wtype_of(a->w);
    return true;
}

/* Whether its kernel can add to a residual row, and normalise its own. */
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

static bool apart(const float *a, int64_t n, const float *b, int64_t m)
{
    return a + n <= b || b + m <= a;
}

/* matmul, norm_add_rms of its result, matmul of the norm (and swiglu) for one row: two launches.  The first adds to the
 * residual row, every block of the second normalises that row for itself. */
static int fuse_norm(cuda_device *d, const kvant_op *ops, int n)
{
    few a, b;
    if (n < 3 || ops[1].id != KVANT_OP_NORM_ADD_RMS || !few_rows(d, &ops[0], &a) || !few_rows(d, &ops[2], &b) ||
        !one_row(&a) || !one_row(&b))
        return 0;
    const kvant_norm_add_rms_args *s = (const kvant_norm_add_rms_args *)ops[1].args;
    mm *p = &a.p, *q = &b.p;
    if (s->n != 1 || s->add != p->y || s->d != p->n_out || s->y != q->x || s->d != q->n_in ||
        !row_fits(s->x, s->y, s->w, 0, 0, s->d) || !apart(s->x, s->d, p->x, p->n_in) ||
        !apart(s->x, s->d, p->y, s->d) ||
        !apart(s->x, s->d, q->y, q->n_out) || !apart(s->x, s->d, s->y, s->d) || !apart(s->y, s->d, q->y, q->n_out))
        return 0;
    const int64_t pair = swiglu_after(ops + 2, n - 2);
    p->add = s->x;
    q->x = s->x;
    q->x_vec = 1;
    q->norm = s->w;
    q->normed = s->y;
    q->eps = s->eps;
    if (b.int8 && !cuda_int8_takes(d, b.type, *q))
        return 0;
    run_few(d, &a, 0);
    run_few(d, &b, pair);
    return pair ? 4 : 3;
}

static bool outputs_apart(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return apart(a->y, (a->m - 1) * a->ldy + a->w->n_out, b->y, (b->m - 1) * b->ldy + b->w->n_out);
}

/* Whether ops[k] is a product of the x of ops[0] that may run beside those before it: of the same kind and size,
 * written elsewhere. */
static bool of_same_x(const cuda_device *d, const kvant_op *ops, int k)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args, *b = (const kvant_matmul_args *)ops[k].args;
    if (ops[k].id != KVANT_OP_MATMUL || b->x != a->x || b->m != a->m || b->ldx != a->ldx ||
        b->compute != a->compute || b->w->n_in != a->w->n_in || !b->w->packed)
        return false;
    for (int i = 0; i < k; i++)
        if (!outputs_apart((const kvant_matmul_args *)ops[i].args, b))
            return false;
    return in_registers(d, b) == in_registers(d, a) && in_integers(d, b) == in_integers(d, a) &&
           wshapes[wtype_of(b->w)].integers == wshapes[wtype_of(a->w)].integers &&
           apart(b->x, (b->m - 1) * b->ldx + b->w->n_in, b->y, (b->m - 1) * b->ldy + b->w->n_out);
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
            cuda_coded(d, wtype_of(b->w), p);
        else
            cuda_int8(d, wtype_of(b->w), p, 0);
    }
    return k > 1 ? k : 0;
}

static int matmul_fuse(cuda_device *d, const kvant_op *ops, int n)
{
    int took = fuse_norm(d, ops, n);
    if (!took)
        took = fuse_beside(d, ops, n);
    if (took)
        return took;
    const int64_t pair = swiglu_after(ops, n);
    few f;
    if (!pair || !few_rows(d, ops, &f))
        return 0;
    run_few(d, &f, pair);
    return 2;
}

/* Few tokens: every (row, slot) reads its own expert once; the sort would cost more than it saves. */
static int id_sorted(const kvant_matmul_id_args *a)
{
    return a->n > GEMV_ROWS;
}

static int matmul_id_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    (void)d;
    if (a->w->n_expert > MM_EXPERTS)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: matmul_id: %d experts, wanted at most %d",
                         a->w->n_expert, MM_EXPERTS);
    return weight_supports(a->w, "matmul_id", diag);
}

static mm mm_of_id_args(const kvant_matmul_id_args *a)
{
    mm p = mm_of(a->w, a->x, a->y, a->ldx, a->w->n_out, a->n * a->k, a->x_div);
    p.ids = a->ids;
    return p;
}

/* Whether sorted rows go by coded.cuh. */
static bool id_in_registers(const cuda_device *d, const kvant_matmul_id_args *a)
{
    return id_sorted(a) && a->compute != KVANT_COMPUTE_F32 && a->w->packed &&
           cuda_coded_takes(d, wtype_of(a->w), mm_of_id_args(a));
}

static size_t matmul_id_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    return id_in_registers(d, a) ? cuda_coded_scratch(d, wtype_of(a->w), mm_of_id_args(a))
                                 : ((size_t)a->n * (size_t)a->k + MM_EXPERTS + 1) * sizeof(int32_t);
}

/* Rows that are not sorted; pair as cuda_gemv has it. */
static void run_unsorted(cuda_device *d, const kvant_matmul_id_args *a, int64_t pair)
{
    const mm p = mm_of_id_args(a);
    const int type = wtype_of(a->w);
    if (a->compute != KVANT_COMPUTE_F32 && cuda_int8_takes(d, type, p))
        cuda_int8(d, type, p, pair);
    else
        cuda_gemv(d, type, p, pair);
}

/* Few rows and the swiglu of their gate and up. */
static int matmul_id_fuse(cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)ops[0].args;
    if (n < 2 || ops[1].id != KVANT_OP_SWIGLU || id_sorted(a) || a->n * a->k < 1 || !a->w->packed)
        return 0;
    const kvant_swiglu_args *s = (const kvant_swiglu_args *)ops[1].args;
    if (s->gate != a->y || s->y != a->y || s->up != a->y + s->f || s->ldg != a->w->n_out || s->ldu != s->ldg ||
        s->ldy != s->ldg || s->n != a->n * a->k || a->w->n_out != 2 * (int64_t)s->f)
        return 0;
    run_unsorted(d, a, s->f);
    return 2;
}

static int matmul_id_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    CUDA_TRY(loaded(a->w, "matmul_id", diag));
    CUDA_TRY(matmul_id_supports(d, args, diag));
    if (a->n * a->k <= 0)
        return KVANT_OK;
    if (!id_sorted(a)) {
        run_unsorted(d, a, 0);
        return KVANT_OK;
    }
    mm p = mm_of_id_args(a);
    const int type = wtype_of(a->w);
    if (id_in_registers(d, a)) {
        cuda_coded(d, type, p);
        return KVANT_OK;
    }
    cuda_sort_experts(d, &p);
    cuda_tiles(d, type, p, a->compute == KVANT_COMPUTE_F32);
    return KVANT_OK;
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
    return weight_supports(((const kvant_embed_args *)args)->w, "embed", diag);
}

static int embed_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = (const kvant_embed_args *)args;
    CUDA_TRY(loaded(a->w, "embed", diag));
    if (a->n <= 0)
        return KVANT_OK;
    mm p = mm_of(a->w, NULL, a->y, 0, a->w->n_in, a->n, 1);
    p.ids = a->ids;
    embed_launches[wtype_of(a->w)](p, d->stream);
    return KVANT_OK;
}

const cuda_op cuda_op_embed = { embed_supports, NULL, embed_run };
const cuda_op cuda_op_matmul = { matmul_supports, matmul_scratch, matmul_run, matmul_fuse };
const cuda_op cuda_op_matmul_id = { matmul_id_supports, matmul_id_scratch, matmul_id_run, matmul_id_fuse };
