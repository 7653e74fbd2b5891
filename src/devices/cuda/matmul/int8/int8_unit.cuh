/* int8_unit.cuh: what a warp does with 16 rows x 256 values in its ring, for one row of activations or a few. */
#ifndef KVANT_CUDA_INT8_UNIT_CUH
#define KVANT_CUDA_INT8_UNIT_CUH

#include "devices/cuda/matmul/int8/int8_acts.cuh"
#include "devices/cuda/matmul/int8/int8_codes.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { ACTS_STRIDE = UNIT + 32, ACTS_BYTES = ACTS_STRIDE + UNIT_GROUPS * (int)sizeof(int8_group) };
enum { TURNS = 2 };          /* units of a warp in the ring */
enum { MAGIC = 0x4b400000 }; /* the float 1.5 * 2^23: integers up to 2^22 are added to its bits */

/* Bytes of a row of a unit in the ring: what 16-byte copies can touch; an odd number of 16-byte words, so that eight
 * rows lie in different banks. */
template <int T> static __host__ __device__ constexpr int ring_words()
{
    return unit_whole<T>() ? unit_bytes<T>() / 16 : (unit_bytes<T>() + 30 - (wshapes[T].bytes + 1) % 2) / 16;
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

/* The codes of group g of the lane's two rows: [half of the group][row]. */
template <int T> static __device__ __forceinline__ void group_codes(const uint32_t *row, int g, uint32_t (*a)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++)
        if constexpr (levels_interleaved<T>()) {
            const uint2 both = codes_interleaved<T>(row[r], g, threadIdx.x % 4);
            a[0][r] = __byte_perm(both.x, both.y, 0x6420);
            a[1][r] = __byte_perm(both.x, both.y, 0x7531);
        } else
#pragma unroll
            for (int h = 0; h < 2; h++)
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

/* The places of a warp's copies in its tiles' units.  A copy takes the 16-byte words of a row side by side, and as many
 * rows as it has lanes for: few lines of the cache, and addresses that are the one before and a constant.  Rows that
 * the matrix does not have are left out: their results go nowhere. */
template <int T> struct int8_cursor {
    static constexpr int WORDS = ring_words<T>(), ROWS = 32 / WORDS, COPIES = (8 + ROWS - 1) / ROWS;
    static constexpr bool CUT = wshapes[T].bytes % 2; /* a row may end within a unit */
    const uint8_t *from[2]; /* the lane's word of its first row of the tile's halves */
    int live[2], left, u;   /* rows from there on; left: bytes from the unit's begin to a row's end */

    __device__ __forceinline__ void begin(const mm &p, const uint8_t *matrix, int64_t tile, int64_t pair, int unit)
    {
        const int lane = threadIdx.x % 32, row = lane / WORDS, half = INT8_TILE / 2;
        const int64_t first = tile * (pair ? half : INT8_TILE), rows = (pair ? pair : p.n_out) - first;
        u = unit;
        left = (int)p.row_bytes - u * unit_bytes<T>();
        from[0] = matrix + (first + row) * p.row_bytes + u * unit_bytes<T>() + 16 * (lane % WORDS);
        from[1] = from[0] + (pair ? pair : half) * p.row_bytes;
        live[0] = row < ROWS ? (int)min(max(rows, (int64_t)0), (int64_t)half) - row : 0;
        live[1] = pair || row >= ROWS ? live[0] : (int)min(max(rows - half, (int64_t)0), (int64_t)half) - row;
    }

    /* The unit to the ring at `to`; the next one is the row's `step`-th from there. */
    __device__ __forceinline__ void fetch(const mm &p, uint32_t to, int step = 1)
    {
        const int lane = threadIdx.x % 32, bytes = CUT ? min(unit_bytes<T>(), left) : unit_bytes<T>();
        to += shared_at(int8_room) + lane / WORDS * ring_row<T>() + lane % WORDS * 16;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *at = from[h];
#pragma unroll
            for (int k = 0; k < COPIES; k++) {
                const int head = unit_whole<T>() ? 0 : (int)(uintptr_t)at & 15;
                if (k * ROWS < live[h] && (unit_whole<T>() || 16 * (lane % WORDS) < bytes + head))
                    async_copy16_all(to + (INT8_TILE / 2 * h + k * ROWS) * ring_row<T>(), at - head);
                at += ROWS * p.row_bytes;
            }
            from[h] += step * unit_bytes<T>();
        }
        left -= step * unit_bytes<T>();
        u += step;
    }
};

/* Finds the begins of the lane's two rows in the ring at `at`.  low: the lowest bits of their addresses, at unit u. */
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
    return pair && i < 8 ? swiglu_one(s, up) : s;
}

/* Returns the place of a tile's row i in y, -1: nowhere. */
static __device__ __forceinline__ int64_t tile_place(const mm &p, int64_t tile, int i, int64_t pair)
{
    const int64_t row = pair ? tile * 8 + i % 8 : tile * INT8_TILE + i;
    return row >= (pair ? pair : p.n_out) ? -1 : row + (pair && i >= 8 ? pair : 0);
}

static __host__ __device__ __forceinline__ int64_t int8_tiles(const mm &p, int64_t pair)
{
    return pair ? (pair + 7) / 8 : (p.n_out + INT8_TILE - 1) / INT8_TILE;
}

/* The entry OF<T>::entry of a type, NULL where no integers hold it. */
template <typename E, template <int> typename OF, int T> static const E *int8_entry()
{
    if constexpr (wshapes[T].integers)
        return &OF<T>::entry;
    else
        return NULL;
}

template <typename E, template <int> typename OF> static const E *int8_entry_of(int type)
{
#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) int8_entry<E, OF, WT_##sym>(),
    static const E *const all[] = {
#include "cards/lists.inc"
    };
#undef CARD_WTYPE
    return all[type];
}

#endif
