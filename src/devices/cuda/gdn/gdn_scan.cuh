/* gdn_scan.cuh: the second kernel of gdn_chunk.cu: one block per (sequence, value head, 32 columns of the state), chunk
 * after chunk.  ARCH_90: the four blocks of a head are a cluster and fetch each chunk once, a quarter each, into the
 * shared memory of all; ARCH_80: each fetches all.
 *
 * Two warpgroups multiply (wgmma, or mma.m16n8k16), each with half of S's channels in registers as f32.  S, and
 * what the tokens add to it, pass through shared memory as 64 columns: 32 of hi, 32 of lo.  So a product
 * a b = a_hi (b_hi | b_lo) + a_lo b_hi is one instruction of 64 columns and one of 32.  The first group has the chain
 * R = V - e^G (K S), U = T diag(beta) R; the second has the outputs. */
#ifndef KVANT_CUDA_GDN_SCAN_CUH
#define KVANT_CUDA_GDN_SCAN_CUH

#include "devices/cuda/gdn/gdn_chunk.cuh"

enum {
    SCAN_COLS = 32,
    CLUSTER = D / SCAN_COLS,
    SCAN_WARPS = 8, /* ARCH_90: and one that fetches, one that tells the cluster what has been read */
    STAGE = (KEY_SLOT + SLOT + 1023) / 1024 * 1024,
    AT_STATE = 0,                    /* behind the stages: [channel][64] */
    AT_U = AT_STATE + 2 * PANEL,     /* [token][64] */
    AT_SCALED = AT_U + PANEL,        /* e^(G_63 - G) U; until that is made, R */
    AT_BARS = AT_SCALED + PANEL,
    SCAN_WORK = AT_BARS + 64
};

/* Named barriers: all that multiply; the first group; U has been read. */
enum { MEET_ALL = 1, MEET_FIRST, MEET_FREE };

/* Arrives at the barrier that block `rank` of the cluster has at this address. */
static __device__ __forceinline__ void arrive_at(uint32_t bar, uint32_t rank)
{
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

/* Copies these bytes to one place in every block of the cluster; each one's barrier counts them. */
static __device__ __forceinline__ void bulk_to_all(uint32_t to, const void *from, uint32_t bytes, uint32_t bar,
                                                   uint32_t blocks)
{
    if (blocks > 1) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(bar), "h"((uint16_t)((1u << blocks) - 1u))
                     : "memory");
        return;
    }
    bulk_start(to, from, bytes, bar);
}

static __device__ __forceinline__ void bulk_prefetch(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* One thread: every chunk into the ring, this block's share to all blocks of the cluster. */
static __device__ void fetch_all(const unsigned char *slots, int64_t step, const unsigned char *keys, int64_t key_step,
                                 int n, uint32_t ring, uint32_t full, uint32_t empty)
{
    const uint32_t blocks = cluster_blocks(), rank = cluster_rank();
    const uint32_t head = SLOT / blocks, pair = KEY_SLOT / blocks;
    slots += rank * head;
    keys += rank * pair;
    for (int i = 0; i < n; i++) {
        const uint32_t bar = full + 8 * (i & 1), to = ring + (i & 1) * STAGE;
        if (i + 1 < n) {
            bulk_prefetch(keys + (i + 1) * key_step, pair);
            bulk_prefetch(slots + (i + 1) * step, head);
        }
        if (i >= 2)
            bar_wait_cluster(empty + 8 * (i & 1), (i / 2 - 1) & 1);
        bar_expect(bar, KEY_SLOT + SLOT);
        bulk_to_all(to + rank * pair, keys + i * key_step, pair, bar, blocks);
        bulk_to_all(to + KEY_SLOT + rank * head, slots + i * step, head, bar, blocks);
    }
}

/* One warp: the fetchers of the cluster hear that this block has read a stage.  A release to the cluster is a full
 * memory barrier, which those that multiply must not wait for: their arrivals at `read` release to the block, this warp
 * acquires those and releases them to the cluster with its own (causality order goes through). */
static __device__ void free_all(int n, uint32_t read, uint32_t empty)
{
    const uint32_t lane = threadIdx.x % 32, blocks = cluster_blocks();
    for (int i = 0; i + 2 < n; i++) {
        bar_wait(read + 8 * (i & 1), (i / 2) & 1);
        if (lane < blocks)
            arrive_at(empty + 8 * (i & 1), lane);
    }
}

/* ---- products ---- */

/* Sums of a product: of a_hi with hi, with lo; of a_lo with hi. */
typedef struct product_sums {
    float c[8][4], d[4][4];
} product_sums;

/* A product of a (hi at a, lo at a + lo; panels 64 columns wide) and b, STEPS x 16 deep, on its way as one group.
 * MAJOR 1: a transposed, one panel.  finish waits for it: all groups but the last OPEN are over. */
template <int STEPS, int MAJOR>
static __device__ __forceinline__ void multiply_group(product_sums &s, uint32_t a, uint32_t lo, uint32_t b)
{
    group_open<64>(s.c);
    group_open<32>(s.d);
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        const uint32_t at = a + (MAJOR ? j * 2048 : j / 4 * PANEL + j % 4 * 32);
        const uint64_t y = swizzled(b + j * 2048, 0);
        if (j == 0) {
            group_mma_bf16<64, MAJOR, 0>(s.c, swizzled(at, 0), y);
            group_mma_bf16<32, MAJOR, 0>(s.d, swizzled(at + lo, 0), y);
        } else {
            group_mma_bf16<64, MAJOR, 1>(s.c, swizzled(at, 0), y);
            group_mma_bf16<32, MAJOR, 1>(s.d, swizzled(at + lo, 0), y);
        }
    }
    group_commit();
}

/* With the instructions of a warp, done when it returns. */
template <int STEPS, int MAJOR>
static __device__ __forceinline__ void multiply_warp(product_sums &s, uint32_t a, uint32_t lo, uint32_t b)
{
    const int r = threadIdx.x % 8, low = threadIdx.x / 8 % 2, high = threadIdx.x / 16 % 2;
    const int row = 16 * (threadIdx.x / 32 % 4);
#pragma unroll
    for (int i = 0; i < 48; i++)
        (i < 32 ? s.c[i / 4] : s.d[i / 4 - 8])[i % 4] = 0.0f;
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        const uint32_t at = MAJOR ? a + (16 * j + 8 * high + r) * 128 + ((row / 8 + low) ^ r) * 16
                                  : a + j / 4 * PANEL + (row + 8 * low + r) * 128 + ((j % 4 * 2 + high) ^ r) * 16;
        uint32_t x[4], y[4], z[4];
        load_matrices<MAJOR != 0>(x, at);
        load_matrices<MAJOR != 0>(y, at + lo);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            load_matrices<true>(z, b + (16 * j + 8 * low + r) * 128 + ((n + high) ^ r) * 16);
            mma_bf16(s.c[n], x, z[0], z[1]);
            mma_bf16(s.c[n + 1], x, z[2], z[3]);
            if (n < 4) {
                mma_bf16(s.d[n], y, z[0], z[1]);
                mma_bf16(s.d[n + 1], y, z[2], z[3]);
            }
        }
    }
}

template <int MAKE, int STEPS, int MAJOR>
static __device__ __forceinline__ void multiply(product_sums &s, uint32_t a, uint32_t lo, uint32_t b)
{
    if constexpr (MAKE == ARCH_90)
        multiply_group<STEPS, MAJOR>(s, a, lo, b);
    else
        multiply_warp<STEPS, MAJOR>(s, a, lo, b);
}

template <int MAKE, int OPEN> static __device__ __forceinline__ void finish(product_sums &s)
{
    if constexpr (MAKE == ARCH_90) {
        group_wait<64, OPEN>(s.c);
        group_pin<32>(s.d);
    }
}

/* Makes this thread's stores visible to the products of others, after a barrier. */
template <int MAKE> static __device__ __forceinline__ void stored(void)
{
    if constexpr (MAKE == ARCH_90)
        proxy_fence();
}

static __device__ __forceinline__ float sum_of(const product_sums &s, int j, int i)
{
    return s.c[j][i] + (s.c[4 + j][i] + s.d[j][i]);
}

/* A warp's 16 rows x 32 columns, split, as rows of 64; to: place_rows of the first row. */
template <int MAKE> static __device__ __forceinline__ void put_rows(uint32_t to, float (*x)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t hi[2], lo[2];
        split2(x[j][0], x[j][1], &hi[0], &lo[0]);
        split2(x[j][2], x[j][3], &hi[1], &lo[1]);
        store_matrices<MAKE>(to ^ (j << 4), hi[0], hi[1], lo[0], lo[1]);
    }
}

static __device__ __forceinline__ uint32_t place_rows(uint32_t at, int row)
{
    const int lane = threadIdx.x % 32, r = lane % 8;
    return at + (row + r + lane / 8 % 2 * 8) * 128 + (((lane / 16 * 4) ^ r) << 4);
}

/* ---- a block's part ---- */

typedef struct scan_part {
    uint32_t smem, work, full, read, empty; /* stages; state and the like; barriers of the ring's stages */
    const unsigned char *keys, *slots;      /* of the first chunk; from chunk to chunk */
    int64_t key_step, step;
    int n, from, end, zero; /* chunks; rows of the batch; that of the first chunk's row 0 */
    const float *v;         /* this thread's columns of V, row 0 of the batch */
    float *o;
    int64_t ldv, ldo;
    float S[4][4];          /* channels 64 group + 16 warp + g (+ 8), columns 8 j + 2 t (+ 1) */
} scan_part;

/* ---- chunks on their way: ARCH_90 has a ring of two stages that a warp fills; ARCH_80 one stage, which all fill when
 * all have read it ---- */

static __host__ __device__ constexpr uint32_t stages_of(int make)
{
    return make == ARCH_90 ? 2 : 1;
}

template <int MAKE> static __device__ __forceinline__ uint32_t stage_at(const scan_part &p, int i)
{
    return p.smem + (MAKE == ARCH_90 ? (i & 1) * STAGE : 0);
}

/* ARCH_80, behind a barrier: asks for chunk i, if there is one. */
template <int MAKE> static __device__ __forceinline__ void stage_ask(const scan_part &p, int i)
{
    if constexpr (MAKE == ARCH_80) {
        const int from = 16 * (int)threadIdx.x, step = 16 * 32 * SCAN_WARPS;
        const unsigned char *keys = p.keys + i * p.key_step, *slot = p.slots + i * p.step;
        if (i < p.n) {
#pragma unroll 4
            for (int b = from; b < KEY_SLOT; b += step)
                async_copy16_all(p.smem + b, keys + b);
#pragma unroll 4
            for (int b = from; b < SLOT; b += step)
                async_copy16_all(p.smem + KEY_SLOT + b, slot + b);
        }
        async_commit();
    }
}

template <int MAKE> static __device__ __forceinline__ void stage_wait(const scan_part &p, int i)
{
    if constexpr (MAKE == ARCH_90)
        bar_wait(p.full + 8 * (i & 1), (i / 2) & 1);
    else {
        async_wait<0>();
        meet(MEET_ALL, 32 * SCAN_WARPS);
    }
}

/* This warp has read the stage. */
template <int MAKE> static __device__ __forceinline__ void stage_free(const scan_part &p, int i)
{
    if constexpr (MAKE == ARCH_90) {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bar_arrive(p.read + 8 * (i & 1));
    }
}

/* S <- e^G_63 S + the product, rounded to T, and into shared memory; all meet. */
template <typename T, int MAKE>
static __device__ __forceinline__ void state_step(scan_part &p, const product_sums &s, float last, uint32_t to)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p.S[j][i] = state_value(state_rounded<T>(fmaf(p.S[j][i], last, sum_of(s, j, i))));
    put_rows<MAKE>(to, p.S);
    stored<MAKE>();
    meet(MEET_ALL, 32 * SCAN_WARPS);
}

/* Rows g and g + 8 of this warp's 16 of chunk i of V; zeros outside the sequence. */
static __device__ __forceinline__ void load_values(const scan_part &p, int i, int row, float (*x)[4])
{
    const int at = p.zero + i * C + row;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool live = at + 8 * h >= p.from && at + 8 * h < p.end;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 *from = (const float2 *)(p.v + (at + 8 * h) * p.ldv + 8 * j);
            const float2 y = live ? __ldcs(from) : make_float2(0.0f, 0.0f);
            x[j][2 * h] = y.x;
            x[j][2 * h + 1] = y.y;
        }
    }
}

static __device__ __forceinline__ void store_outputs(const scan_part &p, int i, int row, float (*x)[4])
{
    const int at = p.zero + i * C + row;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (at + 8 * h >= p.from && at + 8 * h < p.end)
                __stcs((float2 *)(p.o + (at + 8 * h) * p.ldo + 8 * j), make_float2(x[j][2 * h], x[j][2 * h + 1]));
}

/* The first group: the chain, and the state's first 64 channels. */
template <typename T, int MAKE> static __device__ __forceinline__ void scan_chain(scan_part &p)
{
    const int warp = threadIdx.x / 32 % 4, row = 16 * warp + threadIdx.x % 32 / 4;
    const uint32_t state = p.work + AT_STATE, scaled = p.work + AT_SCALED;
    const uint32_t to_u = place_rows(p.work + AT_U, 16 * warp), to_scaled = place_rows(scaled, 16 * warp);
    const uint32_t to_state = place_rows(state, 16 * warp);
    float v[4][4], next[4][4], x[4][4];
    product_sums s;

    load_values(p, 0, row, v);
    for (int i = 0; i < p.n; i++) {
        const uint32_t k = stage_at<MAKE>(p, i), t = k + KEY_SLOT;
        stage_wait<MAKE>(p, i);
        multiply<MAKE, 8, 0>(s, k, 2 * PANEL, state);
        load_values(p, i + 1, row, next);
        const float *gate = (const float *)__cvta_shared_to_generic(t + 2 * SQUARE);
        const float e0 = gate[row], e1 = gate[row + 8], r0 = gate[2 * C + row], r1 = gate[2 * C + row + 8];
        const float last = gate[C - 1];
        finish<MAKE, 0>(s);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[j][c] = fmaf(c < 2 ? -e0 : -e1, sum_of(s, j, c), v[j][c]);
        put_rows<MAKE>(to_scaled, x);
        stored<MAKE>();
        meet(MEET_FIRST, 128);
        multiply<MAKE, 4, 0>(s, t, PANEL, scaled);
        finish<MAKE, 0>(s);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[j][c] = sum_of(s, j, c);
        if (i > 0)
            meet(MEET_FREE, 32 * SCAN_WARPS);
        put_rows<MAKE>(to_u, x);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[j][c] *= c < 2 ? r0 : r1;
        meet(MEET_FIRST, 128); /* all have read R */
        put_rows<MAKE>(to_scaled, x);
        stored<MAKE>();
        meet(MEET_ALL, 32 * SCAN_WARPS);
        multiply<MAKE, 4, 1>(s, k, 2 * PANEL, scaled);
        finish<MAKE, 0>(s);
        stage_free<MAKE>(p, i);
        state_step<T, MAKE>(p, s, last, to_state);
        stage_ask<MAKE>(p, i + 1);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                v[j][c] = next[j][c];
    }
}

/* The second group: the outputs, and the state's other 64 channels. */
template <typename T, int MAKE> static __device__ __forceinline__ void scan_outputs(scan_part &p)
{
    const int warp = threadIdx.x / 32 % 4, row = 16 * warp + threadIdx.x % 32 / 4;
    const uint32_t state = p.work + AT_STATE, to_state = place_rows(state, C + 16 * warp);
    float o[4][4];
    product_sums s, f;

    for (int i = 0; i < p.n; i++) {
        const uint32_t k = stage_at<MAKE>(p, i), t = k + KEY_SLOT;
        const float *gate = (const float *)__cvta_shared_to_generic(t + 2 * SQUARE);
        stage_wait<MAKE>(p, i);
        multiply<MAKE, 8, 0>(f, k + SPLIT, 2 * PANEL, state);
        const float e0 = gate[C + row], e1 = gate[C + row + 8], last = gate[C - 1];
        finish<MAKE, 0>(f);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                o[j][c] = (c < 2 ? e0 : e1) * sum_of(f, j, c);
        meet(MEET_ALL, 32 * SCAN_WARPS);
        multiply<MAKE, 4, 1>(s, k + PANEL, 2 * PANEL, p.work + AT_SCALED);
        multiply<MAKE, 4, 0>(f, t + SQUARE, PANEL, p.work + AT_U);
        finish<MAKE, 1>(s);
        state_step<T, MAKE>(p, s, last, to_state);
        stage_ask<MAKE>(p, i + 1);
        finish<MAKE, 0>(f);
        stage_free<MAKE>(p, i);
        if (i + 1 < p.n)
            meet_later(MEET_FREE, 32 * SCAN_WARPS);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                o[j][c] += sum_of(f, j, c);
        store_outputs(p, i, row, o);
    }
}

/* This thread's part of the state: channels at, at + 8 of two neighbouring columns of every eight. */
template <typename T> static __device__ __forceinline__ void load_state(const T *from, float (*S)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            S[j][c] = from ? state_value(from[(8 * j + c % 2) * D + c / 2 * 8]) : 0.0f;
}

template <typename T> static __device__ __forceinline__ void store_state(T *to, float (*S)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            to[(8 * j + c % 2) * D + c / 2 * 8] = state_rounded<T>(S[j][c]);
}

template <typename T, int MAKE>
static __device__ __forceinline__ void scan_group(const chunk_job &p, int s, int v, int begin, scan_part &part)
{
    const kvant_gdn_args &a = p.g.a;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, col = SCAN_COLS * blockIdx.x + 2 * (lane % 4);
    const int in = p.g.seqs.slot_in[s], out = p.g.seqs.slot_out[s], pos0 = p.g.seqs.pos0[s];
    const int64_t n = (int64_t)a.hv * D * D, at = ((int64_t)v * D + col) * D + 16 * warp + lane / 4;
    T *to = (T *)a.state + out * a.slot_stride + at;
    part.from = p.g.seqs.q0[s];
    part.end = p.g.seqs.q0[s + 1];
    part.zero = part.from + (pos0 / C + begin) * C - pos0;
    part.ldv = a.ldv;
    part.ldo = (int64_t)a.hv * D;
    part.v = a.v + (int64_t)v * D + col;
    part.o = a.o + (int64_t)v * D + col;
    load_state(begin > 0 || in == out ? to : in < 0 ? NULL : (const T *)p.g.gathered + s * n + at, part.S);
    put_rows<MAKE>(place_rows(part.work + AT_STATE, 16 * warp), part.S);
    stored<MAKE>();
    meet(MEET_ALL, 32 * SCAN_WARPS);
    if (warp < 4)
        scan_chain<T, MAKE>(part);
    else
        scan_outputs<T, MAKE>(part);
    store_state(to, part.S);
}

/* The first group's and the second's warps; with ARCH_90 then one that fetches and one that tells the cluster. */
template <typename T, int MAKE> static __device__ __forceinline__ void scan_all(const chunk_job &p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const kvant_gdn_args &a = p.g.a;
    const int s = blockIdx.z, v = blockIdx.y, warp = threadIdx.x / 32;
    scan_part part;
    int begin, slot = 0;

    part.smem = shared_at(smem);
    part.work = part.smem + stages_of(MAKE) * STAGE;
    part.full = part.work + AT_BARS;
    part.read = part.full + 16;
    part.empty = part.read + 16;
    pdl_go();
    if constexpr (MAKE == ARCH_90) {
        if (threadIdx.x < 2) {
            bar_init(part.full + 8 * threadIdx.x, 1);
            bar_init(part.read + 8 * threadIdx.x, SCAN_WARPS);
            bar_init(part.empty + 8 * threadIdx.x, cluster_blocks());
            bar_publish();
        }
        __syncthreads();
        cluster_meet();
    }
    pdl_wait();
    for (int i = 0; i < s; i++)
        slot += chunks_of(p, i, &begin);
    part.n = chunks_of(p, s, &begin);
    part.step = (int64_t)a.hv * SLOT;
    part.key_step = (int64_t)a.hk * KEY_SLOT;
    part.slots = p.slots + ((int64_t)slot * a.hv + v) * SLOT;
    part.keys = p.keys + ((int64_t)slot * a.hk + key_head(a, v)) * KEY_SLOT;
    stage_ask<MAKE>(part, 0);
    if (warp < SCAN_WARPS && part.n > 0)
        scan_group<T, MAKE>(p, s, v, begin, part);
    if constexpr (MAKE == ARCH_90) {
        if (warp > SCAN_WARPS)
            free_all(part.n, part.read, part.empty);
        if (threadIdx.x == 32 * SCAN_WARPS)
            fetch_all(part.slots, part.step, part.keys, part.key_step, part.n, part.smem, part.full, part.empty);
        __syncwarp();
        cluster_meet(); /* until then others may copy here, or arrive at this block's barriers */
    }
}

static __host__ __device__ constexpr int scan_threads(int make)
{
    return 32 * (SCAN_WARPS + (make == ARCH_90 ? 2 : 0));
}

static __host__ __device__ constexpr uint32_t scan_room(int make)
{
    return stages_of(make) * STAGE + SCAN_WORK;
}

/* blockIdx.x: a quarter of the columns; y: value head; z: sequence; T: as states are stored. */
template <typename T, int MAKE> static __global__ void __launch_bounds__(scan_threads(MAKE), 1) scan_kernel(chunk_job p)
{
    if constexpr (arch_has(MAKE))
        scan_all<T, MAKE>(p);
}

#endif
