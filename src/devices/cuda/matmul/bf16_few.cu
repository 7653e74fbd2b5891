/* bf16_few.cu: products of up to 64 rows with bf16 weights, ARCH_90: bound by the weights' bytes.
 *
 * A block takes 64 rows of the matrix for each of its groups of four warps, times all rows of x, panel by panel of 64
 * values of their length.  A ring of stages holds a panel of both: each group copies its own rows of the matrix, the
 * first of them while the launches before still run; one warp more copies those of x.  If the tiles are fewer than
 * the multiprocessors, a cluster of blocks shares the length of a tile's rows. */
#include "devices/cuda/core/halves.cuh"
#include "devices/cuda/core/wgmma.cuh"
#include "devices/cuda/matmul/bf16_few.cuh"

enum { PANEL = 64, LINE = 2 * PANEL, GROUP = 128, GROUP_ROWS = 64, CHUNKS = LINE / 16, MOST_SPLIT = 8 };
enum { RING_BYTES = 200 << 10 };

template <int N, int GROUPS> struct few_room {
    static constexpr int OUTS = GROUP_ROWS * GROUPS, THREADS = GROUP * GROUPS + 32, COLUMN = OUTS + 4;
    static constexpr int X_AT = OUTS * LINE, STAGE = X_AT + N * LINE, STAGES = RING_BYTES / STAGE;
    static constexpr int BARS = STAGES * STAGE;                    /* two mbarriers a stage: full, empty */
    static constexpr size_t BYTES = BARS + 16 * STAGES + 1024;     /* stages begin at a multiple of 1024 */
    static_assert(N * COLUMN * (int)sizeof(float) <= BARS);        /* the sums, in the end: [column][COLUMN] */
};

/* Rows first .. of a matrix of `rows` rows that lie `stride` bytes apart, LANES threads: 16 bytes of every LANES/8-th
 * row to a thread.  Rows that the matrix does not have are the last one again: what they give goes nowhere. */
template <int ROWS, int LANES> struct few_copies {
    static constexpr int BY = LANES / CHUNKS, COPIES = ROWS / BY;
    const uint8_t *from[COPIES];
    int row, chunk;

    __device__ __forceinline__ void begin(const void *matrix, int64_t stride, int64_t first, int64_t rows, int panel,
                                          int lane)
    {
        row = lane / CHUNKS;
        chunk = lane % CHUNKS;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int64_t r = first + row + i * BY;
            from[i] = (const uint8_t *)matrix + (r < rows ? r : rows - 1) * stride + panel * LINE + 16 * chunk;
        }
    }

    /* Returns the place of the thread's i-th chunk, as wgmma.cuh's `swizzled` has it. */
    __device__ __forceinline__ uint32_t place(int i) const
    {
        return (uint32_t)((row + i * BY) * LINE + ((chunk ^ (row + i * BY) % 8) << 4));
    }

    /* The next panel. */
    __device__ __forceinline__ void fetch(uint32_t to, uint32_t bar)
    {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            async_copy16_all(to + place(i), from[i]);
            from[i] += LINE;
        }
        bar_behind_copies(bar);
    }
};

/* One warp: the rows of x, for panels begin .. end - 1. */
template <int N, int GROUPS>
static __device__ __forceinline__ void few_feed(const bf16_few &p, uint32_t at, int begin, int end)
{
    using room = few_room<N, GROUPS>;
    few_copies<N, 32> x;
    x.begin(p.x, 2 * p.n_in, 0, p.rows, begin, threadIdx.x % 32);
    pdl_wait();
    for (int i = 0; i < end - begin; i++) {
        const int s = i % room::STAGES;
        const uint32_t bars = at + room::BARS + 16 * s;
        if (i >= room::STAGES)
            bar_wait(bars + 8, i / room::STAGES - 1 & 1);
        x.fetch(at + s * room::STAGE + room::X_AT, bars);
    }
}

/* A group of warps: its sums over panels begin .. end - 1. */
template <int N, int GROUPS>
static __device__ __forceinline__ void few_sums(const bf16_few &p, uint32_t at, int begin, int end, float (*acc)[4])
{
    using room = few_room<N, GROUPS>;
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP, 0), n = end - begin;
    const uint32_t own = (uint32_t)(group * GROUP_ROWS * LINE);
    few_copies<GROUP_ROWS, GROUP> w;
    w.begin(p.w, 2 * p.n_in, (int64_t)blockIdx.y * room::OUTS + group * GROUP_ROWS, p.n_out, begin,
            threadIdx.x % GROUP);
    for (int s = 0; s < room::STAGES && s < n; s++)
        w.fetch(at + s * room::STAGE + own, at + room::BARS + 16 * s);
    for (int i = 0; i < n; i++) {
        const int s = i % room::STAGES, before = (i + room::STAGES - 1) % room::STAGES;
        const uint32_t stage = at + s * room::STAGE, bars = at + room::BARS;
        bar_wait(bars + 16 * s, i / room::STAGES & 1);
        proxy_fence();
        group_open<N>(acc);
#pragma unroll
        for (int k = 0; k < PANEL / 16; k++)
            group_mma_rows<N>(acc, swizzled(stage + own, 0) + 2 * k, swizzled(stage + room::X_AT, 0) + 2 * k,
                              i > 0 || k > 0);
        group_commit();
        group_wait<N, 1>(acc); /* the panel before is read no more */
        asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"((int)GROUP) : "memory");
        if (i > 0 && threadIdx.x % GROUP == 0)
            bar_arrive(bars + 16 * before + 8);
        if (i > 0 && i - 1 + room::STAGES < n)
            w.fetch(at + before * room::STAGE + own, bars + 16 * before);
    }
    group_wait<N, 0>(acc);
}

/* Sums over the blocks of the cluster, in their order; each takes its share of the columns, a thread two outputs. */
template <int N, int GROUPS> static __device__ __forceinline__ void few_finish(const bf16_few &p, const float *part)
{
    using room = few_room<N, GROUPS>;
    constexpr int PAIRS = room::OUTS / 2, SIDE = room::THREADS / PAIRS; /* columns at once */
    const int blocks = (int)cluster_blocks(), pair = (int)threadIdx.x % PAIRS, side = (int)threadIdx.x / PAIRS;
    const int64_t out = (int64_t)blockIdx.y * room::OUTS + 2 * pair;
    if (side >= SIDE || out >= p.n_out)
        return;
    for (int c = (int)cluster_rank() + blocks * side; c < p.rows; c += blocks * SIDE) {
        float2 sum = make_float2(0.0f, 0.0f), v[MOST_SPLIT];
#pragma unroll
        for (int b = 0; b < MOST_SPLIT; b++)
            v[b] = b < blocks ? *(const float2 *)&of_block(part, (uint32_t)b)[c * room::COLUMN + 2 * pair] : sum;
#pragma unroll
        for (int b = 0; b < MOST_SPLIT; b++) {
            sum.x += v[b].x;
            sum.y += v[b].y;
        }
        if (p.halves)
            *(uint32_t *)((uint16_t *)p.y + c * p.ldy + out) = pair_bf16(sum.x, sum.y);
        else
            *(float2 *)((float *)p.y + c * p.ldy + out) = sum;
    }
}

/* blockIdx.x: the block's number in its cluster; y: the tile. */
template <int N, int GROUPS>
static __global__ void __launch_bounds__(GROUP * GROUPS + 32, 1) bf16_few_kernel(bf16_few p)
{
    if constexpr (arch_has(ARCH_90)) {
        using room = few_room<N, GROUPS>;
        extern __shared__ __align__(128) uint8_t few_shared[];
        const uint32_t at = (shared_at(few_shared) + 1023) & ~1023u;
        const int panels = (int)(p.n_in / PANEL), rank = (int)cluster_rank(), blocks = (int)cluster_blocks();
        const int begin = panels * rank / blocks, end = panels * (rank + 1) / blocks;
        float acc[N / 8][4] = {};
        pdl_go();
        if (threadIdx.x == 0) {
            for (int s = 0; s < room::STAGES; s++) {
                bar_init(at + room::BARS + 16 * s, room::THREADS);
                bar_init(at + room::BARS + 16 * s + 8, GROUPS);
            }
            bar_publish();
        }
        __syncthreads();
        if (threadIdx.x < GROUP * GROUPS)
            few_sums<N, GROUPS>(p, at, begin, end, acc);
        else
            few_feed<N, GROUPS>(p, at, begin, end);
        pdl_wait();
        __syncthreads(); /* stages are read no more */
        float *part = (float *)(few_shared + (at - shared_at(few_shared)));
        if (threadIdx.x < GROUP * GROUPS)
            group_leave<N, room::COLUMN>(acc, part);
        cluster_meet();
        few_finish<N, GROUPS>(p, part);
        cluster_meet();
    }
}

/* ---- the host's side ---- */

template <int N, int GROUPS> static int few_at_once(const cuda_device *d, int split)
{
    using room = few_room<N, GROUPS>;
    static int known[MOST_SPLIT + 1];
    return cuda_clusters_at_once(d, bf16_few_kernel<N, GROUPS>, split, dim3(room::THREADS), room::BYTES, &known[split]);
}

/* Groups of a block, blocks of a cluster. */
typedef struct few_share {
    int groups, split;
    double time;
} few_share;

/* Microseconds, by what was measured on an H200: a multiprocessor takes 60 bytes a nanosecond, or a panel in .26 us;
 * all of them 4000 bytes of the matrix; a block begins and ends in 2 us, a cluster in 4. */
template <int N, int GROUPS> static double few_time(const cuda_device *d, const bf16_few &p, int split)
{
    using room = few_room<N, GROUPS>;
    const int64_t tiles = cuda_blocks(p.n_out, room::OUTS), at_once = few_at_once<N, GROUPS>(d, split);
    if (at_once < 1)
        return 1e30;
    const double blocks = (double)((tiles < at_once ? tiles : at_once) * split);
    const double own = room::STAGE / 60e3, all = room::OUTS * LINE * blocks / 4000e3, most = own > all ? own : all;
    const int64_t panels = (p.n_in / PANEL + split - 1) / split, rounds = (tiles + at_once - 1) / at_once;
    return (double)(rounds * panels) * (most > 0.26 ? most : 0.26) + (split > 1 ? 4.0 : 2.0);
}

template <int N, int GROUPS> static void few_try(const cuda_device *d, const bf16_few &p, few_share *best)
{
    for (int s = 1; s <= MOST_SPLIT && s <= p.n_in / PANEL; s++) {
        const double time = few_time<N, GROUPS>(d, p, s);
        if (time < best->time)
            *best = { GROUPS, s, time };
    }
}

template <int N, int GROUPS> static void few_launch(const cuda_device *d, const bf16_few &p, int split)
{
    using room = few_room<N, GROUPS>;
    const dim3 grid((unsigned)split, cuda_blocks(p.n_out, room::OUTS));
    cuda_launch_clusters(d, bf16_few_kernel<N, GROUPS>, split, grid, dim3(room::THREADS), room::BYTES, p);
}

template <int N> static void few_run(const cuda_device *d, const bf16_few &p)
{
    static void (*const launch[])(const cuda_device *d, const bf16_few &p, int split) = {
        NULL, few_launch<N, 1>, few_launch<N, 2>, few_launch<N, 3>
    };
    few_share best = { 0, 0, 1e29 };
    few_try<N, 1>(d, p, &best);
    few_try<N, 2>(d, p, &best);
    few_try<N, 3>(d, p, &best);
    launch[best.groups](d, p, best.split);
}

bool cuda_bf16_few_takes(const cuda_device *d, const bf16_few &p)
{
    const uintptr_t at = (uintptr_t)p.w | (uintptr_t)p.x | (uintptr_t)p.y;
    return d->arch.make == ARCH_90 && p.rows <= 64 && p.n_in % PANEL == 0 && p.n_out % 2 == 0 && p.ldy % 2 == 0 &&
           at % 16 == 0 && few_room<64, 3>::BYTES <= d->smem_max && cuda_blocks(p.n_out, GROUP_ROWS) <= 65535;
}

void cuda_bf16_few(const cuda_device *d, const bf16_few &p)
{
    if (p.rows <= 32)
        few_run<32>(d, p);
    else
        few_run<64>(d, p);
}
