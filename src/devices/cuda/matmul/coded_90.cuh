/* coded_90.cuh: the kernel of coded.cuh for ARCH_90: N columns.  A warp decodes 32 values of its 16 rows while the
 * tensor cores work on the 32 before. */
#ifndef KVANT_CUDA_CODED_90_CUH
#define KVANT_CUDA_CODED_90_CUH

#include "devices/cuda/matmul/coded_codes.cuh"

enum { HALF_ROOM = 116 << 10 }; /* shared memory with which a block has a multiprocessor to itself */

/* Panels in shared memory at once. */
template <int N> static __host__ __device__ constexpr int stages()
{
    return N == 128 ? 4 : N == 64 ? 6 : 8;
}

/* Shared memory: panels, rings, two mbarriers a panel; in the end the sums, [column][COLUMN]. */
template <int T, int N, int WARPS> struct coded_room {
    static constexpr int THREADS = 32 * WARPS, OUTS = INT8_TILE * WARPS, COLUMN = OUTS + 4; /* of the sums */
    static constexpr int STAGES = stages<N>(), STAGE = N * PANEL_LINE, TURN = turn_bytes<T>();
    static constexpr int RING = STAGES * STAGE, BARS = RING + WARPS * (int)TURNS * TURN,
                         END = BARS + 16 * STAGES, SUMS = N * COLUMN * (int)sizeof(float),
                         USED = (END > SUMS ? END : SUMS) + 1024; /* panels begin at a multiple of 1024 */
    static constexpr size_t BYTES = USED > HALF_ROOM ? USED : HALF_ROOM;
};

/* The block's panels, one behind the other through the stages. */
template <int N> struct coded_panels {
    const uint8_t *from;       /* the first column's line of panel 0 */
    int64_t lines;
    uint32_t at, bars;         /* in shared memory */
    int next, end;             /* panels: the next one to copy; where the block's end */
    int used, stage, phase;    /* panels before the one in use; its stage and phase */

    __device__ __forceinline__ uint32_t full(int s) const { return bars + 16 * s; }
    __device__ __forceinline__ uint32_t empty(int s) const { return bars + 16 * s + 8; }

    /* The columns' values of step i of the panel in use. */
    __device__ __forceinline__ uint64_t steps(int i) const
    {
        return swizzled(at, 0) + (uint32_t)((stage * N * PANEL_LINE + 32 * i) / 16);
    }

    __device__ __forceinline__ void fill(int s)
    {
        bar_expect(full(s), N * PANEL_LINE);
        bulk_start(at + s * N * PANEL_LINE, from + next * lines * PANEL_LINE, N * PANEL_LINE, full(s));
        next++;
    }

    __device__ __forceinline__ void start(void)
    {
        for (int s = 0; s < stages<N>() && next < end; s++)
            fill(s);
    }

    /* A warp reads the panel before the one in use no more.  The first thread fills the stage of the one before that:
     * all warps are likely to have said so of it. */
    __device__ __forceinline__ void release(void)
    {
        if (used > 0 && threadIdx.x % 32 == 0)
            bar_arrive(empty((used - 1) % stages<N>()));
        if (used > 1 && threadIdx.x == 0 && next < end) {
            const int s = (used - 2) % stages<N>();
            bar_wait(empty(s), (used - 2) / stages<N>() & 1);
            fill(s);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void advance(void)
    {
        used++;
        if (++stage == stages<N>()) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* A unit times its panels; groups: those that there are from the unit's begin; begins: the sums begin with it. */
template <int T, int N>
static __device__ __forceinline__ void coded_products(const uint32_t *row, int groups, bool begins,
                                                      coded_panels<N> &panels, uint32_t (*a)[2][4], float (*acc)[4])
{
    coded_lane lane;
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        const int at = g % PANEL_GROUPS, now = g % 2;
        coded_group<T>(row, g, groups, lane, a[now]);
        if (at == 0)
            bar_wait(panels.full(panels.stage), panels.phase);
        group_open<N>(acc);
#pragma unroll
        for (int h = 0; h < 2; h++)
            group_mma_regs<N, 0, 1, true>(acc, a[now][h], panels.steps(2 * at + h), !begins || g > 0 || h > 0);
        group_commit();
        group_wait<N, 1>(acc); /* for the group before */
        if (at == 0)
            panels.release();
        if (at == PANEL_GROUPS - 1)
            panels.advance();
    }
}

/* Sums over the blocks of the cluster, in their order; each takes its share of the columns. */
template <int OUTS, int COLUMN>
static __device__ __forceinline__ void coded_finish(const mm &p, const coded_job &j, const coded_tile &t,
                                                    const float *part, int64_t first)
{
    enum { SIDE = 32 / INT8_TILE }; /* columns at once */
    const int blocks = (int)cluster_blocks(), out = threadIdx.x % OUTS;
    const float scale = scale_of(p, t.expert);
    if (first + out >= p.n_out)
        return;
#pragma unroll 2
    for (int c = (int)cluster_rank() + blocks * ((int)threadIdx.x / OUTS); c < t.n; c += blocks * SIDE) {
        float v[CODED_SPLIT], s;
#pragma unroll
        for (int b = 0; b < CODED_SPLIT; b++)
            v[b] = b < blocks ? of_block(part, (uint32_t)b)[c * COLUMN + out] : 0.0f;
        s = v[0];
#pragma unroll
        for (int b = 1; b < CODED_SPLIT; b++)
            s += v[b];
        const int row = j.rows ? j.rows[t.first + c] : t.first + c;
        if (row >= 0)
            p.y[(int64_t)row * p.ldy + first + out] = s * scale;
    }
}

/* blockIdx.x: the block's number in its cluster; y: the columns; z: the rows of the matrix. */
template <int T, int N, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 1) coded_kernel(mm p, coded_job j)
{
    if constexpr (arch_has(ARCH_90)) {
        using room = coded_room<T, N, WARPS>;
        const int warp = threadIdx.x / 32, groups = (int)(p.n_in / 32);
        const int units = (groups + UNIT_GROUPS - 1) / UNIT_GROUPS, blocks = (int)cluster_blocks(),
                  begin = units * (int)cluster_rank() / blocks, end = units * ((int)cluster_rank() + 1) / blocks;
        const uint32_t base = -shared_at(int8_room) & 1023, ring = base + room::RING + warp * TURNS * room::TURN;
        const int64_t tile = (int64_t)blockIdx.z * WARPS + warp;
        coded_panels<N> panels;
        int8_cursor<T> next;
        coded_tile t;
        uint32_t low[2], a[2][2][4];
        float acc[N / 8][4];

        beside_begin(p);
        if (j.tiles)
            pdl_wait(); /* the tiles are the last launch's work */
        if (!coded_place<N>(p, j, &t))
            return;
        const uint8_t *matrix = p.w + (int64_t)t.expert * p.n_out * p.row_bytes;
        panels = { j.image + (int64_t)t.first * PANEL_LINE, j.lines, shared_at(int8_room) + base,
                   shared_at(int8_room) + base + (uint32_t)room::BARS, begin * UNIT_PANELS,
                   end * UNIT_PANELS, 0, 0, 0 };
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages<N>(); s++) {
                bar_init(panels.full(s), 1);
                bar_init(panels.empty(s), WARPS);
            }
            bar_publish();
        }
        next.begin(p, matrix, tile, 0, begin);
        lane_low<T>(p, matrix, tile, 0, low);
        for (int turn = 0; turn < TURNS; turn++) {
            if (next.u < end)
                next.fetch(p, ring + turn * room::TURN);
            async_commit();
        }
        __syncthreads();
        beside_wait(p);
        if (threadIdx.x == 0)
            panels.start();

        for (int u = begin, turn = 0; u < end; u++, turn ^= 1) {
            uint32_t row[2];
            async_wait<TURNS - 1>();
            __syncwarp();
            lane_rows<T>(ring + turn * room::TURN, low, u, row);
            coded_products<T, N>(row, groups - u * UNIT_GROUPS, u == begin, panels, a, acc);
            __syncwarp();
            if (next.u < end)
                next.fetch(p, ring + turn * room::TURN);
            async_commit();
        }
        group_wait<N, 0>(acc);
        __syncthreads(); /* panels and rings are read no more */
        float *part = (float *)(int8_room + base);
        group_leave<N, room::COLUMN>(acc, part);
        cluster_meet();
        coded_finish<room::OUTS, room::COLUMN>(p, j, t, part, (int64_t)blockIdx.z * room::OUTS);
        cluster_meet();
        beside_end(p);
    }
}

template <int T, int N, int WARPS> static int coded_at_once(const cuda_device *d, int split)
{
    static int known[CODED_SPLIT + 1];
    return cuda_clusters_at_once(d, coded_kernel<T, N, WARPS>, split, dim3(32 * WARPS), coded_room<T, N, WARPS>::BYTES,
                                 &known[split]);
}

template <int T, int N, int WARPS>
static void coded_launch(const cuda_device *d, const mm &p, const coded_job &j, int row_tiles)
{
    const dim3 grid((unsigned)j.split, (unsigned)row_tiles, cuda_blocks(p.n_out, INT8_TILE * WARPS));
    cuda_launch_clusters(d, coded_kernel<T, N, WARPS>, j.split, grid, dim3(32 * WARPS),
                         coded_room<T, N, WARPS>::BYTES, p, j);
}

template <int T, int N, int WARPS> static const coded_kernels *coded_of()
{
    if constexpr (plain_types[T] == PLAIN_NONE) {
        static const coded_kernels k = { coded_room<T, N, WARPS>::BYTES, INT8_TILE * WARPS,
                                         coded_launch<T, N, WARPS>, coded_at_once<T, N, WARPS> };
        return &k;
    } else
        return NULL;
}

#endif
