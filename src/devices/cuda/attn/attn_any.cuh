/* attn_any.cuh: attn for any pair of formats, any GQA, decode and prefill; attn.cu takes it if no faster kernel fits.
 *
 * Three launches: prep_q once per query row and head; partial sums per (tile of query rows, KV head, split of
 * KVANT_SPLIT keys); the merge of the splits in ascending order with finish_out once per head.  Scores never leave the
 * multiprocessor.  A tile holds the heads of one KV head for up to `tokens` tokens of one page: whether a page is
 * read exactly or encoded is then the same for the whole tile.  Splits that lie before the tile's window are left out
 * by both the sums and the merge, where a sink joins. */
#ifndef KVANT_CUDA_ATTN_ANY_CUH
#define KVANT_CUDA_ATTN_ANY_CUH

#include "devices/cuda/core/page.cuh"
#include "devices/cuda/core/tiles.cuh"

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
    __shared__ float x[KVANT_MAX_PLAIN_HEAD_DIM], y[2 * KVANT_MAX_HEAD_DIM];
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
        } else if (is_paged(s)) {
            page_values(s, page, h, r0 + i, row);
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

/* A block works on this: a tile of query rows, the KV head of its heads, a split of the keys. */
typedef struct any_place {
    tile t;
    int kv_tile, head, split;
} any_place;

/* A warp keeps this of its R rows: the greatest score, the sum of the weights. */
template <int R> struct any_rows {
    row_id id[R];
    float m[R], l[R];
};

/* The tile's queries to shared memory, as prep_q left them and, for exact keys, as they are; sums of nothing. */
static __device__ void any_open(const attn_job &p, const any_place &at, const layout &w)
{
    for (int u = threadIdx.x; u < p.rows * p.k.sdim; u += THREADS) {
        const row_id o = row_of(p, at.t, at.kv_tile, u / p.k.sdim);
        w.qp[u / p.k.sdim * w.ldq + u % p.k.sdim] =
            o.token >= 0 ? p.qp[((int64_t)o.token * p.h + o.head) * p.k.sdim + u % p.k.sdim] : 0.0f;
    }
    for (int u = threadIdx.x; p.k.tail && u < p.rows * p.k.d; u += THREADS) {
        const row_id o = row_of(p, at.t, at.kv_tile, u / p.k.d);
        w.q[u / p.k.d * w.ldt + u % p.k.d] =
            o.token >= 0 ? p.q[(int64_t)o.token * p.ldq + (int64_t)o.head * p.gq + u % p.k.d] : 0.0f;
    }
    for (int u = threadIdx.x; u < p.rows * p.v.sdim; u += THREADS)
        w.acc[u] = 0.0f;
    for (int u = threadIdx.x; p.v.tail && u < p.rows * p.v.d; u += THREADS)
        w.tail[u] = 0.0f;
}

/* One row: its score s of this lane's key to a weight, and what the row had so far under the new maximum. */
static __device__ __forceinline__ void any_weight(const attn_job &p, const layout &w, int row, bool seen, float s,
                                                  float *m, float *l)
{
    const float scaled = s * p.scale;
    const float x = !seen ? -INFINITY : p.cap > 0.0f ? p.cap * tanhf(scaled / p.cap) : scaled;
    const bool bad = __any_sync(0xffffffffu, isnan(x));
    const float top = fmaxf(*m, warp_max(x));
    const float e = top == -INFINITY ? 0.0f : expf(x - top), by = top == -INFINITY ? 1.0f : expf(*m - top);
    const float weight = bad ? NAN : seen ? e : 0.0f;
    w.p[row * (KEYS + 1) + threadIdx.x % 32] = weight;
    *l = *l * by + warp_sum(weight);
    *m = top;
    if (by == 1.0f)
        return;
    shrink(w.acc + row * p.v.sdim, p.v.sdim, by);
    if (p.v.tail)
        shrink(w.tail + row * p.v.d, p.v.d, by);
}

/* KEYS keys from position `key` on, of which those before `end` count. */
template <int R>
static __device__ __forceinline__ void any_step(const attn_job &p, const any_place &at, const layout &w, int key,
                                                int end, any_rows<R> *o)
{
    const int row = threadIdx.x / 32 * R, page = key / KVANT_PAGE, r0 = key % KVANT_PAGE, now = at.t.pos / KVANT_PAGE;
    const int n = end - key < KEYS ? end - key : KEYS;
    const int id_page = p.seqs.table[(size_t)at.t.seq * p.seqs.stride + page];
    const int tk = side_tail_page(p.k, p.seqs, at.t.seq, page, now, p.tail_pages);
    const int tv = side_tail_page(p.v, p.seqs, at.t.seq, page, now, p.tail_pages);
    float s[R];

    __syncthreads();                   /* the last turn's values are used up; the first: queries are there */
    load_keys(p.k, tk, id_page, p.h_kv, at.head, r0, n, tk >= 0 ? p.k.d : p.k.sdim, w.ld, w.keys);
    __syncthreads();
    if (tk >= 0)
        scores<R>(w.q, w.ldt, w.keys + threadIdx.x % 32 * w.ld, p.k.d, row, p.rows, s);
    else
        scores<R>(w.qp, w.ldq, w.keys + threadIdx.x % 32 * w.ld, p.k.sdim, row, p.rows, s);
#pragma unroll
    for (int r = 0; r < R; r++)
        if (row + r < p.rows) {
            const int back = o->id[r].pos - key - (int)(threadIdx.x % 32);
            any_weight(p, w, row + r, o->id[r].token >= 0 && back >= 0 && back < p.window, s[r], &o->m[r], &o->l[r]);
        }
    __syncthreads();
    load_keys(p.v, tv, id_page, p.h_kv, at.head, r0, n, tv >= 0 ? p.v.d : p.v.sdim, w.ld, w.keys);
    __syncthreads();
    if (tv >= 0)
        weigh<R>(w, w.tail, p.v.d, row, p.rows);
    else
        weigh<R>(w, w.acc, p.v.sdim, row, p.rows);
}

/* This warp's row r as a partial result. */
static __device__ void any_store(const attn_job &p, const any_place &at, const layout &w, int r, float m, float l)
{
    float *to = part_at(p, blockIdx.x / (p.h_kv * p.head_tiles), at.kv_tile, at.split, r);
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
        to[0] = m;
        to[1] = l;
    }
    for (int e = lane; e < p.v.sdim; e += 32)
        to[2 + e] = w.acc[r * p.v.sdim + e];
    for (int e = lane; p.v.tail && e < p.v.d; e += 32)
        to[2 + p.v.sdim + e] = w.tail[r * p.v.d + e];
}

template <int R> static __global__ void __launch_bounds__(THREADS) attn_kernel(attn_job p)
{
    extern __shared__ __align__(16) float smem[];
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    const int row = threadIdx.x / 32 * R;
    any_place at = { { 0, 0, 0, 0 }, kv_tile, kv_tile / p.head_tiles, (int)blockIdx.y };
    any_rows<R> o;
    layout w;

    if (!tile_at(p.seqs, p.tokens, p.tile0 + ti, &at.t) || at.split * KVANT_SPLIT > at.t.pos + at.t.count - 1)
        return;
    const int first = attn_first(p, at.t.pos) / KEYS * KEYS;
    if (first >= (at.split + 1) * KVANT_SPLIT)
        return;
    layout_floats(p, smem, &w);
    any_open(p, at, w);
#pragma unroll
    for (int r = 0; r < R; r++) {
        o.id[r] = row_of(p, at.t, kv_tile, row + r);
        o.m[r] = -INFINITY;
        o.l[r] = 0.0f;
    }
    const int seen = at.t.pos + at.t.count, last = (at.split + 1) * KVANT_SPLIT, end = seen < last ? seen : last;
    for (int key = max(at.split * KVANT_SPLIT, first); key < end; key += KEYS)
        any_step<R>(p, at, w, key, end, &o);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; r++)
        if (o.id[r].token >= 0)
            any_store(p, at, w, row + r, o.m[r], o.l[r]);
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
    const int first = attn_first(p, t.pos) / KVANT_SPLIT;  /* earlier ones none of the tile */
    const float sink = attn_sink(p, o.head);
    float top = sink, total = 0.0f;
    for (int i = first; i < n; i++)
        top = fmaxf(top, part_at(p, ti, kv_tile, i, blockIdx.y)[0]);
    if (p.sinks)
        total = expf(sink - top);
    for (int i = first; i < n; i++) {
        const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
        total += expf(from[0] - top) * from[1];
    }
    const float inv = 1.0f / total;
    for (int e = threadIdx.x; e < p.v.sdim; e += blockDim.x) {
        float sum = 0.0f;
        for (int i = first; i < n; i++) {
            const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
            sum = fmaf(expf(from[0] - top), from[2 + e], sum);
        }
        acc[e] = sum * inv;
    }
    space_finish(p.v, acc, x);
    for (int e = threadIdx.x; e < p.v.d; e += blockDim.x) {
        float sum = 0.0f;
        for (int i = first; p.v.tail && i < n; i++) {
            const float *from = part_at(p, ti, kv_tile, i, blockIdx.y);
            sum = fmaf(expf(from[0] - top), from[2 + p.v.sdim + e], sum);
        }
        p.out[(int64_t)o.token * p.ldo + (int64_t)o.head * p.v.d + e] = x[e] + sum * inv;
    }
}

#endif
