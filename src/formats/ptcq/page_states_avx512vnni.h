/* page_states_avx512vnni.h: the rows of a page as bytes for the integer path: 64 values at once, 8 to a 64-bit lane,
 * which takes the bytes that hold their windows (8k + 8 bits from the byte before on). */
#include "formats/ptcq/page_record.h"
#include "formats/simd/simd_states_avx512vnni.h"

#define PAGE_BYTE(i, j) (uint8_t)((CARD_K * (i) + (j)) & 63)
#define PAGE_LANE(i)                                                                                        \
    PAGE_BYTE(i, 0), PAGE_BYTE(i, 1), PAGE_BYTE(i, 2), PAGE_BYTE(i, 3), PAGE_BYTE(i, 4), PAGE_BYTE(i, 5), \
        PAGE_BYTE(i, 6), PAGE_BYTE(i, 7)
static const uint8_t page_spread[64] = { PAGE_LANE(0), PAGE_LANE(1), PAGE_LANE(2), PAGE_LANE(3),
                                         PAGE_LANE(4), PAGE_LANE(5), PAGE_LANE(6), PAGE_LANE(7) };

/* The lowest bits of the eight windows of a lane: k (v + 1) - 1. */
#define PAGE_AT(v) ((int64_t)(CARD_K * ((v) + 1) - 1) << 8 * (v))
#define PAGE_WINDOWS                                                                                        \
    (PAGE_AT(0) | PAGE_AT(1) | PAGE_AT(2) | PAGE_AT(3) | PAGE_AT(4) | PAGE_AT(5) | PAGE_AT(6) | PAGE_AT(7))

/* 64 values whose codes, from the byte before them on, are the bytes of x from `first` on, modulo 64. */
static inline __m512i page_values64(__m512i x, int first)
{
    const __m512i index = _mm512_add_epi8(load512(page_spread), _mm512_set1_epi8((char)first));
    const __m512i at = _mm512_set1_epi64(PAGE_WINDOWS), w = _mm512_permutexvar_epi8(index, x);
    const __mmask64 bit8 = _mm512_bitshuffle_epi64_mask(w, _mm512_add_epi8(at, _mm512_set1_epi8(8)));
    return states_lookup(_mm512_multishift_epi64_epi8(at, w), bit8);
}

/* Row r of a page of 128 values.  The last of the first 64 bytes is not used here: it becomes the byte before the
 * codes.  Behind the codes of a page lie its scales: reads of 64 bytes end in them or in the mean. */
static inline void page_row_bytes(const uint8_t *page, int r, uint8_t *out)
{
    const uint8_t *codes = page + r * 16 * CARD_K;
    const __m512i before = _mm512_set1_epi8((char)page_before(CARD_K, page, r));
    const __m512i x = _mm512_mask_mov_epi8(load512(codes), (__mmask64)1 << 63, before);
    const __m512i y = load512(codes + 8 * CARD_K - 1);
    _mm512_storeu_si512(out, page_values64(x, -1));
    _mm512_storeu_si512(out + 64, page_values64(y, 0));
}

static inline void page_keys(const uint8_t *p, size_t stride, __m512i *x)
{
    keys_sixteen(p, stride, x);
    keys_sixteen(p + 16, stride, x + 4);
}

static inline void page_quad(const uint8_t *p, size_t stride, __m512i *x)
{
    x[0] = keys_quad(p, stride);
    x[1] = keys_quad(p + 16, stride);
}

#define INT_KEYS(row, stride, b, x) page_keys(card_codes(row, b), stride, x)
#define INT_QUAD(row, stride, b, x) page_quad(card_codes(row, b), stride, x)
#define INT_VALUE(j) (j)
