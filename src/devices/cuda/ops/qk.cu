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

/* The ops of both sides at the list's begin; norms: 2 or 0. */
typedef struct qk_ops {
    const kvant_norm_rms_args *q_norm, *k_norm;
    const kvant_rope_args *q, *k;
    int norms;
} qk_ops;

static bool norm_of(const kvant_norm_rms_args *a, const kvant_rope_args *r)
{
    return !a || (a->x == a->y && a->y == r->x && a->n == r->n && a->h == r->h && a->ldx == a->ldy &&
                  a->ldy == r->ldx && a->gx == a->gy && a->gy == r->gx);
}

static bool qk_match(const kvant_op *ops, int n, qk_ops *o)
{
    memset(o, 0, sizeof *o);
    if (n >= 4 && ops[0].id == KVANT_OP_NORM_RMS && ops[1].id == KVANT_OP_NORM_RMS) {
        o->q_norm = (const kvant_norm_rms_args *)ops[0].args;
        o->k_norm = (const kvant_norm_rms_args *)ops[1].args;
        o->norms = 2;
    }
    if (n < o->norms + 2 || ops[o->norms].id != KVANT_OP_ROPE || ops[o->norms + 1].id != KVANT_OP_ROPE)
        return false;
    const kvant_rope_args *q = (const kvant_rope_args *)ops[o->norms].args;
    const kvant_rope_args *k = (const kvant_rope_args *)ops[o->norms + 1].args;
    o->q = q;
    o->k = k;
    return norm_of(o->q_norm, q) && norm_of(o->k_norm, k) && q->n == k->n && q->pos == k->pos && q->n_rot == k->n_rot &&
           q->inv_freq == k->inv_freq && q->mscale == k->mscale && q->neox == k->neox && q->n > 0 &&
           (!o->norms || o->q_norm->d == o->k_norm->d);
}

static head_ahead ahead_of(const qk_ops &o)
{
    return { o.norms ? o.q_norm->w : NULL,   o.norms ? o.k_norm->w : NULL, o.q->pos, o.q->inv_freq,
             o.norms ? o.q_norm->eps : 0.0f, o.norms ? o.k_norm->eps : 0.0f, o.q->mscale, o.q->n_rot, o.q->neox };
}

/* cache_write of K and V and attn of these rows, between which pages may be sealed, what comes before them and, where
 * it can, a product behind.  Returns the ops taken, 0: not these. */
static int fuse_attn(cuda_device *d, const qk_ops &o, const kvant_op *ops, int n, kvant_diag *diag)
{
    int seals = 0;
    while (seals < 2 && 3 + seals < n && ops[2 + seals].id == KVANT_OP_PAGE_SEAL)
        seals++;
    if (n < 3 + seals || ops[0].id != KVANT_OP_CACHE_WRITE || ops[1].id != KVANT_OP_CACHE_WRITE ||
        ops[2 + seals].id != KVANT_OP_ATTN)
        return 0;
    const head_ahead ahead = ahead_of(o);
    const kvant_cache_write_args *k = (const kvant_cache_write_args *)ops[0].args;
    const kvant_cache_write_args *v = (const kvant_cache_write_args *)ops[1].args;
    const kvant_attn_args *a = (const kvant_attn_args *)ops[2 + seals].args;
    if (o.q->x != a->q || o.k->x != k->x || o.q->ldx != a->ldq || o.k->ldx != k->ldx || o.q->gx != a->gq ||
        o.k->gx != k->d || o.q->h != a->h || o.k->h != k->h || o.q->n != a->seqs.n_tokens ||
        (o.norms && o.q_norm->d != k->d))
        return 0;
    if (seals == 0 && cuda_attn_write(d, k, v, a, &ahead))
        return 3;
    if (!cuda_attn_front(d, k, v, a, ahead))
        return 0;
    CUDA_TRY(cuda_launch_list(d, ops + 2, seals, diag));
    const int took = cuda_attn_behind(d, ops + 2 + seals, n - 2 - seals, seals > 0, diag);
    return took < 0 ? took : 2 + seals + took;
}

int cuda_qk_fuse(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    qk_ops o;
    if (!qk_match(ops, n, &o))
        return 0;
    const int here = o.norms + 2;
    const int took = fuse_attn(d, o, ops + here, n - here, diag);
    if (took)
        return took < 0 ? took : here + took;
    if (!o.norms || !o.q->neox || (o.q->n_rot != 64 && o.q->n_rot != 128 && o.q->n_rot != 256) || o.q_norm->d > HEAD)
        return 0;
    const qk_side q = { *o.q_norm, *o.q }, k = { *o.k_norm, *o.k };
    qk_run(d, q, k);
    return here;
}
