/* matmul_tiles.cu: W x for many rows in tiles of 64 outputs x 64 rows, for every weight type in file layout: f32 FMA,
 * or bf16 tensor cores with f32 sums.  With experts, rows are sorted by them on the device first. */
#include <mma.h>
#include <cuda_bf16.h>
#include "devices/cuda/matmul/mm.cuh"

enum { TILE = 64, STEP = 32 };

/* Finds the work of a tile block: expert and the sorted rows lo .. hi-1; 0 where the grid is larger than the work. */
static __device__ bool tile_rows(const mm &p, int tile, int *e, int *lo, int *hi)
{
    __shared__ int found[3];
    if (!p.offs) {
        *e = 0;
        *lo = tile * TILE;
        *hi = *lo + TILE < p.rows ? *lo + TILE : p.rows;
        return *lo < p.rows;
    }
    if (threadIdx.x == 0) {
        int left = tile, i = 0;
        found[0] = -1;
        for (; i < p.n_expert; i++) {
            const int tiles = (p.offs[i + 1] - p.offs[i] + TILE - 1) / TILE;
            if (left < tiles) {
                found[0] = i;
                found[1] = p.offs[i] + left * TILE;
                found[2] = found[1] + TILE < p.offs[i + 1] ? found[1] + TILE : p.offs[i + 1];
                break;
            }
            left -= tiles;
        }
    }
    __syncthreads();
    *e = found[0];
    *lo = found[1];
    *hi = found[2];
    return *e >= 0;
}

/* Thread's eight weights of the tile: row t/4 of the tile, values 8*(t%4) .. of the step; zero outside. */
template <int T>
static __device__ __forceinline__ void tile_weights(const mm &p, int e, int64_t out, int64_t k, float *w)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = 0.0f;
    if (out >= p.n_out || k >= p.n_in)
        return;
    const uint8_t *row = p.w + ((int64_t)e * p.n_out + out) * p.row_bytes;
    if (!wide<T>() || (p.w_vec && k + 8 <= p.n_in)) {
        chunk8<T>(row, k / 8, w);
        return;
    }
    for (int i = 0; i < 8 && k + i < p.n_in; i++)
        w[i] = value1<T>(row, k + i);
}

static __device__ __forceinline__ void tile_acts(const mm &p, int r, int64_t k, float *v)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = 0.0f;
    if (r < 0 || k >= p.n_in)
        return;
    const float *x = p.x + (int64_t)(r / p.x_div) * p.ldx + k;
    if (k + 8 <= p.n_in) {
        load8(x, p.x_vec, v);
        return;
    }
    for (int i = 0; i < 8 && k + i < p.n_in; i++)
        v[i] = x[i];
}

/* f32: 256 threads, each 4 outputs x 4 rows; k ascending in one FMA chain per output. */
template <int T> static __global__ void __launch_bounds__(256) gemm_f32_kernel(mm p)
{
    __shared__ __align__(16) float ws[STEP][TILE + 4], xs[STEP][TILE + 4];
    __shared__ int map[TILE];
    const int t = threadIdx.x, tr = t / 4, tk = 8 * (t % 4), ox = 4 * (t % 16), rx = 4 * (t / 16);
    const int64_t out0 = (int64_t)blockIdx.x * TILE;
    float acc[4][4] = { { 0 } };
    int e, lo, hi;

    if (!tile_rows(p, (int)blockIdx.y, &e, &lo, &hi))
        return;
    if (t < TILE)
        map[t] = lo + t < hi ? (p.perm ? p.perm[lo + t] : lo + t) : -1;
    __syncthreads();
    for (int64_t k = 0; k < p.n_in; k += STEP) {
        float w[8], v[8];
        tile_weights<T>(p, e, out0 + tr, k + tk, w);
        tile_acts(p, map[tr], k + tk, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            ws[tk + i][tr] = w[i];
            xs[tk + i][tr] = v[i];
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < STEP; i++) {
            const float4 a = *(const float4 *)&ws[i][ox], b = *(const float4 *)&xs[i][rx];
            const float av[4] = { a.x, a.y, a.z, a.w }, bv[4] = { b.x, b.y, b.z, b.w };
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int o = 0; o < 4; o++)
                    acc[r][o] = fmaf(av[o], bv[r], acc[r][o]);
        }
        __syncthreads();
    }
    const float scale = scale_of(p, e);
    for (int r = 0; r < 4; r++)
        for (int o = 0; o < 4; o++)
            if (map[rx + r] >= 0 && out0 + ox + o < p.n_out)
                p.y[(int64_t)map[rx + r] * p.ldy + out0 + ox + o] = acc[r][o] * scale;
}

/* bf16 tensor cores: 8 warps, each 16 rows x 32 outputs of the tile. */
template <int T> static __global__ void __launch_bounds__(256) gemm_bf16_kernel(mm p)
{
    using namespace nvcuda;
    enum { LD = STEP + 8, LDC = TILE + 4 };
    __shared__ __align__(32) union {
        struct {
            __nv_bfloat16 w[TILE][LD], x[TILE][LD];
        } in;
        float out[TILE][LDC];
    } s;
    __shared__ int map[TILE];
    const int t = threadIdx.x, tr = t / 4, tk = 8 * (t % 4), warp = t / 32, wr = 16 * (warp / 2), wo = 32 * (warp % 2);
    const int64_t out0 = (int64_t)blockIdx.x * TILE;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[2];
    int e, lo, hi;

    if (!tile_rows(p, (int)blockIdx.y, &e, &lo, &hi))
        return;
    if (t < TILE)
        map[t] = lo + t < hi ? (p.perm ? p.perm[lo + t] : lo + t) : -1;
    wmma::fill_fragment(c[0], 0.0f);
    wmma::fill_fragment(c[1], 0.0f);
    __syncthreads();
    for (int64_t k = 0; k < p.n_in; k += STEP) {
        float w[8], v[8];
        tile_weights<T>(p, e, out0 + tr, k + tk, w);
        tile_acts(p, map[tr], k + tk, v);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            *(__nv_bfloat162 *)&s.in.w[tr][tk + i] = __floats2bfloat162_rn(w[i], w[i + 1]);
            *(__nv_bfloat162 *)&s.in.x[tr][tk + i] = __floats2bfloat162_rn(v[i], v[i + 1]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < STEP; i += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
            wmma::load_matrix_sync(a, &s.in.x[wr][i], LD);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
                wmma::load_matrix_sync(b, &s.in.w[wo + 16 * j][i], LD);
                wmma::mma_sync(c[j], a, b, c[j]);
            }
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(&s.out[wr][wo], c[0], LDC, wmma::mem_row_major);
    wmma::store_matrix_sync(&s.out[wr][wo + 16], c[1], LDC, wmma::mem_row_major);
    __syncthreads();
    const float scale = scale_of(p, e);
    for (int u = t; u < TILE * TILE; u += 256) {
        const int r = u / TILE, o = u % TILE;
        if (map[r] >= 0 && out0 + o < p.n_out)
            p.y[(int64_t)map[r] * p.ldy + out0 + o] = s.out[r][o] * scale;
    }
}

/* offs and perm from ids, one block.  The order inside an expert is not fixed and does not matter: every output is
 * computed from its own row alone. */
static __global__ void sort_kernel(const int32_t *ids, int rows, int n_expert, int32_t *offs, int32_t *perm)
{
    __shared__ int count[MM_EXPERTS];
    for (int e = threadIdx.x; e < n_expert; e += blockDim.x)
        count[e] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += blockDim.x)
        atomicAdd(&count[ids[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int e = 0; e < n_expert; e++) {
            const int n = count[e];
            offs[e] = count[e] = sum;
            sum += n;
        }
        offs[n_expert] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += blockDim.x)
        perm[atomicAdd(&count[ids[i]], 1)] = i;
}

template <int T> static void launch(const mm &p, int tiles, bool f32, cudaStream_t s)
{
    const dim3 grid(cuda_blocks(p.n_out, TILE), (unsigned)tiles);
    if (f32)
        gemm_f32_kernel<T><<<grid, 256, 0, s>>>(p);
    else
        gemm_bf16_kernel<T><<<grid, 256, 0, s>>>(p);
}

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) launch<WT_##sym>,
static void (*const launches[])(const mm &p, int tiles, bool f32, cudaStream_t s) = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

/* With experts the grid is as large as it may have to be: every expert may begin one tile more than its rows fill. */
void cuda_tiles(const cuda_device *d, int type, const mm &p, bool f32)
{
    const int begun = p.rows < p.n_expert ? p.rows : p.n_expert;
    launches[type](p, p.offs ? p.rows / TILE + begun + 1 : (p.rows + TILE - 1) / TILE, f32, d->stream);
}

void cuda_sort_experts(cuda_device *d, mm *p)
{
    int32_t *offs = (int32_t *)d->scratch, *perm = offs + MM_EXPERTS + 1;
    sort_kernel<<<1, 1024, 0, d->stream>>>(p->ids, p->rows, p->n_expert, offs, perm);
    p->offs = offs;
    p->perm = perm;
}
