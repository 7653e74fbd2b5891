/* coded.cu: products of weights with blocks and many rows: which ones, the sort of rows by experts, the activations'
 * image.  See coded.cuh. */
#include "devices/cuda/matmul/coded.cuh"

enum { LINES_ALIGN = 8 }; /* lines of an expert begin at a multiple: the swizzle's period */
enum { SORT_THREADS = 1024 };
static_assert((int)SORT_THREADS >= (int)MM_EXPERTS, "a thread has one expert");

/* Columns of a tile: with experts, about as many as each has rows. */
static int columns_of(const cuda_device *d, const mm &p)
{
    const int each = p.ids ? p.rows / (p.rows < p.n_expert ? p.rows : p.n_expert) : p.rows;
    return each <= (p.ids ? 24 : 32) ? 32 : each <= 64 || d->arch.make != ARCH_90 ? 64 : 128;
}

/* warps: of a block, which ARCH_80 has as many of as it has room for. */
static const coded_kernels *kernels_of(const cuda_device *d, int type, const mm &p, int warps)
{
    const int columns = columns_of(d, p);
    if (d->arch.make != ARCH_90)
        return columns == 32 ? coded_80_32(type, d->smem_max) : coded_80_64(type, d->smem_max);
    return columns == 32 ? coded_32(type, warps) : columns == 64 ? coded_64(type, warps) : coded_128(type, warps);
}

static int begun(const mm &p)
{
    return p.rows < p.n_expert ? p.rows : p.n_expert;
}

/* The most tiles of columns that there can be, and lines of the image. */
static int tiles_of(const cuda_device *d, const mm &p)
{
    return p.ids ? p.rows / columns_of(d, p) + begun(p) : (int)cuda_blocks(p.rows, columns_of(d, p));
}

static int64_t lines_of(const cuda_device *d, const mm &p)
{
    const int64_t most = (int64_t)p.rows + (p.ids ? (LINES_ALIGN - 1) * begun(p) : columns_of(d, p) - 1);
    return p.ids ? (most + LINES_ALIGN - 1) / LINES_ALIGN * LINES_ALIGN : most / columns_of(d, p) * columns_of(d, p);
}

static int64_t panels_of(const mm &p)
{
    return (p.n_in + UNIT - 1) / UNIT * UNIT_PANELS;
}

/* The last tile may copy lines behind its expert's. */
static size_t image_bytes(const cuda_device *d, const mm &p)
{
    return cuda_aligned((size_t)((panels_of(p) * lines_of(d, p) + columns_of(d, p)) * PANEL_LINE));
}

static size_t rows_bytes(const cuda_device *d, const mm &p)
{
    return cuda_aligned((size_t)lines_of(d, p) * sizeof(int32_t));
}

/* How a product is shared out: by which kernels, and how many blocks share a tile. */
typedef struct coded_share {
    const coded_kernels *k;
    int split;
} coded_share;

/* The one whose last blocks are done first: a block begins and ends in the time of about two units; a unit takes one of
 * 12 warps 7/9 as long as one of 16. */
static coded_share share_of(const cuda_device *d, int type, const mm &p)
{
    const int64_t units = (p.n_in + UNIT - 1) / UNIT;
    coded_share best = { kernels_of(d, type, p, 16), 1 };
    double least = 1e30;
    for (int warps = d->arch.make == ARCH_90 ? 12 : 16; warps <= 16; warps += 4) {
        const coded_kernels *k = kernels_of(d, type, p, warps);
        const int64_t tiles = (int64_t)tiles_of(d, p) * cuda_blocks(p.n_out, k->outs);
        for (int s = 1; s <= CODED_SPLIT && s <= units && k->room <= d->smem_max; s++) {
            const int64_t at_once = k->at_once(d, s);
            if (at_once < 1)
                continue;
            const double rounds = (double)((tiles + at_once - 1) / at_once);
            const double time = rounds * ((double)((units + s - 1) / s) + 2.0) * (warps + 2);
            if (time < least) {
                best = { k, s };
                least = time;
            }
        }
    }
    return best;
}

static size_t part_bytes(const cuda_device *d, int split, const mm &p)
{
    return d->arch.make != ARCH_90 && split > 1
               ? cuda_aligned((size_t)split * (size_t)p.rows * (size_t)p.n_out * sizeof(float))
               : 0;
}

/* Bytes of the lists: rows by line, tiles, their number. */
static size_t list_bytes(const cuda_device *d, const mm &p)
{
    return p.ids ? cuda_aligned(rows_bytes(d, p) + (size_t)tiles_of(d, p) * sizeof(coded_tile) + sizeof(int)) : 0;
}

/* Scratch: the lists, at the same place for all products of the same ids; the image, parts of split products. */
size_t cuda_coded_scratch(const cuda_device *d, int type, const mm &p)
{
    return list_bytes(d, p) + image_bytes(d, p) + part_bytes(d, share_of(d, type, p).split, p);
}

/* The sum of the values of the block's threads before this one, and (all) of all; SORT_THREADS threads. */
static __device__ __forceinline__ int sum_before(int v, int *all)
{
    __shared__ int warps[SORT_THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = v;
    for (int m = 1; m < 32; m *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, m);
        sum += lane >= m ? other : 0;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    int before = 0;
    *all = 0;
    for (int w = 0; w < SORT_THREADS / 32; w++) {
        before += w < warp ? warps[w] : 0;
        *all += warps[w];
    }
    __syncthreads();
    return before + sum - v;
}

/* An expert to a thread: where its lines begin (to count), and its tiles. */
static __device__ void lay_out(int *count, int n_expert, int columns, coded_tile *tiles, int *n_tiles)
{
    const int e = threadIdx.x, n = e < n_expert ? count[e] : 0;
    int all;
    const int line = sum_before((n + LINES_ALIGN - 1) / LINES_ALIGN * LINES_ALIGN, &all);
    int t = sum_before((n + columns - 1) / columns, &all);
    if (e < n_expert)
        count[e] = line;
    for (int i = 0; i < n; i += columns)
        tiles[t++] = { e, line + i, min(n - i, columns) };
    if (e == 0)
        *n_tiles = all;
}

/* One block.  The order inside an expert is not fixed and does not matter: an output is computed from its row alone. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(const int32_t *ids, int n, int n_expert, int columns, int lines, int32_t *rows, coded_tile *tiles,
                int *n_tiles)
{
    __shared__ int count[MM_EXPERTS];
    pdl_go();
    pdl_wait();
    for (int e = threadIdx.x; e < n_expert; e += blockDim.x)
        count[e] = 0;
    for (int i = threadIdx.x; i < lines; i += blockDim.x)
        rows[i] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(&count[ids[i]], 1);
    __syncthreads();
    lay_out(count, n_expert, columns, tiles, n_tiles);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        rows[atomicAdd(&count[ids[i]], 1)] = i;
}

/* 16 bytes a thread: eight places of a step of 16 values, which are four pairs (int8_codes.cuh: a lane has four values
 * of each step; in_codes false: eight values of two).  blockIdx.x: the line. */
static __global__ void __launch_bounds__(256)
    image_kernel(mm p, bool in_codes, const int32_t *rows, int64_t lines, int64_t cells, uint8_t *image)
{
    const int64_t cell = blockIdx.y * 256ll + threadIdx.x;
    const int line = (int)blockIdx.x, step = (int)(cell % 8) / 2, half = (int)(cell % 2);
    pdl_go();
    pdl_wait();
    const int row = rows ? rows[line] : line < p.rows ? line : -1;
    if (cell >= cells || row < 0)
        return;
    const float *x = p.x + (int64_t)(row / p.x_div) * p.ldx;
    union {
        __nv_bfloat162 pair[4];
        uint4 all;
    } to;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const int64_t k = cell / 8 * PANEL + step / 2 * 32 + 2 * half +
                          (in_codes ? step % 2 * 16 + 4 * q : 8 * q + step % 2 * 4);
        const float2 v = k >= p.n_in ? make_float2(0.0f, 0.0f) :
                         p.x_vec     ? *(const float2 *)(x + k) : make_float2(x[k], x[k + 1]);
        to.pair[q] = __floats2bfloat162_rn(v.x, v.y);
    }
    *(uint4 *)(image + (cell / 8 * lines + line) * PANEL_LINE + ((int)(cell % 8) ^ line % 8) * 16) = to.all;
}

/* Measured: an 8B model of each type on an H100, as it is and masked.  Up to 8 rows integers are faster; every tile
 * of columns decodes all weights anew. */
bool cuda_coded_pays(const cuda_device *d, int type, int rows)
{
    const wshape &s = wshapes[type];
    const int most = !s.integers               ? 64
                     : d->arch.make != ARCH_90 ? 128
                     : s.table || s.high.bits  ? 256
                                               : 512;
    return rows > int8_best_rows(s) && (rows <= most || !d->blas);
}

bool cuda_coded_takes(const cuda_device *d, int type, const mm &p)
{
    if (plain_types[type] != PLAIN_NONE || p.rows < 1)
        return false;
    return p.n_in % (coded_ends(wshapes[type]) ? 32 : UNIT) == 0 && p.n_in <= 1 << 20 && tiles_of(d, p) <= 65535 &&
           kernels_of(d, type, p, 12)->room <= d->smem_max;
}

/* y = the parts' sum, in their order. */
static __global__ void __launch_bounds__(256) join_kernel(mm p, const float *part, int split)
{
    const int64_t out = blockIdx.x * 256ll + threadIdx.x, row = blockIdx.y;
    pdl_go();
    pdl_wait();
    if (out >= p.n_out)
        return;
    float s = 0.0f;
    for (int i = 0; i < split; i++)
        s += part[(i * (int64_t)p.rows + row) * p.n_out + out];
    p.y[row * p.ldy + out] = s;
}

void cuda_coded(const cuda_device *d, int type, const mm &job)
{
    mm p = job;
    const coded_share by = share_of(d, type, p);
    const int split = by.split;
    const int64_t lines = lines_of(d, p), cells = panels_of(p) * (PANEL_LINE / 16);
    uint8_t *lists = d->scratch, *image = lists + list_bytes(d, p), *part = image + image_bytes(d, p);
    int32_t *rows = p.ids ? (int32_t *)lists : NULL;
    coded_tile *tiles = p.ids ? (coded_tile *)(lists + rows_bytes(d, p)) : NULL;
    int *n_tiles = p.ids ? (int *)(tiles + tiles_of(d, p)) : NULL;

    if (p.ids && !p.sorted)
        cuda_launch(d, sort_kernel, dim3(1), SORT_THREADS, 0, p.ids, p.rows, p.n_expert, columns_of(d, p), (int)lines,
                    rows, tiles, n_tiles);
    if (!(job.beside & BESIDE_LAST))
        cuda_launch(d, image_kernel, dim3((unsigned)lines, cuda_blocks(cells, 256)), 256, 0, p,
                (bool)wshapes[type].integers, rows, lines, cells, image);
    if (d->arch.make != ARCH_90)
        p.beside = 0; /* parts of split rows lie where the last product's were */
    by.k->run(d, p, { image, lines, rows, tiles, n_tiles, split, (float *)part }, tiles_of(d, p));
    if (part_bytes(d, split, p))
        cuda_launch(d, join_kernel, dim3(cuda_blocks(p.n_out, 256), (unsigned)p.rows), 256, 0, p, (const float *)part,
                    split);
}
