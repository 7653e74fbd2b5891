/* gdn_prep.cuh: the first kernel of gdn_chunk.cu: one block per (chunk, value head), all independent: T diag(beta), P
 * and the gates, and once per key head K and Q split in two.
 *
 * All products are bf16 tensor cores (mma.m16n8k16).  (I + A)^-1: 16 x 16 blocks on the diagonal by substitution in
 * f32, then a warp for each 16 columns, block after block downwards.  Operands of the tensor cores lie in shared memory
 * as "tiles" of 32 lanes x 16 bytes { hi hi' lo lo' }: a B fragment (k 16 x n 8) or half of an A fragment.  Lane =
 * 4 g + t. */
#ifndef KVANT_CUDA_GDN_PREP_CUH
#define KVANT_CUDA_GDN_PREP_CUH

#include "devices/cuda/gdn/gdn_chunk.cuh"

enum {
    LD = 20, /* floats between rows of a diagonal block in shared memory */
    PREP_THREADS = 256,
    ROWS_BYTES = C * D * 4,
    PREP_SMEM = 2 * ROWS_BYTES + 2 * C * 4
};

/* Named barriers: the keys' tiles have been read; the blocks of A and T are there. */
enum { MEET_READ = 1, MEET_BLOCKS };

/* An A fragment: rows g and g + 8. */
typedef struct frag {
    uint32_t hi[4], lo[4];
} frag;

/* c[i] += a x[i] for N tiles: a term of all before the next term of any, so that no product waits for another. */
template <int N> static __device__ __forceinline__ void mma3_all(float (*c)[4], const frag &a, const uint4 *x)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        mma_bf16(c[i], a.lo, x[i].x, x[i].y);
#pragma unroll
    for (int i = 0; i < N; i++)
        mma_bf16(c[i], a.hi, x[i].z, x[i].w);
#pragma unroll
    for (int i = 0; i < N; i++)
        mma_bf16(c[i], a.hi, x[i].x, x[i].y);
}

/* Values k = 2t, 2t+1, 2t+8, 2t+9 of a B fragment. */
static __device__ __forceinline__ uint4 split4(float a, float b, float c, float d)
{
    uint4 o;
    split2(a, b, &o.x, &o.z);
    split2(c, d, &o.y, &o.w);
    return o;
}

/* Sums of 16 x 16 as the A operand of the next product. */
static __device__ __forceinline__ frag frag_of(float (*y)[4])
{
    frag f;
    split2(y[0][0], y[0][1], &f.hi[0], &f.lo[0]);
    split2(y[0][2], y[0][3], &f.hi[1], &f.lo[1]);
    split2(y[1][0], y[1][1], &f.hi[2], &f.lo[2]);
    split2(y[1][2], y[1][3], &f.hi[3], &f.lo[3]);
    return f;
}

static __device__ __forceinline__ frag frag_rows(const uint4 &top, const uint4 &low)
{
    const frag f = { { top.x, low.x, top.y, low.y }, { top.z, low.z, top.w, low.w } };
    return f;
}

/* e^x for x <= 0, to about 2^-21 + |x| 2^-24. */
static __device__ __forceinline__ float decay_of(float x)
{
    return exp2_fast(x * 1.44269504f);
}

typedef struct prep_mem {
    uint4 *keys, *queries; /* [token / 8][channels / 16][lane] */
    uint4 *below;          /* in the place of the keys: A's blocks below the diagonal: [block_tile][half][lane] */
    uint4 *diagonal;       /* T's blocks on it: [block][half][lane] */
    float *room;           /* [warp][16][LD] */
    float *sum, *beta;     /* G, beta */
} prep_mem;

static __device__ __forceinline__ prep_mem prep_parts(unsigned char *smem)
{
    uint4 *keys = (uint4 *)smem, *diagonal = keys + 12 * 32;
    float *g = (float *)(smem + 2 * ROWS_BYTES);
    const prep_mem m = { keys, keys + ROWS_BYTES / 16, keys, diagonal, (float *)(diagonal + 8 * 32), g, g + C };
    return m;
}

/* Number of block (i, k), k < i, of A. */
static __device__ __forceinline__ int block_of(int i, int k)
{
    return i * (i - 1) / 2 + k;
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
        async_copy16(shared_at(tiles + (w * 8 + r) * 32 + (c ^ r)), x + (row < 0 ? 0 : row * ld + 4 * c), row >= 0);
    }
    async_commit();
}

/* Those rows as tiles, in place, and in panels at `out`, or NULL.  Lane (g, t) has row g, of every 32 channels the
 * eight from 8 t on: four of them are its part of a tile, all eight a piece of a panel. */
static __device__ __forceinline__ void rows_split(int w, uint4 *tiles, unsigned char *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float4 v[8];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = ((const float4 *)tiles)[(w * 8 + g) * 32 + ((i / 2 * 8 + 2 * t + i % 2) ^ g)];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 x[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float4 y = v[2 * i + h];
            split2(y.x, y.y, &x[h].x, &x[h].z);
            split2(y.z, y.w, &x[h].y, &x[h].w);
            tiles[(w * 8 + 2 * i + h) * 32 + lane] = x[h];
        }
        if (!out)
            continue;
        unsigned char *to = out + i / 2 * PANEL + (8 * w + g) * 128 + ((4 * (i % 2) + t) ^ g) * 16;
        *(uint4 *)to = make_uint4(x[0].x, x[0].y, x[1].x, x[1].y);
        *(uint4 *)(to + 2 * PANEL) = make_uint4(x[0].z, x[0].w, x[1].z, x[1].w);
    }
}

/* Rows 16 m .. of a times the keys, no further right than the diagonal needs. */
static __device__ __forceinline__ void gram(float (*acc)[4], const uint4 *a, const uint4 *keys, int m)
{
    const int lane = threadIdx.x % 32;
    const uint4 *rows = a + 2 * m * 8 * 32 + lane;
#pragma unroll
    for (int n = 0; n < 8; n++)
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
#pragma unroll 2
    for (int j = 0; j < 8; j++) {
        const frag f = frag_rows(rows[j * 32], rows[(8 + j) * 32]);
        uint4 x[4], y[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            x[n] = keys[(n * 8 + j) * 32 + lane];
        if (m < 2) { /* the others lie above the diagonal */
            mma3_all<4>(acc, f, x);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
            y[n] = keys[((4 + n) * 8 + j) * 32 + lane];
        mma3_all<4>(acc, f, x);
        mma3_all<4>(acc + 4, f, y);
    }
}

/* Rows 16 m .. of P to the slot, by way of the queries' tiles of these rows, which nobody else reads. */
template <int MAKE>
static __device__ __forceinline__ void store_p(float (*acc)[4], int m, unsigned char *rows, unsigned char *out)
{
    const int lane = threadIdx.x % 32, r = lane % 8;
    const uint32_t to = shared_at(rows) + (lane / 16 * 2048) + (r + lane / 8 % 2 * 8) * 128;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t hi[2], lo[2];
        split2(acc[n][0], acc[n][1], &hi[0], &lo[0]);
        split2(acc[n][2], acc[n][3], &hi[1], &lo[1]);
        store_matrices<MAKE>(to + ((n ^ r) << 4), hi[0], hi[1], lo[0], lo[1]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) /* 2 KiB of hi, then of lo */
        *(uint4 *)(out + i / 4 * PANEL + m * 2048 + i % 4 * 512 + lane * 16) =
            *(const uint4 *)(rows + i / 4 * 2048 + i % 4 * 512 + lane * 16);
}

/* ---- the inverse: warp m has rows 16 m .. of A, then columns 16 m .. of T ---- */

/* A's blocks of this warp's rows to shared memory: those below the diagonal as B tiles, the diagonal one as floats. */
static __device__ __forceinline__ void put_blocks(const prep_mem &s, float (*acc)[4], int m)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float *room = s.room + m * 16 * LD;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float(*l)[4] = acc + 2 * k;
        if (k < m)
#pragma unroll
            for (int h = 0; h < 2; h++)
                s.below[(2 * block_of(m, k) + h) * 32 + lane] =
                    split4(l[0][2 * h], l[0][2 * h + 1], l[1][2 * h], l[1][2 * h + 1]);
        if (k == m)
#pragma unroll
            for (int i = 0; i < 8; i++)
                room[(g + i / 2 % 2 * 8) * LD + i / 4 * 8 + 2 * t + i % 2] = l[i / 4][i % 4];
    }
    __syncwarp();
}

/* The diagonal block of T, by substitution in place; lane: a column. */
static __device__ __forceinline__ void invert_block(float *room)
{
    const int c = threadIdx.x % 16;
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; r++) {
        float sum = r == c ? 1.0f : 0.0f, row[16];
#pragma unroll
        for (int i = 0; i < r; i += 4) {
            const float4 v = *(const float4 *)&room[r * LD + i];
            row[i] = v.x, row[i + 1] = v.y, row[i + 2] = v.z, row[i + 3] = v.w;
        }
#pragma unroll
        for (int i = 0; i < r; i++)
            sum = fmaf(-row[i], x[i], sum);
        x[r] = sum;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 16; r++)
        if (threadIdx.x % 32 < 16)
            room[r * LD + c] = x[r];
    __syncwarp();
}

/* Block (i, j) of T diag(beta) to the slot.  y: T's block transposed, as sums; y NULL: zeros. */
template <int MAKE>
static __device__ __forceinline__ void store_block(const prep_mem &s, const float (*y)[4], int i, int j,
                                                   unsigned char *room, unsigned char *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, row = lane / 2;
    uint4 hi = make_uint4(0, 0, 0, 0), lo = hi;
    if (y) {
        const float b0 = s.beta[16 * j + g], b1 = s.beta[16 * j + g + 8];
        const uint32_t to = shared_at(room) + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
        uint32_t h[4], l[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            split2(y[k / 2][k % 2 * 2] * (k % 2 ? b1 : b0), y[k / 2][k % 2 * 2 + 1] * (k % 2 ? b1 : b0), &h[k], &l[k]);
        __syncwarp();
        store_transposed<MAKE>(to, h[0], h[1], h[2], h[3]);
        store_transposed<MAKE>(to + 512, l[0], l[1], l[2], l[3]);
        __syncwarp();
        hi = ((const uint4 *)room)[lane];
        lo = ((const uint4 *)room)[32 + lane];
    }
    out += (16 * i + row) * 128 + ((2 * j + lane % 2) ^ row % 8) * 16;
    *(uint4 *)out = hi;
    *(uint4 *)(out + PANEL) = lo;
}

/* Columns 16 m .. of T, block by block downwards: T_ij = -T_ii (sum of A_ik T_kj), everything transposed. */
template <int MAKE>
static __device__ __forceinline__ void invert(const prep_mem &s, float (*acc)[4], int m, unsigned char *out)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float *room = s.room + m * 16 * LD, y[2][4];
    frag x[4];
    put_blocks(s, acc, m);
    invert_block(room);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float2 a = *(const float2 *)&room[(8 * h + g) * LD + 2 * t];
        const float2 b = *(const float2 *)&room[(8 * h + g) * LD + 2 * t + 8];
        s.diagonal[(2 * m + h) * 32 + lane] = split4(a.x, a.y, b.x, b.y);
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[h][i] = room[(8 * h + 2 * t + i % 2) * LD + g + i / 2 * 8];
    }
    meet(MEET_BLOCKS, 128);
    x[0] = frag_of(y);
    store_block<MAKE>(s, y, m, m, (unsigned char *)room, out);
    for (int i = 0; i < m; i++)
        store_block<MAKE>(s, NULL, i, m, NULL, out);
#pragma unroll
    for (int d = 1; d < 4; d++) {
        const int i = m + d;
        if (i > 3)
            break;
        float sum[2][4] = {};
        uint4 b[2];
#pragma unroll
        for (int e = 0; e < d; e++) {
            b[0] = s.below[2 * block_of(i, m + e) * 32 + lane];
            b[1] = s.below[(2 * block_of(i, m + e) + 1) * 32 + lane];
            mma3_all<2>(sum, x[e], b);
        }
        b[0] = s.diagonal[2 * i * 32 + lane];
        b[1] = s.diagonal[(2 * i + 1) * 32 + lane];
#pragma unroll
        for (int k = 0; k < 8; k++)
            y[k / 4][k % 4] = 0.0f;
        mma3_all<2>(y, frag_of(sum), b);
#pragma unroll
        for (int k = 0; k < 8; k++)
            y[k / 4][k % 4] = -y[k / 4][k % 4];
        x[d] = frag_of(y);
        store_block<MAKE>(s, y, i, m, (unsigned char *)room, out);
    }
}

/* Rows 16 m .. of A, without what lies on and above its diagonal, or of P. */
static __device__ __forceinline__ void decay_rows(const prep_mem &s, float (*acc)[4], int m, bool of_p, float scale)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * m + g + 8 * (i / 2), col = 8 * n + 2 * t + i % 2;
            if (n > 2 * m + 1) {
                acc[n][i] = 0.0f;
                continue;
            }
            const float f = decay_of(fminf(s.sum[row] - s.sum[col], 0.0f)) * acc[n][i];
            acc[n][i] = (of_p ? col <= row : col < row) ? f * (of_p ? scale : s.beta[row]) : 0.0f;
        }
}

/* e^G and the like to the slot: 64 threads. */
static __device__ __forceinline__ void store_gates(const prep_mem &s, int i, float scale, float *gate)
{
    const float e = expf(s.sum[i]);
    gate[i] = e;
    gate[C + i] = scale * e;
    gate[2 * C + i] = expf(s.sum[C - 1] - s.sum[i]);
}

template <int MAKE> static __device__ __forceinline__ void prep_all(const chunk_job &p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const prep_mem s = prep_parts(smem);
    const kvant_gdn_args &a = p.g.a;
    const int slot = blockIdx.x / a.hv, v = blockIdx.x % a.hv, w = threadIdx.x / 32, kh = key_head(a, v);
    const bool first = a.interleaved ? v % (a.hv / a.hk) == 0 : v < a.hk;
    unsigned char *out = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    unsigned char *keys = first ? p.keys + ((int64_t)slot * a.hk + kh) * KEY_SLOT : NULL;
    chunk_at at;

    pdl_go();
    pdl_wait();
    if (!slot_chunk(p, slot, &at))
        return;
    rows_start(at, a.k + (int64_t)kh * D, a.ldk, w, s.keys);
    rows_start(at, a.q + (int64_t)kh * D, a.ldq, w, s.queries);
    if (w == 7)
        load_gates(p, at, v, s);
    async_wait<1>();
    rows_split(w, s.keys, keys);
    async_wait<0>();
    rows_split(w, s.queries, keys ? keys + SPLIT : NULL);
    __syncthreads();
    const bool of_p = w >= 4;
    const int m = of_p ? 7 - w : w;
    float acc[8][4];
    gram(acc, of_p ? s.queries : s.keys, s.keys, m);
    if (of_p)
        meet_later(MEET_READ, PREP_THREADS);
    decay_rows(s, acc, m, of_p, p.g.scale);
    if (of_p) {
        store_p<MAKE>(acc, m, (unsigned char *)(s.queries + 2 * m * 8 * 32), out + SQUARE);
        if (w >= 6)
            store_gates(s, threadIdx.x - 6 * 32, p.g.scale, (float *)(out + 2 * SQUARE));
    } else {
        meet(MEET_READ, PREP_THREADS);
        invert<MAKE>(s, acc, m, out);
    }
}

template <int MAKE> static __global__ void __launch_bounds__(PREP_THREADS, 3) prep_kernel(chunk_job p)
{
    if constexpr (arch_has(MAKE))
        prep_all<MAKE>(p);
}

#endif
