/* tile_best.cuh: the encoder `best` (formats/search.c) for tiles of records of 32 values (tile_codes.cuh): q8_0's,
 * and the tables of all; tile_record.cuh has the others.  Upstream's codes are no candidate of their own: whatever the
 * codes, the scale is the unbiased one. */
#ifndef KVANT_CUDA_TILE_BEST_CUH
#define KVANT_CUDA_TILE_BEST_CUH

#include <type_traits>
#include "devices/cuda/encode/tile_record.cuh"

/* In shared memory; record: those of tile_record.cuh. */
template <int F, bool BEST> struct tile_tables {
    static constexpr bool record = BEST && F != FMT_q8_0;
    typedef rec_format<record ? F : FMT_q4_0> records;
    static constexpr int bytes = record ? records::end - records::at : tile_format<F>::table_bytes;
};

/* q8_0: the best of scales that need no level beyond the last; with less scale the largest value errs more than all
 * others may gain. */
template <int N> static __device__ __forceinline__ float tile_try8(const float *x, float id, const float (&scales)[N])
{
    float inv[N], sum[N];
#pragma unroll
    for (int s = 0; s < N; s++) {
        inv[s] = id * (1.0f / scales[s]);
        sum[s] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < 32; k++)
#pragma unroll
        for (int s = 0; s < N; s++) {
            const float v = fmaf(x[k], inv[s], ENC_MAGIC) - ENC_MAGIC, e = fmaf(x[k], inv[s], -v);
            sum[s] = fmaf(e, e, sum[s]);
        }
    float least = INFINITY, best = 1.0f;
#pragma unroll
    for (int s = 0; s < N; s++) {
        const float cost = sum[s] * (scales[s] * scales[s]);
        best = cost < least ? scales[s] : best;
        least = fminf(least, cost);
    }
    return best;
}

/* Codes and scale of a record of values up to 127 d, with yy the sum of their squares. */
static __device__ __forceinline__ uint16_t tile_best8(const float *x, float d, float id, float yy, uint32_t *word)
{
    constexpr float scales[4] = { 0.999f, 1.009f, 1.024f, 1.09f };
    const uint16_t near = enc_storable(tile_try8(x, id, scales) * d);
    const float by = __fdividef(1.0f / 254.0f, enc_value(near));
    float yv = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t c[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float y = x[4 * n + k];
            const float v = fmaf(__saturatef(fmaf(y, by, 0.5f)), 254.0f, ENC_MAGIC - 127.0f);
            yv = fmaf(y, v - ENC_MAGIC, yv);
            c[k] = __float_as_uint(v);
        }
        word[n] = __byte_perm(__byte_perm(c[0], c[1], 0x0040), __byte_perm(c[2], c[3], 0x0040), 0x5410);
    }
    return enc_unbiased_scale(yy / yv, near);
}

/* A block's tables. */
template <int F, bool BEST, int THREADS>
using tile_copies =
    std::conditional_t<tile_tables<F, BEST>::record, rec_copy<F, THREADS>, tile_copy<F, THREADS>>;

#endif
