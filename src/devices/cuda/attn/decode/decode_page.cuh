/* decode_page.cuh: steps of pages of page scope (formats/ptcq/ptcq.h), in their own order of bytes, for attn_decode.cu.
 *
 * A slot holds, for each 128 values of a head, the codes of its step's blocks, then what the page shares: the scales of
 * all rows, the mean, the starts.  As with KIND_TRELLIS, lane t of a row has values 32t .. 32t + 31 (K), lane g of two
 * tokens 16g .. 16g + 15 (V); the state before a lane's first symbol is the end of its neighbour's last word, or the
 * row's start.  The mean is a row of products more: K: one that all scores of the step get, V: one column, times the
 * sum of the step's probabilities. */
#ifndef KVANT_CUDA_DECODE_PAGE_CUH
#define KVANT_CUDA_DECODE_PAGE_CUH

#include "devices/cuda/attn/decode/decode_step.cuh"
#include "devices/cuda/core/page.cuh"

/* Bytes from 128 values to the next ones in a slot. */
template <int K, int BLOCKS> static __host__ __device__ constexpr uint32_t page_slot(void)
{
    return BLOCKS * page_codes(K) + PAGE_REST;
}

/* ---- copies; from: the codes of the first block, which is half `half` of its page ---- */

template <uint32_t BYTES>
static __device__ __forceinline__ void warp_async(uint32_t to, const uint8_t *from, uint32_t bytes)
{
    const uint32_t lane = 16 * (threadIdx.x % 32);
    if constexpr (BYTES > 0) {
#pragma unroll
        for (uint32_t i = 0; i < BYTES; i += 16 * 32)
            if (i + 16 * 32 <= BYTES || i + lane < BYTES)
                async_copy16_all(to + lane + i, from + lane + i);
    } else {
#pragma unroll 4
        for (uint32_t i = lane; i < bytes; i += 16 * 32)
            async_copy16_all(to + i, from + i);
    }
}

/* Whole warp: asks for a step's blocks; ARCH_90: bar's phase ends when they are there. */
template <int D, int K, int BLOCKS, int MAKE>
static __device__ __forceinline__ void page_ask(uint32_t to, const uint8_t *from, int half, uint32_t bar)
{
    constexpr uint32_t CODES = BLOCKS * page_codes(K), EACH = page_slot<K, BLOCKS>(), PAGE = page_slot<K, 2>();
    const uint8_t *rest = from + (2 - half) * page_codes(K);
    if constexpr (MAKE == ARCH_90) {
        if (threadIdx.x % 32 == 0) {
            bar_expect(bar, D / PAGE_GROUP * EACH);
#pragma unroll
            for (uint32_t c = 0; c < D / PAGE_GROUP; c++) {
                bulk_start(to + c * EACH, from + c * PAGE, BLOCKS == 2 ? EACH : CODES, bar);
                if (BLOCKS < 2)
                    bulk_start(to + c * EACH + CODES, rest + c * PAGE, PAGE_REST, bar);
            }
        }
        __syncwarp();
    } else {
#pragma unroll
        for (uint32_t c = 0; c < D / PAGE_GROUP; c++) {
            warp_async<CODES>(to + c * EACH, from + c * PAGE, CODES);
            warp_async<PAGE_REST>(to + c * EACH + CODES, rest + c * PAGE, PAGE_REST);
        }
    }
}

/* One lane: brings a block to the L2. */
template <int D, int K> static __device__ __forceinline__ void page_warm(const uint8_t *from, int half)
{
#pragma unroll
    for (uint32_t c = 0; c < D / PAGE_GROUP; c++, from += page_slot<K, 2>()) {
        bulk_warm(from, page_codes(K));
        bulk_warm(from + (2 - half) * page_codes(K), PAGE_REST);
    }
}

/* ---- codes ---- */

/* The mean's step, as two halves.  Whole warp. */
static __device__ __forceinline__ uint32_t page_step(const uint8_t *rest, int lane)
{
    const uint32_t bits = __ballot_sync(0xffffffffu, rest[PAGE_START + lane] >> 7);
    return permute(bits, bits, 0x1010);
}

/* The value of state i of a lane, in the lower half; x: the end of the word before, then the lane's own words. */
template <int K, int MAKE>
static __device__ __forceinline__ uint32_t page_state(const uint32_t *x, int i, uint32_t table)
{
    return shared_half<tables_from<MAKE>()>((stream_at(x, page_bit(K, i)) & 0xff80u) | table);
}

/* ---- scores ---- */

/* Products of the mean with the queries of 128 values, for a lane's two heads. */
static __device__ __forceinline__ float2 page_mean_score(const uint8_t *rest, const uint32_t *q, int lane)
{
    const uint4 *from = (const uint4 *)(rest + PAGE_MEAN) + lane % 4 * 2;
    const uint4 a = from[0], b = from[1];
    const uint32_t word[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
    const float step = low_half(page_step(rest, lane));
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int kt = 0; kt < 8; kt++) {
        const uint32_t x = byte_pair<false>(word[kt], 0), y = byte_pair<false>(word[kt], 1);
        const uint32_t rows[4] = { x, x, y, y }; /* every row of the product */
        mma16816(sum, rows, q[2 * kt], q[2 * kt + 1]);
    }
    return make_float2(sum[0] * step, sum[1] * step);
}

/* Tile m of the step: adds its products with 128 values of the queries, and the mean's. */
template <int K, int MAKE>
static __device__ __forceinline__ void scores_page_tile(float *s, const uint8_t *codes, const uint8_t *rest, int row,
                                                        const float2 &mean, const uint32_t *q, uint32_t table,
                                                        int lane)
{
    const int t = lane % 4;
    uint32_t x[2][K + 1];
    float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, scale[2];
#pragma unroll
    for (int hi = 0; hi < 2; hi++) {
        page_words_k(x[hi] + 1, codes + (8 * hi + lane / 4) * 16 * K, t, K);
        const uint32_t before = __shfl_up_sync(0xffffffffu, x[hi][K], 1);
        x[hi][0] = t == 0 ? page_start(K, rest[PAGE_START + row + 8 * hi]) : before;
        scale[hi] = __half2float(((const __half *)rest)[row + 8 * hi]);
    }
#pragma unroll
    for (int kt = 0; kt < 8; kt++) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int state = 4 * kt + i / 2 * 2;
            a[i] = trellis_pair(page_state<K, MAKE>(x[i % 2], state, table),
                                page_state<K, MAKE>(x[i % 2], state + 1, table));
        }
        mma16816(acc, a, q[2 * kt], q[2 * kt + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] += fmaf(acc[i], scale[i / 2], i % 2 ? mean.y : mean.x);
}

/* half: of its page, where the step is one block. */
template <int D, int K, int BLOCKS, int MAKE>
static __device__ __forceinline__ void scores_page(float (*s)[4], const uint8_t *slot, int half, const uint32_t *q,
                                                   uint32_t table, int lane)
{
#pragma unroll
    for (int m = 0; m < 2 * BLOCKS; m++)
        s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0.0f;
#pragma unroll
    for (int c = 0; c < D / PAGE_GROUP; c++) {
        const uint8_t *codes = slot + c * page_slot<K, BLOCKS>(), *rest = codes + BLOCKS * page_codes(K);
        const float2 mean = page_mean_score(rest, q + 16 * c, lane);
#pragma unroll
        for (int m = 0; m < 2 * BLOCKS; m++)
            scores_page_tile<K, MAKE>(s[m], codes + m * 256 * K, rest, half * (int)PACK_BLOCK + 16 * m + lane / 4, mean,
                                      q + 16 * c, table, lane);
    }
}

/* ---- sums ---- */

/* Adds the mean of 128 values, for the step's TILES tiles of probabilities. */
template <int TILES>
static __device__ __forceinline__ void page_mean_sums(float (*o)[4], const uint8_t *rest, const uint32_t (*p)[2],
                                                      int lane)
{
    const uint4 v = ((const uint4 *)(rest + PAGE_MEAN))[lane / 4];
    const uint32_t word[4] = { v.x, v.y, v.z, v.w };
    __half2 sum = __hadd2(*(const __half2 *)&p[0][0], *(const __half2 *)&p[0][1]);
#pragma unroll
    for (int k = 1; k < TILES; k++)
        sum = __hadd2(sum, __hadd2(*(const __half2 *)&p[k][0], *(const __half2 *)&p[k][1]));
    const float step = low_half(page_step(rest, lane));
#pragma unroll
    for (int mt = 0; mt < 8; mt++) {
        const uint32_t two = byte_pair<false>(word[mt / 2], mt % 2);
        float part[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        mma1688(part, permute(two, two, 0x1010), permute(two, two, 0x3232), *(const uint32_t *)&sum);
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[mt][i] = fmaf(part[i], step, o[mt][i]);
    }
}

/* 16 tokens from `row` of the page on; codes: of the first of them. */
template <int K, int MAKE>
static __device__ __forceinline__ void sums_page_tile(float (*o)[4], const uint8_t *codes, const uint8_t *rest, int row,
                                                      const uint32_t *p, uint32_t table, int lane)
{
    constexpr int WORDS = K == 2 ? 1 : 2;
    const int g = lane / 4, t = lane % 4 * 2;
    uint32_t x[4][WORDS + 1], w[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = row + 8 * i + t;
        const uint32_t starts = *(const uint16_t *)(rest + PAGE_START + at);
        w[i] = times2(p[i], *(const uint32_t *)(rest + 2 * at));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t *own = x[2 * i + j];
            page_words_v(own + 1, codes + (8 * i + t + j) * 16 * K, g, K);
            const uint32_t last = __shfl_up_sync(0xffffffffu, page_last_v(own + 1, K), 4);
            own[0] = g == 0 ? page_start(K, starts >> 8 * j) : last;
        }
    }
#pragma unroll
    for (int mt = 0; mt < 8; mt++) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = trellis_pair(page_state<K, MAKE>(x[i / 2 * 2], 2 * mt + i % 2, table),
                                page_state<K, MAKE>(x[i / 2 * 2 + 1], 2 * mt + i % 2, table));
        mma16816(o[mt], a, w[0], w[1]);
    }
}

template <int D, int K, int BLOCKS, int MAKE>
static __device__ __forceinline__ void sums_page(float (*o)[4], const uint8_t *slot, int half, const uint32_t (*p)[2],
                                                 uint32_t table, int lane)
{
#pragma unroll
    for (int c = 0; c < D / PAGE_GROUP; c++) {
        const uint8_t *codes = slot + c * page_slot<K, BLOCKS>(), *rest = codes + BLOCKS * page_codes(K);
        page_mean_sums<2 * BLOCKS>(o + 8 * c, rest, p, lane);
#pragma unroll
        for (int k = 0; k < 2 * BLOCKS; k++)
            sums_page_tile<K, MAKE>(o + 8 * c, codes + k * 256 * K, rest, half * (int)PACK_BLOCK + 16 * k, p[k], table,
                                    lane);
    }
}

#endif
