/* gdn_chunk.cu: the gated delta rule over whole prompts on tensor cores, dk = dv = 128 (spec engine 1.4).
 *
 * With G the running sum of g in a chunk of C = 64 tokens, S the state before it, and
 *     A[t][i] = beta_t e^(G_t - G_i) <k_t, k_i>, i < t        T = (I + A)^-1        (unit lower triangular)
 *     W = T diag(beta e^G) K        V' = T diag(beta) V        P[t][i] = e^(G_t - G_i) <q_t, k_i> / sqrt(dk), i <= t
 * a chunk is
 *     U = V' - W S        o = e^G (Q S) / sqrt(dk) + P U        S <- e^G_63 S + K^T diag(e^(G_63 - G)) U
 *
 * prep: one block per (chunk, value head), all independent: W, V', P, and once per key head the operands Q and K^T.  T
 * is inverted in f32: 16 x 16 blocks by substitution, then two levels of products of halves.
 * scan: one block per (sequence, value head, 32 columns of the state), chunk after chunk; the four blocks of a head are
 * a cluster and fetch each chunk once, a quarter each, into the shared memory of all.  Transposed, so that a warp keeps
 * 16 columns of S in registers and the result of one product is the operand of the next without passing through
 * memory.  Two warps share 16 columns: each has the outputs of half of the chunk's tokens, and both the whole of S.
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
#include "devices/cuda/hopper.cuh"

enum {
    C = 64,
    D = 128,
    SEGMENT = 256,          /* chunks of a sequence per pair of launches */
    TILE = 512,             /* bytes */
    W_BYTES = 8 * 8 * TILE, /* [token / 8][channel / 16] */
    P_BYTES = 20 * TILE,    /* [token / 8][token / 16], the lower triangle only: p_tile */
    GATE_BYTES = 2 * C * 4, /* e^G / sqrt(dk); e^(G_63 - G) */
    HEAD_BYTES = W_BYTES + P_BYTES + GATE_BYTES,
    V_BYTES = 8 * 8 * TILE, /* [column / 16][token / 8], f32 sums as the scan starts from */
    SLOT = HEAD_BYTES + V_BYTES,
    SPLIT_BYTES = 8 * 8 * TILE,
    KEY_SLOT = 2 * SPLIT_BYTES, /* Q [token / 8][channel / 16]; K^T [token / 16][channel / 8] */
    LD = 68,                    /* floats between rows of A and T in shared memory */
    PREP_THREADS = 256,
    PREP_SMEM = 2 * SPLIT_BYTES + 2 * C * LD * 4 + 3 * C * 4,
    SCAN_WARPS = 4, /* and one that fetches */
    SCAN_THREADS = 32 * (SCAN_WARPS + 1),
    SCAN_COLS = 32,
    STAGE = HEAD_BYTES + KEY_SLOT,
    SWAP_BYTES = 6 * 1024, /* of a pair of warps: U of both scaled, and the first's as it is */
    SCAN_SMEM = 2 * STAGE + SCAN_WARPS / 2 * SWAP_BYTES + 64,
    CLUSTER = D / SCAN_COLS
};

typedef struct chunk_job {
    gdn_job g;
    unsigned char *slots; /* [slot][hv][SLOT] */
    unsigned char *keys;  /* [slot][hk][KEY_SLOT] */
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

/* c[i] += a x[i] for N tiles: a term of all before the next term of any, so that no product waits for another. */
template <int N> static __device__ __forceinline__ void mma3_all(float (*c)[4], const frag &a, const uint4 *x)
{
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

static __device__ __forceinline__ float at4(const float4 *v, int i)
{
    const float4 &q = v[i / 4];
    return i % 4 == 0 ? q.x : i % 4 == 1 ? q.y : i % 4 == 2 ? q.z : q.w;
}

/* Fragment j of the 32 channels of a row that lane (g, t) has, dk = 32 t .. 32 t + 31, as B (n = the row) or as half
 * of A. */
static __device__ __forceinline__ uint4 row_tile(const float4 *v, int j)
{
    return split4(at4(v, 2 * j), at4(v, 2 * j + 16), at4(v, 2 * j + 1), at4(v, 2 * j + 17));
}

static __device__ __forceinline__ frag frag_rows(const uint4 &top, const uint4 &low)
{
    const frag f = { { top.x, low.x, top.y, low.y }, { top.z, low.z, top.w, low.w } };
    return f;
}

/* Number of the tile of P for tokens 8 n .. and k tile j <= n / 2. */
static __device__ __forceinline__ constexpr int p_tile(int n, int j)
{
    return (n / 2 + 1) * (n / 2 + n % 2) + j;
}

/* ---- prep ---- */

/* e^x for x <= 0, to about 2^-21 + |x| 2^-24. */
static __device__ __forceinline__ float decay_of(float x)
{
    return exp2_fast(x * 1.44269504f);
}

typedef struct prep_mem {
    uint4 *keys, *queries;     /* [token / 8][channel / 16][lane] */
    uint4 *t_decay, *t_beta;   /* T times beta e^G, times beta: [p_tile][lane], in the place of the queries */
    float *a, *t;              /* [C][LD] */
    float *sum, *beta, *decay; /* G, beta, beta e^G */
} prep_mem;

static __device__ __forceinline__ prep_mem prep_parts(unsigned char *smem)
{
    float *f = (float *)(smem + 2 * SPLIT_BYTES), *g = f + 2 * C * LD;
    uint4 *keys = (uint4 *)smem, *queries = keys + SPLIT_BYTES / 16;
    const prep_mem m = { keys, queries, queries, queries + 20 * 32, f, f + C * LD, g, g + C, g + 2 * C };
    return m;
}

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

/* Rows 8 w .. of x into the 4 KiB that will be their tiles: 16-byte piece c of row r at place c ^ r % 8. */
static __device__ __forceinline__ void rows_start(const chunk_at &at, const float *x, int64_t ld, int w, uint4 *tiles)
{
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int c = threadIdx.x % 32, row = row_of(at, 8 * w + r);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         shared_at(tiles + (w * 8 + r) * 32 + (c ^ r))),
                     "l"(x + (row < 0 ? 0 : row * ld + 4 * c)), "r"(row < 0 ? 0 : 16)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Those rows as fragments, in place; copy: stored there too, or NULL. */
static __device__ __forceinline__ void rows_split(int w, uint4 *tiles, uint4 *copy)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float4 v[8];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = ((const float4 *)tiles)[(w * 8 + g) * 32 + ((8 * t + i) ^ g)];
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint4 x = row_tile(v, j);
        tiles[(w * 8 + j) * 32 + lane] = x;
        if (copy)
            copy[(w * 8 + j) * 32 + lane] = x;
    }
}

/* A (warps 0 .. 3, into shared memory) or P (4 .. 7, to the slot): rows 16 m .. of keys or queries times the keys. */
static __device__ __forceinline__ void prep_square(const prep_mem &s, int w, float scale, uint4 *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, m = w < 4 ? w : 7 - w;
    const uint4 *rows = (w < 4 ? s.keys : s.queries) + 2 * m * 8 * 32 + lane;
    float acc[8][4];
#pragma unroll
    for (int n = 0; n < 8; n++)
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
#pragma unroll 2
    for (int j = 0; j < 8; j++) {
        const frag a = frag_rows(rows[j * 32], rows[(8 + j) * 32]);
        uint4 x[4], y[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            x[n] = s.keys[(n * 8 + j) * 32 + lane];
        if (m < 2) { /* the others lie above the diagonal */
            mma3_all<4>(acc, a, x);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
            y[n] = s.keys[((4 + n) * 8 + j) * 32 + lane];
        mma3_all<4>(acc, a, x);
        mma3_all<4>(acc + 4, a, y);
    }
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * m + g + 8 * (i / 2), col = 8 * n + 2 * t + i % 2;
            if (n > 2 * m + 1)
                continue;
            const float f = decay_of(fminf(s.sum[row] - s.sum[col], 0.0f)) * acc[n][i];
            acc[n][i] = w >= 4 ? (col <= row ? scale * f : 0.0f) : col < row ? s.beta[row] * f : 0.0f;
            if (w < 4)
                s.a[row * LD + col] = acc[n][i];
        }
    if (w < 4)
        return;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j > m)
            break;
        const float *l = acc[2 * j], *r = acc[2 * j + 1];
        out[p_tile(2 * m, j) * 32 + lane] = split4(l[0], l[1], r[0], r[1]);
        out[p_tile(2 * m + 1, j) * 32 + lane] = split4(l[2], l[3], r[2], r[3]);
    }
}

/* to[r][4 c ..] = sign * sum over i < N of x[r][i] y[i][4 c ..], for this thread's r and c. */
template <int N>
static __device__ __forceinline__ void block_product(float *to, const float *x, const float *y, float sign)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 f4 = *(const float4 *)(x + i);
        const float f[4] = { f4.x, f4.y, f4.z, f4.w };
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float4 v = *(const float4 *)(y + (i + k) * LD);
            sum = make_float4(fmaf(f[k], v.x, sum.x), fmaf(f[k], v.y, sum.y), fmaf(f[k], v.z, sum.z),
                              fmaf(f[k], v.w, sum.w));
        }
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
            float sum = r == c ? 1.0f : 0.0f, row[16];
#pragma unroll
            for (int i = 0; i < r; i += 4) {
                const float4 v = *(const float4 *)&a[(b + r) * LD + b + i];
                row[i] = v.x, row[i + 1] = v.y, row[i + 2] = v.z, row[i + 3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < r; i++)
                sum = fmaf(-row[i], x[i], sum);
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
            block_product<16>(&a[(b + r) * LD + b + 16 + c], &a[(b + 16 + r) * LD + b], &t[b * LD + b + c], 1.0f);
        __syncthreads();
        if (u < 128)
            block_product<16>(&t[(b + 16 + r) * LD + b + c], &t[(b + 16 + r) * LD + b + 16],
                              &a[b * LD + b + 16 + c], -1.0f);
    }
    __syncthreads();
    { /* 32 x 32 */
        const int r = u / 8, c = u % 8 * 4;
        block_product<32>(&a[r * LD + 32 + c], &a[(32 + r) * LD], &t[c], 1.0f);
        __syncthreads();
        block_product<32>(&t[(32 + r) * LD + c], &t[(32 + r) * LD + 32], &a[32 + c], -1.0f);
    }
    __syncthreads();
}

/* Rows 8 w .. of T times a factor per column, as B (n = the row) or as half of A. */
static __device__ __forceinline__ void t_tiles(const prep_mem &s, int w)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int j = 0; j <= w / 2; j++) {
        const int c = 16 * j + 2 * t, to = p_tile(w, j) * 32 + lane;
        const float *row = &s.t[(8 * w + g) * LD + c];
        const float2 x = *(const float2 *)row, y = *(const float2 *)(row + 8);
        const float2 d0 = *(const float2 *)&s.decay[c], d1 = *(const float2 *)&s.decay[c + 8];
        const float2 b0 = *(const float2 *)&s.beta[c], b1 = *(const float2 *)&s.beta[c + 8];
        s.t_decay[to] = split4(x.x * d0.x, x.y * d0.y, y.x * d1.x, y.y * d1.y);
        s.t_beta[to] = split4(x.x * b0.x, x.y * b0.y, y.x * b1.x, y.y * b1.y);
    }
}

/* -W, channels 16 w .. (in the numbering c) of all tokens; copy: K^T of them as the scan has it, or NULL. */
static __device__ void prep_w(const prep_mem &s, int w, uint4 *out, uint4 *copy)
{
    const int lane = threadIdx.x % 32;
    uint4 b[4][2];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint4 x = s.keys[(2 * j * 8 + w) * 32 + lane], y = s.keys[((2 * j + 1) * 8 + w) * 32 + lane];
        b[j][0] = make_uint4(transpose8(x.x), transpose8(y.x), transpose8(x.z), transpose8(y.z));
        b[j][1] = make_uint4(transpose8(x.y), transpose8(y.y), transpose8(x.w), transpose8(y.w));
        if (copy) {
            copy[(j * 16 + 2 * w) * 32 + lane] = b[j][0];
            copy[(j * 16 + 2 * w + 1) * 32 + lane] = b[j][1];
        }
    }
#pragma unroll
    for (int m = 0; m < 4; m++) {
        float l[4] = {}, r[4] = {};
#pragma unroll
        for (int j = 0; j <= m; j++) {
            const uint4 *rows = s.t_decay + lane;
            const frag a = frag_rows(rows[p_tile(2 * m, j) * 32], rows[p_tile(2 * m + 1, j) * 32]);
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
        for (int j = 0; j <= n / 2; j++)
            mma3(acc, a[j], s.t_beta[p_tile(n, j) * 32 + lane]);
        out[(w * 8 + n) * 32 + lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    }
}

static __global__ void __launch_bounds__(PREP_THREADS, 2) prep_kernel(chunk_job p)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const prep_mem s = prep_parts(smem);
    const kvant_gdn_args &a = p.g.a;
    const int slot = blockIdx.x / a.hv, v = blockIdx.x % a.hv, w = threadIdx.x / 32;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    const bool first = a.interleaved ? v % (a.hv / a.hk) == 0 : v < a.hk;
    unsigned char *out = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    uint4 *keys = first ? (uint4 *)(p.keys + ((int64_t)slot * a.hk + kh) * KEY_SLOT) : NULL;
    chunk_at at;

    pdl_go();
    pdl_wait();
    if (!slot_chunk(p, slot, &at))
        return;
    rows_start(at, a.k + (int64_t)kh * D, a.ldk, w, s.keys);
    rows_start(at, a.q + (int64_t)kh * D, a.ldq, w, s.queries);
    { /* V' comes last: its values on their way to L2 meanwhile */
        const int row = row_of(at, threadIdx.x / 4);
        if (row >= 0)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.v + row * a.ldv + (int64_t)v * D + 32 * (threadIdx.x % 4)));
    }
    if (w == 7)
        load_gates(p, at, v, s);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    rows_split(w, s.keys, NULL);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    rows_split(w, s.queries, keys);
    __syncthreads();
    if (threadIdx.x < C) {
        const float e = expf(s.sum[threadIdx.x]);
        float *gate = (float *)(out + W_BYTES + P_BYTES);
        s.decay[threadIdx.x] = s.beta[threadIdx.x] * e;
        gate[threadIdx.x] = p.g.scale * e;
        gate[C + threadIdx.x] = expf(s.sum[C - 1] - s.sum[threadIdx.x]);
    }
    prep_square(s, w, p.g.scale, (uint4 *)(out + W_BYTES));
    __syncthreads();
    invert(s.a, s.t);
    t_tiles(s, w);
    __syncthreads();
    prep_w(s, w, (uint4 *)out, keys ? keys + SPLIT_BYTES / 16 : NULL);
    prep_v(p, at, a.v + (int64_t)v * D, s, w, (float4 *)(out + HEAD_BYTES));
}

/* ---- scan ---- */

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
static __device__ __forceinline__ uint32_t cluster_blocks(void)
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    return n;
}

static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return n;
}

/* All threads of all blocks of the cluster. */
static __device__ __forceinline__ void cluster_meet(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Arrives at the barrier that block `rank` of the cluster has at this address. */
static __device__ __forceinline__ void arrive_at(uint32_t bar, uint32_t rank)
{
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

/* Waits for arrivals from the whole cluster. */
static __device__ __forceinline__ void wait_cluster(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nw: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra w;\n}\n" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

/* The same bytes to the same place in every block of the cluster; each one's barrier counts them.  Clusters of more
 * than one block are for compute capability 9.0 (launch_scan). */
static __device__ __forceinline__ void bulk_to_all(uint32_t to, const void *from, uint32_t bytes, uint32_t bar,
                                                   uint32_t blocks)
{
#if __CUDA_ARCH__ == 900
    if (blocks > 1) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(bar), "h"((uint16_t)((1u << blocks) - 1u))
                     : "memory");
        return;
    }
#endif
    bulk_start(to, from, bytes, bar);
}

/* The two warps that share 16 columns. */
static __device__ __forceinline__ void pair_meet(int pair)
{
    asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
}

static __device__ __forceinline__ void swap_put(uint4 *to, const frag &f)
{
    to[0] = make_uint4(f.hi[0], f.hi[1], f.hi[2], f.hi[3]);
    to[32] = make_uint4(f.lo[0], f.lo[1], f.lo[2], f.lo[3]);
}

static __device__ __forceinline__ frag swap_get(const uint4 *from)
{
    const uint4 h = from[0], l = from[32];
    const frag f = { { h.x, h.y, h.z, h.w }, { l.x, l.y, l.z, l.w } };
    return f;
}

/* Where a warp's o goes: token 8 n + 2 t + i of its half of the chunk at at + (8 n + i) * ld, if bit 2 n + i is set. */
typedef struct place {
    float *at;
    int64_t ld;
    uint32_t rows;
} place;

/* begin: batch row of the chunk's first token, were it there; the sequence has rows from .. end - 1. */
static __device__ __forceinline__ place place_of(const chunk_job &p, int begin, int from, int end, int64_t col,
                                                 int half)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = begin + 32 * half + 2 * t;
    place to = { NULL, (int64_t)p.g.a.hv * D, 0 };
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            to.rows |= (first + 8 * n + i >= from && first + 8 * n + i < end ? 1u : 0u) << (2 * n + i);
    to.at = p.g.a.o + first * to.ld + col + 2 * g;
    return to;
}

/* Without branches, so that products go on meanwhile. */
static __device__ __forceinline__ void store_o(const place &to, float (*o)[4])
{
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.v2.f32 [%1], {%2, %3}; }" ::"r"(
                             to.rows >> (2 * n + i) & 1u),
                         "l"(to.at + (8 * n + i) * to.ld), "f"(o[n][i]), "f"(o[n][2 + i])
                         : "memory");
}

/* 16 columns of the state through one chunk.  S[n][i]: channel tile n; see the file's head for the numbering.
 * half: which 32 tokens' u and o are this warp's; u comes as V'.  swap: of the pair. */
static __device__ __forceinline__ void chunk_step(float (*S)[4], const unsigned char *stage, float last, int half,
                                                  int pair, uint4 *swap, float (*u)[4], const place &to)
{
    const int lane = threadIdx.x % 32, t = lane % 4;
    const uint4 *w = (const uint4 *)stage + half * 4 * 8 * 32 + lane, *pt = (const uint4 *)(stage + W_BYTES) + lane;
    const uint4 *q = (const uint4 *)(stage + HEAD_BYTES) + half * 4 * 8 * 32 + lane;
    const uint4 *k = (const uint4 *)(stage + HEAD_BYTES + SPLIT_BYTES) + lane;
    const float *gate = (const float *)(stage + W_BYTES + P_BYTES) + 32 * half + 2 * t;
    float both[8][4], o[4][4]; /* o, u; o */
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            both[n][i] = 0.0f;
            both[4 + n][i] = u[n][i];
        }
    uint4 x[2][8]; /* the tiles of the next product are on their way during each */
#pragma unroll
    for (int n = 0; n < 4; n++) {
        x[0][n] = q[n * 8 * 32];
        x[0][4 + n] = w[n * 8 * 32];
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const frag s = frag_of(S[2 * j], S[2 * j + 1]);
#pragma unroll
        for (int n = 0; n < 4 && j < 7; n++) {
            x[(j + 1) % 2][n] = q[(n * 8 + j + 1) * 32];
            x[(j + 1) % 2][4 + n] = w[(n * 8 + j + 1) * 32];
        }
        mma3_all<8>(both, s, x[j % 2]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float2 e = *(const float2 *)(gate + 8 * n), r = *(const float2 *)(gate + C + 8 * n);
        o[n][0] = both[n][0] * e.x, o[n][1] = both[n][1] * e.y, o[n][2] = both[n][2] * e.x, o[n][3] = both[n][3] * e.y;
        u[n][0] = both[4 + n][0] * r.x, u[n][1] = both[4 + n][1] * r.y;
        u[n][2] = both[4 + n][2] * r.x, u[n][3] = both[4 + n][3] * r.y;
    }
    pair_meet(pair); /* the other has read what the last chunk put there */
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const frag own = frag_of(both[4 + 2 * j], both[5 + 2 * j]);
        swap_put(swap + (2 * half + j) * 64 + lane, frag_of(u[2 * j], u[2 * j + 1]));
        if (half == 0)
            swap_put(swap + (4 + j) * 64 + lane, own);
#pragma unroll
        for (int n = 2 * j; n < 4; n++) /* tokens of this half upon themselves */
            mma3(o[n], own, pt[(half ? p_tile(4 + n, 2 + j) : p_tile(n, j)) * 32]);
    }
#pragma unroll
    for (int n = 0; n < 16; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            S[n][i] *= last;
    pair_meet(pair);
    if (half) {
#pragma unroll
        for (int j = 0; j < 2; j++) { /* those of the first half upon those of the second */
            const frag f = swap_get(swap + (4 + j) * 64 + lane);
            uint4 y[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                y[n] = pt[p_tile(4 + n, j) * 32];
            mma3_all<4>(o, f, y);
        }
    }
    store_o(to, o);
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[0][i] = k[i * 32];
#pragma unroll
    for (int j = 0; j < 8; j++) { /* token tile j / 2, half of the channels j % 2 */
        const frag a = swap_get(swap + j / 2 * 64 + lane);
#pragma unroll
        for (int i = 0; i < 8 && j < 7; i++)
            x[(j + 1) % 2][i] = k[((j + 1) * 8 + i) * 32];
        mma3_all<8>(S + 8 * (j % 2), a, x[j % 2]);
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

/* This warp's V' of one chunk. */
static __device__ __forceinline__ void load_u(const unsigned char *slot, int block, int half, float (*u)[4])
{
    const float4 *from = (const float4 *)(slot + HEAD_BYTES) + (block * 8 + half * 4) * 32 + threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float4 x = __ldcs(from + n * 32);
        u[n][0] = x.x, u[n][1] = x.y, u[n][2] = x.z, u[n][3] = x.w;
    }
}

/* One thread: every chunk into the ring, this block's share to all blocks of the cluster. */
static __device__ void fetch_all(const unsigned char *slots, int64_t step, const unsigned char *keys, int64_t key_step,
                                 int n, uint32_t ring, uint32_t full, uint32_t empty)
{
    const uint32_t blocks = cluster_blocks(), rank = cluster_rank();
    const uint32_t head = HEAD_BYTES / blocks, pair = KEY_SLOT / blocks;
    for (int i = 0; i < n; i++) {
        const uint32_t bar = full + 8 * (i & 1), to = ring + (i & 1) * STAGE;
        if (i >= 2)
            wait_cluster(empty + 8 * (i & 1), (i / 2 - 1) & 1);
        bar_expect(bar, STAGE);
        bulk_to_all(to + rank * head, slots + i * step + rank * head, head, bar, blocks);
        bulk_to_all(to + HEAD_BYTES + rank * pair, keys + i * key_step + rank * pair, pair, bar, blocks);
    }
}

#endif

/* blockIdx.x: a quarter of the columns; y: value head; z: sequence. */
static __global__ void __launch_bounds__(SCAN_THREADS, 1) scan_kernel(chunk_job p)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char smem[];
    const kvant_gdn_args &a = p.g.a;
    const int s = blockIdx.z, v = blockIdx.y, w = threadIdx.x / 32, pair = w / 2, half = w % 2;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    const uint32_t full = shared_at(smem + SCAN_SMEM - 64), empty = full + 16, blocks = cluster_blocks();
    int begin, slot = 0;

    pdl_go();
    if (threadIdx.x < 2) {
        bar_init(full + 8 * threadIdx.x, 1);
        bar_init(empty + 8 * threadIdx.x, SCAN_WARPS * blocks);
        bar_publish();
    }
    __syncthreads();
    cluster_meet();
    pdl_wait();
    for (int i = 0; i < s; i++)
        slot += chunks_of(p, i, &begin);
    const int n = chunks_of(p, s, &begin);
    const unsigned char *slots = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    const int64_t step = (int64_t)a.hv * SLOT;
    if (w == SCAN_WARPS) {
        if (threadIdx.x % 32 == 0)
            fetch_all(slots, step, p.keys + ((int64_t)slot * a.hk + kh) * KEY_SLOT, (int64_t)a.hk * KEY_SLOT, n,
                      shared_at(smem), full, empty);
    } else if (n > 0) {
        const int in = p.g.seqs.slot_in[s], out = p.g.seqs.slot_out[s], col = SCAN_COLS * blockIdx.x + 16 * pair;
        const int64_t at = ((int64_t)v * D + col) * D;
        float *to = a.state + out * a.slot_stride + at, S[16][4], u[4][4], next[4][4];
        const float *from = begin > 0 || in == out ? to : in < 0 ? NULL : p.g.gathered + (int64_t)s * a.hv * D * D + at;
        uint4 *swap = (uint4 *)(smem + 2 * STAGE + pair * SWAP_BYTES);
        const int from_row = p.g.seqs.q0[s], end_row = p.g.seqs.q0[s + 1], pos0 = p.g.seqs.pos0[s];
        const int zero = from_row + (pos0 / C + begin) * C - pos0;
        const float unscale = 1.0f / p.g.scale;
        load_state(from, S);
        load_u(slots, 2 * blockIdx.x + pair, half, u);
        for (int i = 0; i < n; i++) {
            const unsigned char *stage = smem + (i & 1) * STAGE;
            load_u(slots + (i + 1 < n ? i + 1 : i) * step, 2 * blockIdx.x + pair, half, next);
            const place o = place_of(p, zero + i * C, from_row, end_row, (int64_t)v * D + col, half);
            bar_wait(full + 8 * (i & 1), (i / 2) & 1);
            const float last = ((const float *)(stage + W_BYTES + P_BYTES))[C - 1] * unscale;
            chunk_step(S, stage, last, half, pair, swap, u, o);
            __syncwarp();
            if (threadIdx.x % 32 < blocks)
                arrive_at(empty + 8 * (i & 1), threadIdx.x % 32);
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    u[k][c] = next[k][c];
        }
        pair_meet(pair); /* both have read the state where it is the same memory */
        if (half == 0)
            store_state(to, S);
    }
    __syncwarp();
    cluster_meet(); /* until then others may copy here, or arrive at this block's barriers */
#endif
}

/* ---- host ---- */

bool gdn_chunk_fits(const cuda_device *d, const kvant_gdn_args *a)
{
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->state | (uintptr_t)a->o;
    return a->dk == D && a->dv == D && d->major >= 9 && d->smem_max >= SCAN_SMEM &&
           ((at | (uintptr_t)(4 * (a->ldq | a->ldk | a->ldv | a->slot_stride))) & 15) == 0;
}

static int64_t slots_of(const kvant_gdn_args *a)
{
    const int64_t all = a->seqs.n_tokens / C + 2 * (int64_t)a->seqs.n_seqs, most = (int64_t)SEGMENT * a->seqs.n_seqs;
    return all < most ? all : most;
}

size_t gdn_chunk_scratch(const kvant_gdn_args *a)
{
    return (size_t)slots_of(a) * ((size_t)a->hv * SLOT + (size_t)a->hk * KEY_SLOT);
}

/* As cuda_launch, with the blocks of a head as clusters on compute capability 9.0: four where the GPU can hold all at
 * once, else two. */
static void launch_scan(const cuda_device *d, dim3 grid, chunk_job p)
{
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t cfg = {};
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = CLUSTER;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    attr[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[1].val.programmaticStreamSerializationAllowed = 1;
    cfg.gridDim = grid;
    cfg.blockDim = dim3(SCAN_THREADS);
    cfg.dynamicSmemBytes = SCAN_SMEM;
    cfg.stream = d->stream;
    cfg.attrs = attr;
    cfg.numAttrs = 2;
    int fit = 0;
    const int want = (int)(grid.x * grid.y * grid.z) / CLUSTER, most = d->n_sm / CLUSTER;
    if (d->major != 9)
        attr[0].val.clusterDim.x = 1;
    else if (cudaOccupancyMaxActiveClusters(&fit, scan_kernel, &cfg) != cudaSuccess ||
             fit < (want < most ? want : most - 1))
        attr[0].val.clusterDim.x = CLUSTER / 2;
    cudaLaunchKernelEx(&cfg, scan_kernel, p);
}

void gdn_chunk_run(cuda_device *d, const gdn_job *g, unsigned char *scratch)
{
    const kvant_gdn_args *a = &g->a;
    const int segments = (a->seqs.n_tokens / C + 2 + SEGMENT - 1) / SEGMENT;
    chunk_job p = { *g, scratch, scratch + slots_of(a) * a->hv * SLOT, 0, (int)slots_of(a) };
    cuda_smem(prep_kernel, PREP_SMEM);
    cuda_smem(scan_kernel, SCAN_SMEM);
    for (p.segment = 0; p.segment < segments; p.segment++) {
        cuda_launch(d, prep_kernel, dim3((unsigned)(p.n_slots * a->hv)), PREP_THREADS, PREP_SMEM, p);
        launch_scan(d, dim3(CLUSTER, (unsigned)a->hv, (unsigned)a->seqs.n_seqs), p);
    }
}
