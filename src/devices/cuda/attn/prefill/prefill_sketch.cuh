/* prefill_sketch.cuh: sketches of a prompt's queries for keys of signs (qjl1_256), as halves: products with the
 * projection on tensor cores.
 *
 * A value is two bf16 (split_rest), and three of the four products of two values' parts are added: what is left out is
 * below what the rounding of a sketch to halves loses.  A block splits the projection once, into shared memory; then
 * each of its warpgroups takes 64 queries (heads of tokens) at a time: from memory to registers, all columns in two
 * halves, and back.  Columns and values are in an order in which a lane reads and writes neighbours. */
#ifndef KVANT_CUDA_PREFILL_SKETCH_CUH
#define KVANT_CUDA_PREFILL_SKETCH_CUH

#include "devices/cuda/attn/prefill/prefill_make.cuh"
#include "devices/cuda/attn/prefill/prefill_queries.cuh"
#include "devices/cuda/core/step.cuh"

enum {
    SKETCH_DIM = 128, SKETCH_WIDTH = 256,
    SKETCH_TILE = 64, SKETCH_THREADS = 2 * 128,         /* queries and threads: of a warpgroup, of a block */
    SKETCH_PANEL = SKETCH_DIM * 128                     /* bytes of 64 columns of one part */
};

/* Columns that a block of a make has, in halves of all: both, or (ARCH_80) one, of blockIdx.y; bytes of one part of
 * them, and of both. */
static __host__ __device__ constexpr int sketch_halves(int make)
{
    return make == ARCH_90 ? 2 : 1;
}

static __host__ __device__ constexpr uint32_t sketch_part(int make)
{
    return (uint32_t)(sketch_halves(make) * 2 * SKETCH_PANEL);
}

static __host__ __device__ constexpr uint32_t sketch_room(int make)
{
    return 2 * sketch_part(make);
}

/* The projection as an MN-major operand in two parts.  A lane has eight columns' places, 8 lane and on, of which lane t
 * of a product finds two: columns 8 t apart. */
template <int MAKE> static __device__ __forceinline__ void sketch_fill(const float *projection, uint8_t *to, int half)
{
    const int lane = threadIdx.x % 32, column = MAKE == ARCH_90 ? 8 * lane : 8 * (lane % 16);
    const float *from = projection + lane / 4 * 32 + lane % 4 * 2;
    const bool pairs = ((uintptr_t)projection & 7) == 0;
#pragma unroll 4
    for (int k = threadIdx.x / 32; k < SKETCH_DIM; k += SKETCH_THREADS / 32) {
        const float *row = from + group_value(k) * SKETCH_WIDTH;
        uint8_t *at = to + cell(SKETCH_DIM, k, column);
        uint32_t top[4], rest[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float2 v = pairs ? *(const float2 *)(row + 8 * t) : make_float2(row[8 * t], row[8 * t + 1]);
            top[t] = pack_tops(v.x, v.y);
            rest[t] = pack_tops(split_rest(v.x), split_rest(v.y));
        }
        if (MAKE == ARCH_80 && lane / 16 != half)
            continue;
        *(uint4 *)at = make_uint4(top[0], top[1], top[2], top[3]);
        *(uint4 *)(at + sketch_part(MAKE)) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
    }
}

/* Values of queries query[0] and query[1], by four lanes each, on their way. */
static __device__ __forceinline__ void sketch_load(const prefill_job &p, const int *query, float4 (*v)[SKETCH_DIM / 16])
{
    const bool aligned = (((uintptr_t)p.q | (uintptr_t)(4 * p.ldq) | (uintptr_t)(4 * p.gq)) & 15) == 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int token = query[i] / p.h;
        const float *q = p.q + token * p.ldq + (query[i] - token * p.h) * p.gq + threadIdx.x % 4 * 4;
        if (aligned) {
#pragma unroll
            for (int k = 0; k < SKETCH_DIM / 16; k++)
                v[i][k] = *(const float4 *)(q + 16 * k);
        } else {
#pragma unroll
            for (int k = 0; k < SKETCH_DIM / 16; k++)
                v[i][k] = make_float4(q[16 * k], q[16 * k + 1], q[16 * k + 2], q[16 * k + 3]);
        }
    }
}

/* Converts these values to operands in two parts, and to halves in memory. */
static __device__ __forceinline__ void sketch_operands(const prefill_job &p, const int *query,
                                                       const float4 (*v)[SKETCH_DIM / 16], uint32_t (*top)[4],
                                                       uint32_t (*rest)[4])
{
    const float by = p.scale * PREP_LOG2E;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint16_t *raw = p.qraw + (size_t)query[i] * SKETCH_DIM + threadIdx.x % 4 * 4;
#pragma unroll
        for (int k = 0; k < SKETCH_DIM / 16; k++) {
            const float4 x = v[i][k];
            *(uint2 *)(raw + 16 * k) = make_uint2(query_pair(x.x * by, x.y * by), query_pair(x.z * by, x.w * by));
            top[k][i] = pack_tops(x.x, x.y);
            top[k][2 + i] = pack_tops(x.z, x.w);
            rest[k][i] = pack_tops(split_rest(x.x), split_rest(x.y));
            rest[k][2 + i] = pack_tops(split_rest(x.z), split_rest(x.w));
        }
    }
}

/* Half of the columns of both queries' sketches; projection: where they lie. */
template <int MAKE>
static __device__ __forceinline__ void sketch_columns(const prefill_job &p, const int *query, int half,
                                                      uint32_t projection, const uint32_t (*top)[4],
                                                      const uint32_t (*rest)[4])
{
    const float by = p.scale * PREP_LOG2E * (p.k.cls == PACK_SIGN ? port_bits(0x3ba06c99u) : 1.0f);
    float y[16][4];
    step_open<MAKE, 128>(y);
#pragma unroll
    for (int k = 0; k < SKETCH_DIM / 16; k++) {
        const uint32_t tops = projection + k * 16 * 128, rests = tops + sketch_part(MAKE);
        if (k == 0)
            step_regs<MAKE, 128, 1, 0, true>(y, rest[k], tops, SKETCH_PANEL);
        else
            step_regs<MAKE, 128, 1, 1, true>(y, rest[k], tops, SKETCH_PANEL);
        step_regs<MAKE, 128, 1, 1, true>(y, top[k], rests, SKETCH_PANEL);
        step_regs<MAKE, 128, 1, 1, true>(y, top[k], tops, SKETCH_PANEL);
    }
    step_close<MAKE, 128>(y);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint16_t *to = p.qp + (size_t)query[i] * SKETCH_WIDTH + 128 * half + threadIdx.x % 4 * 8;
#pragma unroll
        for (int a = 0; a < 4; a++) {
            uint32_t w[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = query_pair(y[4 * a + j][2 * i] * by, y[4 * a + j][2 * i + 1] * by);
            *(uint4 *)(to + 32 * a) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

/* While tiles are made, where they are: then one block waits for those.  Behind the last query is that one again: the
 * same values to the same place. */
template <int MAKE> static __device__ __forceinline__ void sketch_all(const prefill_job &p)
{
    extern __shared__ __align__(1024) uint8_t sketch_smem[];
    const int n = p.seqs.n_tokens * p.h, step = (int)gridDim.x * SKETCH_TILE;
    const int warp = threadIdx.x / 32, own = warp % 4 * 16 + threadIdx.x % 32 / 4;
    int at = (int)blockIdx.x * SKETCH_TILE + warp / 4 * step;
    int query[2] = { min(at + own, n - 1), min(at + own + 8, n - 1) };
    float4 v[2][SKETCH_DIM / 16];
    pdl_go();
    if (p.tiles)
        sketch_load(p, query, v);
    sketch_fill<MAKE>(p.k.s.param, sketch_smem, (int)blockIdx.y);
    if constexpr (MAKE == ARCH_90)
        proxy_fence();
    __syncthreads();
    if (!p.tiles) {
        pdl_wait();
        sketch_load(p, query, v);
    }
    for (; at < n; at += SKETCH_THREADS / 128 * step) {
        uint32_t top[SKETCH_DIM / 16][4], rest[SKETCH_DIM / 16][4];
        const int now[2] = { query[0], query[1] };
        sketch_operands(p, now, v, top, rest);
        query[0] = min(query[0] + SKETCH_THREADS / 128 * step, n - 1);
        query[1] = min(query[1] + SKETCH_THREADS / 128 * step, n - 1);
        sketch_load(p, query, v);
#pragma unroll
        for (int half = 0; half < sketch_halves(MAKE); half++)
            sketch_columns<MAKE>(p, now, (int)blockIdx.y + half, shared_at(sketch_smem) + half * 2 * SKETCH_PANEL, top,
                                 rest);
    }
    if (p.tiles && blockIdx.x == gridDim.x - 1)
        pdl_wait();
}

template <int MAKE> static __global__ void __launch_bounds__(SKETCH_THREADS, 1) prefill_sketch(prefill_job p)
{
    if constexpr (arch_has(MAKE))
        sketch_all<MAKE>(p);
}

#endif
