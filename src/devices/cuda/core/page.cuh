/* page.cuh: rows of pages of the formats of page scope (formats/ptcq/ptcq.h), read by whole warps.
 * The reference's roundings: a value is book * scale, then + mean. */
#ifndef KVANT_CUDA_PAGE_CUH
#define KVANT_CUDA_PAGE_CUH

#include "devices/cuda/core/page_lanes.cuh"
#include "devices/cuda/core/space.cuh"

/* 0: the general kernel takes all attention over these pages. */
enum { PAGE_FAST = 1 };

#define CARD_PAGE(name, values, bytes, space, bits, book) { book },
static __device__ const float page_books[(int)FMT_ALL - (int)FMT_COUNT][PAGE_STATES] = {
#include "cards/lists.inc"
};
#undef CARD_PAGE

static __device__ __forceinline__ bool is_paged(const side_dev &s)
{
    return s.fmt >= FMT_COUNT;
}

/* Bits of a symbol: a row's share of a page is 16 of them and PAGE_SPARE bytes. */
static __host__ __device__ __forceinline__ int page_bits(const side_dev &s)
{
    return (s.group_bytes - PAGE_SPARE) / 16;
}

/* 128 values of one row. */
typedef struct coded_row {
    const uint8_t *codes;
    const int8_t *mean;
    const float *book;
    float scale, step;
    int start, bits;
} coded_row;

/* Group g of row r of head h; all lanes of a warp call it for the same row. */
static __device__ __forceinline__ coded_row page_row_of(const side_dev &s, int page, int h, int r, int g)
{
    const int k = page_bits(s);
    const uint8_t *at = side_row(s, page, h, 0) + (size_t)g * KVANT_PAGE * s.group_bytes;
    const uint8_t *scale = at + 1024 * k, *mean = scale + 2 * KVANT_PAGE, *start = mean + PAGE_GROUP;
    coded_row o;
    o.codes = at + r * 16 * k;
    o.mean = (const int8_t *)mean;
    o.book = page_books[s.fmt - FMT_COUNT];
    o.scale = __half2float(__ushort_as_half(*(const uint16_t *)(scale + 2 * r)));
    const unsigned step = __ballot_sync(0xffffffffu, start[threadIdx.x % 32] >> 7);
    o.step = __half2float(__ushort_as_half((unsigned short)step));
    o.start = start[r] & ((PAGE_STATES >> k) - 1);
    o.bits = k;
    return o;
}

/* Value t: the state is the nine bits of (start, codes) from bit k t on. */
static __device__ __forceinline__ float page_value(const coded_row &p, int t)
{
    const int bit = p.bits * (t + 1) - PAGE_STATE_BITS, at = bit < 0 ? 0 : bit >> 3;
    const unsigned w = p.codes[at] | p.codes[at + 1] << 8;
    const unsigned state = bit < 0 ? (w << (PAGE_STATE_BITS - p.bits) | p.start) >> (p.bits * t) : w >> (bit & 7);
    return p.book[state & (PAGE_STATES - 1)] * p.scale + (float)p.mean[t] * p.step;
}

/* Row r of head h to `to`, by a warp. */
static __device__ __forceinline__ void page_values(const side_dev &s, int page, int h, int r, float *to)
{
    for (int g = 0; g < s.dp / PAGE_GROUP; g++) {
        const coded_row p = page_row_of(s, page, h, r, g);
        for (int t = threadIdx.x % 32; t < PAGE_GROUP; t += 32)
            to[g * PAGE_GROUP + t] = page_value(p, t);
    }
}

/* <qp, row r of head h>, a part of it in each lane of a warp. */
static __device__ __forceinline__ float page_dot(const side_dev &s, int page, int h, int r, const float *qp)
{
    float sum = 0.0f;
    for (int g = 0; g < s.dp / PAGE_GROUP; g++) {
        const coded_row p = page_row_of(s, page, h, r, g);
        for (int t = threadIdx.x % 32; t < PAGE_GROUP; t += 32)
            sum = fmaf(qp[g * PAGE_GROUP + t], page_value(p, t), sum);
    }
    return sum;
}

#endif
