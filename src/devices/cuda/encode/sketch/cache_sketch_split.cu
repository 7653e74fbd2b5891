/* cache_sketch_split.cu: qjl1_256 where shared memory cannot hold the projection (cache_sketch.cu): products of values
 * split into two bf16. */
#include "devices/cuda/encode/cache_job.cuh"

enum { SKETCH_ROWS = 16 };

static __device__ __forceinline__ uint32_t bf16_bits(float a, float b)
{
    return f32_to_bf16(a) | (uint32_t)f32_to_bf16(b) << 16;
}

/* Two values as hi and lo pairs of bf16. */
static __device__ __forceinline__ void sketch_split(float a, float b, uint32_t *hi, uint32_t *lo)
{
    *hi = bf16_bits(a, b);
    *lo = bf16_bits(a - __uint_as_float(*hi << 16), b - __uint_as_float(*hi & 0xffff0000u));
}

static __device__ __forceinline__ void sketch_mma(float *c, const uint4 &a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* Columns 32 w .. of the projection as operands, hi and lo: [k tile][n tile]. */
static __device__ __forceinline__ void sketch_columns(const float *param, int w, uint4 (*b)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float *at = param + (16 * k + 2 * t) * 256 + 32 * w + 8 * n + g;
            sketch_split(at[0], at[256], &b[k][n].x, &b[k][n].z);
            sketch_split(at[8 * 256], at[9 * 256], &b[k][n].y, &b[k][n].w);
        }
}

/* Values 2 of a unit from i on; into the tail too, where the unit goes there. */
static __device__ __forceinline__ float2 sketch_values(const unit &o, bool some, int i)
{
    if (!some)
        return make_float2(0.0f, 0.0f);
    const float2 x = make_float2(unit_value(o, i), unit_value(o, i + 1));
    if (o.tail && i < o.count)
        o.tail[i] = enc_half(x.x);
    if (o.tail && i + 1 < o.count)
        o.tail[i + 1] = enc_half(x.y);
    return x;
}

/* Eight warps, SKETCH_ROWS units at a time: bit j = <x, column j> > 0.  Warp w has values 16 w .. of the rows to split,
 * and columns 32 w .. of the product.  bf16 tensor cores on values split in two: sums to 16 bits, so that a bit differs
 * where the sum is nothing to that precision.  Norms in double. */
static __global__ void __launch_bounds__(256, 1) qjl_kernel(jobs js)
{
    __shared__ uint4 rows[8][2][32];
    __shared__ double part[8][SKETCH_ROWS];
    const job &p = js.j[blockIdx.y];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = threadIdx.x / 32;
    const unsigned tiles = (p.units + SKETCH_ROWS - 1) / SKETCH_ROWS;
    uint4 b[8][4];

    pdl_go();
    sketch_columns(p.side.param, w, b);
    pdl_wait();
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unit o[2];
        float2 x[2][2];
        bool some[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            some[r] = unit_at(p, tile * SKETCH_ROWS + g + 8 * r, &o[r]);
            x[r][0] = sketch_values(o[r], some[r], 16 * w + 2 * t);
            x[r][1] = sketch_values(o[r], some[r], 16 * w + 2 * t + 8);
            double square = (double)x[r][0].x * x[r][0].x + (double)x[r][0].y * x[r][0].y +
                            (double)x[r][1].x * x[r][1].x + (double)x[r][1].y * x[r][1].y;
            square += __shfl_xor_sync(0xffffffffu, square, 1);
            square += __shfl_xor_sync(0xffffffffu, square, 2);
            if (t == 0)
                part[w][g + 8 * r] = square;
        }
        uint4 hi, lo;
        sketch_split(x[0][0].x, x[0][0].y, &hi.x, &lo.x);
        sketch_split(x[1][0].x, x[1][0].y, &hi.y, &lo.y);
        sketch_split(x[0][1].x, x[0][1].y, &hi.z, &lo.z);
        sketch_split(x[1][1].x, x[1][1].y, &hi.w, &lo.w);
        rows[w][0][lane] = hi;
        rows[w][1][lane] = lo;
        __syncthreads();
        float acc[4][4] = {};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint4 h = rows[k][0][lane], l = rows[k][1][lane];
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], l, b[k][n].x, b[k][n].y);
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], h, b[k][n].z, b[k][n].w);
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], h, b[k][n].x, b[k][n].y);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t bits = 0;
#pragma unroll
            for (int n = 0; n < 4; n++)
                bits |= (acc[n][2 * r] > 0.0f ? 1u : 0u) << (8 * n + 2 * t) |
                        (acc[n][2 * r + 1] > 0.0f ? 2u : 0u) << (8 * n + 2 * t);
            bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
            bits |= __shfl_xor_sync(0xffffffffu, bits, 2);
            if (!some[r] || o[r].tail)
                continue;
            uint8_t *out = o[r].row + o[r].g / GROUP_MAX * 34;
            if (t < 2)
                enc_put(out + 4 * w + 2 * t, (uint16_t)(bits >> 16 * t));
            if (w == g && t == 2) {
                double square = 0.0;
                for (int i = 0; i < 8; i++)
                    square += part[i][g + 8 * r];
                enc_put(out + 32, f32_to_bf16((float)sqrt(square)));
            }
        }
        __syncthreads(); /* rows and part are free again */
    }
}

void cuda_sketch_split_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, SKETCH_ROWS), most = (unsigned)d->n_sm;
    cuda_launch(d, qjl_kernel, dim3(want < most ? want : most, (unsigned)sides), 256, 0, p);
}
