/* coded_80.cuh: the kernel of coded.cuh for ARCH_80: WARPS warps, N columns.  Panels come by cp.async, a barrier each;
 * products are mma.sync. */
#ifndef KVANT_CUDA_CODED_80_CUH
#define KVANT_CUDA_CODED_80_CUH

#include "devices/cuda/matmul/coded_codes.cuh"

enum { STAGES_80 = 3 }; /* panels in shared memory at once: one in use */

template <int T, int N, int WARPS> static constexpr size_t room_80()
{
    return 1024 + (size_t)STAGES_80 * N * PANEL_LINE + (size_t)WARPS * TURNS * turn_bytes<T>();
}

/* A part's panels, one behind the other through the stages. */
template <int N, int THREADS> struct panels_80 {
    const uint8_t *from; /* the first column's line of the next panel to copy */
    int64_t step;        /* bytes to the panel behind it */
    uint32_t at;         /* in shared memory */
    int left, to, stage; /* panels to copy; the stage of the next copy; of the one in use */

    __device__ __forceinline__ void fetch(void)
    {
        if (left > 0)
            for (int i = 16 * threadIdx.x; i < N * PANEL_LINE; i += 16 * THREADS)
                async_copy16_all(at + to * N * PANEL_LINE + i, from + i);
        from += step;
        left--;
        to = to == STAGES_80 - 1 ? 0 : to + 1;
    }

    __device__ __forceinline__ void advance(void)
    {
        stage = stage == STAGES_80 - 1 ? 0 : stage + 1;
    }
};

/* A unit times its panels; `ahead` asks for what is behind each panel's barrier.  As coded_products of coded_90.cuh. */
template <int T, int N, int THREADS, typename F>
static __device__ __forceinline__ void products_80(const uint32_t *row, int groups, panels_80<N, THREADS> &panels,
                                                   float (*acc)[4], F ahead)
{
    coded_lane lane;
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        const int in = g % PANEL_GROUPS;
        uint32_t a[2][4];
        if (in == 0) {
            async_wait<STAGES_80 - 2>();
            __syncthreads(); /* this panel is there, and the one before is read no more */
            ahead(g);
        }
        coded_group<T>(row, g, groups, lane, a);
#pragma unroll
        for (int h = 0; h < 2; h++)
            step_regs<ARCH_80, N, 0, 1, true>(acc, a[h], panels.at + panels.stage * N * PANEL_LINE + 64 * in + 32 * h,
                                              0);
        if (in == PANEL_GROUPS - 1)
            panels.advance();
    }
}

/* A lane's sums to y, or to the part of a split product. */
template <int N>
static __device__ __forceinline__ void leave_80(const mm &p, const coded_job &j, const coded_tile &t,
                                                const float (*acc)[4], int64_t tile)
{
    const int lane = threadIdx.x % 32;
    const float scale = scale_of(p, t.expert);
    float *y = j.split > 1 ? j.part + (int64_t)blockIdx.x * p.rows * p.n_out : p.y;
    const int64_t ld = j.split > 1 ? p.n_out : p.ldy;
#pragma unroll
    for (int c = 0; c < N / 8; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = 8 * c + 2 * (lane % 4) + i % 2;
            const int64_t out = tile * INT8_TILE + lane / 4 + 8 * (i / 2);
            const int row = column >= t.n ? -1 : j.rows ? j.rows[t.first + column] : t.first + column;
            if (row >= 0 && out < p.n_out)
                y[row * ld + out] = acc[c][i] * scale;
        }
}

/* blockIdx.x: the part of the rows' length; y: the columns; z: the rows of the matrix. */
template <int T, int N, int WARPS> static __global__ void __launch_bounds__(32 * WARPS, 1) kernel_80(mm p, coded_job j)
{
    constexpr int TURN = turn_bytes<T>();
    const int warp = threadIdx.x / 32, groups = (int)(p.n_in / 32), units = (groups + UNIT_GROUPS - 1) / UNIT_GROUPS;
    const int begin = units * (int)blockIdx.x / j.split, end = units * ((int)blockIdx.x + 1) / j.split;
    const uint32_t base = -shared_at(int8_room) & 1023,
                   ring = base + STAGES_80 * N * PANEL_LINE + warp * TURNS * TURN;
    const int64_t tile = (int64_t)blockIdx.z * WARPS + warp, line = j.lines * PANEL_LINE;
    int8_cursor<T> next;
    coded_tile t;
    uint32_t low[2];
    float acc[N / 8][4] = {};

    beside_begin(p);
    if (j.tiles)
        pdl_wait(); /* the tiles are the last launch's work */
    if (!coded_place<N>(p, j, &t))
        return;
    const uint8_t *matrix = p.w + (int64_t)t.expert * p.n_out * p.row_bytes;
    panels_80<N, 32 * WARPS> panels = { j.image + (int64_t)t.first * PANEL_LINE + begin * UNIT_PANELS * line, line,
                                        shared_at(int8_room) + base, (end - begin) * UNIT_PANELS, 0, 0 };
    next.begin(p, matrix, tile, 0, begin);
    lane_low<T>(p, matrix, tile, 0, low);
    next.fetch(p, ring);
    beside_wait(p);
    for (int s = 0; s < STAGES_80 - 1; s++) {
        panels.fetch();
        async_commit();
    }
    for (int u = begin, turn = 0; u < end; u++, turn ^= 1) {
        uint32_t row[2];
        lane_rows<T>(ring + turn * TURN, low, u, row);
        products_80<T>(row, groups - u * UNIT_GROUPS, panels, acc, [&](int g) {
            if (g == 0 && next.u < end) /* all lanes have read the unit before */
                next.fetch(p, ring + (turn ^ 1) * TURN);
            panels.fetch();
            async_commit();
        });
    }
    leave_80<N>(p, j, t, acc, tile);
    beside_end(p);
}

template <int T, int N, int WARPS>
static void launch_80(const cuda_device *d, const mm &p, const coded_job &j, int row_tiles)
{
    cuda_smem(kernel_80<T, N, WARPS>, room_80<T, N, WARPS>());
    cuda_launch(d, kernel_80<T, N, WARPS>,
                dim3((unsigned)j.split, (unsigned)row_tiles, cuda_blocks(p.n_out, INT8_TILE * WARPS)), 32 * WARPS,
                room_80<T, N, WARPS>(), p, j);
}

static int at_once_80(const cuda_device *d, int split)
{
    return d->n_sm / split;
}

/* Sixteen warps where shared memory holds their rings, else eight. */
template <int T, int N> static const coded_kernels *of_80(size_t most)
{
    if constexpr (plain_types[T] == PLAIN_NONE) {
        static const coded_kernels wide = { room_80<T, N, 16>(), INT8_TILE * 16, launch_80<T, N, 16>, at_once_80 },
                                   slim = { room_80<T, N, 8>(), INT8_TILE * 8, launch_80<T, N, 8>, at_once_80 };
        return wide.room <= most ? &wide : &slim;
    } else
        return NULL;
}

#endif
