/* coded.cu: products of weights with blocks and many rows: which ones, the sort of rows by experts, the activations'
 * image.  See coded.cuh. */
#include "devices/cuda/matmul/coded.cuh"

enum { LINES_ALIGN = 8 }; /* lines of an expert begin at a multiple: the swizzle's period */

/* Columns of a tile: with experts, about as many as each has rows. */
static int columns_of(const mm &p)
{
    const int each = p.ids ? p.rows / (p.rows < p.n_expert ? p.rows : p.n_expert) : p.rows;
    return each <= (p.ids ? 24 : 32) ? 32 : each <= 64 ? 64 : 128;
}

static int begun(const mm &p)
{
    return p.rows < p.n_expert ? p.rows : p.n_expert;
}

/* The most tiles of columns that there can be, and lines of the image. */
static int tiles_of(const mm &p)
{
    return p.ids ? p.rows / columns_of(p) + begun(p) : (int)cuda_blocks(p.rows, columns_of(p));
}

static int64_t lines_of(const mm &p)
{
    const int64_t most = (int64_t)p.rows + (p.ids ? (LINES_ALIGN - 1) * begun(p) : columns_of(p) - 1);
    return p.ids ? (most + LINES_ALIGN - 1) / LINES_ALIGN * LINES_ALIGN : most / columns_of(p) * columns_of(p);
}

static int64_t panels_of(const mm &p)
{
    return (p.n_in + UNIT - 1) / UNIT * UNIT_PANELS;
}

/* The last tile may copy lines behind its expert's. */
static size_t image_bytes(const mm &p)
{
    return cuda_aligned((size_t)((panels_of(p) * lines_of(p) + columns_of(p)) * PANEL_LINE));
}

static size_t rows_bytes(const mm &p)
{
    return cuda_aligned((size_t)lines_of(p) * sizeof(int32_t));
}

size_t cuda_coded_scratch(const mm &p)
{
    return image_bytes(p) + (p.ids ? rows_bytes(p) + (size_t)tiles_of(p) * sizeof(coded_tile) + sizeof(int) : 0);
}

/* One thread: where experts' lines begin (to count), and the tiles. */
static __device__ void lay_out(int *count, int n_expert, int columns, coded_tile *tiles, int *n_tiles)
{
    int line = 0, t = 0;
    for (int e = 0; e < n_expert; e++) {
        const int n = count[e];
        count[e] = line;
        for (int i = 0; i < n; i += columns)
            tiles[t++] = { e, line + i, min(n - i, columns) };
        line += (n + LINES_ALIGN - 1) / LINES_ALIGN * LINES_ALIGN;
    }
    *n_tiles = t;
}

/* One block.  The order inside an expert is not fixed and does not matter: an output is computed from its row alone. */
static __global__ void sort_kernel(const int32_t *ids, int n, int n_expert, int columns, int lines, int32_t *rows,
                                   coded_tile *tiles, int *n_tiles)
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
    if (threadIdx.x == 0)
        lay_out(count, n_expert, columns, tiles, n_tiles);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        rows[atomicAdd(&count[ids[i]], 1)] = i;
}

/* 16 bytes a thread: eight places of a step of 16 values, which are four pairs (int8_codes.cuh: a lane has four values
 * of each step; in_codes false: eight values of two).  blockIdx.y: the line. */
static __global__ void __launch_bounds__(256)
    image_kernel(mm p, bool in_codes, const int32_t *rows, int64_t lines, int64_t cells, uint8_t *image)
{
    const int64_t cell = blockIdx.x * 256ll + threadIdx.x;
    const int line = (int)blockIdx.y, step = (int)(cell % 8) / 2, half = (int)(cell % 2);
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

static const coded_kernels *kernels_for(int type, const mm &p)
{
    const int columns = columns_of(p);
    return columns == 32 ? coded_32(type) : columns == 64 ? coded_64(type) : coded_128(type);
}

/* As measured there: each 128 rows decode all weights anew. */
int cuda_coded_most(int type)
{
    const wshape &s = wshapes[type];
    return !s.integers ? 64 : s.table || s.high.bits ? 256 : 512;
}

bool cuda_coded_takes(const cuda_device *d, int type, const mm &p)
{
    if (d->arch.make != ARCH_90 || plain_types[type] != PLAIN_NONE || p.rows < 1)
        return false;
    const coded_kernels *k = kernels_for(type, p);
    return k && p.n_in % (coded_ends(wshapes[type]) ? 32 : UNIT) == 0 && p.n_in <= 1 << 20 && tiles_of(p) <= 65535 &&
           lines_of(p) <= 65535 && k->room <= d->smem_max;
}

void cuda_coded(const cuda_device *d, int type, const mm &p)
{
    const int64_t lines = lines_of(p), cells = panels_of(p) * (PANEL_LINE / 16);
    uint8_t *image = d->scratch;
    int32_t *rows = p.ids ? (int32_t *)(image + image_bytes(p)) : NULL;
    coded_tile *tiles = p.ids ? (coded_tile *)((uint8_t *)rows + rows_bytes(p)) : NULL;
    int *n_tiles = p.ids ? (int *)(tiles + tiles_of(p)) : NULL;

    if (p.ids)
        cuda_launch(d, sort_kernel, dim3(1), 1024, 0, p.ids, p.rows, p.n_expert, columns_of(p), (int)lines, rows, tiles,
                    n_tiles);
    cuda_launch(d, image_kernel, dim3(cuda_blocks(cells, 256), (unsigned)lines), 256, 0, p,
                (bool)wshapes[type].integers, rows, lines, cells, image);
    kernels_for(type, p)->run(d, p, { image, lines, rows, tiles, n_tiles }, tiles_of(p));
}
