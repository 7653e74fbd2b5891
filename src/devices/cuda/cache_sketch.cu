/* cache_sketch.cu: qjl1_256: bit j = <x, column j of the projection> > 0, and the norm.
 *
 * Tensor cores multiply halves: values scaled by a power of two, the projection rounded once.  By Cauchy and Schwarz
 * the product is then off by |x| |dp| + |dx| |p| at most, with the lengths of the rounding errors; where it is nearer
 * to zero than that (about one bit of a row), a warp makes the sum again in f32, and where that is within the rounding
 * of f32 too, one after another as the reference adds: the bits are the reference's.  Norms in double. */
#include "devices/cuda/cache_job.cuh"
#include "devices/cuda/hopper.cuh"

enum {
    SK_ROWS = 32, SK_WARPS = 16, SK_THREADS = 32 * SK_WARPS, SK_COLUMNS = 256,
    SK_COLUMN = GROUP_MAX + 4,      /* floats from column to column of the copy: lanes meet no bank twice */
    SK_ROW = GROUP_MAX + 8,         /* halves from row to row */
    SK_BYTES = 34
};

typedef struct sketch_row {
    float size, off;                /* |x| scaled (INFINITY: sum again); the length of what its halves leave out */
} sketch_row;

typedef struct sketch_room {
    float x[2][SK_ROWS][GROUP_MAX];
    uint16_t half[2][SK_ROWS][SK_ROW];
    sketch_row row[2][SK_ROWS];
    uint8_t *to[2][SK_ROWS];        /* NULL: nothing to store */
    float2 most[SK_COLUMNS];        /* lengths of the columns and of their rounding errors, a little more than that */
    float columns[SK_COLUMNS * SK_COLUMN];
} sketch_room;

/* The projection by columns. */
static __device__ __forceinline__ void sketch_fill(sketch_room &s, const float *param)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int i = threadIdx.x / 32; i < SK_COLUMNS / 32 * (GROUP_MAX / 4); i += SK_WARPS) {
        const int column = i % (SK_COLUMNS / 32) * 32 + lane, k = i / (SK_COLUMNS / 32) * 4;
        const float *at = param + k * SK_COLUMNS + column;
        *(float4 *)(s.columns + column * SK_COLUMN + k) =
            make_float4(at[0], at[SK_COLUMNS], at[2 * SK_COLUMNS], at[3 * SK_COLUMNS]);
    }
}

static __device__ __forceinline__ uint32_t sketch_halves(float a, float b, float *off)
{
    const __half2 h = __floats2half2_rn(a, b);
    const float2 f = __half22float2(h);
    const float x = a - f.x, y = b - f.y;
    *off = fmaf(x, x, fmaf(y, y, *off));
    return *(const uint32_t *)&h;
}

/* Columns 32 c .. as operands [k tile][n tile]. */
static __device__ __forceinline__ void sketch_operands(sketch_room &s, int c, uint2 (*b)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int column = 32 * c + 8 * n + g;
        const float *at = s.columns + column * SK_COLUMN + 2 * t;
        float square = 0.0f, off = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 low = *(const float2 *)(at + 16 * k), high = *(const float2 *)(at + 16 * k + 8);
            b[k][n].x = sketch_halves(low.x, low.y, &off);
            b[k][n].y = sketch_halves(high.x, high.y, &off);
            square = fmaf(low.x, low.x, fmaf(low.y, low.y, fmaf(high.x, high.x, fmaf(high.y, high.y, square))));
        }
        const float length = sqrtf(enc_sum<4>(square)) * 1.001f;
        off = fmaf(sqrtf(enc_sum<4>(off)), 1.001f, length * 0x1p-16f);      /* and the sums' own rounding */
        if (t == 0)
            s.most[column] = make_float2(length, off);
    }
}

/* A row of the tile: four values to a lane; into the tail too, where the unit goes there. */
static __device__ __forceinline__ void sketch_put(sketch_room &s, const unit &o, bool some, const float *v, int buffer,
                                                  int r)
{
    const int lane = threadIdx.x % 32;
    uint32_t top = 0;
    for (int k = 0; k < 4; k++)
        top = max(top, __float_as_uint(fabsf(v[k])));
    top = __reduce_max_sync(0xffffffffu, top);
    const uint32_t e = min(max(top >> 23, 1u), 253u);
    const float by = __uint_as_float((254u - e) << 23);    /* the largest magnitude becomes 1 .. 4, or less */
    float off = 0.0f;
    const uint2 h = make_uint2(sketch_halves(v[0] * by, v[1] * by, &off), sketch_halves(v[2] * by, v[3] * by, &off));
    *(float4 *)&s.x[buffer][r][4 * lane] = make_float4(v[0], v[1], v[2], v[3]);
    *(uint2 *)&s.half[buffer][r][4 * lane] = h;
    double square = (double)v[0] * v[0] + (double)v[1] * v[1] + (double)v[2] * v[2] + (double)v[3] * v[3];
#pragma unroll
    for (int m = 1; m < 32; m *= 2)
        square += __shfl_xor_sync(0xffffffffu, square, m);
    off = enc_sum<32>(off);
    if (o.tail)
        for (int k = 0; k < 4; k++)
            if (4 * lane + k < o.count)
                o.tail[4 * lane + k] = enc_half(v[k]);
    if (lane != 0)
        return;
    const float norm = (float)sqrt(square);
    const bool plain = top == 0 || (top > 0x0d800000u && top < 0x71800000u);    /* 2^-100 .. 2^100: no sum overflows */
    s.row[buffer][r] = { plain ? norm * by * 1.001f : INFINITY, sqrtf(off) * 1.001f };
    uint8_t *to = some && !o.tail ? o.row + o.g / GROUP_MAX * SK_BYTES : NULL;
    s.to[buffer][r] = to;
    if (to)
        enc_put(to + 32, f32_to_bf16(norm));
}

/* Whether <x, column> > 0 for the reference.  Whole warp. */
static __device__ __noinline__ bool sketch_again(const float *x, const float *column)
{
    const int lane = threadIdx.x % 32;
    const float4 a = *(const float4 *)(x + 4 * lane), b = *(const float4 *)(column + 4 * lane);
    const float sum = enc_sum<32>(fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w))));
    const float all = enc_sum<32>(fmaf(fabsf(a.x), fabsf(b.x),
                                       fmaf(fabsf(a.y), fabsf(b.y), fmaf(fabsf(a.z), fabsf(b.z), fabsf(a.w * b.w)))));
    if (all < 1e30f && all > 1e-25f && fabsf(sum) > all * (150.0f * 0x1p-24f))
        return sum > 0.0f;
    float s = 0.0f;
    for (int i = 0; i < GROUP_MAX; i += 4) {
        const float4 u = *(const float4 *)(x + i), w = *(const float4 *)(column + i);
        s += u.x * w.x;
        s += u.y * w.y;
        s += u.z * w.z;
        s += u.w * w.w;
    }
    return s > 0.0f;
}

/* A fragment of A: 16 rows by 16 values from `at` on. */
static __device__ __forceinline__ void sketch_a(uint32_t at, uint32_t *a)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}

/* Bits of 16 rows from r0 on and columns 32 c ..: row r0 + g in bits[0], r0 + g + 8 in bits[1], in all lanes of a g. */
static __device__ __forceinline__ void sketch_bits(const sketch_room &s, int buffer, int r0, int c, const uint2 (*b)[4],
                                                   uint32_t *bits)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t at = shared_at(&s.half[buffer][r0 + lane % 16][8 * (lane / 16)]);
    float acc[4][4] = {};
    uint32_t again[2] = { 0, 0 };
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t a[4];
        sketch_a(at + 32 * k, a);
#pragma unroll
        for (int n = 0; n < 4; n++)
            mma16816(acc[n], a, b[k][n].x, b[k][n].y);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const sketch_row row = s.row[buffer][r0 + g + 8 * r];
        bits[r] = 0;
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 most = s.most[32 * c + 8 * n + 2 * t + i];
                const float z = acc[n][2 * r + i], near = fmaf(row.size, most.y, row.off * most.x);
                const uint32_t bit = 1u << (8 * n + i) << 2 * t;
                bits[r] |= z > 0.0f ? bit : 0;
                again[r] |= fabsf(z) >= near ? 0 : bit;
            }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        unsigned lanes;
        while ((lanes = __ballot_sync(0xffffffffu, again[r] != 0)) != 0) {
            const int from = __ffs((int)lanes) - 1;
            const uint32_t theirs = __shfl_sync(0xffffffffu, again[r], from);
            const int j = __ffs((int)theirs) - 1, row = r0 + from / 4 + 8 * r;
            const bool set = s.row[buffer][row].size > 0.0f &&
                             sketch_again(s.x[buffer][row], s.columns + (32 * c + j) * SK_COLUMN);
            if (lane == from) {
                again[r] &= again[r] - 1;
                bits[r] = set ? bits[r] | 1u << j : bits[r] & ~(1u << j);
            }
        }
        bits[r] |= __shfl_xor_sync(0xffffffffu, bits[r], 1);
        bits[r] |= __shfl_xor_sync(0xffffffffu, bits[r], 2);
    }
}

/* Warp w reads rows 2 w, 2 w + 1 of a tile and multiplies rows 16 (w / 8) .. with columns 32 (w % 8) ..; the next
 * tile's rows are on their way meanwhile. */
static __global__ void __launch_bounds__(SK_THREADS, 1) sketch_kernel(jobs js)
{
    extern __shared__ __align__(128) uint8_t room[];
    sketch_room &s = *(sketch_room *)room;
    const job &p = js.j[blockIdx.y];
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, r0 = w / 8 * 16, c = w % 8;
    const unsigned tiles = (p.units + SK_ROWS - 1) / SK_ROWS;
    uint2 b[8][4];
    unit o[2];
    float v[2][4];
    bool some[2];

    pdl_go();
    sketch_fill(s, p.side.param);
    __syncthreads();
    sketch_operands(s, c, b);
    pdl_wait();
    for (unsigned tile = blockIdx.x, round = 0; tile < tiles + gridDim.x; tile += gridDim.x, round++) {
        const int buffer = (int)(round % 2);
        if (round > 0)
#pragma unroll
            for (int r = 0; r < 2; r++)
                sketch_put(s, o[r], some[r], v[r], buffer, 2 * w + r);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            some[r] = unit_at(p, tile * SK_ROWS + 2 * w + r, &o[r]);
            v[r][0] = v[r][1] = v[r][2] = v[r][3] = 0.0f;
            if (some[r])
                unit_load4<false>(p, o[r], 4 * lane, v[r]);
        }
        if (round == 0)
            continue;
        __syncthreads();
        uint32_t bits[2];
        sketch_bits(s, buffer, r0, c, b, bits);
        const int t = lane % 4, g = lane / 4;
        if (t < 2)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                uint8_t *to = s.to[buffer][r0 + g + 8 * r];
                if (to)
                    enc_put(to + 4 * c + 2 * t, (uint16_t)(bits[r] >> 16 * t));
            }
    }
}

bool cuda_sketch_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, SK_ROWS), most = (unsigned)d->n_sm;
    if (d->smem_max < sizeof(sketch_room))
        return false;
    cuda_smem(sketch_kernel, sizeof(sketch_room));
    cuda_launch(d, sketch_kernel, dim3(want < most ? want : most, (unsigned)sides), SK_THREADS, sizeof(sketch_room), p);
    return true;
}
