/* int8_few.cu: up to INT8_ROWS rows, COLS of them at a time.  Their integers are made first, for all blocks.  The 8
 * warps of a block are `wide` tiles of 16 rows of the matrix times 8 / wide parts of their length; the warps of a part
 * share the activations, so that many rows of these ask for many tiles of a block. */
#include "devices/cuda/matmul/int8/int8_eight.cuh"

enum { FEW_THREADS = 32 * INT8_WARPS, MULTI_ROOM = 227 << 10 }; /* shared memory of a multiprocessor, as most have it */

/* Columns of all blocks together: what those past the last row hold goes nowhere. */
template <int COLS> static __host__ __device__ __forceinline__ int columns_of(int rows)
{
    return (rows + COLS - 1) / COLS * COLS;
}

/* Integers of all rows: of a unit those of every column side by side, ACTS_BYTES each.  8 values a thread; blockIdx.y:
 * the row. */
static __global__ void __launch_bounds__(256)
    acts_kernel(const float *x, int64_t ldx, int x_vec, int chunks, uint8_t *to, int columns)
{
    const int c = (int)(blockIdx.x * 256 + threadIdx.x);
    const bool live = c < chunks;
    uint8_t *block = to + ((int64_t)(c / 32) * columns + blockIdx.y) * ACTS_BYTES;
    float v[8] = {};
    pdl_go();
    pdl_wait();
    if (live)
        load8(x + blockIdx.y * ldx + 8 * c, x_vec, v);
    const int8_group g = int8_chunk(v, c % 32, live, (int8_t *)block);
    if (live && c % 4 == 3)
        ((int8_group *)(block + ACTS_STRIDE))[c / 4 % UNIT_GROUPS] = g;
}

/* Activations of unit u of COLS rows to `to`, by the `threads` threads of a part of which this is number i. */
template <int COLS>
static __device__ __forceinline__ void fetch_acts(const mm &p, int first, int u, uint32_t to, int i, int threads)
{
    const uint8_t *from = p.x8 + ((int64_t)u * columns_of<COLS>(p.rows) + first) * ACTS_BYTES;
    to += shared_at(int8_room);
    for (i *= 16; i < COLS * ACTS_BYTES; i += 16 * threads)
        async_copy16_all(to + i, from + i);
}

/* A warp's sums of its tile, to its place in `part`. */
template <int COLS> static __device__ __forceinline__ void leave(float (*acc)[4], float *part)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < COLS / 8; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[(8 * t + 2 * (lane % 4) + i % 2) * INT8_TILE + lane / 4 + 8 * (i / 2)] = acc[t][i];
}

/* Sums over the parts, in their order, of `wide` tiles from `tile` on. */
template <int COLS>
static __device__ __forceinline__ void finish(const mm &p, const float *part, int64_t tile, int64_t pair, int first,
                                              int wide)
{
    const float scale = scale_of(p, 0);
    for (int u = threadIdx.x; u < wide * COLS * INT8_TILE; u += FEW_THREADS) {
        const int i = u % INT8_TILE, column = u / INT8_TILE % COLS, own = u / (INT8_TILE * COLS);
        float s = 0.0f;
        for (int w = own; w < INT8_WARPS; w += wide)
            s += part[(w * COLS + column) * INT8_TILE + i];
        s = joined(s * scale, i, pair, 0xffffffffu);
        const int64_t to = tile_place(p, tile + own, i, pair);
        if (to >= 0 && first + column < p.rows)
            p.y[(int64_t)(first + column) * p.ldy + to] = s;
    }
}

/* A barrier of the warps of a part. */
static __device__ __forceinline__ void part_meet(int part, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "r"(threads) : "memory");
}

/* blockIdx.y: which COLS rows.  A block takes every gridDim.x-th `wide` tiles. */
template <int T, int COLS>
static __global__ void __launch_bounds__(FEW_THREADS, 2) few_kernel(mm p, int64_t pair, int wide)
{
    constexpr int TURN = turn_bytes<T>(), ACTS = COLS * ACTS_BYTES;
    __shared__ float sums[INT8_WARPS * COLS * INT8_TILE];
    const int warp = threadIdx.x / 32, part = warp / wide, parts = INT8_WARPS / wide, threads = 32 * wide;
    const int member = threadIdx.x - part * threads, first = blockIdx.y * COLS, groups = (int)(p.n_in / 32);
    const int units = (groups + UNIT_GROUPS - 1) / UNIT_GROUPS, begin = units * part / parts,
              end = units * (part + 1) / parts;
    const int64_t tiles = int8_tiles(p, pair), own = (int64_t)blockIdx.x * wide, by = (int64_t)gridDim.x * wide;
    const uint32_t mine = (uint32_t)(warp * TURNS * TURN),
                   shared = (uint32_t)(INT8_WARPS * TURNS * TURN + part * TURNS * ACTS);
    const bool works = begin < end;
    int8_cursor<T> next;
    int64_t ahead = own;

    beside_begin(p);
    next.begin(p, p.w, own + warp % wide, pair, begin);
    auto fetch = [&](int turn, bool weights, bool acts) {
        const int u = next.u;
        if (works && ahead < tiles) {
            if (acts)
                fetch_acts<COLS>(p, first, u, shared + turn * ACTS, member, threads);
            if (weights)
                next.fetch(p, mine + turn * TURN);
            if (weights && next.u == end) {
                ahead += by;
                next.begin(p, p.w, ahead + warp % wide, pair, begin);
            }
        }
    };
    fetch(0, true, false);
    beside_wait(p);
    if (works && own < tiles)
        fetch_acts<COLS>(p, first, begin, shared, member, threads);
    async_commit();
    fetch(1, true, true);
    async_commit();
    int turn = 0;
    for (int64_t tile = own; tile < tiles; tile += by) {
        float acc[COLS / 8][4] = {};
        uint32_t low[2];
        lane_low<T>(p, p.w, tile + warp % wide, pair, low);
        for (int u = begin; u < end; u++) {
            uint32_t row[2];
            async_wait<TURNS - 1>();
            part_meet(part, threads);
            lane_rows<T>(mine + turn * TURN, low, u, row);
            if constexpr (int8_has_eight(wshapes[T]))
                use_unit_eight<T, COLS>(row, shared + turn * ACTS, acc);
            else
                use_unit_few<T, COLS>(row, shared + turn * ACTS, groups - u * UNIT_GROUPS, acc);
            part_meet(part, threads);
            fetch(turn, true, true);
            async_commit();
            turn ^= 1;
        }
        __syncthreads(); /* all have read the last tiles' sums */
        leave<COLS>(acc, sums + warp * COLS * INT8_TILE);
        __syncthreads();
        finish<COLS>(p, sums, tile, pair, first, wide);
    }
    beside_end(p);
}

template <int T, int COLS> static constexpr size_t bytes_of(int wide)
{
    return (size_t)(INT8_WARPS * (int)TURNS * turn_bytes<T>() +
                    INT8_WARPS / wide * (int)TURNS * COLS * (int)ACTS_BYTES + 16);
}

/* Tiles of a block: the most with which two blocks come to every multiprocessor, else the least that fit; 0: none. */
template <int T, int COLS> static int wide_of(size_t most, int64_t tiles, int n_sm)
{
    int wide = INT8_WARPS;
    if (bytes_of<T, COLS>(wide) + sizeof(float) * INT8_WARPS * COLS * INT8_TILE > most)
        return 0;
    while (wide > 1 && tiles / wide < 2 * n_sm &&
           bytes_of<T, COLS>(wide / 2) + sizeof(float) * INT8_WARPS * COLS * INT8_TILE <= most)
        wide /= 2;
    return wide;
}

template <int T, int COLS> static void run_cols(const cuda_device *d, const mm &p, int64_t pair)
{
    const int64_t tiles = int8_tiles(p, pair), parts = cuda_blocks(p.rows, COLS);
    const int wide = wide_of<T, COLS>(d->smem_max, tiles * parts, d->n_sm);
    const size_t bytes = bytes_of<T, COLS>(wide);
    const int64_t stay = MULTI_ROOM / (bytes + sizeof(float) * INT8_WARPS * COLS * INT8_TILE + 1024),
                  blocks = (tiles + wide - 1) / wide;
    const int64_t most = (d->n_sm * (stay < 1 ? 1 : stay > 2 ? 2 : stay) + parts - 1) / parts;
    cuda_smem(few_kernel<T, COLS>, bytes);
    cuda_launch(d, few_kernel<T, COLS>, dim3((unsigned)(blocks < most ? blocks : most), (unsigned)parts), FEW_THREADS,
                bytes, p, pair, wide);
}

template <int T> static size_t room(const mm &p, size_t most)
{
    return (size_t)(p.rows <= 8    ? wide_of<T, 8>(most, 0, 1)
                    : p.rows <= 16 ? wide_of<T, 16>(most, 0, 1)
                                   : wide_of<T, 32>(most, 0, 1));
}

template <int T, int COLS> static void run_acts(const cuda_device *d, const mm &job, int64_t pair)
{
    mm p = job;
    const int chunks = (int)(p.n_in / 8);
    p.x8 = d->scratch;
    if (!(p.beside & BESIDE_LAST))
        cuda_launch(d, acts_kernel, dim3(cuda_blocks(chunks, 256), (unsigned)p.rows), 256, 0, p.x, p.ldx, p.x_vec,
                    chunks, d->scratch, columns_of<COLS>(p.rows));
    run_cols<T, COLS>(d, p, pair);
}

template <int T> static void run(const cuda_device *d, const mm &p, int64_t pair)
{
    if (p.rows <= 8)
        run_acts<T, 8>(d, p, pair);
    else if (p.rows <= 16)
        run_acts<T, 16>(d, p, pair);
    else
        run_acts<T, 32>(d, p, pair);
}

template <int T> struct few_entry {
    static constexpr int8_kernels entry = { room<T>, run<T> };
};

const int8_kernels *cuda_int8_few(int type)
{
    return int8_entry_of<int8_kernels, few_entry>(type);
}

size_t cuda_int8_scratch(const mm &p)
{
    const size_t columns = (size_t)(p.rows <= 8 ? columns_of<8>(p.rows) : p.rows <= 16 ? 16 : columns_of<32>(p.rows));
    return p.rows > 1 && !p.ids ? columns * (size_t)((p.n_in + UNIT - 1) / UNIT) * ACTS_BYTES : 0;
}

static const int8_kernels *kernels(int type, const mm &p)
{
    return p.rows == 1 || p.ids ? cuda_int8_one(type) : cuda_int8_few(type);
}

bool cuda_int8_takes(const cuda_device *d, int type, const mm &p)
{
    const int8_kernels *k = kernels(type, p);
    if (!k || (p.rows > INT8_ROWS && !p.ids) || p.n_in > 1 << 20)
        return false;
    const int unit = UNIT / wshapes[type].values * wshapes[type].bytes;
    const bool whole = unit % 16 == 0 || wshapes[type].bytes % 2 == 0;
    return p.n_in % (whole ? UNIT : 32) == 0 && k->room(p, d->smem_max) > 0;
}

void cuda_int8(const cuda_device *d, int type, const mm &p, int64_t pair)
{
    kernels(type, p)->run(d, p, pair);
}
