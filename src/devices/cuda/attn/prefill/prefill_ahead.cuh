/* prefill_ahead.cuh: tiles of keys made once in global memory, where many blocks of a prompt want the same; and what
 * the prompt kernels of both makes share beside the makers (prefill_make.cuh). */
#ifndef KVANT_CUDA_PREFILL_AHEAD_CUH
#define KVANT_CUDA_PREFILL_AHEAD_CUH

#include "devices/cuda/attn/prefill/prefill_make.cuh"

enum { SCALE_BYTES = KEYS * 4 }; /* what bf16 keys of a tile are multiplied by */
enum { AHEAD_MOST = 256 << 20, AHEAD_THREADS = 512 }; /* bytes of tiles made ahead */

/* Bytes of a tile of K and V. */
static __host__ __device__ inline size_t pair_bytes(int width, int d)
{
    return (size_t)KEYS * 2 * (width + d);
}

/* The matrix that un-rotates the sums has so many rows of halves, and as many columns. */
static __device__ constexpr int turn_width(int d)
{
    return d < 128 ? d : 128;
}

static __device__ constexpr uint32_t turn_bytes(int d)
{
    return (uint32_t)(turn_width(d) * turn_width(d) * 2);
}

static __device__ void fill_prefill_books(const prefill_job &p, books &b)
{
    for (int i = threadIdx.x; i < 512; i += blockDim.x) {
        const prefill_side &s = i < 256 ? p.k : p.v;
        const int bits = s.cls == PACK_LUT3 ? 3 : 4, e = i % 256;
        const float *states = s.cls == PACK_PAGE ? page_books[s.s.fmt - FMT_COUNT] : fmt_c_turbo3_tcq_codebook;
        b.side[i / 256].pair[e] = s.cls == PACK_TRELLIS || s.cls == PACK_PAGE
                                      ? pack_halves(states[2 * e], states[2 * e + 1])
                                      : pack_halves(fmt_level(s.s.fmt, e), fmt_level(s.s.fmt, e >> bits));
        if (i < 32) {
            const prefill_side &from = i < 16 ? p.k : p.v;
            ((uint8_t *)b.mirror)[i] = mirror_byte(from.s.fmt, from.cls == PACK_LUT3 ? 3 : 4, i % 16);
        }
    }
}

/* Rows of 16 bits. */
static __device__ __forceinline__ bool plain_rows(const prefill_side &s)
{
    return s.cls == PACK_HALF || s.cls == PACK_BF16;
}

/* A page's place among the tiles made ahead; behind them, the matrix of the turn. */
template <int PAGES>
static __device__ __forceinline__ uint8_t *tile_ahead(const prefill_job &p, int seq, int page, int kv)
{
    const size_t n = ((size_t)seq * p.seqs.stride + page) * p.h_kv + kv;
    return p.tiles + n * (pair_bytes(p.k.width, p.d) + (PAGES & BF16_K ? SCALE_BYTES : 0));
}

static __device__ __forceinline__ uint8_t *turn_ahead(const prefill_job &p)
{
    return tile_ahead<0>(p, p.seqs.n_seqs, 0, 0);
}

/* Pages from w.first on whose tiles are made ahead: not the queries' own, of whose rows each block sees others. */
static __device__ __forceinline__ int pages_ahead(const tile_plan &w)
{
    return min(w.encoded, w.now - w.first);
}

/* Returns true if page j of a sequence is encoded for some tile of its n queries; w: of the last one's. */
static __device__ __forceinline__ bool page_wanted(const prefill_job &p, int seq, const tile_plan &w, int pages, int j)
{
    return j >= attn_first(p, p.seqs.pos0[seq]) / KVANT_PAGE && j < w.first + pages;
}

/* f16 rows of a whole page, as make_half has them. */
static __device__ void copy_half(const uint8_t *rows, int d, uint8_t *to, const maker &w)
{
    const int per = d / 8;
#pragma unroll 4
    for (int i = w.m; i < KEYS * per; i += w.n)
        *(uint4 *)(to + cell(KEYS, i / per, i % per * 8)) = ((const uint4 *)rows)[i];
}

#endif
