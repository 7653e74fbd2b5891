/* int8_unit.cuh: what a warp does with 16 rows x 256 values in its ring, for one row of activations or a few. */
#ifndef KVANT_CUDA_INT8_UNIT_CUH
#define KVANT_CUDA_INT8_UNIT_CUH

#include "devices/cuda/matmul/int8_acts.cuh"
#include "devices/cuda/matmul/int8_codes.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { ACTS_STRIDE = UNIT + 32, ACTS_BYTES = ACTS_STRIDE + UNIT_GROUPS * (int)sizeof(int8_group) };
enum { TURNS = 2 };          /* units of a warp in the ring */
enum { MAGIC = 0x4b400000 }; /* the float 1.5 * 2^23: integers up to 2^22 are added to its bits */

/* Bytes of a row of a unit in the ring: what 16-byte copies can touch; an odd number of 16-byte words, so that eight
 * rows lie in different banks. */
template <int T> static __host__ __device__ constexpr int ring_words()
{
    return unit_whole<T>() ? unit_bytes<T>() / 16 : (unit_bytes<T>() + 30) / 16;
}

template <int T> static __host__ __device__ constexpr int ring_row()
{
    return 16 * (ring_words<T>() | 1);
}

/* Bytes of a turn of a warp: 16 rows of a unit. */
template <int T> static __host__ __device__ constexpr int turn_bytes()
{
    return INT8_TILE * ring_row<T>();
}

/* c += a b; 32 values, or 16. */
static __device__ __forceinline__ void mma_s8(int *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                              uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma_s8_half(int *c, uint32_t a0, uint32_t a1, uint32_t b0)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

/* Group g's dots of the lane's two rows with a tile of 8 columns: c[0], or c[0] and c[1] of the group's halves. */
template <int T> static __device__ __forceinline__ void dot_group(int (*c)[4], const uint32_t (*a)[2], uint2 b)
{
    if (wshapes[T].group == 32)
        mma_s8(c[0], a[0][0], a[0][1], a[1][0], a[1][1], b.x, b.y);
    else {
        mma_s8_half(c[0], a[0][0], a[0][1], b.x);
        mma_s8_half(c[1], a[1][0], a[1][1], b.y);
    }
}

template <int T> static __device__ __forceinline__ void group_codes(const uint32_t *row, int g, uint32_t (*a)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            a[h][r] = four_codes<T>(row[r], 32 * g + 16 * h, threadIdx.x % 4);
}

/* acc += factor * scale * (dot - centre * sum) + least * scale * sum; sum: of the group's integers. */
template <int T>
static __device__ __forceinline__ float add_group(float acc, int dot, float factor, float least, float scale, float sum)
{
    float t = __int_as_float(dot) - __int_as_float(MAGIC);
    if (wshapes[T].centre)
        t = fmaf((float)-wshapes[T].centre, sum, t);
    acc = fmaf(factor * scale, t, acc);
    return wshapes[T].least ? fmaf(least * scale, sum, acc) : acc;
}

/* The sum of a group of 32, or of its half h. */
template <int T> static __device__ __forceinline__ float group_sum(const int8_group &g, int h)
{
    return wshapes[T].group == 32 ? g.w : h ? g.z : g.y;
}

/* A unit times one row: group g is column g, so that every lane ends with two groups of two rows.  row: where the
 * lane's rows begin; acts, groups: where the unit's activations do; left: groups that there are. */
template <int T>
static __device__ __forceinline__ void use_unit_one(const uint32_t *row, uint32_t acts, uint32_t groups, int left,
                                                    float *acc)
{
    constexpr int HALVES = 32 / wshapes[T].group;
    const int lane = threadIdx.x % 32, quarter = lane % 4, own = lane / 4;
    uint2 b = make_uint2(0, 0);
    int c[2][4] = { { MAGIC, MAGIC, MAGIC, MAGIC }, { MAGIC, MAGIC, MAGIC, MAGIC } };
    if (own < left)
        b = *(const uint2 *)(int8_room + acts + 8 * lane);
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        uint32_t a[2][2];
        group_codes<T>(row, g, a);
        dot_group<T>(c, a, make_uint2(own == g ? b.x : 0, own == g ? b.y : 0));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float factor[2][2], least[2][2];
        lane_numbers<T>(row[r], quarter, factor, least);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int k = 2 * quarter + i;
            if (!unit_whole<T>() && k >= left)
                break;
            const int8_group x = *(const int8_group *)(int8_room + groups + k * (int)sizeof x);
#pragma unroll
            for (int h = 0; h < HALVES; h++)
                acc[r] = add_group<T>(acc[r], c[h][i + 2 * r], factor[i][h], least[i][h], x.x, group_sum<T>(x, h));
        }
    }
}

/* A unit times COLS rows.  A lane makes the numbers of two groups of its rows; the others of its quad ask it. */
template <int T, int COLS>
static __device__ __forceinline__ void use_unit_few(const uint32_t *row, uint32_t acts, int left, float (*acc)[4])
{
    constexpr int HALVES = 32 / wshapes[T].group;
    const int lane = threadIdx.x % 32, quarter = lane % 4;
    float factor[2][2][2], least[2][2][2]; /* [row][group][half] */
#pragma unroll
    for (int r = 0; r < 2; r++)
        lane_numbers<T>(row[r], quarter, factor[r], least[r]);
#pragma unroll
    for (int g = 0; g < UNIT_GROUPS; g++) {
        const int from = (lane & ~3) | g / 2;
        uint32_t a[2][2];
        float f[2][2], m[2][2] = {};
        if (!unit_whole<T>() && g >= left)
            break;
        group_codes<T>(row, g, a);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                f[r][h] = __shfl_sync(0xffffffffu, factor[r][g % 2][h], from);
                if (wshapes[T].least)
                    m[r][h] = __shfl_sync(0xffffffffu, least[r][g % 2][h], from);
            }
#pragma unroll
        for (int t = 0; t < COLS / 8; t++) {
            const uint32_t column = acts + (8 * t + lane / 4) * ACTS_BYTES,
                           two = acts + (8 * t + 2 * quarter) * ACTS_BYTES;
            int c[2][4] = { { MAGIC, MAGIC, MAGIC, MAGIC }, { MAGIC, MAGIC, MAGIC, MAGIC } };
            dot_group<T>(c, a, *(const uint2 *)(int8_room + column + 32 * g + 8 * quarter));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int8_group x = *(const int8_group *)(int8_room + two + i * ACTS_BYTES + ACTS_STRIDE +
                                                           g * (int)sizeof x);
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int h = 0; h < HALVES; h++)
                        acc[t][i + 2 * r] = add_group<T>(acc[t][i + 2 * r], c[h][i + 2 * r], f[r][h], m[r][h], x.x,
                                                         group_sum<T>(x, h));
            }
        }
    }
}

/* Row i of the block's 16: of the tile's neighbours, or eight of gate and eight of up. */
static __device__ __forceinline__ int64_t tile_row(const mm &p, int64_t tile, int i, int64_t pair)
{
    const int64_t row = pair ? tile * 8 + i % 8 : tile * INT8_TILE + i, last = pair ? pair - 1 : p.n_out - 1;
    return (row < last ? row : last) + (pair && i >= 8 ? pair : 0);
}

/* Where a warp's copies are in its tiles' units.  Its lanes take the 16-byte words of a row one behind the other, then
 * those of the next: a copy then touches few lines of the cache. */
template <int T> struct int8_cursor {
    const uint8_t *from; /* the unit in the tile's first row */
    int64_t row_bytes, jump; /* jump: from there to the first row of the tile's second half, 0: the rows are one run */
    int64_t left;        /* bytes from the unit's begin to a row's end */
    int last, u;         /* the last row that there is of a run */

    __device__ __forceinline__ void begin(const mm &p, const uint8_t *matrix, int64_t tile, int64_t pair, int unit)
    {
        const int64_t first = tile * (pair ? INT8_TILE / 2 : INT8_TILE), rows = (pair ? pair : p.n_out) - 1;
        u = unit;
        row_bytes = p.row_bytes;
        jump = pair * row_bytes;
        from = matrix + min(first, rows) * row_bytes + (int64_t)u * unit_bytes<T>();
        last = (int)min(max(rows - first, (int64_t)0), (int64_t)INT8_TILE);
        left = row_bytes - (int64_t)u * unit_bytes<T>();
    }

    /* The unit to the ring at `to`; the next one is the row's next. */
    __device__ __forceinline__ void fetch(uint32_t to)
    {
        constexpr int WORDS = ring_words<T>(), ALL = INT8_TILE * WORDS;
        int c = threadIdx.x % 32;
        asm volatile("" : "+r"(c)); /* offsets are made anew: there are no registers to keep them in */
        to += shared_at(int8_room);
#pragma unroll
        for (; c < ALL; c += 32) {
            const int i = c / WORDS, word = c % WORDS;
            const uint8_t *row = from + (jump ? min(i % (INT8_TILE / 2), last) : min(i, last)) * row_bytes +
                                 (i >= INT8_TILE / 2 ? jump : 0);
            const uint32_t head = unit_whole<T>() ? 0 : (uint32_t)(uintptr_t)row & 15;
            if (unit_whole<T>() || 16 * word < (int)min((int64_t)unit_bytes<T>(), left) + (int)head)
                async_copy16_all(to + i * ring_row<T>() + 16 * word, row - head + 16 * word);
        }
        from += unit_bytes<T>();
        left -= unit_bytes<T>();
        u++;
    }
};

/* Where in the ring at `at` the lane's two rows begin.  low: the lowest bits of their addresses, at unit u. */
template <int T>
static __device__ __forceinline__ void lane_rows(uint32_t at, const uint32_t *low, int u, uint32_t *row)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
        row[r] = at + (threadIdx.x % 32 / 4 + 8 * r) * ring_row<T>() +
                 (unit_whole<T>() ? 0 : (low[r] + (uint32_t)(u * unit_bytes<T>())) & 15);
}

template <int T>
static __device__ __forceinline__ void lane_low(const mm &p, const uint8_t *matrix, int64_t tile, int64_t pair,
                                                uint32_t *low)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
        low[r] = unit_whole<T>()
                     ? 0
                     : (uint32_t)(uintptr_t)(matrix +
                                             tile_row(p, tile, threadIdx.x % 32 / 4 + 8 * r, pair) * p.row_bytes);
}

/* Gate and up are lanes 8 apart of the `mask`: what y gets of sum s of row i of a tile. */
static __device__ __forceinline__ float joined(float s, int i, int64_t pair, unsigned mask)
{
    const float up = __shfl_down_sync(mask, s, 8);
    return pair && i < 8 ? s / (1.0f + expf(-s)) * up : s; /* as swiglu */
}

/* Where row i of a tile goes in y, -1: nowhere. */
static __device__ __forceinline__ int64_t tile_place(const mm &p, int64_t tile, int i, int64_t pair)
{
    const int64_t row = pair ? tile * 8 + i % 8 : tile * INT8_TILE + i;
    return row >= (pair ? pair : p.n_out) ? -1 : row + (pair && i >= 8 ? pair : 0);
}

static __host__ __device__ __forceinline__ int64_t int8_tiles(const mm &p, int64_t pair)
{
    return pair ? (pair + 7) / 8 : (p.n_out + INT8_TILE - 1) / INT8_TILE;
}

#endif
