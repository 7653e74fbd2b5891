/* attn.cu: attn and attn_score over pages of any pair of formats, decode and prefill, exact tail, any GQA.
 *
 * attn is three launches: prep_q once per query row and head; partial sums per (tile of query rows, KV head, split of
 * KVANT_SPLIT keys); the merge of the splits in ascending order with finish_out once per head.  Scores never leave the
 * multiprocessor.  A tile holds the heads of one KV head for up to TILE_TOKENS tokens of one page: whether a page is
 * read exactly or encoded is then the same for the whole tile.
 *
 * A faster kernel for the middle launch is one line in `middles` below: it says which arguments it takes. */
#include "devices/cuda/attn_decode.cuh"
#include "devices/cuda/attn_prefill.cuh"
#include "devices/cuda/space.cuh"
#include "devices/cuda/tiles.cuh"

enum { MAX_ROWS = 16, WARPS = 4, THREADS = 32 * WARPS, KEYS = 32, SCRATCH_CAP = 256 << 20 };

struct attn_job : attn_call {
    side_dev k, v;
    float *qp, *part;                  /* qp f32[n_tokens][h][sdim_k]; part: see part_at */
    int heads, head_tiles;             /* heads of one tile; tiles that cover the heads of one KV head */
    int tokens, rows, n_split;
    int tile0, n_tiles;                /* of this launch */
};

/* ---- tiles ---- */

/* Partial result of row r of a tile in one split: m, l, then sdim_v values in acc space, then d_v of the tail. */
static __device__ __forceinline__ float *part_at(const attn_job &p, int t, int kv_tile, int split, int r)
{
    const size_t width = (size_t)p.v.sdim + (p.v.tail ? p.v.d : 0) + 2;
    const size_t unit = ((size_t)t * p.h_kv * p.head_tiles + kv_tile) * p.n_split + split;
    return p.part + (unit * p.rows + r) * width;
}

/* Row r of a tile: token r / heads, head r % heads of the tile. */
typedef struct row_id {
    int token, head, pos;              /* token row of the batch or -1 */
} row_id;

static __device__ __forceinline__ row_id row_of(const attn_job &p, const tile &t, int kv_tile, int r)
{
    const int group = p.h / p.h_kv, i = r / p.heads, g = kv_tile % p.head_tiles * p.heads + r % p.heads;
    row_id o = { -1, 0, 0 };
    if (i < t.count && g < group && r < p.rows) {
        o.token = t.first + i;
        o.head = kv_tile / p.head_tiles * group + g;
        o.pos = t.pos + i;
    }
    return o;
}

/* ---- prep_q: one block per (token, head) ---- */

static __global__ void prep_kernel(side_dev s, const float *q, int64_t ldq, int64_t gq, int h, float *qp)
{
    __shared__ float x[KVANT_MAX_HEAD_DIM], y[2 * KVANT_MAX_HEAD_DIM];
    const float *from = q + (int64_t)(blockIdx.x / h) * ldq + (int64_t)(blockIdx.x % h) * gq;
    for (int j = threadIdx.x; j < s.dp; j += blockDim.x)
        x[j] = j < s.d ? from[j] : 0.0f;
    space_prep(s, x, y);
    for (int j = threadIdx.x; j < s.sdim; j += blockDim.x)
        qp[(int64_t)blockIdx.x * s.sdim + j] = y[j];
}

/* ---- the middle launch: any pair of formats ---- */

/* KEYS rows of a page from row r0 on into shared memory as f32, `ld` apart; exact: from tail page t. */
static __device__ void load_keys(const side_dev &s, int t, int page, int n_head, int h, int r0, int n, int width,
                                 int ld, float *to)
{
    const float scale = side_scale(s);
    for (int i = threadIdx.x / 32; i < KEYS; i += WARPS) {
        float *row = to + i * ld;
        if (i >= n) {
            for (int e = threadIdx.x % 32; e < width; e += 32)
                row[e] = 0.0f;
        } else if (t >= 0) {
            const uint16_t *from = side_tail_row(s, t, n_head, h, r0 + i);
            for (int e = threadIdx.x % 32; e < width; e += 32)
                row[e] = __half2float(__ushort_as_half(from[e]));
        } else {
            const uint8_t *from = side_row(s, page, h, r0 + i);
            for (int e = threadIdx.x % 32; e < width; e += 32)
                row[e] = fmt_value(s.fmt, from, e, scale);
        }
    }
}

/* R rows of queries per warp.  Shared memory: qp[rows][ldk], q[rows][d_k] (with a tail), keys[KEYS][ld],
 * p[rows][KEYS + 1], acc[rows][sdim_v], tail[rows][d_v] (with a tail). */
typedef struct layout {
    int ld, ldq, ldt;
    float *qp, *q, *keys, *p, *acc, *tail;
} layout;

static __host__ __device__ inline size_t layout_floats(const attn_job &p, float *base, layout *o)
{
    const int widest = p.k.sdim > p.v.sdim ? p.k.sdim : p.v.sdim, longest = p.k.d > p.v.d ? p.k.d : p.v.d;
    size_t at = 0;
    o->ld = (widest > longest ? widest : longest) | 1;     /* odd: one row per lane without bank conflicts */
    o->ldq = (p.k.sdim + 3) & ~3;
    o->ldt = (p.k.d + 3) & ~3;
    o->qp = base + at;
    at += (size_t)p.rows * o->ldq;
    o->q = base + at;
    at += p.k.tail ? (size_t)p.rows * o->ldt : 0;
    o->keys = base + at;
    at += (size_t)KEYS * o->ld;
    o->p = base + at;
    at += (size_t)p.rows * (KEYS + 1);
    o->acc = base + at;
    at += (size_t)p.rows * p.v.sdim;
    o->tail = base + at;
    at += p.v.tail ? (size_t)p.rows * p.v.d : 0;
    return at;
}

/* Scores of this warp's rows against the key of this lane. */
template <int R> static __device__ void scores(const float *q, int ldq, const float *key, int width, int row, int rows,
                                               float *s)
{
#pragma unroll
    for (int r = 0; r < R; r++)
        s[r] = 0.0f;
    for (int e = 0; e < width; e++) {
        const float k = key[e];
#pragma unroll
        for (int r = 0; r < R; r++)
            s[r] = fmaf(row + r < rows ? q[(row + r) * ldq + e] : 0.0f, k, s[r]);
    }
}

/* acc[row][e] += sum over the keys of p * value, keys ascending. */
template <int R> static __device__ void weigh(const layout &w, float *acc, int width, int row, int rows)
{
    for (int e = threadIdx.x % 32; e < width; e += 32) {
        float sum[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            sum[r] = row + r < rows ? acc[(row + r) * width + e] : 0.0f;
        for (int k = 0; k < KEYS; k++) {
            const float v = w.keys[k * w.ld + e];
#pragma unroll
            for (int r = 0; r < R; r++)
                sum[r] = fmaf(row + r < rows ? w.p[(row + r) * (KEYS + 1) + k] : 0.0f, v, sum[r]);
        }
#pragma unroll
        for (int r = 0; r < R; r++)
            if (row + r < rows)
                acc[(row + r) * width + e] = sum[r];
    }
}

static __device__ void shrink(float *acc, int width, float by)
{
    for (int e = threadIdx.x % 32; e < width; e += 32)
        acc[e] *= by;
}

template <int R> static __global__ void __launch_bounds__(THREADS) attn_kernel(attn_job p)
{
    extern __shared__ __align__(16) float smem[];
    layout w;
    tile t;
    row_id id[R];
    float m[R], l[R], s[R];
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    const int head = kv_tile / p.head_tiles, split = blockIdx.y, lane = threadIdx.x % 32, row = threadIdx.x / 32 * R;

    if (!tile_at(p.seqs, p.tokens, p.tile0 + ti, &t) || split * KVANT_SPLIT > t.pos + t.count - 1)
        return;
    layout_floats(p, smem, &w);
    for (int u = threadIdx.x; u < p.rows * p.k.sdim; u += THREADS) {
        const row_id o = row_of(p, t, kv_tile, u / p.k.sdim);
        w.qp[u / p.k.sdim * w.ldq + u % p.k.sdim] =
            o.token >= 0 ? p.qp[((int64_t)o.token * p.h + o.head) * p.k.sdim + u % p.k.sdim] : 0.0f;
    }
    for (int u = threadIdx.x; p.k.tail && u < p.rows * p.k.d; u += THREADS) {
        const row_id o = row_of(p, t, kv_tile, u / p.k.d);
        w.q[u / p.k.d * w.ldt + u % p.k.d] =
            o.token >= 0 ? p.q[(int64_t)o.token * p.ldq + (int64_t)o.head * p.gq + u % p.k.d] : 0.0f;
    }
    for (int u = threadIdx.x; u < p.rows * p.v.sdim; u += THREADS)
        w.acc[u] = 0.0f;
    for (int u = threadIdx.x; p.v.tail && u < p.rows * p.v.d; u += THREADS)
        w.tail[u] = 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
        id[r] = row_of(p, t, kv_tile, row + r);
        m[r] = -INFINITY;
        l[r] = 0.0f;
    }

    const int end = t.pos + t.count < (split + 1) * KVANT_SPLIT ? t.pos + t.count : (split + 1) * KVANT_SPLIT;
    for (int key = split * KVANT_SPLIT; key < end; key += KEYS) {
        const int page = key / KVANT_PAGE, r0 = key % KVANT_PAGE, n = end - key < KEYS ? end - key : KEYS;
        const int id_page = p.seqs.table[(size_t)t.seq * p.seqs.stride + page], now = t.pos / KVANT_PAGE;
        const int tk = side_tail_page(p.k, p.seqs, t.seq, page, now, p.tail_pages);
        const int tv = side_tail_page(p.v, p.seqs, t.seq, page, now, p.tail_pages);

        __syncthreads();               /* the last turn's values are used up; the first: queries are there */
        load_keys(p.k, tk, id_page, p.h_kv, head, r0, n, tk >= 0 ? p.k.d : p.k.sdim, w.ld, w.keys);
        __syncthreads();
        if (tk >= 0)
            scores<R>(w.q, w.ldt, w.keys + lane * w.ld, p.k.d, row, p.rows, s);
        else
            scores<R>(w.qp, w.ldq, w.keys + lane * w.ld, p.k.sdim, row, p.rows, s);
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (row + r >= p.rows)
                break;
            const bool seen = id[r].token >= 0 && key + lane <= id[r].pos;
            const float x = seen ? s[r] * p.scale : -INFINITY;
            const bool bad = __any_sync(0xffffffffu, isnan(x));
            const float top = fmaxf(m[r], warp_max(x));
            float e = top == -INFINITY ? 0.0f : expf(x - top);
            const float by = top == -INFINITY ? 1.0f : expf(m[r] - top);
            e = bad ? NAN : seen ? e : 0.0f;
            w.p[(row + r) * (KEYS + 1) + lane] = e;
            l[r] = l[r] * by + warp_sum(e);
            m[r] = top;
            if (by != 1.0f) {
                shrink(w.acc + (row + r) * p.v.sdim, p.v.sdim, by);
                if (p.v.tail)
                    shrink(w.tail + (row + r) * p.v.d, p.v.d, by);
            }
        }
        __syncthreads();
        load_keys(p.v, tv, id_page, p.h_kv, head, r0, n, tv >= 0 ? p.v.d : p.v.sdim, w.ld, w.keys);
        __syncthreads();
        if (tv >= 0)
            weigh<R>(w, w.tail, p.v.d, row, p.rows);
        else
            weigh<R>(w, w.acc, p.v.sdim, row, p.rows);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (id[r].token < 0)
            continue;
        float *to = part_at(p, ti, kv_tile, split, row + r);
        if (lane == 0) {
            to[0] = m[r];
            to[1] = l[r];
        }
        for (int e = lane; e < p.v.sdim; e += 32)
            to[2 + e] = w.acc[(row + r) * p.v.sdim + e];
        for (int e = lane; p.v.tail && e < p.v.d; e += 32)
            to[2 + p.v.sdim + e] = w.tail[(row + r) * p.v.d + e];
    }
}

/* ---- merge: one block per row of a tile ---- */

static __global__ void merge_kernel(attn_job p)
{
    __shared__ float acc[2 * KVANT_MAX_HEAD_DIM], x[2 * KVANT_MAX_HEAD_DIM];
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    tile t;

    if (!tile_at(p.seqs, p.tokens, p.tile0 + ti, &t))
        return;
    const row_id o = row_of(p, t, kv_tile, blockIdx.y);
    if (o.token < 0)
        return;
    const int n = o.pos / KVANT_SPLIT + 1;                 /* later splits hold no key of this row */
    float top = -INFINITY, total = 0.0f;
    for (int i = 0; i < n; i++)
        top = fmaxf(top, part_at(p, ti, kv_tile, i, blockIdx.y)[0]);
    for (int i = 0; i < n; i++) {
        const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
        total += expf(from[0] - top) * from[1];
    }
    const float inv = 1.0f / total;
    for (int e = threadIdx.x; e < p.v.sdim; e += blockDim.x) {
        float sum = 0.0f;
        for (int i = 0; i < n; i++) {
            const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
            sum = fmaf(expf(from[0] - top), from[2 + e], sum);
        }
        acc[e] = sum * inv;
    }
    space_finish(p.v, acc, x);
    for (int e = threadIdx.x; e < p.v.d; e += blockDim.x) {
        float sum = 0.0f;
        for (int i = 0; p.v.tail && i < n; i++) {
            const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
            sum = fmaf(expf(from[0] - top), from[2 + p.v.sdim + e], sum);
        }
        p.out[(int64_t)o.token * p.ldo + (int64_t)o.head * p.v.d + e] = x[e] + sum * inv;
    }
}

/* ---- shape of a launch ---- */

typedef struct middle {
    bool (*takes)(const cuda_device *d, const attn_job &p);
    void (*run)(cuda_device *d, const attn_job &p);
} middle;

static size_t smem_bytes(const attn_job &p)
{
    layout w;
    return layout_floats(p, NULL, &w) * sizeof(float);
}

static bool any_takes(const cuda_device *d, const attn_job &p)
{
    return smem_bytes(p) <= d->smem_max;
}

static void any_run(cuda_device *d, const attn_job &p)
{
    const size_t bytes = smem_bytes(p);
    const dim3 grid((unsigned)(p.n_tiles * p.h_kv * p.head_tiles), (unsigned)p.n_split);
    if (p.rows <= WARPS) {
        cuda_smem(attn_kernel<1>, bytes);
        attn_kernel<1><<<grid, THREADS, bytes, d->stream>>>(p);
    } else if (p.rows <= 2 * WARPS) {
        cuda_smem(attn_kernel<2>, bytes);
        attn_kernel<2><<<grid, THREADS, bytes, d->stream>>>(p);
    } else {
        cuda_smem(attn_kernel<4>, bytes);
        attn_kernel<4><<<grid, THREADS, bytes, d->stream>>>(p);
    }
}

/* Tried in order; each writes the partial results of part_at for its tiles. */
static const middle middles[] = {
    { any_takes, any_run },
};

static const middle *choose(const cuda_device *d, const attn_job &p)
{
    for (size_t i = 0; i < sizeof middles / sizeof middles[0]; i++)
        if (middles[i].takes(d, p))
            return &middles[i];
    return NULL;
}

/* Tiles that n tokens of n_seqs sequences can touch at most. */
static int most_tiles(const attn_job &p)
{
    const int64_t a = p.seqs.n_tokens, b = a / p.tokens + 2 * (int64_t)p.seqs.n_seqs;
    return (int)(a < b ? a : b);
}

static size_t tile_bytes(const attn_job &p)
{
    const size_t width = (size_t)p.v.sdim + (p.v.tail ? p.v.d : 0) + 2;
    return (size_t)p.h_kv * p.head_tiles * p.n_split * p.rows * width * sizeof(float);
}

static size_t prep_bytes(const attn_job &p)
{
    return cuda_aligned((size_t)p.seqs.n_tokens * p.h * p.k.sdim * sizeof(float));
}

/* Fills everything but the scratch addresses; KVANT_EUNSUPPORTED where no kernel fits. */
static int attn_shape(cuda_device *d, const kvant_attn_args *a, attn_job *p, kvant_diag *diag)
{
    const int group = a->h / a->h_kv;
    memset(p, 0, sizeof *p);
    CUDA_TRY(cuda_side(d, &a->k, a->d_k, &p->k, diag));
    CUDA_TRY(cuda_side(d, &a->v, a->d_v, &p->v, diag));
    if (p->k.layout || p->v.layout)
        return cuda_fail(diag, KVANT_EUNSUPPORTED,
                         "device cuda: attn: %s x %s with head_dim %d, %d has no kernel for the private page layout",
                         a->k.fmt->name, a->v.fmt->name, a->d_k, a->d_v);
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->n_split = a->max_pos / KVANT_SPLIT + 1;
    for (int rows = MAX_ROWS; rows >= 1; rows /= 2) {
        p->heads = group < rows ? group : rows;
        p->head_tiles = (group + p->heads - 1) / p->heads;
        p->tokens = 1;
        while (a->seqs.n_tokens > a->seqs.n_seqs && 2 * p->tokens * p->heads <= rows && p->tokens < KVANT_PAGE)
            p->tokens *= 2;
        p->rows = p->tokens * p->heads;
        if (choose(d, *p))
            return KVANT_OK;
    }
    return cuda_fail(diag, KVANT_EUNSUPPORTED,
                     "device cuda: attn: %s x %s with head_dim %d, %d needs more than %zu bytes "
                     "of shared memory",
                     a->k.fmt->name, a->v.fmt->name, a->d_k, a->d_v, d->smem_max);
}

/* What the Hopper kernels do of these arguments: rows of sequences with one token by the decode kernel, the others by
 * the prefill kernel; all, or nothing and the general kernel runs. */
typedef struct fast_job {
    bool decode, prefill;
    decode_job one;
    prefill_job many;
} fast_job;

static bool fast_shape(cuda_device *d, const kvant_attn_args *a, fast_job *o)
{
    side_dev k, v;
    if (!d->hopper_attn || cuda_side(d, &a->k, a->d_k, &k, NULL) < 0 || cuda_side(d, &a->v, a->d_v, &v, NULL) < 0)
        return false;
    const bool all_one = a->seqs.n_tokens <= a->seqs.n_seqs;
    o->decode = decode_shape(d, a, k, v, &o->one);
    o->prefill = !all_one && prefill_shape(d, a, k, v, &o->many);
    if (all_one)
        return o->decode;
    o->many.many = o->decode;
    return o->prefill;
}

/* Private where the sides are only written by whole pages and both Hopper kernels take them. */
void cuda_kv_layout(kvant_device *base, kvant_attn_args *a)
{
    cuda_device *d = (cuda_device *)base;
    const kvant_attn_args before = *a;
    fast_job fast;
    side_dev side;
    pack_shape shape;

    a->max_pos = 0;
    a->seqs.n_seqs = 1;
    a->seqs.n_tokens = 2;
    if (a->k.tail && cuda_side(d, &a->k, a->d_k, &side, NULL) == KVANT_OK && cuda_pack_shape(&side, PACK_K, &shape))
        a->k.layout = KVANT_LAYOUT_PRIVATE_K;
    if (a->v.tail && cuda_side(d, &a->v, a->d_v, &side, NULL) == KVANT_OK && cuda_pack_shape(&side, PACK_V, &shape))
        a->v.layout = KVANT_LAYOUT_PRIVATE_V;
    const bool good = fast_shape(d, a, &fast) && fast.decode && fast.prefill;
    const int k = good ? a->k.layout : KVANT_LAYOUT_ROWS, v = good ? a->v.layout : KVANT_LAYOUT_ROWS;
    *a = before;
    a->k.layout = k;
    a->v.layout = v;
}

static size_t fast_scratch(const fast_job &o)
{
    return (o.decode ? decode_scratch(o.one) : 0) + (o.prefill ? prefill_scratch(o.many) : 0);
}

static void fast_run(cuda_device *d, const fast_job &o)
{
    if (o.decode)
        decode_run(d, o.one);
    if (o.prefill)
        prefill_run(d, o.many, d->scratch + (o.decode ? decode_scratch(o.one) : 0));
}

static int attn_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    attn_job p;
    fast_job fast;
    if (fast_shape(d, (const kvant_attn_args *)args, &fast))
        return KVANT_OK;
    return attn_shape(d, (const kvant_attn_args *)args, &p, diag);
}

static int tiles_per_launch(const attn_job &p)
{
    const size_t fit = SCRATCH_CAP / tile_bytes(p), most = (size_t)most_tiles(p);
    return (int)(fit < 1 ? 1 : fit < most ? fit : most);
}

static size_t attn_scratch(const cuda_device *d, const void *args)
{
    const kvant_attn_args *a = (const kvant_attn_args *)args;
    attn_job p;
    fast_job fast;
    if (a->seqs.n_tokens > 0 && fast_shape((cuda_device *)d, a, &fast))
        return fast_scratch(fast);
    if (a->seqs.n_tokens <= 0 || attn_shape((cuda_device *)d, a, &p, NULL) < 0)
        return 0;
    return prep_bytes(p) + (size_t)tiles_per_launch(p) * tile_bytes(p);
}

static int attn_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = (const kvant_attn_args *)args;
    attn_job p;
    fast_job fast;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    if (fast_shape(d, a, &fast)) {
        fast_run(d, fast);
        return KVANT_OK;
    }
    CUDA_TRY(attn_shape(d, a, &p, diag));
    const int tiles = most_tiles(p), per = tiles_per_launch(p);
    const middle *kernel = choose(d, p);
    p.qp = (float *)d->scratch;
    p.part = (float *)(d->scratch + prep_bytes(p));
    prep_kernel<<<(unsigned)(a->seqs.n_tokens * (int64_t)a->h), 64, 0, d->stream>>>(p.k, a->q, a->ldq, a->gq, a->h,
                                                                                    p.qp);
    for (p.tile0 = 0; p.tile0 < tiles; p.tile0 += per) {
        p.n_tiles = tiles - p.tile0 < per ? tiles - p.tile0 : per;
        kernel->run(d, p);
        merge_kernel<<<dim3((unsigned)(p.n_tiles * p.h_kv * p.head_tiles), (unsigned)p.rows), 128, 0, d->stream>>>(p);
    }
    return KVANT_OK;
}

const cuda_op cuda_op_attn = { attn_supports, attn_scratch, attn_run };

/* ---- attn_score: one block per (token, head), one warp per key ---- */

typedef struct score_job {
    side_dev k;
    seqs_dev seqs;
    const float *q;
    float *s;
    int64_t ldq, gq, lds;
    int h, h_kv, tail_pages;
    float scale;
} score_job;

static __global__ void __launch_bounds__(256) score_kernel(score_job p)
{
    __shared__ float raw[KVANT_MAX_HEAD_DIM], qp[2 * KVANT_MAX_HEAD_DIM];
    const int i = blockIdx.x / p.h, head = blockIdx.x % p.h, kv = head / (p.h / p.h_kv), lane = threadIdx.x % 32;
    const int seq = seq_of(p.seqs, i), pos = p.seqs.pos0[seq] + i - p.seqs.q0[seq];
    const float *q = p.q + (int64_t)i * p.ldq + (int64_t)head * p.gq, scale = side_scale(p.k);

    for (int j = threadIdx.x; j < p.k.dp; j += blockDim.x)
        raw[j] = j < p.k.d ? q[j] : 0.0f;
    space_prep(p.k, raw, qp);
    for (int j = (int)blockIdx.y * 8 + threadIdx.x / 32; j <= pos; j += 8 * gridDim.y) {
        const int page = j / KVANT_PAGE, r = j % KVANT_PAGE;
        const int t = side_tail_page(p.k, p.seqs, seq, page, pos / KVANT_PAGE, p.tail_pages);
        float sum = 0.0f;
        if (t >= 0) {
            const uint16_t *row = side_tail_row(p.k, t, p.h_kv, kv, r);
            for (int e = lane; e < p.k.d; e += 32)
                sum = fmaf(raw[e], __half2float(__ushort_as_half(row[e])), sum);
        } else {
            const uint8_t *row = side_row(p.k, p.seqs.table[(size_t)seq * p.seqs.stride + page], kv, r);
            for (int e = lane; e < p.k.sdim; e += 32)
                sum = fmaf(qp[e], fmt_value(p.k.fmt, row, e, scale), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            p.s[((int64_t)i * p.h + head) * p.lds + j] = sum * p.scale;
    }
}

static int score_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = (const kvant_attn_score_args *)args;
    if (a->k.layout)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: attn_score reads pages of rows only");
    return cuda_side_supports(d, &a->k, a->d_k, diag);
}

static int score_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = (const kvant_attn_score_args *)args;
    score_job p;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    memset(&p, 0, sizeof p);
    CUDA_TRY(cuda_side(d, &a->k, a->d_k, &p.k, diag));
    p.seqs = cuda_seqs(&a->seqs);
    p.q = a->q;
    p.s = a->s;
    p.ldq = a->ldq;
    p.gq = a->gq;
    p.lds = a->lds;
    p.h = a->h;
    p.h_kv = a->h_kv;
    p.tail_pages = a->tail_pages;
    p.scale = a->scale;
    score_kernel<<<dim3((unsigned)(a->seqs.n_tokens * (int64_t)a->h), 16), 256, 0, d->stream>>>(p);
    return KVANT_OK;
}

const cuda_op cuda_op_attn_score = { score_supports, NULL, score_run };
