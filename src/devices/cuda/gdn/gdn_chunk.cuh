/* gdn_chunk.cuh: what the two kernels of gdn_chunk.cu share: sizes, which chunk is whose, values as pairs of bf16. */
#ifndef KVANT_CUDA_GDN_CHUNK_CUH
#define KVANT_CUDA_GDN_CHUNK_CUH

#include <cuda_bf16.h>
#include "devices/cuda/gdn/gdn.cuh"
#include "devices/cuda/core/halves.cuh"
#include "devices/cuda/core/wgmma.cuh"

/* A "panel" is 64 rows of 64 bf16, swizzled as wgmma reads it: 16-byte piece c of row r at place c ^ r % 8. */
enum {
    C = 64,
    D = 128,
    SEGMENT = 256, /* chunks of a sequence per pair of launches */
    PANEL = C * 128,
    SPLIT = 4 * PANEL,         /* K or Q: channels 0 .. 63 and 64 .. 127 of hi, then of lo; rows: tokens */
    SQUARE = 2 * PANEL,        /* T diag(beta) or P: hi, lo */
    KEY_SLOT = 2 * SPLIT,      /* K, Q */
    GATES = 3 * C * 4,         /* e^G; e^G / sqrt(dk); e^(G_63 - G) */
    SLOT = 2 * SQUARE + GATES  /* T diag(beta), P, gates */
};

typedef struct chunk_job {
    gdn_job g;
    unsigned char *slots; /* [slot][hv][SLOT] */
    unsigned char *keys;  /* [slot][hk][KEY_SLOT] */
    int segment, n_slots;
} chunk_job;

/* ---- which chunk ---- */

typedef struct chunk_at {
    int seq, first, last; /* tokens first .. last-1 of the batch lie in the chunk */
    int shift;            /* row of the chunk that token `first` has */
} chunk_at;

/* Chunks of sequence s in this segment; *begin: the number of the first of them in its sequence. */
static __device__ __forceinline__ int chunks_of(const chunk_job &p, int s, int *begin)
{
    const seqs_dev &q = p.g.seqs;
    *begin = p.segment * SEGMENT;
    if (!takes_part(q, s, p.g.phase))
        return 0;
    const int pos0 = q.pos0[s], n = q.q0[s + 1] - q.q0[s], all = (pos0 + n - 1) / C - pos0 / C + 1 - *begin;
    return all < 0 ? 0 : all < SEGMENT ? all : SEGMENT;
}

static __device__ __forceinline__ chunk_at chunk_of(const chunk_job &p, int s, int number)
{
    const seqs_dev &q = p.g.seqs;
    const int pos0 = q.pos0[s], end = pos0 + q.q0[s + 1] - q.q0[s], grid = (pos0 / C + number) * C;
    const int from = grid > pos0 ? grid : pos0, to = grid + C < end ? grid + C : end;
    const chunk_at at = { s, q.q0[s] + from - pos0, q.q0[s] + to - pos0, from - grid };
    return at;
}

/* The chunk of a slot; false past the last. */
static __device__ __forceinline__ bool slot_chunk(const chunk_job &p, int slot, chunk_at *at)
{
    for (int s = 0, begin; s < p.g.seqs.n_seqs; s++) {
        const int n = chunks_of(p, s, &begin);
        if (slot < n) {
            *at = chunk_of(p, s, begin + slot);
            return true;
        }
        slot -= n;
    }
    return false;
}

/* Row of the batch of row r of the chunk, or -1. */
static __device__ __forceinline__ int row_of(const chunk_at &at, int r)
{
    const int row = at.first + r - at.shift;
    return r >= at.shift && row < at.last ? row : -1;
}

static __device__ __forceinline__ int key_head(const kvant_gdn_args &a, int v)
{
    return a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
}

/* ---- values as hi + lo ---- */

static __device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 v)
{
    union {
        __nv_bfloat162 h;
        uint32_t u;
    } o;
    o.h = v;
    return o.u;
}

/* Two values as hi and lo pairs, the first in the low half. */
static __device__ __forceinline__ void split2(float a, float b, uint32_t *hi, uint32_t *lo)
{
    *hi = bits_of(__floats2bfloat162_rn(a, b));
    *lo = bits_of(__floats2bfloat162_rn(a - __uint_as_float(*hi << 16), b - __uint_as_float(*hi & 0xffff0000u)));
}

/* ---- warps ---- */

/* Four 8 x 8 matrices of 16-bit values, as mma leaves its sums, to shared memory; lane i: where row i % 8 of matrix
 * i / 8 goes; row of the matrix, or of its transpose. */
template <int MAKE>
static __device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    if constexpr (MAKE == ARCH_90)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
                     "r"(c), "r"(d)
                     : "memory");
    else {
        const uint32_t x[4] = { a, b, c, d }, lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t row = __shfl_sync(0xffffffffu, to, 8 * i + (int)lane / 4);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + lane % 4 * 4), "r"(x[i]) : "memory");
        }
    }
}

template <int MAKE>
static __device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    if constexpr (MAKE == ARCH_90)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
                     "r"(b), "r"(c), "r"(d)
                     : "memory");
    else
        store_matrices<MAKE>(to, transpose8(a), transpose8(b), transpose8(c), transpose8(d));
}

/* Named barriers: this many threads of the block meet; those of the second form do not wait. */
static __device__ __forceinline__ void meet(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void meet_later(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
