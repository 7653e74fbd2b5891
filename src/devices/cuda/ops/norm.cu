/* norm.cu: norm_rms, norm_layer, norm_add_rms, norm_l2, norm_gated, and one launch for the norms and rotations of q and
 * k.
 *
 * Groups of up to HEAD values: a warp each, value lane + 32 k in register k; the sum runs over k, then over the lanes
 * by shuffles.  Longer rows: a block each, values in registers where they fit (row_norm.cuh), sums over a fixed tree
 * (thread, shuffles, warps in order). */
#include "devices/cuda/ops/rope.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, HEAD = 256, SLOTS = HEAD / 32 };

/* ---- a warp per group of d <= HEAD values ---- */

typedef struct head {
    float v[SLOTS];
} head;

static __device__ __forceinline__ head head_load(const float *x, int d)
{
    head h;
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        h.v[k] = (int)threadIdx.x % 32 + 32 * k < d ? x[threadIdx.x % 32 + 32 * k] : 0.0f;
    return h;
}

static __device__ __forceinline__ void head_store(float *y, const head &h, int d)
{
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        if ((int)threadIdx.x % 32 + 32 * k < d)
            y[threadIdx.x % 32 + 32 * k] = h.v[k];
}

static __device__ __forceinline__ float head_squares(const head &h)
{
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        s = fmaf(h.v[k], h.v[k], s);
    return warp_sum(s);
}

static __device__ __forceinline__ void head_rms(head *h, const float *w, int d, float eps)
{
    const float scale = 1.0f / sqrtf(head_squares(*h) / (float)d + eps);
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        if ((int)threadIdx.x % 32 + 32 * k < d)
            h->v[k] = h->v[k] * scale * w[threadIdx.x % 32 + 32 * k];
}

/* Group of this warp: row and head; false past the end. */
static __device__ __forceinline__ bool group_at(int n, int h, int64_t *i, int *j)
{
    const int64_t g = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    *i = g / h;
    *j = (int)(g % h);
    return g < n * (int64_t)h;
}

static __global__ void __launch_bounds__(THREADS) head_rms_kernel(kvant_norm_rms_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    head h = head_load(a.x + i * a.ldx + j * a.gx, a.d);
    head_rms(&h, a.w, a.d, a.eps);
    head_store(a.y + i * a.ldy + j * a.gy, h, a.d);
}

static __global__ void __launch_bounds__(THREADS) head_l2_kernel(kvant_norm_l2_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    float *x = a.x + i * a.ldx + j * a.gx;
    head h = head_load(x, a.d);
    const float length = sqrtf(head_squares(h));
    const float scale = 1.0f / (length < a.eps ? a.eps : length); /* a NaN length stays NaN */
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        h.v[k] *= scale;
    head_store(x, h, a.d);
}

static __global__ void __launch_bounds__(THREADS) head_gated_kernel(kvant_norm_gated_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    head o = head_load(a.o + (i * a.h + j) * a.dv, a.dv);
    const head z = head_load(a.z + i * a.ldz + j * a.dv, a.dv);
    head_rms(&o, a.w, a.dv, a.eps);
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        o.v[k] *= z.v[k] / (1.0f + expf(-z.v[k]));
    head_store(a.y + (i * a.h + j) * a.dv, o, a.dv);
}

/* ---- a block per row ---- */

static __device__ float block_sum(float v)
{
    __shared__ float part[WARPS];
    v = warp_sum(v);
    __syncthreads(); /* part may still be read from the sum before */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += part[i];
    return sum;
}

static __device__ float square_sum(const float *x, int d)
{
    float s = 0.0f;
    for (int e = threadIdx.x; e < d; e += THREADS)
        s = fmaf(x[e], x[e], s);
    return block_sum(s);
}

static __global__ void __launch_bounds__(THREADS) norm_rms_kernel(kvant_norm_rms_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *x = a.x + i * a.ldx + j * a.gx;
    float *y = a.y + i * a.ldy + j * a.gy;
    pdl_go();
    pdl_wait();
    const float scale = 1.0f / sqrtf(square_sum(x, a.d) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = x[e] * scale * a.w[e];
}

static __global__ void __launch_bounds__(THREADS) norm_layer_kernel(kvant_norm_layer_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *x = a.x + i * a.ldx + j * a.gx, *w = a.w + j * a.gw, *b = a.b + (a.b ? j * a.gw : 0);
    float *y = a.y + i * a.ldy + j * a.gy, sum = 0.0f, squares = 0.0f;
    pdl_go();
    pdl_wait();
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        sum += x[e];
    const float mean = block_sum(sum) / (float)a.d;
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        squares = fmaf(x[e] - mean, x[e] - mean, squares);
    const float scale = 1.0f / sqrtf(block_sum(squares) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = (x[e] - mean) * scale * w[e] + (a.b ? b[e] : 0.0f);
}

static __global__ void __launch_bounds__(THREADS) norm_l2_kernel(kvant_norm_l2_args a)
{
    float *x = a.x + (int64_t)(blockIdx.x / a.h) * a.ldx + (int64_t)(blockIdx.x % a.h) * a.gx;
    pdl_go();
    pdl_wait();
    const float length = sqrtf(square_sum(x, a.d));
    const float scale = 1.0f / (length < a.eps ? a.eps : length);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        x[e] *= scale;
}

static __global__ void __launch_bounds__(THREADS) norm_gated_kernel(kvant_norm_gated_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *o = a.o + (i * a.h + j) * a.dv, *z = a.z + i * a.ldz + j * a.dv;
    float *y = a.y + (i * a.h + j) * a.dv;
    pdl_go();
    pdl_wait();
    const float scale = 1.0f / sqrtf(square_sum(o, a.dv) / (float)a.dv + a.eps);
    for (int e = threadIdx.x; e < a.dv; e += THREADS)
        y[e] = o[e] * scale * a.w[e] * (z[e] / (1.0f + expf(-z[e])));
}

/* Rows that row_fits: read once.  add NULL: x stays. */
template <int P>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_row_kernel(float *x, const float *add, const float *w, float *y, int64_t ldx, int64_t ldy, int d, float eps)
{
    __shared__ float part[ROW_WARPS];
    float v[P][8];

    pdl_go();
    pdl_wait();
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
        float *to = x + blockIdx.x * ldx + at;
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[i][e] = 0.0f;
        if (at >= d)
            continue;
        row_load(to, v[i]);
        if (add) {
            float m[8];
            row_load(add + blockIdx.x * ldx + at, m);
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[i][e] += m[e];
            row_store(to, v[i]);
        }
    }
    const float r = row_scale<P>(v, d, eps, part);
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
        if (at >= d)
            continue;
        row_times(v[i], r, w + at);
        row_store(y + blockIdx.x * ldy + at, v[i]);
    }
}

static void norm_rows(cuda_device *d, float *x, const float *add, const float *w, float *y, int64_t ldx, int64_t ldy,
                      int n, int width, float eps)
{
    if (width <= 8 * ROW_THREADS)
        cuda_launch(d, norm_row_kernel<1>, dim3((unsigned)n), ROW_THREADS, 0, x, add, w, y, ldx, ldy, width, eps);
    else
        cuda_launch(d, norm_row_kernel<ROW_PARTS>, dim3((unsigned)n), ROW_THREADS, 0, x, add, w, y, ldx, ldy, width,
                    eps);
}

/* Rows that do not fit the registers: x is stored and read again by the same thread. */
static __global__ void __launch_bounds__(THREADS) norm_add_rms_kernel(kvant_norm_add_rms_args a)
{
    float *x = a.x + (int64_t)blockIdx.x * a.d, *y = a.y + (int64_t)blockIdx.x * a.d, s = 0.0f;
    const float *add = a.add + (int64_t)blockIdx.x * a.d;
    pdl_go();
    pdl_wait();
    for (int e = threadIdx.x; e < a.d; e += THREADS) {
        const float v = x[e] + add[e];
        x[e] = v;
        s = fmaf(v, v, s);
    }
    const float scale = 1.0f / sqrtf(block_sum(s) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = x[e] * scale * a.w[e];
}

/* ---- ops ---- */

static int norm_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = (const kvant_norm_rms_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups <= 0)
        return KVANT_OK;
    if (a->d <= HEAD)
        cuda_launch(d, head_rms_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (a->h == 1 && row_fits(a->x, a->y, a->w, a->ldx, a->ldy, a->d))
        norm_rows(d, (float *)a->x, NULL, a->w, a->y, a->ldx, a->ldy, a->n, a->d, a->eps);
    else
        cuda_launch(d, norm_rms_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_layer_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_layer_args *a = (const kvant_norm_layer_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0)
        cuda_launch(d, norm_layer_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_add_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = (const kvant_norm_add_rms_args *)args;
    (void)diag;
    if (a->n <= 0)
        return KVANT_OK;
    if (a->d > HEAD && row_fits(a->x, a->y, a->w, a->d, a->d, a->d) && ((uintptr_t)a->add & 15) == 0)
        norm_rows(d, a->x, a->add, a->w, a->y, a->d, a->d, a->n, a->d, a->eps);
    else
        cuda_launch(d, norm_add_rms_kernel, dim3((unsigned)a->n), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_l2_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = (const kvant_norm_l2_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0 && a->d <= HEAD)
        cuda_launch(d, head_l2_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (groups > 0)
        cuda_launch(d, norm_l2_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_gated_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = (const kvant_norm_gated_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0 && a->dv <= HEAD)
        cuda_launch(d, head_gated_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (groups > 0)
        cuda_launch(d, norm_gated_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

/* ---- q and k in one launch: norm_rms(q), norm_rms(k), rope(q), rope(k) ---- */

typedef struct qk_side {
    kvant_norm_rms_args norm;
    kvant_rope_args rope;
} qk_side;

/* Pairs (e, e + n_rot/2) lie in one lane: n_rot = 64 HALF. */
template <int HALF> static __device__ __forceinline__ void qk_turn(head *h, const kvant_rope_args &r, int64_t i)
{
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        const float angle = (float)r.pos[i] * r.inv_freq[threadIdx.x % 32 + 32 * k];
        rope_pair(&h->v[k], &h->v[k + HALF], angle, r.mscale);
    }
}

static __global__ void __launch_bounds__(THREADS) qk_kernel(qk_side q, qk_side k)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(q.norm.n, q.norm.h + k.norm.h, &i, &j))
        return;
    pdl_wait();
    const bool key = j >= q.norm.h;
    const kvant_norm_rms_args a = key ? k.norm : q.norm;
    j -= key ? q.norm.h : 0;
    head h = head_load(a.x + i * a.ldx + j * a.gx, a.d);
    head_rms(&h, a.w, a.d, a.eps);
    if (q.rope.n_rot == 64)
        qk_turn<1>(&h, q.rope, i);
    else if (q.rope.n_rot == 128)
        qk_turn<2>(&h, q.rope, i);
    else
        qk_turn<4>(&h, q.rope, i);
    head_store(a.y + i * a.ldy + j * a.gy, h, a.d);
}

static bool same_side(const kvant_norm_rms_args *a, const kvant_rope_args *r)
{
    return a->x == a->y && a->y == r->x && a->n == r->n && a->h == r->h && a->ldx == a->ldy && a->ldy == r->ldx &&
           a->gx == a->gy && a->gy == r->gx;
}

static int norm_rms_fuse(cuda_device *d, const kvant_op *ops, int n)
{
    if (n < 4 || ops[1].id != KVANT_OP_NORM_RMS || ops[2].id != KVANT_OP_ROPE || ops[3].id != KVANT_OP_ROPE)
        return 0;
    const qk_side q = { *(const kvant_norm_rms_args *)ops[0].args, *(const kvant_rope_args *)ops[2].args };
    const qk_side k = { *(const kvant_norm_rms_args *)ops[1].args, *(const kvant_rope_args *)ops[3].args };
    const kvant_rope_args *a = &q.rope, *b = &k.rope;
    if (!same_side(&q.norm, a) || !same_side(&k.norm, b) || q.norm.d != k.norm.d || q.norm.n != k.norm.n ||
        a->pos != b->pos || a->inv_freq != b->inv_freq || a->n_rot != b->n_rot || a->mscale != b->mscale || !a->neox ||
        !b->neox || (a->n_rot != 64 && a->n_rot != 128 && a->n_rot != 256) || q.norm.d > HEAD || q.norm.n < 1)
        return 0;
    cuda_launch(d, qk_kernel, dim3(cuda_blocks(q.norm.n * (int64_t)(q.norm.h + k.norm.h), WARPS)), THREADS, 0, q, k);
    return 4;
}

const cuda_op cuda_op_norm_rms = { NULL, NULL, norm_rms_run, norm_rms_fuse };
const cuda_op cuda_op_norm_layer = { NULL, NULL, norm_layer_run, NULL };
const cuda_op cuda_op_norm_add_rms = { NULL, NULL, norm_add_rms_run, NULL };
const cuda_op cuda_op_norm_l2 = { NULL, NULL, norm_l2_run, NULL };
const cuda_op cuda_op_norm_gated = { NULL, NULL, norm_gated_run, NULL };
