/* encode_core.cuh: the encoder of the cache formats on a GPU: a tile of 8 units of 128 values to a warp, 32 values to a
 * lane, over the formats' cards.  Callers: encode_rows.cu (rows of a batch, and whatever else) and encode_seal.cu
 * (whole pages).  turbo3_tcq and qjl1_256 have encoders of their own (trellis/, sketch/). */
#ifndef KVANT_CUDA_ENCODE_CORE_CUH
#define KVANT_CUDA_ENCODE_CORE_CUH

#include "devices/cuda/encode/encode_integers.cuh"
#include "devices/cuda/encode/encode_best.cuh"
#include "devices/cuda/encode/encode_upstream.cuh"

/* A kernel's encoder.  Once: copies the tables into `room` (load asks for them, store waits), makes a lane's books;
 * then encodes each tile.  `bytes` of shared memory, at a multiple of 128. */
template <int F, bool BEST, bool BOOK> struct enc_rules;

template <int F> struct enc_rules<F, false, true> {
    typedef typename enc_upstream_table<F>::lines lines;
    typedef enc_upstream_books books;

    static __device__ __forceinline__ const lines &data(void)
    {
        return enc_upstream_data<F>;
    }

    static __device__ __forceinline__ books books_of(const uint8_t *room)
    {
        return enc_upstream_books_of<F>(room);
    }

    static __device__ __forceinline__ void encode(const books &b, float *v, uint8_t *out)
    {
        enc_book_upstream<F>(b, v, out);
    }
};

template <int F> struct enc_rules<F, true, true> {
    typedef typename enc_best_table<F>::lines lines;
    typedef enc_best_books books;

    static __device__ __forceinline__ const lines &data(void)
    {
        return enc_best_data<F>;
    }

    static __device__ __forceinline__ books books_of(const uint8_t *room)
    {
        return enc_best_books_of<F>(room);
    }

    static __device__ __forceinline__ void encode(const books &b, float *v, uint8_t *out)
    {
        enc_book_best<F>(b, v, out);
    }
};

struct enc_nothing {
};

static __device__ const enc_lines<0, 0> enc_no_data = {};

/* Integers and plain values: no tables. */
template <int F, bool BEST> struct enc_rules<F, BEST, false> {
    typedef enc_lines<0, 0> lines;
    typedef enc_nothing books;

    static __device__ __forceinline__ const lines &data(void)
    {
        return enc_no_data;
    }

    static __device__ __forceinline__ books books_of(const uint8_t *)
    {
        return {};
    }

    static __device__ __forceinline__ void encode(const books &, float *v, uint8_t *out)
    {
        enc_integers<F, BEST>(v, out);
    }
};

/* q4_0's upstream is not by boundaries: its rule rounds a sum. */
template <int F, bool BEST>
using enc_of = enc_rules<F, BEST, enc_format<F>::book && (BEST || card<F>::norm != CARD_LARGEST)>;

#endif
