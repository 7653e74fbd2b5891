/* int8_eight.cuh: a unit of 16 rows of the matrix times COLS rows of activations, for the types whose factors are small
 * integers with one scale for the unit: sums are kept without that scale, and what a minimum or a centre takes away is
 * a product of its own, of those integers and the groups' sums (tensor cores, TF32 in two parts). */
#ifndef KVANT_CUDA_INT8_EIGHT_CUH
#define KVANT_CUDA_INT8_EIGHT_CUH

#include "devices/cuda/matmul/int8/int8_row.cuh"

/* c += a b: 16 rows, 8 columns, 8 deep. */
static __device__ __forceinline__ void mma_tf32(float *c, const float *a, float b0, float b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

/* As mma_tf32, for a b that has more bits than TF32 takes. */
static __device__ __forceinline__ void mma_two_parts(float *c, const float *a, float b0, float b1)
{
    const float h0 = __uint_as_float(__float_as_uint(b0) & 0xffffe000u),
                h1 = __uint_as_float(__float_as_uint(b1) & 0xffffe000u);
    mma_tf32(c, a, h0, h1);
    mma_tf32(c, a, b0 - h0, b1 - h1);
}

/* The numbers of group g, 0..7, of a column. */
static __device__ __forceinline__ const int8_group &column_group(uint32_t acts, int column, int g)
{
    return *(const int8_group *)(int8_room + acts + column * ACTS_BYTES + ACTS_STRIDE + g * (int)sizeof(int8_group));
}

static __device__ __forceinline__ uint2 column_words(uint32_t acts, int g)
{
    const int lane = threadIdx.x % 32;
    return *(const uint2 *)(int8_room + acts + lane / 4 * ACTS_BYTES + 32 * g + 8 * (lane % 4));
}

/* s += factor * scale of the column * sum, for the lane's two rows and columns. */
static __device__ __forceinline__ void add_scaled(float *s, const int *d, const float *factor, const float *scale)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] = fmaf(factor[i / 2], scale[i % 2] * plain_sum(d[i]), s[i]);
}

/* The six-bit factors and minima of a row's groups, four in a word. */
struct pair_words {
    uint32_t factor[2], least[2];
    float scale, least_scale;
};

static __device__ __forceinline__ pair_words pair_words_at(uint32_t at)
{
    const uint4 w = *(const uint4 *)(int8_room + at);
    pair_words o;
    o.factor[0] = w.y & 0x3f3f3f3fu;
    o.factor[1] = (w.w & 0x0f0f0f0fu) | (w.y >> 2 & 0x30303030u);
    o.least[0] = w.z & 0x3f3f3f3fu;
    o.least[1] = (w.w >> 4 & 0x0f0f0f0fu) | (w.z >> 2 & 0x30303030u);
    o.scale = __half2float(__ushort_as_half((unsigned short)w.x));
    o.least_scale = __half2float(__ushort_as_half((unsigned short)(w.x >> 16)));
    return o;
}

/* Sums of eight columns' products with the least of every group, without their scales. */
static __device__ __forceinline__ void add_least(const pair_words *n, uint32_t acts, float *c)
{
    const int lane = threadIdx.x % 32, k = lane % 4;
    const float a[4] = { byte_float(n[0].least[0], k, 0.0f), byte_float(n[1].least[0], k, 0.0f),
                         byte_float(n[0].least[1], k, 0.0f), byte_float(n[1].least[1], k, 0.0f) };
    const int8_group x = column_group(acts, lane / 4, k), y = column_group(acts, lane / 4, k + 4);
    mma_two_parts(c, a, x.x * x.w, y.x * y.w);
}

template <int T, int COLS>
static __device__ __forceinline__ void eight_pairs(const uint32_t *row, uint32_t acts, float (*acc)[4])
{
    constexpr int TILES = COLS / 8;
    /* sums that are 16 times as large have a place of their own; else their factors are divided */
    constexpr bool APART = stays_high<T>(1) && TILES == 1;
    const int two = threadIdx.x % 4 * 2, begin[2] = { MAGIC, MAGIC };
    const pair_words n[2] = { pair_words_at(row[0]), pair_words_at(row[1]) };
    float s[TILES][1 + APART][4] = {};
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        float least[4] = {};
        add_least(n, acts + 8 * t * ACTS_BYTES, least);
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[t][i] = fmaf(-n[i / 2].least_scale, least[i], acc[t][i]);
    }
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        const float by = stays_high<T>(g) && !APART ? 0.0625f : 1.0f;
        const float factor[2] = { by * byte_float(n[0].factor[g / 4], g % 4, 0.0f),
                                  by * byte_float(n[1].factor[g / 4], g % 4, 0.0f) };
        uint32_t a[2][2];
        row_codes<T>(row, g, a);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint32_t column = acts + 8 * t * ACTS_BYTES;
            const float scale[2] = { column_group(column, two, g).x, column_group(column, two + 1, g).x };
            int d[4];
            mma_codes<T>(d, a, column_words(column, g), begin);
            add_scaled(s[t][APART && stays_high<T>(g)], d, factor, scale);
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float all = APART ? fmaf(s[t][APART][i], 0.0625f, s[t][0][i]) : s[t][0][i];
            acc[t][i] = fmaf(n[i / 2].scale, all, acc[t][i]);
        }
}

/* The signed bytes of a row's 16 factors with their signs turned, four in a word. */
template <int T> static __device__ __forceinline__ void byte_words(uint32_t at, uint32_t *w)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = word_at(at, wshapes[T].sub_at + 4 * i, unit_steady<T>()) ^ 0x80808080u;
}

/* Sums of eight columns' products with the factors, for what a centre takes away. */
static __device__ __forceinline__ void add_centre(uint32_t (*f)[4], uint32_t acts, float *c)
{
    const int lane = threadIdx.x % 32, k = lane % 4;
#pragma unroll
    for (int part = 0; part < 2; part++) { /* of halves 8 part .. 8 part + 7: k and k + 4 */
        const float a[4] = { byte_float(f[0][2 * part], k, 128.0f), byte_float(f[1][2 * part], k, 128.0f),
                             byte_float(f[0][2 * part + 1], k, 128.0f), byte_float(f[1][2 * part + 1], k, 128.0f) };
        const int8_group x = column_group(acts, lane / 4, 4 * part + k / 2),
                         y = column_group(acts, lane / 4, 4 * part + 2 + k / 2);
        mma_two_parts(c, a, x.x * (k % 2 ? x.z : x.y), y.x * (k % 2 ? y.z : y.y));
    }
}

template <int T, int COLS>
static __device__ __forceinline__ void eight_bytes(const uint32_t *row, uint32_t acts, float (*acc)[4])
{
    constexpr int TILES = COLS / 8;
    const int two = threadIdx.x % 4 * 2;
    uint32_t f[2][4];
    float s[TILES][4] = {};
    byte_words<T>(row[0], f[0]);
    byte_words<T>(row[1], f[1]);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        float centre[4] = {};
        add_centre(f, acts + 8 * t * ACTS_BYTES, centre);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[t][i] = (float)-wshapes[T].centre * centre[i];
    }
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        uint32_t a[2][2];
        float factor[2][2]; /* [half][row] */
        group_codes<T>(row, g, a);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                factor[h][r] = byte_float(f[r][g / 2], 2 * (g % 2) + h, 128.0f);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint32_t column = acts + 8 * t * ACTS_BYTES;
            const float scale[2] = { column_group(column, two, g).x, column_group(column, two + 1, g).x };
            int d[2][4] = { { MAGIC, MAGIC, MAGIC, MAGIC }, { MAGIC, MAGIC, MAGIC, MAGIC } };
            dot_group<T>(d, a, column_words(column, g));
            add_scaled(s[t], d[0], factor[0], scale);
            add_scaled(s[t], d[1], factor[1], scale);
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[t][i] = fmaf(half_at(row[i / 2], wshapes[T].scale_at), s[t][i], acc[t][i]);
}

/* row: where the lane's two rows of the matrix begin; acts: where the unit's activations do. */
template <int T, int COLS>
static __device__ __forceinline__ void use_unit_eight(const uint32_t *row, uint32_t acts, float (*acc)[4])
{
    if constexpr (wshapes[T].sub == WSUB_PAIRS)
        eight_pairs<T, COLS>(row, acts, acc);
    else
        eight_bytes<T, COLS>(row, acts, acc);
}

#endif
