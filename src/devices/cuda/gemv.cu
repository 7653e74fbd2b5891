/* gemv.cu: matrix times few vectors, at the speed of the weights' way through memory.
 *
 * A warp owns two rows of the matrix (or a row and its partner of the other half, for SwiGLU in the same launch).
 * 16-bit weights: the next UNROLL 16-byte words of both rows are on their way while the current ones are used, and the
 * first are asked for before the launch before this one has ended: weights do not depend on it.  f32 FMA; a row's bits
 * depend on nothing but its own values. */
#include "devices/cuda/mm.cuh"

enum { WARPS = 4, ROWS = 2, UNROLL = 2 };

template <int T> static __device__ __forceinline__ constexpr bool half_wide()
{
    return T == WT_f16 || T == WT_bf16;
}

template <int T> static __device__ __forceinline__ void unpack8(const uint4 &u, float *w)
{
    const uint32_t q[4] = { u.x, u.y, u.z, u.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (T == WT_bf16) {
            w[2 * i] = __uint_as_float(q[i] << 16);
            w[2 * i + 1] = __uint_as_float(q[i] & 0xffff0000u);
        } else {
            w[2 * i] = __half2float(__ushort_as_half((unsigned short)q[i]));
            w[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(q[i] >> 16)));
        }
    }
}

/* acc[m][r] += the eight weights w[r] times values 8c .. of x row m. */
template <int M>
static __device__ __forceinline__ void use8(const mm &p, const float *x, int left, int64_t c, const float (*w)[8],
                                            float (*acc)[ROWS])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        float v[8];
        if (m >= left)
            break;
        load8(x + m * p.ldx + 8 * c, p.x_vec, v);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                acc[m][r] = fmaf(w[r][i], v[i], acc[m][r]);
    }
}

static __device__ __forceinline__ uint4 word(const uint8_t *row, int64_t c, int64_t chunks)
{
    return c < chunks ? __ldcs((const uint4 *)(row + 16 * c)) : make_uint4(0, 0, 0, 0);
}

/* blockIdx.y: the batch (M rows), or with ids the row. */
template <int T, int M>
static __global__ void __launch_bounds__(32 * WARPS, M == 1 ? 7 : 5) gemv_kernel(mm p, int64_t pair)
{
    const int lane = threadIdx.x % 32;
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t out[ROWS] = { pair ? unit : unit * ROWS, pair ? unit + pair : unit * ROWS + 1 };
    const int64_t chunks = wide<T>() && !p.w_vec ? 0 : p.n_in / 8;
    const int r0 = (int)blockIdx.y * M, left = p.rows - r0;
    const uint8_t *row[ROWS];
    float acc[M][ROWS] = {};
    uint4 next[UNROLL][ROWS];
    int e = 0;

    pdl_go();
    if (out[0] >= (pair ? pair : p.n_out))
        return;
    if (p.ids) { /* written by a launch before: nothing can be fetched ahead */
        pdl_wait();
        e = p.ids[r0];
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int64_t o = out[r] < p.n_out ? out[r] : p.n_out - 1;
        row[r] = p.w + ((int64_t)e * p.n_out + o) * p.row_bytes;
    }
    const float *x = p.x + (int64_t)(r0 / p.x_div) * p.ldx;
    if constexpr (half_wide<T>()) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                next[u][r] = word(row[r], lane + 32 * u, chunks);
        pdl_wait();
        for (int64_t c = lane; c < chunks; c += 32 * UNROLL) {
            uint4 now[UNROLL][ROWS];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    now[u][r] = next[u][r];
                    next[u][r] = word(row[r], c + 32 * (u + UNROLL), chunks);
                }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float w[ROWS][8];
                if (c + 32 * u >= chunks)
                    break;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    unpack8<T>(now[u][r], w[r]);
                use8<M>(p, x, left, c + 32 * u, w, acc);
            }
        }
    } else {
        pdl_wait();
#pragma unroll 2
        for (int64_t c = lane; c < chunks; c += 32) {
            float w[ROWS][8];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                chunk8<T>(row[r], c, w[r]);
            use8<M>(p, x, left, c, w, acc);
        }
    }
    if (wide<T>())
        for (int64_t k = 8 * chunks + lane; k < p.n_in; k += 32)
            for (int r = 0; r < ROWS; r++) {
                const float w = value1<T>(row[r], k);
#pragma unroll
                for (int m = 0; m < M; m++)
                    if (m < left)
                        acc[m][r] = fmaf(w, x[m * p.ldx + k], acc[m][r]);
            }
    const float scale = scale_of(p, e);
#pragma unroll
    for (int m = 0; m < M; m++) {
        float sum[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[r] = warp_sum(acc[m][r]) * scale;
        if (lane != 0 || m >= left)
            continue;
        float *y = p.y + (int64_t)(r0 + m) * p.ldy;
        if (pair)
            sum[0] = sum[0] / (1.0f + expf(-sum[0])) * sum[1]; /* as swiglu */
        y[out[0]] = sum[0];
        if (out[1] < p.n_out)
            y[out[1]] = sum[1];
    }
}

template <int T> static void launch(const cuda_device *d, const mm &p, int64_t pair)
{
    const int64_t units = pair ? pair : (p.n_out + ROWS - 1) / ROWS;
    const unsigned blocks = cuda_blocks(units, WARPS);
    if (p.ids || p.rows == 1)
        cuda_launch(d, gemv_kernel<T, 1>, dim3(blocks, (unsigned)p.rows), 32 * WARPS, 0, p, pair);
    else if (p.rows <= 4)
        cuda_launch(d, gemv_kernel<T, 4>, dim3(blocks), 32 * WARPS, 0, p, pair);
    else
        cuda_launch(d, gemv_kernel<T, GEMV_ROWS>, dim3(blocks), 32 * WARPS, 0, p, pair);
}

#define CUDA_WTYPE(sym, name) launch<WT_##sym>,
static void (*const launches[])(const cuda_device *d, const mm &p, int64_t pair) = {
#include "devices/cuda/cuda_wtypes.def"
};
#undef CUDA_WTYPE

void cuda_gemv(cuda_device *d, int type, const mm &p, int64_t pair)
{
    launches[type](d, p, pair);
}
