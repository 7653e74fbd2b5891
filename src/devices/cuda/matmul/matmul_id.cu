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

/* Returns true if the op behind a product of experts is the swiglu of their gate and up, in place. */
static bool glu_after(const kvant_matmul_id_args *a, const kvant_op *op)
{
    return cuda_glu_of(op, a->y, a->w->n_out, a->n * a->k, a->w->n_out) > 0;
}

/* ---- a token's experts in two launches: gate and up with swiglu, down with the sum ---- */

/* The ops of one token's (of more, the launches one by one are faster), and where the list goes on.  shared, down2
 * NULL: no shared expert; gate NULL: it has none. */
typedef struct expert_ops {
    const kvant_matmul_id_args *gate_up, *down;
    const kvant_matmul_args *shared, *down2;
    const kvant_moe_combine_args *sum;
    const float *gate;
    const kvant_op *end;
} expert_ops;

static bool of_like(const kvant_weight *a, const kvant_weight *b)
{
    return a->packed && b->packed && cuda_wtype_of(a) == cuda_wtype_of(b) && a->n_in == b->n_in &&
           a->n_out == b->n_out && !((const cuda_weight *)a->packed)->scale && !((const cuda_weight *)b->packed)->scale;
}

/* A shared expert at ops[0], of the shape and types of the others; returns its ops, 0: none. */
static int shared_at(const kvant_op *ops, int n, expert_ops *o)
{
    const kvant_matmul_id_args *g = o->gate_up;
    if (n < 3 || ops[0].id != KVANT_OP_MATMUL || ops[2].id != KVANT_OP_MATMUL)
        return 0;
    o->shared = (const kvant_matmul_args *)ops[0].args;
    o->down2 = (const kvant_matmul_args *)ops[2].args;
    const int64_t f = cuda_swiglu_after(ops, n), rows = (int64_t)g->n * g->k * g->w->n_out;
    const kvant_matmul_args *a = o->shared, *b = o->down2;
    if (!of_like(a->w, g->w) || !of_like(b->w, o->down->w) || a->x != g->x || a->ldx != g->ldx || a->m != g->n ||
        f == 0 || b->x != a->y || b->ldx != a->ldy || b->m != g->n || a->compute != g->compute ||
        b->compute != g->compute || !apart(a->y, (a->m - 1) * a->ldy + a->w->n_out, g->y, rows))
        return 0;
    return 3;
}

/* The sum at ops[0], with the shared expert's behind it; returns its ops, 0: none. */
static int sum_at(const kvant_op *ops, int n, expert_ops *o)
{
    if (n < 1 || ops[0].id != KVANT_OP_MOE_COMBINE)
        return 0;
    const kvant_moe_combine_args *c = o->sum = (const kvant_moe_combine_args *)ops[0].args;
    if (c->x != o->down->y || c->n != o->down->n || c->k != o->down->k || c->d != o->down->w->n_out)
        return 0;
    if (!o->shared)
        return 1;
    const bool gated = n > 1 && ops[1].id == KVANT_OP_GATE_ADD;
    if (n < 2 || (!gated && ops[1].id != KVANT_OP_ADD))
        return 0;
    const kvant_gate_add_args *g = (const kvant_gate_add_args *)ops[1].args;
    const kvant_add_args *a = (const kvant_add_args *)ops[1].args;
    o->gate = gated ? g->gate : NULL;
    return gated ? 2 * (g->y == c->y && g->x == o->down2->y && g->n == c->n && g->d == c->d)
                 : 2 * (a->x == c->y && a->y == o->down2->y && a->n == c->n && a->d == c->d);
}

static bool experts_at(const kvant_op *ops, int n, expert_ops *o)
{
    memset(o, 0, sizeof *o);
    if (n < 4 || ops[2].id != KVANT_OP_MATMUL_ID)
        return false;
    const kvant_matmul_id_args *g = o->gate_up = (const kvant_matmul_id_args *)ops[0].args;
    const kvant_matmul_id_args *e = o->down = (const kvant_matmul_id_args *)ops[2].args;
    if (g->n != 1 || g->compute == KVANT_COMPUTE_F32 || e->compute != g->compute || g->x_div != g->k ||
        !glu_after(g, &ops[1]) || e->x != g->y || e->ids != g->ids || e->n != g->n || e->k != g->k || e->x_div != 1 ||
        e->ldx != g->w->n_out || !of_like(g->w, g->w) || !of_like(e->w, e->w))
        return false;
    const int shared = shared_at(ops + 3, n - 3, o);
    if (!shared)
        o->shared = o->down2 = NULL;
    const int sum = sum_at(ops + 3 + shared, n - 3 - shared, o);
    o->end = ops + 3 + shared + sum;
    return sum > 0;
}

static int8_sum sum_of(const expert_ops *o)
{
    int8_sum s;
    memset(&s, 0, sizeof s);
    s.p = mm_of_id_args(o->down);
    s.p.y = o->sum->y;
    s.k = o->down->k;
    s.wts = o->sum->wts;
    if (o->shared) {
        const mm other = cuda_mm_of(o->down2->w, o->down2->x, NULL, o->down2->ldx, 0, o->down2->m, 1);
        s.p.w2 = other.w;
        s.p.x_vec &= other.x_vec;
        s.x2 = other.x;
        s.ldx2 = other.ldx;
    }
    s.gate = o->gate;
    return s;
}

/* The sum is added to the residual row, where what is behind it takes that. */
static int fuse_experts(cuda_device *d, const kvant_op *ops, int n)
{
    expert_ops o;
    norm_next next;
    if (!experts_at(ops, n, &o))
        return 0;
    mm first = mm_of_id_args(o.gate_up);
    int8_sum last = sum_of(&o);
    if (!cuda_int8_takes(d, cuda_wtype_of(o.gate_up->w), first) || !cuda_int8_sums(d, cuda_wtype_of(o.down->w), last))
        return 0;
    if (o.shared) {
        first.w2 = cuda_mm_of(o.shared->w, NULL, NULL, 0, 0, 1, 1).w;
        first.y2 = o.shared->y;
        first.ldy2 = o.shared->ldy;
        first.rows2 = o.shared->m;
    }
    const int took = (int)(o.end - ops);
    const bool more = cuda_norm_next(d, o.end, n - took, o.sum->y, &next) && next.d == o.sum->d;
    if (more)
        last.p.add = next.x;
    cuda_int8(d, cuda_wtype_of(o.gate_up->w), first, o.gate_up->w->n_out / 2);
    cuda_int8_sum(d, cuda_wtype_of(o.down->w), last, o.gate_up->n);
    if (more)
        cuda_norm_next_run(d, &next);
    return took + (more ? next.took : 0);
}

/* Two products of the same ids by coded.cuh: rows are sorted once. */
static int fuse_sorted(cuda_device *d, const kvant_op *ops, int n)
{
    if (n < 3 || ops[2].id != KVANT_OP_MATMUL_ID || ops[1].id != KVANT_OP_SWIGLU)
        return 0;
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)ops[0].args;
    const kvant_matmul_id_args *b = (const kvant_matmul_id_args *)ops[2].args;
    if (!a->w->packed || !b->w->packed || !id_in_registers(d, a) || !id_in_registers(d, b) || a->ids != b->ids ||
        a->n != b->n || a->k != b->k || a->w->n_expert != b->w->n_expert)
        return 0;
    cuda_coded(d, cuda_wtype_of(a->w), mm_of_id_args(a));
    if (cuda_op_swiglu.run(d, ops[1].args, NULL) < 0)
        return 1; /* the list runs it again, for its message */
    mm p = mm_of_id_args(b);
    p.sorted = true;
    cuda_coded(d, cuda_wtype_of(b->w), p);
    return 3;
}

/* A token's experts, or their first product with its swiglu. */
static int matmul_id_fuse(cuda_device *d, const kvant_op *ops, int n, kvant_diag *)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)ops[0].args;
    int took = fuse_experts(d, ops, n);
    if (!took)
        took = fuse_sorted(d, ops, n);
    if (took || n < 2 || id_sorted(a) || a->n * a->k < 1 || !a->w->packed || !glu_after(a, &ops[1]))
        return took;
    run_unsorted(d, a, a->w->n_out / 2);
    return 2;
}

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

const cuda_op cuda_op_matmul_id = { matmul_id_supports, matmul_id_scratch, matmul_id_run, matmul_id_fuse };
