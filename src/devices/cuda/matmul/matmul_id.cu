/* matmul_id.cu: matmul_id: which kernel runs, and the ops of a token's experts together. */
#include "devices/cuda/matmul/coded.cuh"
#include "devices/cuda/matmul/few.cuh"
#include "devices/cuda/matmul/int8/int8_sum.cuh"

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
    return cuda_weight_supports(a->w, "matmul_id", diag);
}

static mm mm_of_id_args(const kvant_matmul_id_args *a)
{
    mm p = cuda_mm_of(a->w, a->x, a->y, a->ldx, a->w->n_out, a->n * a->k, a->x_div);
    p.ids = a->ids;
    return p;
}

/* Returns true if sorted rows go by coded.cuh. */
static bool id_in_registers(const cuda_device *d, const kvant_matmul_id_args *a)
{
    return id_sorted(a) && a->compute != KVANT_COMPUTE_F32 && a->w->packed &&
           cuda_coded_takes(d, cuda_wtype_of(a->w), mm_of_id_args(a));
}

static size_t matmul_id_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    return id_in_registers(d, a) ? cuda_coded_scratch(d, cuda_wtype_of(a->w), mm_of_id_args(a))
                                 : ((size_t)a->n * (size_t)a->k + MM_EXPERTS + 1) * sizeof(int32_t);
}

/* Rows that are not sorted; pair as cuda_gemv has it. */
static void run_unsorted(cuda_device *d, const kvant_matmul_id_args *a, int64_t pair)
{
    const mm p = mm_of_id_args(a);
    const int type = cuda_wtype_of(a->w);
    if (a->compute != KVANT_COMPUTE_F32 && cuda_int8_takes(d, type, p))
        cuda_int8(d, type, p, pair);
    else
        cuda_gemv(d, type, p, pair);
}

/* ---- forms: a token's experts in two launches: gate and up with swiglu, down with the sum ---- */

/* The ops of one token's (of more, the launches one by one are faster).  shared, down2 NULL: no shared expert; gate
 * NULL: it has none. */
typedef struct expert_ops {
    const kvant_matmul_id_args *gate_up, *down;
    const kvant_matmul_args *shared, *down2;
    const kvant_moe_combine_args *sum;
    const float *gate;
} expert_ops;

static expert_ops plain_ops(const kvant_op *ops)
{
    return { OP_ARGS(matmul_id, 0), OP_ARGS(matmul_id, 2), NULL, NULL, OP_ARGS(moe_combine, 3), NULL };
}

static expert_ops shared_ops(const kvant_op *ops)
{
    return { OP_ARGS(matmul_id, 0), OP_ARGS(matmul_id, 2), OP_ARGS(matmul, 3), OP_ARGS(matmul, 5),
             OP_ARGS(moe_combine, 6), NULL };
}

static expert_ops gated_ops(const kvant_op *ops)
{
    expert_ops o = shared_ops(ops);
    o.gate = OP_ARGS(gate_add, 7)->gate;
    return o;
}

static bool of_like(const kvant_weight *a, const kvant_weight *b)
{
    return a->packed && b->packed && cuda_wtype_of(a) == cuda_wtype_of(b) && a->n_in == b->n_in &&
           a->n_out == b->n_out && !((const cuda_weight *)a->packed)->scale && !((const cuda_weight *)b->packed)->scale;
}

static mm first_of(const expert_ops &o)
{
    mm p = mm_of_id_args(o.gate_up);
    if (o.shared) {
        p.w2 = cuda_mm_of(o.shared->w, NULL, NULL, 0, 0, 1, 1).w;
        p.y2 = o.shared->y;
        p.ldy2 = o.shared->ldy;
        p.rows2 = o.shared->m;
    }
    return p;
}

static int8_sum sum_of(const expert_ops &o)
{
    int8_sum s;
    memset(&s, 0, sizeof s);
    s.p = mm_of_id_args(o.down);
    s.p.y = o.sum->y;
    s.k = o.down->k;
    s.wts = o.sum->wts;
    if (o.shared) {
        const mm other = cuda_mm_of(o.down2->w, o.down2->x, NULL, o.down2->ldx, 0, o.down2->m, 1);
        s.p.w2 = other.w;
        s.p.x_vec &= other.x_vec;
        s.x2 = other.x;
        s.ldx2 = other.ldx;
    }
    s.gate = o.gate;
    return s;
}

template <expert_ops (*OPS)(const kvant_op *)> static bool experts_takes(cuda_device *d, const kvant_op *ops)
{
    const expert_ops o = OPS(ops);
    const kvant_weight *w = o.gate_up->w, *down = o.down->w;
    const bool shared = !o.shared || (of_like(o.shared->w, w) && of_like(o.down2->w, down));
    return of_like(w, w) && of_like(down, down) && shared &&
           cuda_int8_takes(d, cuda_wtype_of(w), mm_of_id_args(o.gate_up)) &&
           cuda_int8_sums(d, cuda_wtype_of(down), sum_of(o));
}

/* The sum is added to the residual row, where what is behind it takes that: the op behind OPS's is its norm. */
template <expert_ops (*OPS)(const kvant_op *), int N>
static int experts_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *)
{
    const expert_ops o = OPS(ops);
    int8_sum last = sum_of(o);
    if (pass == PASS_ADDED)
        last.p.add = OP_ARGS(norm_add_rms, N)->x;
    cuda_int8(d, cuda_wtype_of(o.gate_up->w), first_of(o), o.gate_up->w->n_out / 2);
    cuda_int8_sum(d, cuda_wtype_of(o.down->w), last, o.gate_up->n);
    return KVANT_OK;
}

const cuda_form cuda_fused_experts = { experts_takes<plain_ops>, experts_run<plain_ops, 4> };
const cuda_form cuda_fused_experts_shared = { experts_takes<shared_ops>, experts_run<shared_ops, 8> };
const cuda_form cuda_fused_experts_gated = { experts_takes<gated_ops>, experts_run<gated_ops, 8> };

/* ---- forms: two products of the same ids by coded.cuh, whose rows are sorted once; one with its swiglu ---- */

static bool sorted_takes(cuda_device *d, const kvant_op *ops)
{
    const kvant_matmul_id_args *a = OP_ARGS(matmul_id, 0), *b = OP_ARGS(matmul_id, 2);
    return a->w->packed && b->w->packed && id_in_registers(d, a) && id_in_registers(d, b);
}

static int sorted_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = OP_ARGS(matmul_id, 0), *b = OP_ARGS(matmul_id, 2);
    cuda_coded(d, cuda_wtype_of(a->w), mm_of_id_args(a));
    CUDA_TRY(cuda_op_swiglu.run(d, ops[1].args, diag));
    mm p = mm_of_id_args(b);
    p.sorted = true;
    cuda_coded(d, cuda_wtype_of(b->w), p);
    return KVANT_OK;
}

static bool glu_takes(cuda_device *, const kvant_op *ops)
{
    const kvant_matmul_id_args *a = OP_ARGS(matmul_id, 0);
    return !id_sorted(a) && a->n * a->k >= 1 && a->w->packed && OP_ARGS(swiglu, 1)->f > 0;
}

static int glu_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const kvant_matmul_id_args *a = OP_ARGS(matmul_id, 0);
    run_unsorted(d, a, a->w->n_out / 2);
    return KVANT_OK;
}

const cuda_form cuda_fused_experts_sorted = { sorted_takes, sorted_run };
const cuda_form cuda_fused_matmul_id_swiglu = { glu_takes, glu_run };

static int matmul_id_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    CUDA_TRY(cuda_weight_loaded(a->w, "matmul_id", diag));
    CUDA_TRY(matmul_id_supports(d, args, diag));
    if (a->n * a->k <= 0)
        return KVANT_OK;
    if (!id_sorted(a)) {
        run_unsorted(d, a, 0);
        return KVANT_OK;
    }
    mm p = mm_of_id_args(a);
    const int type = cuda_wtype_of(a->w);
    if (id_in_registers(d, a)) {
        cuda_coded(d, type, p);
        return KVANT_OK;
    }
    cuda_sort_experts(d, &p);
    cuda_tiles(d, type, p, a->compute == KVANT_COMPUTE_F32);
    return KVANT_OK;
}

const cuda_op cuda_op_matmul_id = { matmul_id_supports, matmul_id_scratch, matmul_id_run };
