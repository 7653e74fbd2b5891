/* page_lanes.cuh: where a lane finds its symbols in a page of page scope (formats/ptcq/ptcq.h).  It compiles as C too:
 * check_cuda_page decodes pages with it.
 *
 * A lane has 32 values of a row (K, and prompts: lane t of four, from 32 t on) or 16 (V: lane g of eight, from 16 g
 * on), and words: one that ends with the bits before the lane's first symbol, then those of its own symbols.  State i
 * is the nine bits of them from bit page_bit(k, i) on. */
#ifndef KVANT_CUDA_PAGE_LANES_CUH
#define KVANT_CUDA_PAGE_LANES_CUH

#include <stdint.h>
#include "kvant/format.h"

#ifdef __CUDACC__
#define PAGE_FN static __host__ __device__ __forceinline__
#define PAGE_NUMBER PAGE_FN constexpr
#else
#define PAGE_FN static inline
#define PAGE_NUMBER PAGE_FN
#endif

enum { PAGE_GROUP = 128, PAGE_STATES = 512, PAGE_STATE_BITS = 9, PAGE_SPARE = 5 };
/* Behind the codes of all rows: scales, and from here on the mean, the starts; bytes of all of that. */
enum { PAGE_MEAN = 2 * KVANT_PAGE, PAGE_START = PAGE_MEAN + PAGE_GROUP, PAGE_REST = PAGE_START + KVANT_PAGE };

/* Bytes of the codes of half a page of 128 values, k bits a symbol. */
PAGE_NUMBER uint32_t page_codes(int k)
{
    return KVANT_PAGE / 2 * PAGE_GROUP / 8 * (uint32_t)k;
}

/* The bit of a lane's words where state i begins. */
PAGE_NUMBER int page_bit(int k, int i)
{
    return 32 - PAGE_STATE_BITS + k * (i + 1);
}

/* A row's start where the end of the word before would be: bits above those of a start are shifted out. */
PAGE_FN uint32_t page_start(int k, uint32_t start)
{
    return start << (32 - PAGE_STATE_BITS + k);
}

/* n words, which lie at a multiple of 4 n bytes where n is a power of two. */
PAGE_FN void page_take(uint32_t *x, const uint8_t *at, int n)
{
#ifdef __CUDA_ARCH__
    if (n == 2) {
        const uint2 v = *(const uint2 *)at;
        x[0] = v.x, x[1] = v.y;
        return;
    }
    if (n == 4) {
        const uint4 v = *(const uint4 *)at;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
#endif
    for (int i = 0; i < n; i++)
        x[i] = ((const uint32_t *)at)[i];
}

/* Words of symbols 32 t .. 32 t + 31 of a row: k. */
PAGE_FN void page_words_k(uint32_t *x, const uint8_t *row, int t, int k)
{
    page_take(x, row + 4 * k * t, k);
}

/* Words of symbols 16 g .. 16 g + 15: one (k is 2), or two.  With 3 bits they are three halves of words, from the first
 * or the second half on: above them in the second word lie other symbols then, or none. */
PAGE_FN void page_words_v(uint32_t *x, const uint8_t *row, int g, int k)
{
    if (k != 3) {
        page_take(x, row + 2 * k * g, k / 2);
        return;
    }
    page_take(x, row + 3 * g / 2 * 4, 1);
    page_take(x + 1, row + 3 * g / 2 * 4 + 4, 1);
    x[0] = g % 2 ? x[0] >> 16 | x[1] << 16 : x[0];
    x[1] = g % 2 ? x[1] >> 16 : x[1];
}

/* The word that a lane's right neighbour has before its own ones. */
PAGE_FN uint32_t page_last_v(const uint32_t *x, int k)
{
    return k == 2 ? x[0] : k == 3 ? x[1] << 16 : x[1];
}

/* ---- the search (encode_pages.cu): 32 lanes have 16 states each.  Bits k .. k + 4 of a state are its lane, the bits
 * below and above them the number of its cost there.  So the predecessors of a state, which differ in the low k bits
 * alone, are neighbours in one lane; and a lane's states without their newest symbol are 2^k numbers, one behind the
 * other: it reads as many of the least costs so far. ---- */

enum { PAGE_OWN = PAGE_STATES / 32, PAGE_ROW = 36 };

PAGE_NUMBER int page_walk_state(int k, int lane, int i)
{
    return i >> k << (5 + k) | lane << k | (i & ((1 << k) - 1));
}

/* The place of the least cost of the states g << k and behind: rows of 32 are PAGE_ROW apart, so that lanes meet no
 * bank twice.  Lane g % 32 finds it, from its cost g / 32 << k on. */
PAGE_NUMBER int page_walk_at(int g)
{
    return g / 32 * PAGE_ROW + g % 32;
}

/* The first g of those that go on to states of a lane. */
PAGE_NUMBER int page_walk_from(int k, int lane)
{
    return lane << k & ((PAGE_STATES >> k) - 1);
}

#endif
