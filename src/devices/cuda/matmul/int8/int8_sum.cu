/* int8_sum.cu: the last product of a token's experts, in integers, and their weighted sum, with a shared expert's part
 * and the residual row: one launch.
 *
 * A block has one token and one tile of 16 outputs.  A team of warps takes every teams-th expert as int8_one.cu takes a
 * row, the sums of the warps meet in shared memory, and 16 threads add them up in the order of the ops: bits as of the
 * ops one by one.  The ids are there before the launch before this one ends (int8_one.cu), so the weights are under way
 * before the activations are. */
#include "devices/cuda/matmul/int8/int8_sum.cuh"
#include "devices/cuda/matmul/int8/int8_row.cuh"

enum { SUM_THREADS = 512, SUM_WARPS = SUM_THREADS / 32, SUM_SOURCES = 65 };

/* The layout of a block's shared memory, behind the rings of its warps; of a product of `sources` experts. */
struct sum_room {
    uint32_t acts, act_bytes, numbers, number_bytes, parts, bytes;
};

template <int T> static __host__ __device__ __forceinline__ sum_room room_of(int64_t n_in, int sources, int warps)
{
    sum_room r;
    r.act_bytes = (uint32_t)(n_in + 15) / 16 * 16;
    r.number_bytes = (uint32_t)((n_in + UNIT - 1) / UNIT) * ROW_NUMBERS;
    r.acts = (uint32_t)((int)SUM_WARPS * (int)TURNS * turn_bytes<T>());
    r.numbers = r.acts + (uint32_t)sources * r.act_bytes;
    r.parts = r.numbers + (uint32_t)sources * r.number_bytes;
    r.bytes = r.parts + (uint32_t)(sources * warps * (int)INT8_TILE * (int)sizeof(float));
    return r;
}

static __host__ __device__ __forceinline__ int sources_of(const int8_sum &s)
{
    return s.k + (s.p.w2 ? 1 : 0);
}

/* The matrix of source j of a token: an expert's, or the shared one. */
static __device__ __forceinline__ const uint8_t *matrix_of(const int8_sum &s, int64_t token, int j)
{
    return j < s.k ? s.p.w + (int64_t)s.p.ids[token * s.k + j] * s.p.n_out * s.p.row_bytes : s.p.w2;
}

/* A warp takes these: units w, w + warps .. of sources team, team + teams .. */
template <int T> struct sum_walk {
    int8_cursor<T> at;
    int j;

    __device__ __forceinline__ void begin(const int8_sum &s, int64_t token, int source, int unit)
    {
        j = source;
        if (j < sources_of(s))
            at.begin(s.p, matrix_of(s, token, j), blockIdx.x, 0, unit);
    }

    __device__ __forceinline__ void fetch(const int8_sum &s, int64_t token, uint32_t to, int unit, int units, int warps,
                                          int teams)
    {
        if (j < sources_of(s)) {
            at.fetch(s.p, to, warps);
            if (at.u >= units)
                begin(s, token, j + teams, unit);
        }
        async_commit();
    }
};

/* Chunk `at` of the token's rows, source after source. */
static __device__ __forceinline__ void load_chunk(const int8_sum &s, int64_t token, int at, int chunks, bool live,
                                                  float *v)
{
    const int j = at / chunks, c = at % chunks;
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = 0.0f;
    if (live)
        load8((j < s.k ? s.p.x + (token * s.k + j) * s.p.ldx : s.x2 + token * s.ldx2) + 8 * c, s.p.x_vec, v);
}

/* The token's rows of all sources as integers, with their numbers; two chunks of a thread are under way at once. */
template <int T>
static __device__ __forceinline__ void take_rows(const int8_sum &s, int64_t token, const sum_room &r, int sources)
{
    const int chunks = (int)(s.p.n_in / 8), all = chunks * sources;
    for (int first = (int)threadIdx.x; first - (int)threadIdx.x < all; first += 2 * SUM_THREADS) {
        float v[2][8];
#pragma unroll
        for (int i = 0; i < 2; i++)
            load_chunk(s, token, first + i * SUM_THREADS, chunks, first + i * SUM_THREADS < all, v[i]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = first + i * SUM_THREADS, j = at / chunks, c = at % chunks;
            const int8_group g = int8_chunk(v[i], c, at < all, (int8_t *)int8_room + r.acts + j * r.act_bytes);
            if (at < all && c % 4 == 3)
                keep_numbers<T>(r.numbers + j * r.number_bytes + c / 32 * ROW_NUMBERS, c / 4 % UNIT_GROUPS, g);
        }
    }
}

/* A source's sum of output i: of its warps, in their order. */
static __device__ __forceinline__ float source_sum(const float *part, int warps, int i)
{
    float sum = 0.0f;
    for (int w = 0; w < warps; w++)
        sum += part[w * INT8_TILE + i];
    return sum;
}

/* Output i of the tile: all sources by their weights, then the residual row, which has `old` there. */
static __device__ __forceinline__ void finish(const int8_sum &s, int64_t token, const float *parts, const float *by,
                                              int warps, int i, float old)
{
    const int64_t to = blockIdx.x * (int64_t)INT8_TILE + i;
    float sum = 0.0f;
    for (int j = 0; j < s.k; j++)
        sum += by[j] * source_sum(parts + j * warps * INT8_TILE, warps, i);
    if (s.p.w2)
        sum += source_sum(parts + s.k * warps * INT8_TILE, warps, i) * by[s.k];
    if (to >= s.p.n_out)
        return;
    s.p.y[token * s.p.ldy + to] = sum;
    if (s.p.add)
        s.p.add[token * s.p.ldy + to] = old + sum;
}

/* Returns the weight of source j: an expert's, or the shared one's gate. */
static __device__ __forceinline__ float weight_of(const int8_sum &s, int64_t token, int j)
{
    return j < s.k ? s.wts[token * s.k + j] : s.gate ? sigmoid_dev(s.gate[token]) : 1.0f;
}

template <int T> static __global__ void __launch_bounds__(SUM_THREADS, 1) sum_kernel(int8_sum s, int warps)
{
    constexpr int TURN = turn_bytes<T>();
    __shared__ float by[SUM_SOURCES];
    const int warp = threadIdx.x / 32, teams = SUM_WARPS / warps, team = warp / warps, unit = warp % warps;
    const int groups = (int)(s.p.n_in / 32), units = (groups + UNIT_GROUPS - 1) / UNIT_GROUPS, sources = sources_of(s);
    const sum_room r = room_of<T>(s.p.n_in, sources, warps);
    const uint32_t mine = (uint32_t)(warp * TURNS * TURN);
    const int64_t token = blockIdx.y;
    float *parts = (float *)(int8_room + r.parts);
    sum_walk<T> next;

    pdl_go();
    next.begin(s, token, team < teams ? team : sources, unit);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        next.fetch(s, token, mine + turn * TURN, unit, units, warps, teams);
    pdl_wait();
    const int64_t out = blockIdx.x * (int64_t)INT8_TILE + threadIdx.x;
    const bool adds = s.p.add && threadIdx.x < INT8_TILE && out < s.p.n_out;
    const float old = adds ? s.p.add[token * s.p.ldy + out] : 0.0f; /* long before it is needed */
    const int source = SUM_THREADS - 1 - (int)threadIdx.x; /* threads that have the fewest chunks */
    const float weight = source < sources ? weight_of(s, token, source) : 0.0f;
    if (source < sources)
        by[source] = weight;
    take_rows<T>(s, token, r, sources);
    __syncthreads();
    int turn = 0;
    for (int j = team < teams ? team : sources; j < sources; j += teams) {
        const uint8_t *matrix = matrix_of(s, token, j);
        float acc[2] = { 0.0f, 0.0f };
        uint32_t low[2];
        lane_low<T>(s.p, matrix, blockIdx.x, 0, low);
        for (int u = unit; u < units; u += warps, turn ^= 1) {
            uint32_t row[2];
            async_wait<TURNS - 1>();
            __syncwarp();
            lane_rows<T>(mine + turn * TURN, low, u, row);
            use_unit_one<T>(row, r.acts + j * r.act_bytes + u * UNIT, r.numbers + j * r.number_bytes + u * ROW_NUMBERS,
                            groups - u * UNIT_GROUPS, acc);
            __syncwarp();
            next.fetch(s, token, mine + turn * TURN, unit, units, warps, teams);
        }
        leave(acc, parts + (j * warps + unit) * INT8_TILE);
    }
    __syncthreads();
    if (threadIdx.x < INT8_TILE)
        finish(s, token, parts, by, warps, (int)threadIdx.x, old);
}

template <int T> static size_t room(const int8_sum &s)
{
    return room_of<T>(s.p.n_in, sources_of(s), row_warps(s.p)).bytes;
}

template <int T> static void run(const cuda_device *d, const int8_sum &s, int n)
{
    const size_t bytes = room<T>(s);
    cuda_smem(sum_kernel<T>, bytes);
    cuda_launch(d, sum_kernel<T>, dim3((unsigned)int8_tiles(s.p, 0), (unsigned)n), SUM_THREADS, bytes, s,
                row_warps(s.p));
}

typedef struct sum_kernels {
    size_t (*room)(const int8_sum &s);
    void (*run)(const cuda_device *d, const int8_sum &s, int n);
} sum_kernels;

template <int T> struct sum_entry {
    static constexpr sum_kernels entry = { room<T>, run<T> };
};

static const sum_kernels *kernels(int type)
{
    return int8_entry_of<sum_kernels, sum_entry>(type);
}

bool cuda_int8_sums(const cuda_device *d, int type, const int8_sum &s)
{
    return s.k < SUM_SOURCES && cuda_int8_takes(d, type, s.p) && kernels(type)->room(s) <= d->smem_max;
}

void cuda_int8_sum(const cuda_device *d, int type, const int8_sum &s, int n)
{
    kernels(type)->run(d, s, n);
}
