/* int8_one.cu: one row, or rows that each have their own expert.  Blocks stay, one to a multiprocessor, and turn the
 * row into integers for themselves while their first weights are on their way; teams of warps in a block take tiles of
 * 16 rows of the matrix, their warps units of 256 values. */
#include "devices/cuda/matmul/int8/int8_row.cuh"

enum { ONE_THREADS = 512, MOST_TEAMS = 15 }; /* of a block; named barriers */

/* Threads that take part in making a row's integers: with a norm those of row_scale, whose sums these are. */
static __device__ __forceinline__ int takers(const mm &p)
{
    return p.norm ? ROW_THREADS : (int)blockDim.x;
}

/* Chunks of 8 values of x: `first` + the thread's number, and one for every taker further. */
static __device__ __forceinline__ void two_chunks(const mm &p, const float *x, int vec, int first, float (*v)[8])
{
    const int chunks = (int)(p.n_in / 8), by = takers(p);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int c = first + (int)threadIdx.x + i * by;
        if ((int)threadIdx.x < by && c < chunks)
            load8(x + 8 * c, vec, v[i]);
        else
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[i][e] = 0.0f;
    }
}

/* The whole row x as integers at `acts`, its units' numbers at `numbers`.  v, gain: the thread's first two chunks of
 * the row and of the norm's weights. */
template <int T>
static __device__ __forceinline__ void take_row(const mm &p, const float *x, float (*v)[8], const float (*gain)[8],
                                                uint32_t acts, uint32_t numbers)
{
    __shared__ float part[32];
    const int chunks = (int)(p.n_in / 8), by = takers(p);
    const float scale = p.norm ? row_scale<ROW_PARTS>(v, (int)p.n_in, p.eps, part) : 1.0f;
    for (int first = 0; first < chunks; first += 2 * by) {
        if (first)
            two_chunks(p, x, p.x_vec, first, v);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int c = first + (int)threadIdx.x + i * by;
            const bool live = (int)threadIdx.x < by && c < chunks;
            if (live && p.norm) {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    v[i][e] = v[i][e] * scale * gain[i][e];
                if (blockIdx.x == 0)
                    row_store(p.normed + 8 * c, v[i]);
            }
            const int8_group g = int8_chunk(v[i], c, live, (int8_t *)int8_room + acts);
            if (live && c % 4 == 3)
                keep_numbers<T>(numbers + c / 32 * ROW_NUMBERS, c / 4 % UNIT_GROUPS, g);
        }
    }
}

/* The team's first 16 threads: sums over its warps, in their order; old: what p.add had there. */
static __device__ __forceinline__ void finish(const mm &p, float *y, const float *part, int64_t tile, int64_t pair,
                                              float scale, int i, int warps, float old)
{
    float s = 0.0f;
    for (int w = 0; w < warps; w++)
        s += part[w * INT8_TILE + i];
    s = joined(s * scale, i, pair, 0xffffu);
    const int64_t to = tile_place(p, tile, i, pair);
    if (to < 0)
        return;
    y[to] = s;
    if (p.add)
        p.add[to] = old + s;
}

/* A barrier of a team's threads. */
static __device__ __forceinline__ void team_meet(int team, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(threads) : "memory");
}

/* blockIdx.y: the row, with ids against its own expert, or of the second matrix.  A team of `warps` warps takes every
 * gridDim.x * teams-th tile;
 * copies run ahead over the end of one. */
template <int T> static __global__ void __launch_bounds__(ONE_THREADS, 1) one_kernel(mm p, int64_t pair, int warps)
{
    constexpr int TURN = turn_bytes<T>();
    __shared__ float parts[2][ONE_THREADS / 32 * INT8_TILE];
    const int team = threadIdx.x / (32 * warps), teams = blockDim.x / (32 * warps),
              member = threadIdx.x - team * 32 * warps;
    const int warp = threadIdx.x / 32 - team * warps, groups = (int)(p.n_in / 32);
    const int units = (groups + UNIT_GROUPS - 1) / UNIT_GROUPS, begin = warp;
    const int64_t tiles = int8_tiles(p, pair), own = (int64_t)team * gridDim.x + blockIdx.x,
                  by = (int64_t)gridDim.x * teams;
    const uint32_t mine = (uint32_t)(threadIdx.x / 32 * TURNS * TURN),
                   acts = (uint32_t)(blockDim.x / 32 * TURNS * TURN);
    const uint32_t numbers = acts + (uint32_t)(p.n_in + 15) / 16 * 16;
    const int row = (int)blockIdx.y, second = row - p.rows; /* of the second matrix, if it is not negative */
    int e = 0;

    if (p.ids && second < 0) { /* written by a launch before: nothing can be fetched ahead */
        pdl_wait();
        pdl_go(); /* the launch behind it may read the ids at once (int8_sum.cu) */
        e = p.ids[row];
    } else
        beside_begin(p);
    const uint8_t *matrix = second < 0 ? p.w + (int64_t)e * p.n_out * p.row_bytes : p.w2;
    const float *x = p.x + (int64_t)(second < 0 ? row / p.x_div : second) * p.ldx;
    float *y = second < 0 ? p.y + row * p.ldy : p.y2 + second * p.ldy2;
    float v[2][8], gain[2][8];
    int8_cursor<T> next;
    int64_t ahead = own;
    next.begin(p, matrix, own, pair, begin);
    auto fetch = [&](int turn) {
        if (ahead < tiles) {
            next.fetch(p, mine + turn * TURN, warps);
            if (next.u >= units) {
                ahead += by;
                next.begin(p, matrix, ahead, pair, begin);
            }
        }
        async_commit();
    };

    fetch(0);
    if (p.norm)
        two_chunks(p, p.norm, 1, 0, gain);
    beside_wait(p);
    two_chunks(p, x, p.x_vec, 0, v);
    fetch(1); /* after the activations: they would come behind it */
    take_row<T>(p, x, v, gain, acts, numbers);
    __syncthreads();
    const float scale = scale_of(p, e);
    int turn = 0, half = 0;
    for (int64_t tile = own; tile < tiles; tile += by, half ^= 1) {
        float *part = parts[half] + team * warps * INT8_TILE, acc[2] = { 0.0f, 0.0f }, old = 0.0f;
        uint32_t low[2];
        lane_low<T>(p, matrix, tile, pair, low);
        if (p.add && member < INT8_TILE && tile * INT8_TILE + member < p.n_out) /* long before it is needed */
            old = p.add[tile * INT8_TILE + member];
        for (int u = begin; u < units; u += warps) {
            uint32_t row[2];
            async_wait<TURNS - 1>();
            __syncwarp();
            lane_rows<T>(mine + turn * TURN, low, u, row);
            use_unit_one<T>(row, acts + u * UNIT, numbers + u * ROW_NUMBERS,
                            groups - u * UNIT_GROUPS, acc);
            __syncwarp();
            fetch(turn);
            turn ^= 1;
        }
        leave(acc, part + warp * INT8_TILE);
        team_meet(team, 32 * warps); /* the other half of parts is free: all have read it before they came here */
        if (member < INT8_TILE)
            finish(p, y, part, tile, pair, scale, member, warps, old);
    }
    beside_end(p);
}

/* Warps of a team: no more than there are units; those of a norm's threads are whole teams, so that with 3, 5, 6 or 7
 * units a product that normalises its row sums in another order than one that does not. */
static int warps_of(const mm &p)
{
    int warps = row_warps(p);
    while (p.norm && ROW_WARPS % warps)
        warps--;
    return warps;
}

template <int T> static size_t bytes_of(const mm &p, int teams)
{
    const size_t row = (size_t)(p.n_in + 15) / 16 * 16 + (size_t)(p.n_in + UNIT - 1) / UNIT * ROW_NUMBERS;
    return (size_t)(teams * warps_of(p) * TURNS * turn_bytes<T>()) + row + 16;
}

/* A norm takes ROW_THREADS threads. */
static int least_teams(const mm &p)
{
    return p.norm ? (ROW_THREADS / 32 + warps_of(p) - 1) / warps_of(p) : 1;
}

template <int T> static int teams_of(const mm &p, size_t most)
{
    int teams = ONE_THREADS / 32 / warps_of(p);
    teams = teams < MOST_TEAMS ? teams : MOST_TEAMS;
    while (teams > 1 && bytes_of<T>(p, teams) > most)
        teams--;
    return bytes_of<T>(p, teams) <= most && teams >= least_teams(p) ? teams : 0;
}

template <int T> static size_t room(const mm &p, size_t most)
{
    const int teams = teams_of<T>(p, most);
    return teams ? bytes_of<T>(p, teams) : 0;
}

/* Blocks of a row, one of them on a multiprocessor: those whose last one is done first, where the begin and the end of
 * a block take as long as two tiles of a team. */
static unsigned blocks_of(int n_sm, int64_t tiles, int teams, int rows)
{
    const int64_t most = (tiles + teams - 1) / teams;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t b = 1; b <= most && b <= n_sm; b++) {
        const int64_t waves = (b * rows + n_sm - 1) / n_sm, turns = (tiles + b * teams - 1) / (b * teams);
        if (waves * (turns + 2) < least) {
            least = waves * (turns + 2);
            best = b;
        }
    }
    return (unsigned)best;
}

template <int T> static void run(const cuda_device *d, const mm &p, int64_t pair)
{
    const int warps = warps_of(p);
    const int64_t tiles = int8_tiles(p, pair);
    int teams = teams_of<T>(p, d->smem_max);
    const int rows = p.rows + p.rows2;
    while (teams > least_teams(p) && (teams - 1) * (int64_t)d->n_sm >= tiles * rows)
        teams--;
    const size_t bytes = bytes_of<T>(p, teams);
    cuda_smem(one_kernel<T>, bytes);
    const dim3 grid(blocks_of(d->n_sm, tiles, teams, rows), (unsigned)rows);
    cuda_launch(d, one_kernel<T>, grid, 32 * warps * teams, bytes, p, pair, warps);
}

template <int T> struct one_entry {
    static constexpr int8_kernels entry = { room<T>, run<T> };
};

const int8_kernels *cuda_int8_one(int type)
{
    return int8_entry_of<int8_kernels, one_entry>(type);
}
