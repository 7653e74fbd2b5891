/* trellis_avx512vnni.h: codes that are windows of a stream in the integer path. */
#include "formats/simd/simd_card.h"
#include "formats/simd/simd_states_avx512vnni.h"

/* 16 bytes that hold the 13 of block b; those of the last block of a group begin 2 bytes early, so that nothing
 * behind the row is read. */
static inline int trellis_early(int b)
{
    return b % 4 == 3 ? 2 : 0;
}

static inline const uint8_t *trellis_codes(const uint8_t *row, int b)
{
    return card_codes(row, b) - trellis_early(b);
}

/* States `first`/3 .. + 3 of the windows of x: 8 states begin in 24 bits, the last ends at bit 29. */
static inline __m512i trellis_values(__m512i x, int first)
{
    const __m512i bit8 = _mm512_add_epi8(_mm512_set1_epi64(0x2926232009060300), _mm512_set1_epi8((char)(first + 8)));
    return states_lookup(keys_bits3(x, first), _mm512_bitshuffle_epi64_mask(x, bit8));
}

static inline void trellis_keys(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    __m512i w[4];
    keys_sixteen_spread(trellis_codes(row, b), stride, keys_windows(trellis_early(b)), w);
#define TRELLIS_WINDOW(c) x[2 * c] = trellis_values(w[c], 0), x[2 * c + 1] = trellis_values(w[c], 12);
    REP4(TRELLIS_WINDOW)
}

/* x[0]: values 0-3, 8-11, 16-19, 24-27; x[1]: the others */
static inline void trellis_quad(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    const __m512i by_row = load512(keys_quad_index);
    __m512i w = _mm512_shuffle_epi8(keys_four(trellis_codes(row, b), stride), keys_windows(trellis_early(b)));
    x[0] = _mm512_permutexvar_epi8(by_row, trellis_values(w, 0));
    x[1] = _mm512_permutexvar_epi8(by_row, trellis_values(w, 12));
}

#define INT_KEYS trellis_keys
#define INT_QUAD trellis_quad
#define INT_VALUE(j) (j)
#define INT_COLUMNS 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23
