/* decode_sketch.cuh: sketches of queries, which keys of signs (qjl1_256) are counted against: a head's products with
 * the projection's columns as whole numbers of SKETCH_BITS bits, in words of one bit of 32 neighbours, then their unit
 * and their sum (scores_sign).  A launch makes them before the decode kernel, or the blocks of attn_whole.cu do. */
#ifndef KVANT_CUDA_DECODE_SKETCH_CUH
#define KVANT_CUDA_DECODE_SKETCH_CUH

#include "devices/cuda/attn/prep.cuh"
#include "devices/cuda/attn/decode/decode_warp.cuh"

enum {
    SKETCH_DIM = 128, SKETCH_VALUES = 256, SKETCH_PARTS = SKETCH_VALUES / 32,
    SKETCH_MOST = (1 << (SKETCH_BITS - 1)) - 1,     /* the greatest number */
    SKETCH_END = SKETCH_PARTS * SKETCH_BITS         /* behind the words: the unit, the sum */
};

/* Whole warp: the words of values 32 part .. 32 part + 31, a lane's of which is y, where the greatest magnitude of all
 * is top; returns the sum of the numbers. */
static __device__ __forceinline__ int sketch_words(uint32_t *to, int part, float y, float top)
{
    const int v = __float2int_rn(y * ((float)SKETCH_MOST / fmaxf(top, 1e-30f)));
#pragma unroll
    for (int b = 0; b < SKETCH_BITS; b++) {
        const uint32_t bits = __ballot_sync(0xffffffffu, v >> b & 1);
        if ((int)threadIdx.x % 32 == b)
            to[SKETCH_PARTS * b + part] = bits;
    }
    return __reduce_add_sync(0xffffffffu, v);
}

/* Twice what 1 is worth in a score. */
static __device__ __forceinline__ uint32_t sketch_unit(float top, float scale)
{
    const float unit = fmaxf(top, 1e-30f) * (1.0f / SKETCH_MOST);
    return __float_as_uint(2.0f * unit * scale * PREP_LOG2E * port_bits(0x3ba06c99u));
}

/* ---- by the blocks of a cluster (attn_whole.cu), each with its part of the columns ---- */

/* Blocks of a cluster, at least: with fewer there is no room for a block's columns. */
enum { SKETCH_BLOCKS = 4 };

/* A block's shared memory for its sketches.  columns: [parts of 32][value][column]. */
typedef struct sketch_desk {
    float q[DECODE_HEADS][SKETCH_DIM];      /* the unit's queries */
    float y[DECODE_HEADS][SKETCH_VALUES];   /* their products, from all blocks */
    uint32_t words[DECODE_HEADS][SKETCH_WORDS];
    uint64_t there;                         /* barrier: the products are */
    __align__(16) float columns[(int)SKETCH_PARTS / (int)SKETCH_BLOCKS][SKETCH_DIM][32];
} sketch_desk;

/* The desk lies behind the slots that lie before the tables, or behind all. */
static __host__ __device__ inline uint32_t desk_at(const decode_job &p, uint32_t base)
{
    const uint32_t from = ((base + room_bytes() + 127) & ~127u) - base;
    return from + ((uint32_t)p.warps - (tables(p) ? p.slots_high : 0)) * p.slot_bytes;
}

static inline bool desk_fits(const decode_job &p)
{
    const uint32_t base = ROOM_FIRST, end = tables(p) ? TABLE - base : (uint32_t)SMEM;
    return p.whole >= SKETCH_BLOCKS && desk_at(p, base) + sizeof(sketch_desk) <= end &&
           ((uintptr_t)p.k.s.param & 15) == 0;
}

#if ARCH_GROUPS

/* Before pdl_wait: asks for the block's columns; arrives, so that other blocks may write here. */
static __device__ __forceinline__ void desk_begin(const decode_job &p, sketch_desk &s, int live)
{
    const int parts = SKETCH_PARTS / p.whole, first = (int)cluster_rank() * parts;
    for (int i = threadIdx.x; i < parts * SKETCH_DIM * 8; i += blockDim.x) {
        const int part = i / (SKETCH_DIM * 8), value = i / 8 % SKETCH_DIM, four = i % 8 * 4;
        async_copy16_all(shared_at(&s.columns[part][value][four]),
                         p.k.s.param + value * SKETCH_VALUES + 32 * (first + part) + four);
    }
    async_commit();
    if (threadIdx.x == 0) {
        bar_init(shared_at(&s.there), 1);
        bar_publish();
        bar_expect(shared_at(&s.there), (uint32_t)live * sizeof s.y[0]);
    }
    if (threadIdx.x < DECODE_HEADS)
        s.words[threadIdx.x][SKETCH_END + 1] = 0;
    cluster_arrive();
}

/* Heads first .. first + live - 1 of a row by the block's warps: halves, for exact keys, and as they are. */
static __device__ __forceinline__ void desk_queries(const decode_job &p, sketch_desk &s, int token, int first, int live,
                                                    uint16_t *raw, int warp, int lane)
{
    for (int i = warp; i < live; i += p.warps) {
        const float *q = p.q + token * p.ldq + (first + i) * p.gq + 4 * lane;
        const float x[4] = { q[0], q[1], q[2], q[3] };
        store_halves<4>(raw + i * SKETCH_DIM + 4 * lane, x, p.scale * PREP_LOG2E);
        *(float4 *)&s.q[i][4 * lane] = make_float4(x[0], x[1], x[2], x[3]);
    }
}

/* The product of a query and this lane's column. */
static __device__ __forceinline__ float desk_product(const float *q, const float (*column)[32])
{
    const int lane = threadIdx.x % 32;
    float y = 0.0f, z = 0.0f;
#pragma unroll 8
    for (int i = 0; i < SKETCH_DIM; i += 4) {
        const float4 x = *(const float4 *)(q + i);
        y = fmaf(x.x, column[i][lane], y);
        z = fmaf(x.y, column[i + 1][lane], z);
        y = fmaf(x.z, column[i + 2][lane], y);
        z = fmaf(x.w, column[i + 3][lane], z);
    }
    return y + z;
}

/* All threads of the cluster, the queries and columns of which are there: products of `live` heads on their way to its
 * first `users` blocks. */
static __device__ __forceinline__ void desk_products(const decode_job &p, sketch_desk &s, int live, int users, int warp,
                                                     int lane)
{
    const int parts = SKETCH_PARTS / p.whole, first = (int)cluster_rank() * parts;
    cluster_wait();
#pragma unroll 1
    for (int i = warp; i < live * parts; i += p.warps) {
        const int head = i / parts, in = i % parts;
        const float y = desk_product(s.q[head], s.columns[in]);
        for (uint32_t to = 0; to < (uint32_t)users; to++)
            store_to_block(shared_at(&s.y[head][32 * (first + in) + lane]), y, shared_at(&s.there), to);
    }
}

/* All threads of a block that gets them: words of `live` heads. */
static __device__ __forceinline__ void desk_words(const decode_job &p, sketch_desk &s, int live, int warp, int lane)
{
    bar_wait_cluster(shared_at(&s.there), 0);
#pragma unroll 1
    for (int i = warp; i < live * SKETCH_PARTS; i += p.warps) {
        const int head = i / SKETCH_PARTS, part = i % SKETCH_PARTS;
        const float4 a = *(const float4 *)&s.y[head][4 * lane], b = *(const float4 *)&s.y[head][128 + 4 * lane];
        const float most = fmaxf(fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))),
                                 fmaxf(fmaxf(fabsf(b.x), fabsf(b.y)), fmaxf(fabsf(b.z), fabsf(b.w))));
        const float top = warp_max(most);
        const int sum = sketch_words(s.words[head], part, s.y[head][32 * part + lane], top);
        if (lane == 0)
            atomicAdd((int *)&s.words[head][SKETCH_END + 1], sum);
        if (lane == 0 && part == 0)
            s.words[head][SKETCH_END] = sketch_unit(top, p.scale);
    }
    __syncthreads();
}

#endif
#endif
