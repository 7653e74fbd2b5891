/* encode_pages.cu: page_seal of the formats of page scope (formats/ptcq/ptcq.c): three launches over units, a unit 128
 * values of the 64 rows of a head of a page.  The rows are rotated and lose their mean; a warp walks a row through the
 * trellis, once for each try; the better path is kept, the mean corrected, the page written.
 * Sums are the reference's, in double and in its order: the bytes are the same. */
#include "devices/cuda/core/page.cuh"
#include "devices/cuda/encode/encode_job.cuh"

enum {
    ROWS = KVANT_PAGE, TRIES = 2, THREADS = 128, WARPS = THREADS / 32,
    SUMS = 3,                          /* of a path (walk_sum) */
    UNITS_AT_ONCE = 512, WORK_ALIGN = 256
};

/* A unit between the launches. */
typedef struct page_work {
    float y[ROWS][PAGE_GROUP], mean[PAGE_GROUP], rms[ROWS];
    uint16_t state[TRIES][ROWS][PAGE_GROUP];
    double sum[TRIES][ROWS][SUMS];
    int finite[ROWS];
} page_work;

/* Shared memory of what is done to a column by each thread. */
typedef struct page_room {
    float top[WARPS];
    int finite[ROWS];
} page_room;

static __device__ __forceinline__ float half_of(float x)
{
    return __half2float(__float2half_rn(x));
}

/* The nearest mean that a page can hold: returns this thread's step count, by column; *step is the same for all. */
static __device__ int quantize_mean(page_room &o, float m, float *step)
{
    const float top = warp_max(fabsf(m));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        o.top[threadIdx.x / 32] = top;
    __syncthreads();
    *step = half_of(fmaxf(fmaxf(o.top[0], o.top[1]), fmaxf(o.top[2], o.top[3])) / 127.0f + 1e-9f);
    const float v = *step > 0.0f ? rintf(m / *step) : 0.0f;
    return v > 127.0f ? 127 : v < -127.0f ? -127 : (int)v;
}

/* ---- first: rotated rows less their mean ---- */

static __global__ void __launch_bounds__(THREADS) pages_mean_kernel(jobs js, page_work *work, unsigned first)
{
    const encode_job &p = js.j[blockIdx.y];
    __shared__ float y[ROWS][PAGE_GROUP + 1];
    __shared__ page_room o;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = threadIdx.x;
    const unsigned u = first + blockIdx.x, head = u / p.groups;
    const int g = (int)(u % p.groups), h = (int)(head % p.h), page = p.src[head / p.h];
    page_work &w = work[blockIdx.y * gridDim.x + blockIdx.x];

    for (int r = warp; r < ROWS; r += WARPS) {
        const uint16_t *from = side_tail_row(p.side, page, p.h, h, r) + g * PAGE_GROUP;
        bool finite = true;
        float x[4];
        for (int j = 0; j < 4; j++)
            x[j] = g * PAGE_GROUP + 4 * lane + j < p.side.d ? __half2float(__ushort_as_half(from[4 * lane + j])) : 0.0f;
        warp_rotate<4>(p.side.space, x, lane);
        for (int j = 0; j < 4; j++)
            finite = finite && isfinite(x[j]);
        finite = __all_sync(0xffffffffu, finite);
        for (int j = 0; j < 4; j++)
            y[r][4 * lane + j] = finite ? x[j] : 0.0f;
        if (lane == 0)
            o.finite[r] = finite;
    }
    __syncthreads();
    double sum = 0.0;
    int n = 0;
    for (int r = 0; r < ROWS; r++)
        if (o.finite[r]) {
            sum += (double)y[r][column];
            n++;
        }
    float step;
    const int q = quantize_mean(o, n ? (float)(sum / n) : 0.0f, &step);
    const float mean = (float)q * step;
    w.mean[column] = mean;
    for (int r = 0; r < ROWS; r++)
        w.y[r][column] = y[r][column] = o.finite[r] ? y[r][column] - mean : 0.0f;
    __syncthreads();
    if (threadIdx.x >= ROWS)
        return;
    double squares = 0.0;
    for (int j = 0; j < PAGE_GROUP; j++)
        squares += (double)y[threadIdx.x][j] * y[threadIdx.x][j];
    w.rms[threadIdx.x] = (float)sqrt(squares / PAGE_GROUP) + 1e-9f;
    w.finite[threadIdx.x] = o.finite[threadIdx.x];
}

/* ---- then: the paths, a warp each ---- */

/* A walk as page_lanes.cuh has it. */
template <int K> struct walk_room {
    static constexpr int LOW = PAGE_STATES >> K, EACH = PAGE_OWN >> K, FROM = 1 << K;
    __align__(16) float best[2][EACH * PAGE_ROW];
    float y[PAGE_GROUP];
    uint8_t back[PAGE_GROUP][32];
    uint16_t state[PAGE_GROUP];
};

template <int K>
static __device__ __forceinline__ void walk_step(walk_room<K> &o, int t, float y, const float *book, float *cost)
{
    typedef walk_room<K> room;
    const int lane = threadIdx.x % 32;
    const float4 *from = (const float4 *)(o.best[t & 1] + page_walk_at(page_walk_from(K, lane)));
    unsigned back = 0;
#pragma unroll
    for (int r = 0; r < room::EACH; r++) {
        float *best = cost + (r << K);
        unsigned at[room::FROM];
#pragma unroll
        for (int p = 0; p < room::FROM; p++)
            at[p] = p;
#pragma unroll
        for (int half = 1; half < room::FROM; half *= 2) /* of equals the first */
#pragma unroll
            for (int p = 0; p < room::FROM; p += 2 * half) {
                at[p] = best[p + half] < best[p] ? at[p + half] : at[p];
                best[p] = fminf(best[p + half], best[p]);
            }
        o.best[t & 1][page_walk_at(32 * r + lane)] = best[0];
        back |= at[0] << (K * r);
    }
    o.back[t][lane] = (uint8_t)back;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < room::FROM; j += 4) {
        const float4 b = from[j / 4];
        const float before[4] = { b.x, b.y, b.z, b.w };
#pragma unroll
        for (int i = 0; i < 4 * room::EACH; i++) {
            const int at = i / 4 << K | (j + i % 4);
            const float e = y - book[at];
            cost[at] = before[i % 4] + e * e;
        }
    }
}

/* The first state of least cost, in all lanes. */
template <int K> static __device__ int walk_end(const float *cost)
{
    const int lane = threadIdx.x % 32;
    int s = page_walk_state(K, lane, 0);
    float best = cost[0];
#pragma unroll
    for (int i = 1; i < PAGE_OWN; i++) {
        s = cost[i] < best ? page_walk_state(K, lane, i) : s;
        best = fminf(cost[i], best);
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, best, m);
        const int at = __shfl_xor_sync(0xffffffffu, s, m);
        const bool take = other < best || (other == best && at < s);
        s = take ? at : s;
        best = take ? other : best;
    }
    return s;
}

/* The path that ends in state s, by one lane. */
template <int K> static __device__ void walk_back(walk_room<K> &o, int s)
{
    typedef walk_room<K> room;
    for (int t = PAGE_GROUP - 1; t >= 0; t--) {
        const int g = s & (room::LOW - 1);
        o.state[t] = (uint16_t)s;
        s = g << K | (o.back[t][g % 32] >> (K * (g / 32)) & (room::FROM - 1));
    }
}

/* Three lanes: the path's squares, its products with the row, the row's squares; y: the row. */
template <int K>
static __device__ double walk_sum(const walk_room<K> &o, const float *book, const float *y, int lane)
{
    double sum = 0.0;
#pragma unroll 8
    for (int j = 0; j < PAGE_GROUP; j++) {
        const double c = book[o.state[j]], x = y[j];
        sum += (lane < 2 ? c : x) * (lane < 1 ? c : x);
    }
    return sum;
}

template <int K>
static __global__ void __launch_bounds__(THREADS) pages_walk_kernel(page_work *work, const float *books)
{
    typedef walk_room<K> room;
    __shared__ room rooms[WARPS];
    const unsigned walk = blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, r = (int)(walk % ROWS), tried = (int)(walk / ROWS % TRIES);
    const float larger = tried ? 1.0f / 0.94f : 1.0f;
    page_work &w = work[walk / (ROWS * TRIES)];
    room &o = rooms[threadIdx.x / 32];
    float book[PAGE_OWN], cost[PAGE_OWN];

    for (int j = lane; j < PAGE_GROUP; j += 32)
        o.y[j] = w.y[r][j] / w.rms[r] * larger;
#pragma unroll
    for (int i = 0; i < PAGE_OWN; i++) {
        book[i] = books[page_walk_state(K, lane, i)];
        cost[i] = 0.0f;
    }
    __syncwarp();
    for (int t = 0; t < PAGE_GROUP; t++)
        walk_step<K>(o, t, o.y[t], book, cost);
    const int s = walk_end<K>(cost);
    __syncwarp();
    if (lane == 0)
        walk_back<K>(o, s);
    for (int j = lane; j < PAGE_GROUP; j += 32)
        o.y[j] = w.y[r][j];
    __syncwarp();
    for (int j = lane; j < PAGE_GROUP; j += 32)
        w.state[tried][r][j] = o.state[j];
    if (lane < SUMS)
        w.sum[tried][r][lane] = walk_sum<K>(o, books, o.y, lane);
}

/* ---- last: the better path, the mean, the page ---- */

/* The try of row r that fits better, and its scale. */
static __device__ int better_path(const page_work &w, int r, float *scale)
{
    double best = -1.0;
    int at = 0;
    for (int t = 0; t < TRIES; t++) {
        const double cc = w.sum[t][r][0], cy = w.sum[t][r][1], yy = w.sum[t][r][2];
        const double fit = yy > 0.0 ? cy * cy / (cc * yy) : 0.0;
        if (!(fit > best))
            continue;
        best = fit;
        at = t;
        const float d = yy > 0.0 && cy > 0.0 ? (float)(yy / cy) : 0.0f;
        *scale = half_of(d < 65504.0f ? d : 65504.0f);
    }
    return at;
}

/* Eight symbols of a row, K bytes. */
template <int K> static __device__ __forceinline__ void put_symbols(const uint16_t *state, uint8_t *to)
{
    unsigned w = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        w |= (unsigned)(state[i] >> (PAGE_STATE_BITS - K)) << (K * i);
#pragma unroll
    for (int i = 0; i < K; i++)
        to[i] = (uint8_t)(w >> (8 * i));
}

template <int K>
static __global__ void __launch_bounds__(THREADS) pages_pack_kernel(jobs js, const page_work *work, unsigned first,
                                                                    const float *book)
{
    const encode_job &p = js.j[blockIdx.y];
    __shared__ float scale[ROWS];
    __shared__ int pick[ROWS];
    __shared__ page_room o;
    const page_work &w = work[blockIdx.y * gridDim.x + blockIdx.x];
    const unsigned u = first + blockIdx.x, head = u / p.groups;
    const int row = threadIdx.x, column = threadIdx.x;
    uint8_t *to = side_row(p.side, p.dst[head / p.h], (int)(head % p.h), 0) +
                  (size_t)(u % p.groups) * ROWS * p.side.group_bytes;

    if (row < ROWS) {
        o.finite[row] = w.finite[row];
        pick[row] = better_path(w, row, &scale[row]);
    }
    __syncthreads();
    double sum = 0.0;
    int n = 0;
    for (int r = 0; r < ROWS; r++)
        if (o.finite[r]) {
            sum += (double)(w.y[r][column] - book[w.state[pick[r]][r][column]] * scale[r]);
            n++;
        }
    float step;
    const int q = quantize_mean(o, w.mean[column] + (n ? (float)(sum / n) : 0.0f), &step);
    const unsigned bits = __half_as_ushort(__float2half_rn(step));
    uint8_t *scales = to + 1024 * K, *mean = scales + 2 * ROWS, *start = mean + PAGE_GROUP;
    mean[column] = (uint8_t)q;
    if (row < ROWS) {
        const unsigned s = w.state[pick[row]][row][0] & ((PAGE_STATES >> K) - 1);
        ((uint16_t *)scales)[row] = o.finite[row] ? __half_as_ushort(__float2half_rn(scale[row])) : 0x7e00;
        start[row] = (uint8_t)(s | (row < 16 ? (bits >> row & 1) << 7 : 0));
    }
    for (int c = threadIdx.x; c < ROWS * 16; c += THREADS)
        put_symbols<K>(w.state[pick[c / 16]][c / 16] + c % 16 * 8, to + c * K);
}

/* ---- the host's side ---- */

/* Units of `sides` sides with `units` each that there is scratch for. */
static unsigned units_at_once(unsigned units, unsigned sides)
{
    return units < UNITS_AT_ONCE / sides ? units : UNITS_AT_ONCE / sides;
}

static size_t work_bytes(const encode_job &p)
{
    return (size_t)2 * units_at_once(p.units / ROWS, 2) * sizeof(page_work);
}

size_t cuda_pages_scratch(const encode_job &p)
{
    return work_bytes(p) + WORK_ALIGN;
}

/* The end of the scratch block. */
static page_work *work_of(const cuda_device *d, const encode_job &p)
{
    return (page_work *)(d->scratch + ((d->scratch_bytes - work_bytes(p)) & ~(size_t)(WORK_ALIGN - 1)));
}

template <int K> static void seal(cuda_device *d, const jobs &p, unsigned sides, const float *book)
{
    page_work *work = work_of(d, p.j[0]);
    const unsigned units = p.j[0].units / ROWS, per = units_at_once(units, sides);
    for (unsigned at = 0; at < units; at += per) {
        const unsigned n = units - at < per ? units - at : per;
        pages_mean_kernel<<<dim3(n, sides), THREADS, 0, d->stream>>>(p, work, at);
        pages_walk_kernel<K><<<sides * n * (ROWS * TRIES / WARPS), THREADS, 0, d->stream>>>(work, book);
        pages_pack_kernel<K><<<dim3(n, sides), THREADS, 0, d->stream>>>(p, work, at, book);
    }
}

bool cuda_pages_seal(cuda_device *d, const jobs &p, int sides)
{
    void *books = NULL;
    if (cudaGetSymbolAddress(&books, page_books) != cudaSuccess)
        return false;
    const float *book = (const float *)books + (size_t)(p.j[0].side.fmt - FMT_COUNT) * PAGE_STATES;
    switch (page_bits(p.j[0].side)) {
    case 2: seal<2>(d, p, (unsigned)sides, book); return true;
    case 3: seal<3>(d, p, (unsigned)sides, book); return true;
    case 4: seal<4>(d, p, (unsigned)sides, book); return true;
    default: return false;
    }
}
