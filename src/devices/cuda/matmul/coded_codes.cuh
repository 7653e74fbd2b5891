/* coded_codes.cuh: what the kernels of coded.cuh share: a lane's codes as bf16, which columns a block takes. */
#ifndef KVANT_CUDA_CODED_CODES_CUH
#define KVANT_CUDA_CODED_CODES_CUH

#include "devices/cuda/core/halves.cuh"
#include "devices/cuda/core/step.cuh"
#include "devices/cuda/matmul/coded.cuh"

enum { PANEL_GROUPS = PANEL / 32 };

/* Codes become floats by a byte of their bits, (BASE + code) / ONE: the upper 7 bits of the fraction, or signed bytes,
 * to which 128 are added, the middle 8.  The minimum takes the sum of BASE and the centre. */
template <int T> struct coded_bits {
    static constexpr bool WIDE = wshapes[T].table || wshapes[T].low.bits == 8;
    static constexpr float ONE = WIDE ? 32768.0f : 256.0f, BASE = WIDE ? 32768.0f + 128.0f : 128.0f,
                           AWAY = BASE + (float)wshapes[T].centre;
    static constexpr uint32_t FLIP = WIDE ? 0x80808080u : 0, REST = WIDE ? 0x3f800000u : 0x3f000000u,
                              PICK = WIDE ? 0x7604 : 0x7044, STEP = WIDE ? 4 : 8;
};

/* The numbers of the groups of a unit that a lane of each quad holds, [row][group][half]: a value is the code's float
 * * factor + rest. */
typedef struct coded_numbers {
    float factor[2][2][2], rest[2][2][2];
} coded_numbers;

template <int T> static __device__ __forceinline__ void coded_ready(const uint32_t *row, coded_numbers *n)
{
    constexpr int HALVES = 32 / wshapes[T].group;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        lane_numbers<T>(row[r], threadIdx.x % 4, n->factor[r], n->rest[r]);
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                float *f = &n->factor[r][g][h], *m = &n->rest[r][g][h];
                *m = fmaf(-coded_bits<T>::AWAY, *f, wshapes[T].least ? *m : 0.0f);
                *f *= coded_bits<T>::ONE;
            }
    }
}

/* A group of a lane's two rows: codes, and the numbers of each half. */
typedef struct coded_words {
    uint32_t codes[2][2];
    float factor[2][2], rest[2][2];
} coded_words;

template <int T>
static __device__ __forceinline__ void coded_fetch(const uint32_t *row, int g, const coded_numbers &n, coded_words *w)
{
    const int lane = threadIdx.x % 32, from = (lane & ~3) | g / 2;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool own = h == 0 || wshapes[T].group == 16;
            w->codes[r][h] = four_codes<T>(row[r], 32 * g + 16 * h, lane % 4);
            w->factor[r][h] = own ? __shfl_sync(0xffffffffu, n.factor[r][g % 2][h], from) : w->factor[r][0];
            w->rest[r][h] = own ? __shfl_sync(0xffffffffu, n.rest[r][g % 2][h], from) : w->rest[r][0];
        }
}

/* A group as the tensor cores take it: [step][of a fragment]. */
template <int T> static __device__ __forceinline__ void coded_values(const coded_words &w, uint32_t (*a)[4])
{
    using bits = coded_bits<T>;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t codes = w.codes[r][h] ^ bits::FLIP;
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = fmaf(__uint_as_float(__byte_perm(codes, bits::REST, bits::PICK + (i << bits::STEP))),
                            w.factor[r][h], w.rest[r][h]);
            a[h][r] = pair_bf16(v[0], v[1]);
            a[h][2 + r] = pair_bf16(v[2], v[3]);
        }
}

/* As coded_values, for types that codes do not hold. */
template <int T> static __device__ __forceinline__ void coded_plain(const uint32_t *row, int g, uint32_t (*a)[4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float w[8];
        chunk8<T>(int8_room + row[r], 4 * g + threadIdx.x % 4, w);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[h][r] = pair_bf16(w[4 * h], w[4 * h + 1]);
            a[h][2 + r] = pair_bf16(w[4 * h + 2], w[4 * h + 3]);
        }
    }
}

/* A lane keeps this of a unit from group to group. */
typedef struct coded_lane {
    coded_numbers n;
    coded_words w[2];
} coded_lane;

/* Group g of a unit, which has `groups` of them; the next one's bytes are asked for ahead of this one's products. */
template <int T>
static __device__ __forceinline__ void coded_group(const uint32_t *row, int g, int groups, coded_lane &lane,
                                                   uint32_t (*a)[4])
{
    if constexpr (wshapes[T].integers) {
        if (g == 0) {
            coded_ready<T>(row, &lane.n);
            coded_fetch<T>(row, 0, lane.n, &lane.w[0]);
        }
        if (g + 1 < UNIT_GROUPS)
            coded_fetch<T>(row, g + 1, lane.n, &lane.w[(g + 1) % 2]);
        coded_values<T>(lane.w[g % 2], a);
    } else
        coded_plain<T>(row, g, a);
    if (coded_ends(wshapes[T]) && g >= groups) /* times zeros of the image, for which they must be numbers */
#pragma unroll
        for (int i = 0; i < 8; i++)
            a[i / 4][i % 4] = 0;
}

/* Which columns of which expert a block takes; false: the grid is larger than the work. */
template <int N> static __device__ __forceinline__ bool coded_place(const mm &p, const coded_job &j, coded_tile *t)
{
    if (!j.tiles) {
        t->expert = 0;
        t->first = (int)blockIdx.y * N;
        t->n = min(p.rows - t->first, N);
        return true;
    }
    if ((int)blockIdx.y >= *j.n_tiles)
        return false;
    *t = j.tiles[blockIdx.y];
    return true;
}

#endif
