/* sketch_any.cu: qjl1_256 on any GPU, and where the projection lies in plain memory: products of values split
 * into two bf16, sums to 13 bits or more; what is nearer to zero than that is summed again as the reference does, so
 * the bits are its own. */
#include "devices/cuda/encode/sketch/sketch.cuh"

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

/* Columns 32 w .. of the projection as operands, hi and lo: [k tile][n tile]; returns the length of the longest. */
static __device__ __forceinline__ float sketch_columns(const float *param, int w, uint4 (*b)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float longest = 0.0f;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float square = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float *at = param + (16 * k + 2 * t) * 256 + 32 * w + 8 * n + g;
            sketch_split(at[0], at[256], &b[k][n].x, &b[k][n].z);
            sketch_split(at[8 * 256], at[9 * 256], &b[k][n].y, &b[k][n].w);
            square = fmaf(at[0], at[0], fmaf(at[256], at[256], square));
            square = fmaf(at[8 * 256], at[8 * 256], fmaf(at[9 * 256], at[9 * 256], square));
        }
        longest = fmaxf(longest, enc_sum<4>(square));
    }
    return sqrtf(__int_as_float(__reduce_max_sync(0xffffffffu, __float_as_int(longest))));
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

/* Bit `column` as the reference sums it. */
static __device__ __noinline__ bool sketch_in_turn(const unit &o, const float *param, int column)
{
    float s = 0.0f;
    for (int i = 0; i < GROUP_MAX; i++)
        s += unit_value(o, i) * param[i * SKETCH_COLUMNS + column];
    return s > 0.0f;
}

/* This lane's bits of a row, of columns 32 w ..: sums nearer to zero than `near` again, but for a row of zeros. */
static __device__ __forceinline__ uint32_t sketch_bits(const float (*acc)[4], int r, const unit &o, const float *param,
                                                       float norm, float near)
{
    const int t = threadIdx.x % 4, w = threadIdx.x / 32;
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float z = acc[n][2 * r + i];
            const int column = 8 * n + 2 * t + i;
            const bool sure = fabsf(z) > near || norm == 0.0f;
            bits |= (sure ? z > 0.0f : sketch_in_turn(o, param, 32 * w + column)) ? 1u << column : 0u;
        }
    bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
    return bits | __shfl_xor_sync(0xffffffffu, bits, 2);
}

/* Eight warps, SKETCH_ROWS units at a time: bit j = <x, column j> > 0.  Warp w has values 16 w .. of the rows to split,
 * and columns 32 w .. of the product.  Norms in double. */
static __global__ void __launch_bounds__(256, 1) encode_sketch_any_kernel(jobs js)
{
    __shared__ uint4 rows[8][2][32];
    __shared__ double part[8][SKETCH_ROWS];
    __shared__ float longest[8];
    const encode_job &p = js.j[blockIdx.y];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = threadIdx.x / 32;
    const unsigned tiles = (p.units + SKETCH_ROWS - 1) / SKETCH_ROWS;
    uint4 b[8][4];

    pdl_go();
    longest[w] = sketch_columns(p.side.param, w, b);
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
            double square = 0.0;
            float length = 0.0f;
            for (int i = 0; i < 8; i++) {
                square += part[i][g + 8 * r];
                length = fmaxf(length, longest[i]);
            }
            const float norm = (float)sqrt(square);
            const bool wanted = some[r] && !o[r].tail;
            const uint32_t bits =
                sketch_bits(acc, r, o[r], p.side.param, wanted ? norm : 0.0f, norm * length * 0x1p-13f);
            if (!wanted)
                continue;
            uint8_t *out = o[r].row + o[r].g / GROUP_MAX * SKETCH_BYTES;
            if (t < 2)
                enc_put(out + 4 * w + 2 * t, (uint16_t)(bits >> 16 * t));
            if (w == g && t == 2)
                enc_put(out + 32, f32_to_bf16(norm));
        }
        __syncthreads(); /* rows and part are free again */
    }
}

void cuda_sketch_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, SKETCH_ROWS), most = (unsigned)d->n_sm;
    cuda_launch(d, encode_sketch_any_kernel, dim3(want < most ? want : most, (unsigned)sides), 256, 0, p);
}
