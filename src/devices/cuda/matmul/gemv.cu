/* gemv.cu: matrix times few vectors, at the speed of the weights' way through memory.  One vector and 16-bit weights:
 * gemv_stream.cu.
 *
 * A warp owns two rows of the matrix (or a row and its partner of the other half, for SwiGLU in the same launch).
 * 16-bit weights: the next 16-byte words of both rows are on their way while the current ones are used, and the
 * first are asked for before the launch before this one has ended: weights do not depend on it.  f32 FMA; a row's bits
 * depend on nothing but its own values. */
#include "devices/cuda/matmul/mm.cuh"

enum { WARPS = 4, ROWS = 2 };
enum { SMALL_VALUES = 1 << 15, SMALL_BYTES = 8 << 20 }; /* of a result, and of the matrix of it */

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

/* Block types: a warp's rows pass through a ring of two pieces of PIECE values in shared memory, so that their way
 * through memory needs no registers and their odd sizes no wide loads. */
enum { PIECE = 1024 };

/* 0 for types without blocks. */
#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) (values) > 1 ? PIECE / (values) * (bytes) : 0,
template <int T> static __device__ __forceinline__ constexpr int piece_bytes()
{
    constexpr int of_type[] = {
#include "cards/lists.inc"
    };
    return of_type[T];
}
#undef CARD_WTYPE

template <int T> static __device__ __forceinline__ void fetch_piece(uint8_t *to, const uint8_t *from)
{
    for (int i = threadIdx.x % 32; i < piece_bytes<T>() / 8; i += 32)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((uint32_t)__cvta_generic_to_shared(to + 8 * i)),
                     "l"(from + 8 * i)
                     : "memory");
}

template <int T, int M>
static __device__ __forceinline__ void by_pieces(const mm &p, const uint8_t *const *row, const float *x, int left,
                                                 float (*acc)[ROWS])
{
    constexpr int bytes = piece_bytes<T>();
    __shared__ __align__(16) uint8_t ring[WARPS][2][ROWS][bytes];
    uint8_t(*mine)[ROWS][bytes] = ring[threadIdx.x / 32];
    const int n = (int)(p.n_in / PIECE), lane = threadIdx.x % 32;

    for (int s = 0; s < 2; s++) {
        for (int r = 0; s < n && r < ROWS; r++)
            fetch_piece<T>(mine[s][r], row[r] + (int64_t)s * bytes);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    pdl_wait();
    for (int s = 0; s < n; s++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECE / 256; i++) {
            float w[ROWS][8];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                chunk8<T>(mine[s & 1][r], lane + 32 * i, w[r]);
            use8<M>(p, x, left, s * (int64_t)(PIECE / 8) + lane + 32 * i, w, acc);
        }
        __syncwarp();
        for (int r = 0; s + 2 < n && r < ROWS; r++)
            fetch_piece<T>(mine[s & 1][r], row[r] + (int64_t)(s + 2) * bytes);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
}

/* blockIdx.y: the batch (M rows), or with ids the row; blockIdx.z: the matrix. */
template <int T, int M>
static __global__ void __launch_bounds__(32 * WARPS, M == 1 ? 6 : 5) gemv_kernel(mm p, int64_t pair)
{
    const int lane = threadIdx.x % 32;
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t out[ROWS] = { pair ? unit : unit * ROWS, pair ? unit + pair : unit * ROWS + 1 };
    const int64_t chunks = wide<T>() && !p.w_vec ? 0 : p.n_in / 8;
    const int r0 = (int)blockIdx.y * M, left = p.rows - r0;
    const uint8_t *row[ROWS], *matrix = blockIdx.z ? p.w2 : p.w;
    float acc[M][ROWS] = {};
    constexpr int UNROLL = M == 1 ? 4 : 2;
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
        row[r] = matrix + ((int64_t)e * p.n_out + o) * p.row_bytes;
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
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float w[ROWS][8];
                if (c + 32 * u >= chunks)
                    break;
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    unpack8<T>(next[u][r], w[r]);
                    next[u][r] = word(row[r], c + 32 * (u + UNROLL), chunks);
                }
                use8<M>(p, x, left, c + 32 * u, w, acc);
            }
        }
    } else if (piece_bytes<T>() && p.n_in % PIECE == 0 && p.row_bytes % 8 == 0) {
        if constexpr (piece_bytes<T>() > 0)
            by_pieces<T, M>(p, row, x, left, acc);
    } else {
        pdl_wait();
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
        float *y = (blockIdx.z ? p.y2 : p.y) + (int64_t)(r0 + m) * (blockIdx.z ? p.ldy2 : p.ldy);
        if (pair)
            sum[0] = swiglu_one(sum[0], sum[1]);
        y[out[0]] = sum[0];
        if (out[1] < p.n_out)
            y[out[1]] = sum[1];
    }
}

/* Each row has blocks of its own; the matrix comes from the L2 then. */
bool cuda_gemv_small(int rows, int64_t n_out, int64_t row_bytes)
{
    return rows * n_out <= SMALL_VALUES && rows <= 65535 && n_out * row_bytes <= SMALL_BYTES;
}

template <int T> static void launch(const cuda_device *d, const mm &p, int64_t pair)
{
    const int64_t units = pair ? pair : (p.n_out + ROWS - 1) / ROWS;
    const unsigned blocks = cuda_blocks(units, WARPS), matrices = p.rows2 ? 2 : 1;
    if (p.ids || p.rows == 1 || cuda_gemv_small(p.rows, p.n_out, p.row_bytes))
        cuda_launch(d, gemv_kernel<T, 1>, dim3(blocks, (unsigned)p.rows, matrices), 32 * WARPS, 0, p, pair);
    else if (p.rows <= 4)
        cuda_launch(d, gemv_kernel<T, 4>, dim3(blocks, 1, matrices), 32 * WARPS, 0, p, pair);
    else
        cuda_launch(d, gemv_kernel<T, GEMV_ROWS>, dim3(blocks, 1, matrices), 32 * WARPS, 0, p, pair);
}

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) launch<WT_##sym>,
static void (*const launches[])(const cuda_device *d, const mm &p, int64_t pair) = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

void cuda_gemv(cuda_device *d, int type, const mm &p, int64_t pair)
{
    if (cuda_gemv_streams(type, p))
        cuda_gemv_stream(d, type, p, pair);
    else
        launches[type](d, p, pair);
}
