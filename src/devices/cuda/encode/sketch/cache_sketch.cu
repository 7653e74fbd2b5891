/* cache_sketch.cu: qjl1_256: bit j = <x, column j of the projection> > 0, and the norm.
 *
 * Tensor cores multiply halves: values scaled by a power of two, the projection rounded once.  By Cauchy and Schwarz
 * the product is then off by |x| |dp| + |dx| |p| at most, with the lengths of the rounding errors; where it is nearer
 * to zero than that (about one bit of a row), eight lanes make the sum again in f32, and where that is within the
 * rounding of f32 too, one after another as the reference adds: the bits are the reference's.  Norms in double where
 * f32 could round them the other way.
 *
 * A block goes through tiles of 32 units of one head, six steps to a tile, each for another tile at the same time:
 * places, values to shared memory, halves, the product, the bits near zero, stores.  One barrier for all. */
#include "devices/cuda/encode/sketch/cache_sketch.cuh"
#include "devices/cuda/encode/tile_place.cuh"

enum {
    SK_ROWS = 32, SK_WARPS = 16, SK_THREADS = 32 * SK_WARPS, SK_COLUMNS = SKETCH_COLUMNS,
    SK_COLUMN = GROUP_MAX + 4,      /* floats from column to column of the copy, and from row to row */
    SK_HALVES = GROUP_MAX + 8,      /* halves from row to row */
    SK_BYTES = SKETCH_BYTES,
    SK_AHEAD = 3,                   /* the first step comes so many tiles before the product, the last two after it */
    SK_UNITS = 6, SK_VALUES = 4     /* tiles whose places, whose values are kept */
};

typedef struct sketch_unit {
    const void *from;               /* values, f32 or halves; NULL: none */
    uint8_t *to;                    /* row, or tail */
    int count, tail;
} sketch_unit;

/* What a row's products are worth. */
typedef struct sketch_row {
    float near, sure;               /* sums nearer to zero: again in f32, in order; near -1: all bits are 0 */
} sketch_row;

typedef struct sketch_room {
    float columns[SK_COLUMNS * SK_COLUMN];      /* of the projection, in the order of sketch_column */
    float x[SK_VALUES][SK_ROWS][SK_COLUMN];
    uint16_t half[2][SK_ROWS][SK_HALVES];
    uint8_t out[4][SK_ROWS * SK_BYTES];
    uint8_t again[2][SK_ROWS][SK_COLUMNS / 8];
    sketch_row row[4][SK_ROWS];
    sketch_unit unit[SK_UNITS][SK_ROWS];
    int most[2];                    /* bits of the greatest length of a column and of its rounding errors */
} sketch_room;

/* The column in place n: a lane of the product (sketch_operands) then has eight neighbours, a byte of the row. */
static __device__ __forceinline__ int sketch_column(int n)
{
    return n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2;
}

static __device__ __forceinline__ int sketch_place(int column)
{
    return column / 32 * 32 + column / 2 % 4 * 8 + column / 8 % 4 * 2 + column % 2;
}

/* The projection by columns, by warps 1 .. */
static __device__ __forceinline__ void sketch_fill(sketch_room &s, const float *param)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 12
    for (int i = threadIdx.x / 32 - 1; i < SK_COLUMNS / 32 * (GROUP_MAX / 4); i += SK_WARPS - 1) {
        const int n = i % (SK_COLUMNS / 32) * 32 + lane, k = i / (SK_COLUMNS / 32) * 4;
        const float *at = param + k * SK_COLUMNS + sketch_column(n);
        *(float4 *)(s.columns + n * SK_COLUMN + k) =
            make_float4(at[0], at[SK_COLUMNS], at[2 * SK_COLUMNS], at[3 * SK_COLUMNS]);
    }
}

/* Places 32 c .. of the columns as operands [k tile][n tile]. */
static __device__ __forceinline__ void sketch_operands(sketch_room &s, int c, uint2 (*b)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float longest = 0.0f, worst = 0.0f;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float *at = s.columns + (32 * c + 8 * n + g) * SK_COLUMN + 2 * t;
        float square = 0.0f, off = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 low = *(const float2 *)(at + 16 * k), high = *(const float2 *)(at + 16 * k + 8);
            b[k][n].x = sketch_halves(low.x, low.y, &off);
            b[k][n].y = sketch_halves(high.x, high.y, &off);
            square = fmaf(low.x, low.x, fmaf(low.y, low.y, fmaf(high.x, high.x, fmaf(high.y, high.y, square))));
        }
        longest = fmaxf(longest, enc_sum<4>(square));
        worst = fmaxf(worst, enc_sum<4>(off));
    }
    longest = sqrtf(longest) * 1.001f;
    worst = fmaf(sqrtf(worst), 1.001f, longest * 0x1p-16f);     /* and the sums' own rounding */
    longest = __int_as_float(__reduce_max_sync(0xffffffffu, __float_as_int(longest)));
    worst = __int_as_float(__reduce_max_sync(0xffffffffu, __float_as_int(worst)));
    if (lane == 0) {
        atomicMax(&s.most[0], __float_as_int(longest));
        atomicMax(&s.most[1], __float_as_int(worst));
    }
}

/* ---- the steps ---- */

/* One warp: the places of a tile's units. */
static __device__ __forceinline__ void sketch_find(sketch_room &s, const job &p, unsigned tile, unsigned n)
{
    const int lane = threadIdx.x % 32;
    const tile_spot at = tile_at<SK_ROWS>(p, tile);
    int token = at.token, g = at.g + lane;
    unit o;
    tile_carry(p, &token, &g);
    const bool any = at.token * p.groups + at.g + lane < (int)(p.units / (unsigned)p.h);
    const spot where = { any ? 0 : p.units, token, at.h, g };
    if (unit_from(p, where, &o))
        unit_to(p, &o);
    s.unit[n % SK_UNITS][lane] = { o.x ? (const void *)o.x : o.half, o.tail ? (uint8_t *)o.tail : o.row + g * SK_BYTES,
                                   o.count, o.tail != NULL };
    if (o.x)
        for (int i = 0; i < o.count; i += 32)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(o.x + i));
}

/* Warp w: rows 2 w, 2 w + 1 to shared memory. */
static __device__ __forceinline__ void sketch_load(sketch_room &s, const job &p, unsigned n)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = threadIdx.x / 32 * 2, i = 0; i < 2; i++, r++) {
        const sketch_unit &u = s.unit[n % SK_UNITS][r];
        float *to = &s.x[n % SK_VALUES][r][4 * lane];
        if (p.full && !p.seal && u.from) {
            async_copy16_all(shared_at(to), (const float *)u.from + 4 * lane);
            continue;
        }
        for (int k = 0; k < 4; k++) {
            const int j = 4 * lane + k;
            to[k] = !u.from || j >= u.count ? 0.0f
                    : p.seal                ? enc_value(((const uint16_t *)u.from)[j])
                                            : ((const float *)u.from)[j];
        }
    }
}

/* A warp of the four: eight rows as halves, four lanes to each; their norms; tails. */
static __device__ __forceinline__ void sketch_convert(sketch_room &s, unsigned n)
{
    const int lane = threadIdx.x % 32, r = threadIdx.x / 32 % 4 * 8 + lane / 4, q = lane % 4;
    const sketch_unit &u = s.unit[n % SK_UNITS][r];
    float v[32], square[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, off = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float4 x = *(const float4 *)&s.x[n % SK_VALUES][r][16 * j + 4 * q];
        v[4 * j] = x.x, v[4 * j + 1] = x.y, v[4 * j + 2] = x.z, v[4 * j + 3] = x.w;
    }
#pragma unroll
    for (int k = 0; k < 32; k++)
        square[k % 4] = fmaf(v[k], v[k], square[k % 4]);
    const float sum = enc_sum<4>((square[0] + square[1]) + (square[2] + square[3]));
    const float norm = sketch_norm(sum, v, u.from != NULL);
    const bool plain = norm > 0x1p-100f && norm < 0x1p100f;     /* no sum overflows */
    const float by = plain ? __uint_as_float((254u - (__float_as_uint(norm) >> 23)) << 23) : 0.0f; /* norm 1 .. 2 */
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float *w = v + 4 * j;
        const uint32_t low = sketch_halves(w[0] * by, w[1] * by, &off);
        const uint32_t high = sketch_halves(w[2] * by, w[3] * by, &off);
        *(uint2 *)&s.half[n % 2][r][16 * j + 4 * q] = plain ? make_uint2(low, high) : make_uint2(0, 0);
    }
    if (u.from && u.tail)
        for (int i = q; i < u.count; i += 4)
            ((uint16_t *)u.to)[i] = enc_half(s.x[n % SK_VALUES][r][i]);
    off = sqrtf(enc_sum<4>(off)) * 1.001f;
    if (q != 0)
        return;
    const float length = __int_as_float(s.most[0]), size = norm * 1.001f;
    const float near = fmaf(size * by, __int_as_float(s.most[1]), off * length);
    const float sure = size * length * (150.0f * 0x1p-24f);
    s.row[n % 4][r] = { plain ? near : norm == 0.0f ? -1.0f : INFINITY, plain && sure > 1e-30f ? sure : INFINITY };
    enc_put(s.out[n % 4] + SK_BYTES * r + 32, f32_to_bf16(norm));
}

/* A fragment of A: 16 rows by 16 values from `at` on. */
static __device__ __forceinline__ void sketch_a(uint32_t at, uint32_t *a)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}

/* Warp w: rows 16 (w / 8) .. times columns 32 (w % 8) ..: eight bits of two rows to a lane, and which are near. */
static __device__ __forceinline__ void sketch_product(sketch_room &s, const uint2 (*b)[4], unsigned n)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = threadIdx.x / 32, r0 = w / 8 * 16, c = w % 8;
    const uint32_t at = shared_at(&s.half[n % 2][r0 + lane % 16][8 * (lane / 16)]);
    float acc[4][4] = {};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t a[4];
        sketch_a(at + 32 * k, a);
#pragma unroll
        for (int m = 0; m < 4; m++)
            mma16816(acc[m], a, b[k][m].x, b[k][m].y);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = r0 + g + 8 * i;
        const float near = s.row[n % 4][r].near;
        uint32_t minus = 0, again = 0;
#pragma unroll
        for (int k = 7; k >= 0; k--) {
            const float z = acc[k / 2][2 * i + k % 2];
            minus = __funnelshift_l(__float_as_uint(z), minus, 1);
            again = __funnelshift_l(__float_as_uint(fabsf(z) - near), again, 1);
        }
        s.out[n % 4][SK_BYTES * r + 4 * c + t] = (uint8_t)~minus;
        s.again[n % 2][r][4 * c + t] = (uint8_t)again;
    }
}

/* Seldom wanted: kept out of the loop. */
static __device__ __noinline__ bool sketch_again_in_order(const float *x, const float *column)
{
    return sketch_in_order(x, column, [](int i) { return 4 * i; });
}

/* Eight lanes: half the bits of row 2 w or 2 w + 1, those that are near. */
static __device__ __forceinline__ void sketch_again(sketch_room &s, unsigned n)
{
    const int lane = threadIdx.x % 32, l = lane % 8, r = threadIdx.x / 32 * 2 + lane / 16, side = lane / 8 % 2;
    uint8_t *out = s.out[n % 4] + SK_BYTES * r + 16 * side;
    const float *x = s.x[n % SK_VALUES][r];
    const sketch_row row = s.row[n % 4][r];
    uint4 m = *(const uint4 *)&s.again[n % 2][r][16 * side];
    if (row.near < 0.0f)
        enc_put(out + 2 * l, 0);
    while (__any_sync(0xffffffffu, (m.x | m.y | m.z | m.w) != 0)) {
        const int word = m.x ? 0 : m.y ? 1 : m.z ? 2 : 3;
        const uint32_t bits = m.x ? m.x : m.y ? m.y : m.z ? m.z : m.w;
        const int j = 32 * word + (bits ? __ffs((int)bits) - 1 : 0);
        const float *column = s.columns + sketch_place(128 * side + j) * SK_COLUMN;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 a = *(const float4 *)(x + 32 * i + 4 * l), c = *(const float4 *)(column + 32 * i + 4 * l);
            sum = fmaf(a.x, c.x, fmaf(a.y, c.y, fmaf(a.z, c.z, fmaf(a.w, c.w, sum))));
        }
        sum = enc_sum<8>(sum);
        bool set = sum > 0.0f;
        if (bits && !(fabsf(sum) > row.sure))
            set = sketch_again_in_order(x, column);
        if (bits && l == 0)
            out[j / 8] = (uint8_t)((out[j / 8] & ~(1u << j % 8)) | (uint32_t)set << j % 8);
        m.w &= m.x || m.y || m.z ? m.w : m.w - 1;
        m.z &= m.x || m.y ? m.z : m.z - 1;
        m.y &= m.x ? m.y : m.y - 1;
        m.x &= m.x - 1;
    }
}

/* One warp: the bytes of a tile. */
static __device__ __forceinline__ void sketch_store(const sketch_room &s, unsigned n)
{
    const sketch_unit &u = s.unit[n % SK_UNITS][threadIdx.x % 32];
    tile_store<SK_ROWS, SK_BYTES>(s.out[n % 4], u.from && !u.tail ? u.to : NULL);
}

static __global__ void __launch_bounds__(SK_THREADS, 1) sketch_kernel(jobs js)
{
    extern __shared__ __align__(128) uint8_t sketch_shared[];
    sketch_room &s = *(sketch_room *)sketch_shared;
    const job &p = js.j[blockIdx.y];
    const int w = threadIdx.x / 32;
    const unsigned all = (p.units / (unsigned)p.h + SK_ROWS - 1) / SK_ROWS * (unsigned)p.h;
    const unsigned tiles = (all - blockIdx.x + gridDim.x - 1) / gridDim.x;
    uint2 b[8][4];

    pdl_go();
    if (threadIdx.x < 2)
        s.most[threadIdx.x] = 0;
    /* Tile n's product is in round n + SK_AHEAD. */
    for (unsigned round = 0; round < tiles + SK_AHEAD + 2; round++) {
        const int phase = (int)(round % 4);
        if (round == 0) {
            if (w > 0)
                sketch_fill(s, p.side.param);
            pdl_wait();
        }
        if (round < tiles && w == 4 * phase)
            sketch_find(s, p, blockIdx.x + round * gridDim.x, round);
        if (round >= 1 && round - 1 < tiles)
            sketch_load(s, p, round - 1);
        async_commit();
        if (round == 1)
            sketch_operands(s, w % 8, b);
        if (round >= 2 && round - 2 < tiles && w / 4 == (phase + 1) % 4)
            sketch_convert(s, round - 2);
        if (round >= 3 && round - 3 < tiles)
            sketch_product(s, b, round - 3);
        if (round >= 4 && round - 4 < tiles)
            sketch_again(s, round - 4);
        if (round >= 5 && w == 4 * ((phase + 2) % 4) + 1)
            sketch_store(s, round - 5);
        async_wait<0>();
        __syncthreads();
    }
}

bool cuda_sketch_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units / p.j[0].h, SK_ROWS) * p.j[0].h, most = cuda_blocks(d->n_sm, sides);
    if (d->smem_max < sizeof(sketch_room))
        return false;
    cuda_smem(sketch_kernel, sizeof(sketch_room));
    cuda_launch(d, sketch_kernel, dim3(want < most ? want : most, (unsigned)sides), SK_THREADS, sizeof(sketch_room), p);
    return true;
}
