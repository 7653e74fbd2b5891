/* int8_row.cuh: one row of activations in integers, and a unit of 16 rows of the matrix times it.
 *
 * A row has one column of the tensor cores' eight: so its groups become columns, and group g of the matrix times all
 * of them gives one sum that is wanted.  A lane keeps those of its groups: of 32 values, groups 2 quarter and
 * 2 quarter + 1; of 16 values, the halves of groups quarter and quarter + 4. */
#ifndef KVANT_CUDA_INT8_ROW_CUH
#define KVANT_CUDA_INT8_ROW_CUH

#include "devices/cuda/matmul/int8/int8_unit.cuh"

/* A quarter's lanes need these numbers of a unit's activations: of their two groups the scales and scale * sum; the
 * begins of the sums (MAGIC - centre * sum), or, for types with minima of 16 values, scale * sum of the four halves. */
struct row_numbers {
    float scale[2], sum[2];
    union {
        int begin[4];
        float half[4];
    };
};
enum { ROW_NUMBERS = 4 * (int)sizeof(row_numbers) }; /* bytes of a unit */

template <int T> static __host__ __device__ constexpr bool in_halves()
{
    return wshapes[T].group == 16;
}

/* Returns true if group g's codes are the upper halves of bytes and stay there: sums are then 16 times as large. */
template <int T> static __host__ __device__ constexpr bool stays_high(int g)
{
    constexpr wshape s = wshapes[T];
    return !s.table && s.low.bits == 4 && s.low.row == 32 && s.low.span == 64 && !s.high.bits && g % 2;
}

/* Group g of a unit, whose numbers the last of four threads has. */
template <int T> static __device__ __forceinline__ void keep_numbers(uint32_t to, int g, const int8_group &x)
{
    constexpr int CENTRE = wshapes[T].centre;
    const int quarter = in_halves<T>() ? g % 4 : g / 2, slot = in_halves<T>() ? g / 4 : g % 2;
    row_numbers *n = (row_numbers *)(int8_room + to) + quarter;
    n->scale[slot] = stays_high<T>(g) ? x.x * 0.0625f : x.x;
    n->sum[slot] = x.x * x.w;
    if (in_halves<T>() && wshapes[T].least) {
        n->half[2 * slot] = x.x * x.y;
        n->half[2 * slot + 1] = x.x * x.z;
    } else if (in_halves<T>()) {
        n->begin[2 * slot] = MAGIC - CENTRE * (int)x.y;
        n->begin[2 * slot + 1] = MAGIC - CENTRE * (int)x.z;
    } else
        n->begin[slot] = MAGIC - CENTRE * (int)x.w;
}

/* As group_codes, but codes in upper halves of bytes stay there, and looked-up values stay interleaved. */
template <int T> static __device__ __forceinline__ void row_codes(const uint32_t *row, int g, uint32_t (*a)[2])
{
    if constexpr (levels_interleaved<T>()) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint2 both = codes_interleaved<T>(row[r], g, threadIdx.x % 4);
            a[0][r] = both.x;
            a[1][r] = both.y;
        }
        return;
    }
    if (!stays_high<T>(g)) {
        group_codes<T>(row, g, a);
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            a[h][r] = word_at(row[r] + 4 * (threadIdx.x % 4), wshapes[T].low.at + g / 2 * 32 + 16 * h,
                              unit_steady<T>()) & 0xf0f0f0f0u;
}

/* d = begin + a b, for columns' sums that begin at begin[0], begin[1]. */
template <int T>
static __device__ __forceinline__ void mma_codes(int *d, const uint32_t (*a)[2], const uint2 &b, const int *begin)
{
    if (stays_high<T>(1)) /* codes up to 240 */
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%10,%11};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0][0]), "r"(a[0][1]), "r"(a[1][0]), "r"(a[1][1]), "r"(b.x), "r"(b.y), "r"(begin[0]), "r"(begin[1]));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%10,%11};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0][0]), "r"(a[0][1]), "r"(a[1][0]), "r"(a[1][1]), "r"(b.x), "r"(b.y), "r"(begin[0]), "r"(begin[1]));
}

/* The lane's words of its column: the first and the last 16 values of group `own`, or, by halves, one half of group
 * set * 4 + own / 2 and zeros for the other. */
template <int T> static __device__ __forceinline__ uint2 lane_column(uint32_t acts, int set, int left)
{
    const int lane = threadIdx.x % 32, own = lane / 4;
    uint2 b = make_uint2(0, 0);
    if (in_halves<T>()) {
        const uint32_t at = acts + set * 128 + own / 2 * 32 + own % 2 * 4 + lane % 4 * 8;
        const uint32_t w = *(const uint32_t *)(int8_room + at);
        b = own % 2 ? make_uint2(0, w) : make_uint2(w, 0);
    } else if (own < left)
        b = *(const uint2 *)(int8_room + acts + 8 * lane);
    return levels_interleaved<T>() ? make_uint2(__byte_perm(b.x, b.y, 0x5140), __byte_perm(b.x, b.y, 0x7362)) : b;
}

/* Dots of the unit's groups with every column's: c has those that the lane wants, which begin at `begin`. */
template <int T>
static __device__ __forceinline__ void row_dots(const uint32_t *row, uint32_t acts, int left, const int *begin,
                                                int (*c)[4])
{
    constexpr int SETS = in_halves<T>() ? 2 : 1;
    const int quarter = threadIdx.x % 4;
    uint2 b[SETS];
#pragma unroll
    for (int i = 0; i < SETS; i++)
        b[i] = lane_column<T>(acts, i, left);
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        const int set = in_halves<T>() ? g / 4 : 0, of = in_halves<T>() ? g % 4 : g / 2;
        uint32_t a[2][2];
        int d[4];
        row_codes<T>(row, g, a);
        mma_codes<T>(d, a, b[set], begin + 2 * set);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (in_halves<T>() || i % 2 == g % 2)
                c[set][i] = of == 0 || quarter == of ? d[i] : c[set][i];
    }
}

static __device__ __forceinline__ float plain_sum(int c)
{
    return __int_as_float(c) - __int_as_float(MAGIC);
}

/* Byte i of w as a float. */
static __device__ __forceinline__ float byte_float(uint32_t w, int i, float less)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540u + (uint32_t)i)) - (8388608.0f + less);
}

/* Six-bit pairs: one 16-byte word has all numbers of the unit. */
template <int T>
static __device__ __forceinline__ float add_pairs(float acc, uint32_t at, const float *t, const row_numbers &n)
{
    static_assert(wshapes[T].sub != WSUB_PAIRS || (wshapes[T].scale_at == 0 && wshapes[T].least_at == 2 &&
                                                    wshapes[T].sub_at == 4 && unit_whole<T>()));
    const uint4 w = *(const uint4 *)(int8_room + at);
    const uint32_t two = threadIdx.x % 2 ? 0x7632u : 0x5410u, x = __byte_perm(w.y, w.z, two),
                   late = __byte_perm(w.w, w.w >> 4, two) & 0x0f0f0f0fu;
    const uint32_t f = threadIdx.x % 4 >= 2 ? late | (x >> 2 & 0x30303030u) : x & 0x3f3f3f3fu;
    const float d = __half2float(__ushort_as_half((unsigned short)w.x)),
                m = __half2float(__ushort_as_half((unsigned short)(w.x >> 16)));
    const float s = fmaf(byte_float(f, 1, 0.0f), t[1] * n.scale[1], byte_float(f, 0, 0.0f) * (t[0] * n.scale[0]));
    const float l = fmaf(byte_float(f, 3, 0.0f), n.sum[1], byte_float(f, 2, 0.0f) * n.sum[0]);
    return fmaf(-m, l, fmaf(d, s, acc));
}

/* A signed byte for every 16 values, one scale. */
template <int T>
static __device__ __forceinline__ float add_bytes(float acc, uint32_t at, const float *t, const row_numbers &n)
{
    const uint32_t from = at + wshapes[T].sub_at + 2 * (threadIdx.x % 4), a = two_at(from) ^ 0x8080u,
                   b = two_at(from + 8) ^ 0x8080u;
    const float s0 = fmaf(byte_float(a, 1, 128.0f), t[1], byte_float(a, 0, 128.0f) * t[0]),
                s1 = fmaf(byte_float(b, 1, 128.0f), t[3], byte_float(b, 0, 128.0f) * t[2]);
    return fmaf(half_at(at, wshapes[T].scale_at), fmaf(n.scale[1], s1, n.scale[0] * s0), acc);
}

/* Any other type: left: groups that the unit has. */
template <int T>
static __device__ __forceinline__ float add_groups(float acc, uint32_t at, const float *t, const row_numbers &n,
                                                   int left)
{
    constexpr int HALVES = 32 / wshapes[T].group;
    const int quarter = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int g = in_halves<T>() ? quarter + 4 * i : 2 * quarter + i;
        if (wshapes[T].bytes % 2 && g >= left)
            break;
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            float factor, least;
            numbers_of<T>(at, HALVES * g + h, &factor, &least);
            acc = fmaf(factor * n.scale[i], t[HALVES * i + h], acc);
            if (wshapes[T].least)
                acc = fmaf(least, HALVES == 2 ? n.half[2 * i + h] : n.sum[i], acc);
        }
    }
    return acc;
}

/* A unit times the row.  row: where the lane's two rows of the matrix begin; acts, numbers: where the unit's
 * activations do; left: groups that there are. */
template <int T>
static __device__ __forceinline__ void use_unit_one(const uint32_t *row, uint32_t acts, uint32_t numbers, int left,
                                                    float *acc)
{
    constexpr wshape s = wshapes[T];
    constexpr bool BEGIN = s.centre != 0;
    const row_numbers n = *((const row_numbers *)(int8_room + numbers) + threadIdx.x % 4);
    const int begin[4] = { BEGIN ? n.begin[0] : MAGIC, BEGIN ? n.begin[1] : MAGIC, BEGIN ? n.begin[2] : MAGIC,
                           BEGIN ? n.begin[3] : MAGIC };
    int c[2][4];
    row_dots<T>(row, acts, left, begin, c);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float t[4] = { plain_sum(c[0][2 * r]), plain_sum(c[0][2 * r + 1]), plain_sum(c[1][2 * r]),
                             plain_sum(c[1][2 * r + 1]) };
        if constexpr (s.sub == WSUB_PAIRS)
            acc[r] = add_pairs<T>(acc[r], row[r], t, n);
        else if constexpr (s.sub == WSUB_I8)
            acc[r] = add_bytes<T>(acc[r], row[r], t, n);
        else
            acc[r] = add_groups<T>(acc[r], row[r], t, n, left);
    }
}

/* Warps that share a row's units, no more than there are: with the same number, sums have the same order. */
static inline int row_warps(const mm &p)
{
    const int64_t units = (p.n_in + UNIT - 1) / UNIT;
    return units < INT8_WARPS ? (int)units : INT8_WARPS;
}

/* A warp's sums of a tile, to its place in `part`: the lanes of a quad have different groups of the same two rows. */
static __device__ __forceinline__ void leave(const float *acc, float *part)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float s = acc[r];
        s += __shfl_xor_sync(0xffffffffu, s, 1);
        s += __shfl_xor_sync(0xffffffffu, s, 2);
        if (threadIdx.x % 4 == 0)
            part[threadIdx.x % 32 / 4 + 8 * r] = s;
    }
}

#endif
