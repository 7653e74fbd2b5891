/* gdn_chunk.cu: the gated delta rule over whole prompts on tensor cores, dk = dv = 128 (spec engine 1.4).
 *
 * With G the running sum of g in a chunk of C = 64 tokens, S the state before it, and
 *     A[t][i] = beta_t e^(G_t - G_i) <k_t, k_i>, i < t        T = (I + A)^-1        (unit lower triangular)
 *     W = T diag(beta e^G) K        V' = T diag(beta) V        P[t][i] = e^(G_t - G_i) <q_t, k_i> / sqrt(dk), i <= t
 * a chunk is
 *     U = V' - W S        o = e^G (Q S) / sqrt(dk) + P U        S <- e^G_63 S + K^T diag(e^(G_63 - G)) U
 *
 * prep: one block per (chunk, value head), all independent: W, V', P.  T is inverted in f32: 16 x 16 blocks by
 * substitution, then two levels of products of halves.
 * scan: one block per (sequence, value head, 64 columns of the state), chunk after chunk.  Transposed, so that a warp
 * keeps 16 columns of S in registers and the result of one product is the operand of the next without passing through
 * memory; four more warps fetch the next chunk into a ring of two and split it.
 *
 * Products are bf16 tensor cores on values split in two (hi + lo, 16 bits of mantissa): hi hi + hi lo + lo hi with f32
 * sums, which keeps the class of the op (NMSE 1e-7); sequences that do not begin or end on the 64 grid have rows of
 * zeros there, which change nothing.
 *
 * Operands lie in memory as mma.m16n8k16 wants them: a "tile" is 32 lanes x 16 bytes { hi hi' lo lo' } of a B fragment
 * (k 16 x n 8).  Lane = 4 g + t.  Key channels are numbered c = 8 n + g <-> dk = 16 g + n, value columns of a warp
 * row r <-> 2 (r % 8) + r / 8: both so that a lane's values are contiguous in q, k, v, o and the state. */
#include <cuda_bf16.h>
#include "devices/cuda/gdn.cuh"

enum {
    C = 64,
    D = 128,
    SEGMENT = 256,          /* chunks of a sequence per pair of launches */
    TILE = 512,             /* bytes */
    W_BYTES = 8 * 8 * TILE, /* [token / 8][channel / 16] */
    P_BYTES = 8 * 4 * TILE, /* [token / 8][token / 16], the lower triangle only */
    V_BYTES = 8 * 8 * TILE, /* [column / 16][token / 8], f32 sums as the scan starts from */
    GATE_BYTES = 2 * C * 4, /* e^G / sqrt(dk); e^(G_63 - G) */
    SLOT = W_BYTES + P_BYTES + V_BYTES + GATE_BYTES,
    LD = 68, /* floats between rows of A and T in shared memory */
    PREP_THREADS = 256,
    SCAN_THREADS = 256, /* four warps compute, four fetch */
    SPLIT_BYTES = 8 * 8 * TILE,
    STAGE = W_BYTES + P_BYTES + 2 * SPLIT_BYTES,
    SCAN_SMEM = 2 * STAGE + 64,
    PREP_SMEM = SPLIT_BYTES + 2 * C * LD * 4 + 2 * C * 4
};

typedef struct chunk_job {
    gdn_job g;
    unsigned char *slots; /* [slot][hv][SLOT] */
    int segment, n_slots;
} chunk_job;

/* ---- which chunk ---- */

typedef struct chunk_at {
    int seq, first, last; /* tokens first .. last-1 of the batch lie in the chunk */
    int shift;            /* row of the chunk that token `first` has */
} chunk_at;

/* Chunks of sequence s in this segment; *begin: the number of the first of them in its sequence. */
static __device__ __forceinline__ int chunks_of(const chunk_job &p, int s, int *begin)
{
    const seqs_dev &q = p.g.seqs;
    *begin = p.segment * SEGMENT;
    if (!takes_part(q, s, p.g.phase))
        return 0;
    const int pos0 = q.pos0[s], n = q.q0[s + 1] - q.q0[s], all = (pos0 + n - 1) / C - pos0 / C + 1 - *begin;
    return all < 0 ? 0 : all < SEGMENT ? all : SEGMENT;
}

static __device__ __forceinline__ chunk_at chunk_of(const chunk_job &p, int s, int number)
{
    const seqs_dev &q = p.g.seqs;
    const int pos0 = q.pos0[s], end = pos0 + q.q0[s + 1] - q.q0[s], grid = (pos0 / C + number) * C;
    const int from = grid > pos0 ? grid : pos0, to = grid + C < end ? grid + C : end;
    const chunk_at at = { s, q.q0[s] + from - pos0, q.q0[s] + to - pos0, from - grid };
    return at;
}

/* The chunk of a slot; false past the last. */
static __device__ bool slot_chunk(const chunk_job &p, int slot, chunk_at *at)
{
    for (int s = 0, begin; s < p.g.seqs.n_seqs; s++) {
        const int n = chunks_of(p, s, &begin);
        if (slot < n) {
            *at = chunk_of(p, s, begin + slot);
            return true;
        }
        slot -= n;
    }
    return false;
}

/* Row of the batch of row r of the chunk, or -1. */
static __device__ __forceinline__ int row_of(const chunk_at &at, int r)
{
    const int row = at.first + r - at.shift;
    return r >= at.shift && row < at.last ? row : -1;
}

/* ---- fragments ---- */

static __device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 v)
{
    union {
        __nv_bfloat162 h;
        uint32_t u;
    } o;
    o.h = v;
    return o.u;
}

/* Two values as hi and lo pairs, the first in the low half. */
static __device__ __forceinline__ void split2(float a, float b, uint32_t *hi, uint32_t *lo)
{
    *hi = bits_of(__floats2bfloat162_rn(a, b));
    *lo = bits_of(__floats2bfloat162_rn(a - __uint_as_float(*hi << 16), b - __uint_as_float(*hi & 0xffff0000u)));
}

/* A B fragment of values k = 2t, 2t+1, 2t+8, 2t+9. */
static __device__ __forceinline__ uint4 split4(float a, float b, float c, float d)
{
    uint4 o;
    split2(a, b, &o.x, &o.z);
    split2(c, d, &o.y, &o.w);
    return o;
}

/* An A fragment: rows g and g + 8, k as above. */
typedef struct frag {
    uint32_t hi[4], lo[4];
} frag;

static __device__ __forceinline__ void mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma3(float *c, const frag &a, const uint4 &b)
{
    mma(c, a.lo, b.x, b.y);
    mma(c, a.hi, b.z, b.w);
    mma(c, a.hi, b.x, b.y);
}

/* c[i] += a b[i] for N neighbouring tiles `step` lanes apart: a term of all before the next term of any, so that no
 * product waits for the one before it. */
template <int N>
static __device__ __forceinline__ void mma3_tiles(float (*c)[4], const frag &a, const uint4 *b, int step)
{
    uint4 x[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = b[i * step];
#pragma unroll
    for (int i = 0; i < N; i++)
        mma(c[i], a.lo, x[i].x, x[i].y);
#pragma unroll
    for (int i = 0; i < N; i++)
        mma(c[i], a.hi, x[i].z, x[i].w);
#pragma unroll
    for (int i = 0; i < N; i++)
        mma(c[i], a.hi, x[i].x, x[i].y);
}

/* Two neighbouring sums (n tiles 2j, 2j+1) as the operand of k tile j. */
static __device__ __forceinline__ frag frag_of(const float *left, const float *right)
{
    frag f;
    split2(left[0], left[1], &f.hi[0], &f.lo[0]);
    split2(left[2], left[3], &f.hi[1], &f.lo[1]);
    split2(right[0], right[1], &f.hi[2], &f.lo[2]);
    split2(right[2], right[3], &f.hi[3], &f.lo[3]);
    return f;
}

/* 32 channels of a row: what lane (g, t) needs of it, dk = 32 t .. 32 t + 31. */
static __device__ __forceinline__ void load32(const float *x, int row, int64_t ld, float4 *v)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = row < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                       : ((const float4 *)(x + row * ld + 32 * (threadIdx.x % 4)))[i];
}

static __device__ __forceinline__ float at4(const float4 *v, int i)
{
    const float4 &q = v[i / 4];
    return i % 4 == 0 ? q.x : i % 4 == 1 ? q.y : i % 4 == 2 ? q.z : q.w;
}

/* Fragment j of such a row, as B (n = the row) or as half of A. */
static __device__ __forceinline__ uint4 row_tile(const float4 *v, int j, float by)
{
    return split4(at4(v, 2 * j) * by, at4(v, 2 * j + 16) * by, at4(v, 2 * j + 1) * by, at4(v, 2 * j + 17) * by);
}

static __device__ __forceinline__ frag frag_rows(const uint4 &top, const uint4 &low)
{
    const frag f = { { top.x, low.x, top.y, low.y }, { top.z, low.z, top.w, low.w } };
    return f;
}

/* ---- prep ---- */

typedef struct prep_mem {
    uint4 *keys;       /* [token / 8][channel / 16][lane] */
    float *a, *t;      /* [C][LD]; t begins as nothing */
    float *sum, *beta; /* G, beta */
} prep_mem;

/* G and beta; rows outside the batch keep G and have beta 0. */
static __device__ void load_gates(const chunk_job &p, const chunk_at &at, int v, const prep_mem &m)
{
    const int lane = threadIdx.x % 32;
    float carry = 0.0f;
    for (int half = 0; half < C; half += 32) {
        const int row = row_of(at, half + lane);
        float x = row < 0 ? 0.0f : p.g.a.g[(int64_t)row * p.g.a.hv + v];
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float o = __shfl_up_sync(0xffffffffu, x, d);
            x += lane >= d ? o : 0.0f;
        }
        m.sum[half + lane] = carry + x;
        m.beta[half + lane] = row < 0 ? 0.0f : p.g.a.beta[(int64_t)row * p.g.a.hv + v];
        carry += __shfl_sync(0xffffffffu, x, 31);
    }
}

/* Sums of rows 16 m .. of x against the keys, n tiles up to the diagonal. */
static __device__ __forceinline__ void dots(const frag *a, const uint4 *keys, int m, float (*acc)[4])
{
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[n][i] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int n = 0; n < 8; n += 2)
            if (n <= 2 * m)
                mma3_tiles<2>(acc + n, a[j], keys + (n * 8 + j) * 32 + threadIdx.x % 32, 8 * 32);
}

/* A into shared memory: warp m of the first four. */
static __device__ void prep_a(const prep_mem &s, int m)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    frag a[8];
    float acc[8][4];
#pragma unroll
    for (int j = 0; j < 8; j++)
        a[j] = frag_rows(s.keys[(2 * m * 8 + j) * 32 + lane], s.keys[((2 * m + 1) * 8 + j) * 32 + lane]);
    dots(a, s.keys, m, acc);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * m + g + 8 * (i / 2), col = 8 * n + 2 * t + i % 2;
            if (n <= 2 * m + 1)
                s.a[row * LD + col] = col < row ? s.beta[row] * expf(s.sum[row] - s.sum[col]) * acc[n][i] : 0.0f;
        }
}

/* P to the slot: warp m of the last four. */
static __device__ void prep_p(const chunk_job &p, const chunk_at &at, const float *q, const prep_mem &s, int m,
                              uint4 *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    frag a[8];
    float acc[8][4];
    {
        float4 top[8], low[8];
        load32(q, row_of(at, 16 * m + g), p.g.a.ldq, top);
        load32(q, row_of(at, 16 * m + g + 8), p.g.a.ldq, low);
#pragma unroll
        for (int j = 0; j < 8; j++)
            a[j] = frag_rows(row_tile(top, j, 1.0f), row_tile(low, j, 1.0f));
    }
    dots(a, s.keys, m, acc);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * m + g + 8 * (i / 2), col = 8 * n + 2 * t + i % 2;
            acc[n][i] = col <= row ? p.g.scale * expf(s.sum[row] - s.sum[col]) * acc[n][i] : 0.0f;
        }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j > m)
            break;
        const float *l = acc[2 * j], *r = acc[2 * j + 1];
        out[((2 * m) * 4 + j) * 32 + lane] = split4(l[0], l[1], r[0], r[1]);
        out[((2 * m + 1) * 4 + j) * 32 + lane] = split4(l[2], l[3], r[2], r[3]);
    }
}

/* to[r][4 c ..] = sign * sum over i < n of x[r][i] y[i][4 c ..], for this thread's r and c. */
static __device__ __forceinline__ void block_product(float *to, const float *x, const float *y, int n, float sign)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 0; i < n; i++) {
        const float f = x[i];
        const float4 v = *(const float4 *)(y + i * LD);
        sum = make_float4(fmaf(f, v.x, sum.x), fmaf(f, v.y, sum.y), fmaf(f, v.z, sum.z), fmaf(f, v.w, sum.w));
    }
    *(float4 *)to = make_float4(sign * sum.x, sign * sum.y, sign * sum.z, sign * sum.w);
}

/* t = (I + a)^-1, all threads.  The upper half of `a` holds what is in between. */
static __device__ void invert(float *a, float *t)
{
    const int u = threadIdx.x;
    if (u < C) {
        const int b = u / 16 * 16, c = u % 16;
        float x[16];
#pragma unroll
        for (int r = 0; r < 16; r++) {
            float sum = r == c ? 1.0f : 0.0f;
#pragma unroll
            for (int i = 0; i < r; i++)
                sum = fmaf(-a[(b + r) * LD + b + i], x[i], sum);
            x[r] = sum;
            t[(b + r) * LD + b + c] = sum;
        }
    } else {
        for (int i = u - C; i < 2 * 16 * 16; i += PREP_THREADS - C) /* right of a diagonal block, inside its half */
            t[(i / 256 * 32 + i % 256 / 16) * LD + i / 256 * 32 + 16 + i % 16] = 0.0f;
    }
    __syncthreads();
    { /* 16 x 16: threads 0..63 the first pair, 64..127 the second */
        const int b = u / 64 * 32, r = u % 64 / 4, c = u % 4 * 4;
        if (u < 128)
            block_product(&a[(b + r) * LD + b + 16 + c], &a[(b + 16 + r) * LD + b], &t[b * LD + b + c], 16, 1.0f);
        __syncthreads();
        if (u < 128)
            block_product(&t[(b + 16 + r) * LD + b + c], &t[(b + 16 + r) * LD + b + 16], &a[b * LD + b + 16 + c], 16,
                          -1.0f);
    }
    __syncthreads();
    { /* 32 x 32 */
        const int r = u / 8, c = u % 8 * 4;
        block_product(&a[r * LD + 32 + c], &a[(32 + r) * LD], &t[c], 32, 1.0f);
        __syncthreads();
        block_product(&t[(32 + r) * LD + c], &t[(32 + r) * LD + 32], &a[32 + c], 32, -1.0f);
    }
    __syncthreads();
}

/* Rows r, r + 8 of T times a factor per column, k tile j, as A. */
static __device__ __forceinline__ frag t_rows(const prep_mem &s, int r, int j, const float *by)
{
    const int k = 16 * j + 2 * (threadIdx.x % 4);
    const float2 l = *(const float2 *)&by[k], h = *(const float2 *)&by[k + 8];
    frag f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 x = *(const float2 *)&s.t[(r + 8 * i) * LD + k],
                     y = *(const float2 *)&s.t[(r + 8 * i) * LD + k + 8];
        split2(x.x * l.x, x.y * l.y, &f.hi[i], &f.lo[i]);
        split2(y.x * h.x, y.y * h.y, &f.hi[2 + i], &f.lo[2 + i]);
    }
    return f;
}

/* -W, channels 16 w .. (in the numbering c) of all tokens; by: beta e^G. */
static __device__ void prep_w(const chunk_job &p, const chunk_at &at, const float *k, const prep_mem &s,
                              const float *by, int w, uint4 *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint4 b[4][2];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float2 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row_of(at, 16 * j + 2 * t + i % 2 + 8 * (i / 2));
            v[i] = row < 0 ? make_float2(0.0f, 0.0f) : *(const float2 *)(k + row * p.g.a.ldk + 16 * g + 2 * w);
        }
        b[j][0] = split4(v[0].x, v[1].x, v[2].x, v[3].x);
        b[j][1] = split4(v[0].y, v[1].y, v[2].y, v[3].y);
    }
#pragma unroll
    for (int m = 0; m < 4; m++) {
        float l[4] = {}, r[4] = {};
#pragma unroll
        for (int j = 0; j <= m; j++) {
            const frag a = t_rows(s, 16 * m + g, j, by);
            mma3(l, a, b[j][0]);
            mma3(r, a, b[j][1]);
        }
        out[((2 * m) * 8 + w) * 32 + lane] = split4(-l[0], -l[1], -r[0], -r[1]);
        out[((2 * m + 1) * 8 + w) * 32 + lane] = split4(-l[2], -l[3], -r[2], -r[3]);
    }
}

/* V' transposed, value columns 16 w .. of all tokens. */
static __device__ void prep_v(const chunk_job &p, const chunk_at &at, const float *v, const prep_mem &s, int w,
                              float4 *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    frag a[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float2 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row_of(at, 16 * j + 2 * t + i % 2 + 8 * (i / 2));
            x[i] = row < 0 ? make_float2(0.0f, 0.0f) : *(const float2 *)(v + row * p.g.a.ldv + 16 * w + 2 * g);
        }
        split2(x[0].x, x[1].x, &a[j].hi[0], &a[j].lo[0]);
        split2(x[0].y, x[1].y, &a[j].hi[1], &a[j].lo[1]);
        split2(x[2].x, x[3].x, &a[j].hi[2], &a[j].lo[2]);
        split2(x[2].y, x[3].y, &a[j].hi[3], &a[j].lo[3]);
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float acc[4] = {};
#pragma unroll
        for (int j = 0; j <= n / 2; j++) {
            const int c = 16 * j + 2 * t;
            const float *row = &s.t[(8 * n + g) * LD + c];
            mma3(acc, a[j],
                 split4(row[0] * s.beta[c], row[1] * s.beta[c + 1], row[8] * s.beta[c + 8], row[9] * s.beta[c + 9]));
        }
        out[(w * 8 + n) * 32 + lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    }
}

static __global__ void __launch_bounds__(PREP_THREADS, 2) prep_kernel(chunk_job p)
{
    extern __shared__ __align__(16) unsigned char smem[];
    __shared__ float decay[C];
    const prep_mem s = { (uint4 *)smem, (float *)(smem + SPLIT_BYTES), (float *)(smem + SPLIT_BYTES) + C * LD,
                         (float *)(smem + SPLIT_BYTES) + 2 * C * LD, (float *)(smem + SPLIT_BYTES) + 2 * C * LD + C };
    const kvant_gdn_args &a = p.g.a;
    const int slot = blockIdx.x / a.hv, v = blockIdx.x % a.hv, w = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    const float *k = a.k + (int64_t)kh * D, *q = a.q + (int64_t)kh * D;
    unsigned char *out = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    chunk_at at;

    pdl_go();
    pdl_wait();
    if (!slot_chunk(p, slot, &at))
        return;
    { /* what the later phases read: on its way to L2 while the first ones compute */
        const int row = row_of(at, threadIdx.x / 4), part = 32 * (threadIdx.x % 4);
        if (row >= 0) {
            asm volatile("prefetch.global.L2 [%0];" ::"l"(q + row * a.ldq + part));
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.v + row * a.ldv + (int64_t)v * D + part));
        }
    }
    if (w == 0)
        load_gates(p, at, v, s);
    {
        float4 row[8];
        load32(k, row_of(at, 8 * w + lane / 4), a.ldk, row);
#pragma unroll
        for (int j = 0; j < 8; j++)
            s.keys[(w * 8 + j) * 32 + lane] = row_tile(row, j, 1.0f);
    }
    __syncthreads();
    if (w < 4)
        prep_a(s, w);
    else
        prep_p(p, at, q, s, w - 4, (uint4 *)(out + W_BYTES));
    if (threadIdx.x < C) {
        const float e = expf(s.sum[threadIdx.x]);
        float *gate = (float *)(out + W_BYTES + P_BYTES + V_BYTES);
        decay[threadIdx.x] = s.beta[threadIdx.x] * e;
        gate[threadIdx.x] = p.g.scale * e;
        gate[C + threadIdx.x] = expf(s.sum[C - 1] - s.sum[threadIdx.x]);
    }
    __syncthreads();
    invert(s.a, s.t);
    prep_w(p, at, k, s, decay, w, (uint4 *)out);
    prep_v(p, at, a.v + (int64_t)v * D, s, w, (float4 *)(out + W_BYTES + P_BYTES));
}

/* ---- scan ---- */

typedef struct ring {
    uint32_t full, empty; /* shared addresses of barriers, two of each, 8 bytes apart */
} ring;

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void bar_init(uint32_t at, int n)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}

static __device__ __forceinline__ void bar_arrive(uint32_t at)
{
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
}

static __device__ __forceinline__ void bar_wait(uint32_t at, int parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
}

static __device__ __forceinline__ void copy16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
}

/* One chunk into a stage: -W and P as they are, q and k split.  Four warps, u: thread of them. */
static __device__ void fetch(const chunk_job &p, const chunk_at &at, int v, const unsigned char *slot,
                             unsigned char *to, int u)
{
    const kvant_gdn_args &a = p.g.a;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk, w = u / 32, lane = u % 32, g = lane / 4, t = lane % 4;
    const float *k = a.k + (int64_t)kh * D, *q = a.q + (int64_t)kh * D;
    const float *gate = (const float *)(slot + W_BYTES + P_BYTES + V_BYTES);
    uint4 *queries = (uint4 *)(to + W_BYTES + P_BYTES), *keys = (uint4 *)(to + W_BYTES + P_BYTES + SPLIT_BYTES);

    for (int i = u; i < (W_BYTES + P_BYTES) / 16; i += 128) {
        const int tile = i / 32 - W_BYTES / TILE;
        if (tile < 0 || tile % 4 <= tile / 8) /* above the diagonal nothing was written or is read */
            copy16(to + 16 * i, slot + 16 * i);
    }
    /* everything is asked for before anything is stored: one way through memory per chunk */
    float4 x[2][8], y[4][4];
    float by[4];
#pragma unroll
    for (int i = 0; i < 2; i++)
        load32(q, row_of(at, 8 * (2 * w + i) + g), a.ldq, x[i]);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* k tile w */
        const int r = 16 * w + 2 * t + i % 2 + 8 * (i / 2), row = row_of(at, r);
        by[i] = gate[C + r];
#pragma unroll
        for (int part = 0; part < 4; part++)
            y[part][i] = row < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                                 : *(const float4 *)(k + row * a.ldk + 16 * g + 4 * part);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float f = gate[8 * (2 * w + i) + g];
#pragma unroll
        for (int j = 0; j < 8; j++)
            queries[((2 * w + i) * 8 + j) * 32 + lane] = row_tile(x[i], j, f);
    }
#pragma unroll
    for (int part = 0; part < 4; part++) /* n tiles 4 part .. */
#pragma unroll
        for (int i = 0; i < 4; i++)
            keys[(w * 16 + 4 * part + i) * 32 + lane] = split4(at4(&y[part][0], i) * by[0], at4(&y[part][1], i) * by[1],
                                                               at4(&y[part][2], i) * by[2],
                                                               at4(&y[part][3], i) * by[3]);
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* 16 columns of the state through one chunk.  S[n][i]: channel tile n; see the file's head for the numbering. */
static __device__ __forceinline__ void chunk_step(float (*S)[4], const unsigned char *stage, const float4 *v0,
                                                  float last, float (*o)[4])
{
    const int lane = threadIdx.x % 32;
    const uint4 *w = (const uint4 *)stage + lane, *pt = (const uint4 *)(stage + W_BYTES) + lane;
    const uint4 *q = (const uint4 *)(stage + W_BYTES + P_BYTES) + lane, *k = q + SPLIT_BYTES / 16;
    float u[8][4];
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float4 x = v0[n * 32 + lane];
        u[n][0] = x.x, u[n][1] = x.y, u[n][2] = x.z, u[n][3] = x.w;
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const frag s = frag_of(S[2 * j], S[2 * j + 1]);
#pragma unroll
        for (int n = 0; n < 8; n += 4) {
            mma3_tiles<4>(o + n, s, q + (n * 8 + j) * 32, 8 * 32);
            mma3_tiles<4>(u + n, s, w + (n * 8 + j) * 32, 8 * 32);
        }
    }
#pragma unroll
    for (int n = 0; n < 16; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            S[n][i] *= last;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const frag f = frag_of(u[2 * j], u[2 * j + 1]);
#pragma unroll
        for (int n = 2 * j; n < 8; n += 2)
            mma3_tiles<2>(o + n, f, pt + (n * 4 + j) * 32, 4 * 32);
#pragma unroll
        for (int n = 0; n < 16; n += 4)
            mma3_tiles<4>(S + n, f, k + (j * 16 + n) * 32, 32);
    }
}

/* Where column pair g of this warp lies: two columns of 128 channels. */
static __device__ __forceinline__ void load_state(const float *from, float (*S)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float4 x[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = from ? ((const float4 *)(from + (2 * g + c) * D + 32 * t))[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int n = 0; n < 16; n++) {
            S[n][2 * c] = at4(x, n);
            S[n][2 * c + 1] = at4(x, 16 + n);
        }
    }
}

static __device__ __forceinline__ void store_state(float *to, float (*S)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ((float4 *)(to + (2 * g + c) * D + 32 * t + 16 * h))[i] = make_float4(
                    S[4 * i][2 * c + h], S[4 * i + 1][2 * c + h], S[4 * i + 2][2 * c + h], S[4 * i + 3][2 * c + h]);
}

/* o of a chunk: tokens 8 n + 2 t (+1), this lane's pair of columns. */
static __device__ __forceinline__ void store_o(const chunk_job &p, const chunk_at &at, int64_t col, float (*o)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int64_t ld = (int64_t)p.g.a.hv * D;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = row_of(at, 8 * n + 2 * t + i);
            if (row >= 0)
                *(float2 *)(p.g.a.o + row * ld + col + 2 * g) = make_float2(o[n][i], o[n][2 + i]);
        }
}

/* blockIdx.x: half of the columns; y: value head; z: sequence. */
static __global__ void __launch_bounds__(SCAN_THREADS, 1) scan_kernel(chunk_job p)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const kvant_gdn_args &a = p.g.a;
    const int s = blockIdx.z, v = blockIdx.y, w = threadIdx.x / 32;
    const uint32_t full = shared_at(smem + 2 * STAGE), empty = full + 16;
    int begin, slot = 0;

    pdl_go();
    if (threadIdx.x < 2) {
        bar_init(full + 8 * threadIdx.x, 128);
        bar_init(empty + 8 * threadIdx.x, 4);
    }
    __syncthreads();
    pdl_wait();
    for (int i = 0; i < s; i++)
        slot += chunks_of(p, i, &begin);
    const int n = chunks_of(p, s, &begin);
    const unsigned char *slots = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    const int64_t step = (int64_t)a.hv * SLOT;
    if (n == 0)
        return;
    if (w >= 4) {
        for (int i = 0; i < n; i++) {
            if (i >= 2)
                bar_wait(empty + 8 * (i & 1), (i / 2 - 1) & 1);
            fetch(p, chunk_of(p, s, begin + i), v, slots + i * step, smem + (i & 1) * STAGE, threadIdx.x - 128);
            bar_arrive(full + 8 * (i & 1));
        }
        return;
    }
    const int in = p.g.seqs.slot_in[s], out = p.g.seqs.slot_out[s], col = 64 * blockIdx.x + 16 * w;
    const int64_t at = ((int64_t)v * D + col) * D;
    float *to = a.state + out * a.slot_stride + at, S[16][4], o[8][4];
    const float *from = begin > 0 || in == out ? to : in < 0 ? NULL : p.g.gathered + (int64_t)s * a.hv * D * D + at;
    load_state(from, S);
    for (int i = 0; i < n; i++) {
        const unsigned char *mine = slots + i * step;
        const float last = ((const float *)(mine + W_BYTES + P_BYTES + V_BYTES))[C - 1] / p.g.scale;
        bar_wait(full + 8 * (i & 1), (i / 2) & 1);
        chunk_step(S, smem + (i & 1) * STAGE, (const float4 *)(mine + W_BYTES + P_BYTES) + (4 * blockIdx.x + w) * 256,
                   last, o);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bar_arrive(empty + 8 * (i & 1));
        store_o(p, chunk_of(p, s, begin + i), (int64_t)v * D + col, o);
    }
    store_state(to, S);
}

/* ---- host ---- */

bool gdn_chunk_fits(const cuda_device *d, const kvant_gdn_args *a)
{
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->state | (uintptr_t)a->o;
    return a->dk == D && a->dv == D && d->smem_max >= SCAN_SMEM &&
           ((at | (uintptr_t)(4 * (a->ldq | a->ldk | a->ldv | a->slot_stride))) & 15) == 0;
}

static int64_t slots_of(const kvant_gdn_args *a)
{
    const int64_t all = a->seqs.n_tokens / C + 2 * (int64_t)a->seqs.n_seqs, most = (int64_t)SEGMENT * a->seqs.n_seqs;
    return all < most ? all : most;
}

size_t gdn_chunk_scratch(const kvant_gdn_args *a)
{
    return (size_t)slots_of(a) * (size_t)a->hv * SLOT;
}

void gdn_chunk_run(cuda_device *d, const gdn_job *g, unsigned char *scratch)
{
    const kvant_gdn_args *a = &g->a;
    const int segments = (a->seqs.n_tokens / C + 2 + SEGMENT - 1) / SEGMENT;
    chunk_job p = { *g, scratch, 0, (int)slots_of(a) };
    cuda_smem(prep_kernel, PREP_SMEM);
    cuda_smem(scan_kernel, SCAN_SMEM);
    for (p.segment = 0; p.segment < segments; p.segment++) {
        cuda_launch(d, prep_kernel, dim3((unsigned)(p.n_slots * a->hv)), PREP_THREADS, PREP_SMEM, p);
        cuda_launch(d, scan_kernel, dim3(2, (unsigned)a->hv, (unsigned)a->seqs.n_seqs), SCAN_THREADS, SCAN_SMEM, p);
    }
}
