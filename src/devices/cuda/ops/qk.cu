/* qk.cu: norms and rotations of queries and keys: of both sides in one launch, or with the attention behind them: in
 * its launch (whole_ahead.cuh) or in the one that makes all it reads (attn_front.cu).  Then nobody else has them: the
 * rows of q and k stay as the products left them. */
#include "devices/cuda/ops/qk.cuh"
#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/core/device.cuh"
#include "devices/cuda/ops/head_norm.cuh"
#include "devices/cuda/ops/rope.cuh"

typedef struct qk_side {
    kvant_norm_rms_args norm;
    kvant_rope_args rope;
} qk_side;

/* A warp has `each` heads of a token, so that angles are made once for them.  Pairs (e, e + n_rot/2) lie in one lane:
 * n_rot = 64 HALF. */
template <int HALF> static __global__ void __launch_bounds__(THREADS) qk_kernel(qk_side q, qk_side k, int each)
{
    const int heads = q.norm.h + k.norm.h;
    float c[HALF], s[HALF];
    int64_t i;
    int u;
    pdl_go();
    if (!group_at(q.norm.n, (heads + each - 1) / each, &i, &u))
        return;
    pdl_wait();
#pragma unroll
    for (int e = 0; e < HALF; e++) {
        const float angle = (float)q.rope.pos[i] * q.rope.inv_freq[threadIdx.x % 32 + 32 * e];
        c[e] = cosf(angle) * q.rope.mscale;
        s[e] = sinf(angle) * q.rope.mscale;
    }
    for (int at = u * each; at < min(heads, (u + 1) * each); at++) {
        const bool key = at >= q.norm.h;
        const kvant_norm_rms_args a = key ? k.norm : q.norm;
        const int j = at - (key ? q.norm.h : 0);
        head h = head_load(a.x + i * a.ldx + j * a.gx, a.d);
        head_rms(&h, a.w, a.d, a.eps);
#pragma unroll
        for (int e = 0; e < HALF; e++)
            rope_turn(&h.v[e], &h.v[e + HALF], c[e], s[e]);
        head_store(a.y + i * a.ldy + j * a.gy, h, a.d);
    }
}

static void qk_run(const cuda_device *d, const qk_side &q, const qk_side &k)
{
    void (*const kernel)(qk_side, qk_side, int) = q.rope.n_rot == 64    ? qk_kernel<1>
                                                  : q.rope.n_rot == 128 ? qk_kernel<2>
                                                                        : qk_kernel<4>;
    const int heads = q.norm.h + k.norm.h;
    const int64_t full = 64ll * d->n_sm; /* warps that the GPU holds at once */
    const int64_t all = q.norm.n * (int64_t)heads;
    const int each = all >= 16 * full ? 8 : all >= 8 * full ? 4 : 1;
    const unsigned blocks = cuda_blocks(q.norm.n * (int64_t)((heads + each - 1) / each), WARPS);
    cuda_launch(d, kernel, dim3(blocks), THREADS, 0, q, k, each);
}

/* ---- forms ---- */

/* The ops of a form: norms (or none), ropes, then writes of both sides, seals and attn, where it has them. */
typedef struct qk_ops {
    const kvant_norm_rms_args *q_norm, *k_norm;
    const kvant_rope_args *q, *k;
    const kvant_cache_write_args *k_write, *v_write;
    const kvant_attn_args *attn;
} qk_ops;

template <bool NORMS, int SEALS> static qk_ops qk_of(const kvant_op *ops)
{
    qk_ops o = {};
    if (NORMS) {
        o.q_norm = OP_ARGS(norm_rms, 0);
        o.k_norm = OP_ARGS(norm_rms, 1);
        ops += 2;
    }
    o.q = OP_ARGS(rope, 0);
    o.k = OP_ARGS(rope, 1);
    o.k_write = OP_ARGS(cache_write, 2);
    o.v_write = OP_ARGS(cache_write, 3);
    o.attn = OP_ARGS(attn, 4 + SEALS);
    return o;
}

static head_ahead ahead_of(const qk_ops &o)
{
    return { o.q_norm ? o.q_norm->w : NULL,   o.k_norm ? o.k_norm->w : NULL, o.q->pos, o.q->inv_freq,
             o.q_norm ? o.q_norm->eps : 0.0f, o.k_norm ? o.k_norm->eps : 0.0f, o.q->mscale, o.q->n_rot, o.q->neox };
}

template <bool NORMS> static bool whole_takes(cuda_device *d, const kvant_op *ops)
{
    const qk_ops o = qk_of<NORMS, 0>(ops);
    const head_ahead ahead = ahead_of(o);
    return cuda_attn_write_takes(d, o.k_write, o.v_write, o.attn, &ahead);
}

template <bool NORMS>
static int whole_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    const qk_ops o = qk_of<NORMS, 0>(ops);
    const head_ahead ahead = ahead_of(o);
    return cuda_attn_write(d, o.k_write, o.v_write, o.attn, &ahead, diag);
}

template <bool NORMS, int SEALS> static bool front_takes(cuda_device *d, const kvant_op *ops)
{
    const qk_ops o = qk_of<NORMS, SEALS>(ops);
    return cuda_attn_front_takes(d, o.k_write, o.v_write, o.attn, ahead_of(o));
}

/* The seals between the writes and attn run in their place. */
template <bool NORMS, int SEALS>
static int front_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    const qk_ops o = qk_of<NORMS, SEALS>(ops);
    CUDA_TRY(cuda_attn_front(d, o.k_write, o.v_write, o.attn, ahead_of(o), diag));
    CUDA_TRY(cuda_launch_list(d, ops + (NORMS ? 6 : 4), SEALS, diag));
    return cuda_attn_behind(d, o.attn, SEALS > 0, pass == PASS_HALVES, diag);
}

static bool turn_takes(cuda_device *, const kvant_op *ops)
{
    const kvant_norm_rms_args *n = OP_ARGS(norm_rms, 0);
    const kvant_rope_args *q = OP_ARGS(rope, 2), *k = OP_ARGS(rope, 3);
    return q->n == k->n && q->n > 0 && q->pos == k->pos && q->n_rot == k->n_rot && q->inv_freq == k->inv_freq &&
           q->mscale == k->mscale && q->neox && k->neox && (q->n_rot == 64 || q->n_rot == 128 || q->n_rot == 256) &&
           n->d == OP_ARGS(norm_rms, 1)->d && n->d <= HEAD;
}

static int turn_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const qk_side q = { *OP_ARGS(norm_rms, 0), *OP_ARGS(rope, 2) }, k = { *OP_ARGS(norm_rms, 1), *OP_ARGS(rope, 3) };
    qk_run(d, q, k);
    return KVANT_OK;
}

const cuda_form cuda_fused_norm_rope = { turn_takes, turn_run };
const cuda_form cuda_fused_norm_rope_whole = { whole_takes<true>, whole_run<true> };
const cuda_form cuda_fused_norm_rope_attn = { front_takes<true, 0>, front_run<true, 0> };
const cuda_form cuda_fused_norm_rope_seal_attn = { front_takes<true, 1>, front_run<true, 1> };
const cuda_form cuda_fused_norm_rope_seals_attn = { front_takes<true, 2>, front_run<true, 2> };
const cuda_form cuda_fused_rope_whole = { whole_takes<false>, whole_run<false> };
const cuda_form cuda_fused_rope_attn = { front_takes<false, 0>, front_run<false, 0> };
const cuda_form cuda_fused_rope_seal_attn = { front_takes<false, 1>, front_run<false, 1> };
const cuda_form cuda_fused_rope_seals_attn = { front_takes<false, 2>, front_run<false, 2> };
