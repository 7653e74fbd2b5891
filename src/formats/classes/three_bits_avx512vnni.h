/* three_bits_avx512vnni.h: codes of 3 bits in the integer path (three_bits_avx2.h has the two orders).
 * vpmultishiftqb takes the codes out of 64-bit lanes, vpermb is the table. */
#include "formats/simd/simd_card.h"

#if !defined CARD_R128 && !defined CARD_H128
#define INT_SHORT_ROWS
#endif

static const uint8_t card_bytes8[16] = { CARD_BYTES8 };    /* twice: bit 3 of an index does not matter */

/* 16 bytes that hold the 12 of block b, `early` bytes behind the first.  Those of all blocks but the first begin
 * early, so that nothing behind the row is read; a row of one block has no such bytes: it lies in a copy that may be
 * read beyond (short_rows). */
static inline int codes_early(int b)
{
#ifdef INT_SHORT_ROWS
    return b ? 4 : 0;
#else
    return b % 4 == 3 ? 4 : 0;             /* a row is groups of 4 blocks: their last one is enough */
#endif
}

static inline void keys16_stream3(const uint8_t *p, size_t stride, int early, __m512i *x)
{
    const __m512i table = keys_table16(card_bytes8);
    __m512i w[4];
    keys_sixteen_spread(p, stride, keys_windows(early), w);
#define STREAM3_WINDOW(c)                                                  \
    x[2 * c] = _mm512_permutexvar_epi8(keys_bits3(w[c], 0), table);        \
    x[2 * c + 1] = _mm512_permutexvar_epi8(keys_bits3(w[c], 12), table);
    REP4(STREAM3_WINDOW)
}

static inline void keys4_stream3(const uint8_t *p, size_t stride, int early, __m512i *x)
{
    const __m512i rows = keys_four(p, stride), table = keys_table16(card_bytes8);
    x[0] = _mm512_permutexvar_epi8(keys_quad_bits3(rows, 0, early), table);
    x[1] = _mm512_permutexvar_epi8(keys_quad_bits3(rows, 1, early), table);
}

/* Planes: the two low bits of a code go to bit 0, its high bit to bit 2. */
/* low: codes with their two low bits at bits 0, 1 of a byte; high: with the high bit at bit 2 */
static inline __m512i planes_lookup(__m512i low, __m512i high)
{
    __m512i code = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(4), 0xd8);    /* bit 2 of high, else low */
    return _mm512_permutexvar_epi8(code, keys_table16(card_bytes8));
}

static inline void keys16_planes(const uint8_t *p, size_t stride, int early, __m512i *x)
{
    const __m512i twos = _mm512_set1_epi64(0x2624222006040200), ones = _mm512_set1_epi64(0x21201f1e0100fffe);
    __m512i w[4];
    keys_sixteen(p, stride, w);
#define PLANES_AT(bits, c, word) \
    _mm512_multishift_epi64_epi8(_mm512_add_epi8(bits, _mm512_set1_epi8((char)(c))), w[early / 4 + (word)])
#define PLANES_FOUR(c) x[c] = planes_lookup(PLANES_AT(twos, 8 * (c % 4), c / 4), PLANES_AT(ones, 4 * c, 2));
    REP8(PLANES_FOUR)
}

/* A 64-bit lane takes, for two values, from each of the four rows a word: the byte with their two low bits, and the
 * byte with their high bits. */
static inline void keys4_planes(const uint8_t *p, size_t stride, int early, __m512i *x)
{
    static const uint8_t word_at[64] = {
#define PLANES_WORD(r, v) 16 * (r) + (v) / 2, 16 * (r) + 8 + (v) / 4
#define PLANES_WORDS(v) PLANES_WORD(0, v), PLANES_WORD(1, v), PLANES_WORD(2, v), PLANES_WORD(3, v)
        PLANES_WORDS(0), PLANES_WORDS(1), PLANES_WORDS(2), PLANES_WORDS(3),
        PLANES_WORDS(4), PLANES_WORDS(5), PLANES_WORDS(6), PLANES_WORDS(7)
    };
    /* of the four rows: the first value's low bits, the second's 2 bits on; from lane to lane 4 bits on, modulo a
     * byte */
    const __m512i low_bit = _mm512_add_epi8(_mm512_set1_epi64(0x3222120230201000),
                                            _mm512_broadcast_i32x4(_mm_set_epi64x(0x0404040404040404, 0)));
    /* two bits below the first value's high bit, the second's 1 bit on; from lane to lane 2 bits on, modulo a byte */
    const __m512i lane = _mm512_setr_epi64(0, 0x0202020202020202, 0x0404040404040404, 0x0606060606060606,
                                           0, 0x0202020202020202, 0x0404040404040404, 0x0606060606060606);
    const __m512i high_bit = _mm512_add_epi8(_mm512_set1_epi64(0x3727170736261606), lane);
    /* the second half lies 4 bytes on among the low bits, 2 among the high ones */
    const __m512i second = _mm512_set1_epi16(0x0204);
    __m512i rows = keys_four(p, stride);
    __m512i at = _mm512_add_epi8(load512(word_at), _mm512_set1_epi8((char)early));
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_permutexvar_epi8(h ? _mm512_add_epi8(at, second) : at, rows);
        x[h] = planes_lookup(_mm512_multishift_epi64_epi8(low_bit, w), _mm512_multishift_epi64_epi8(high_bit, w));
    }
}

#define INT_KEYS(row, stride, b, x) CARD_OF(keys16)(card_codes(row, b) - codes_early(b), stride, codes_early(b), x)
#define INT_QUAD(row, stride, b, x) CARD_OF(keys4)(card_codes(row, b) - codes_early(b), stride, codes_early(b), x)
#define INT_VALUE(j) (j)
