/* turbo3_avx512vnni.c: four blocks [norm fp16][qs u8 x 8][signs u8 x 4] of 32 values per 128 (see turbo3.c): the
 * integer path.  vpmultishiftqb brings the two low bits of a code to bit 0 and its high bit to bit 2; vpermb is the
 * table. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static const uint8_t bytes[16] = { TURBO3_BYTES8, TURBO3_BYTES8 };

/* 16 bytes that hold the 12 of block b; those of the last block of a group begin 4 bytes early, so that nothing behind
 * the row is read. */
static inline int turbo3_early(int b)
{
    return b % 4 == 3 ? 4 : 0;
}

static inline const uint8_t *turbo3_codes(const uint8_t *row, int b)
{
    return row + (size_t)b * 14 + 2 - turbo3_early(b);
}

/* low: codes with their two low bits at bits 0, 1 of a byte; high: with the high bit at bit 2 */
static inline __m512i turbo3_lookup(__m512i low, __m512i high)
{
    __m512i code = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(4), 0xd8);    /* bit 2 of high, else low */
    return _mm512_permutexvar_epi8(code, keys_table16(bytes));
}

static inline void turbo3_keys(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    const __m512i twos = _mm512_set1_epi64(0x2624222006040200), ones = _mm512_set1_epi64(0x21201f1e0100fffe);
    int early = turbo3_early(b) / 4;
    __m512i w[4];
    keys_sixteen(turbo3_codes(row, b), stride, w);
    for (int c = 0; c < 8; c++) {
        __m512i low = _mm512_multishift_epi64_epi8(_mm512_add_epi8(twos, _mm512_set1_epi8((char)(8 * (c % 4)))),
                                                   w[early + c / 4]);
        __m512i high = _mm512_multishift_epi64_epi8(_mm512_add_epi8(ones, _mm512_set1_epi8((char)(4 * c))),
                                                    w[early + 2]);
        x[c] = turbo3_lookup(low, high);
    }
}

/* A 64-bit lane takes, for two values, from each of the four rows a word: the byte with their two low bits, and the
 * byte with their high bits. */
static inline void turbo3_quad(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    static const uint8_t word_at[64] = {
#define TURBO3_WORD(r, v) 16 * (r) + (v) / 2, 16 * (r) + 8 + (v) / 4
#define TURBO3_WORDS(v) TURBO3_WORD(0, v), TURBO3_WORD(1, v), TURBO3_WORD(2, v), TURBO3_WORD(3, v)
        TURBO3_WORDS(0), TURBO3_WORDS(1), TURBO3_WORDS(2), TURBO3_WORDS(3),
        TURBO3_WORDS(4), TURBO3_WORDS(5), TURBO3_WORDS(6), TURBO3_WORDS(7)
    };
    /* of the four rows: the first value's low bits, the second's 2 bits on; from lane to lane 4 bits on, modulo a byte
     * */
    const __m512i low_bit = _mm512_add_epi8(_mm512_set1_epi64(0x3222120230201000),
                                            _mm512_broadcast_i32x4(_mm_set_epi64x(0x0404040404040404, 0)));
    /* two bits below the first value's high bit, the second's 1 bit on; from lane to lane 2 bits on, modulo a byte */
    const __m512i lane = _mm512_setr_epi64(0, 0x0202020202020202, 0x0404040404040404, 0x0606060606060606,
                                           0, 0x0202020202020202, 0x0404040404040404, 0x0606060606060606);
    const __m512i high_bit = _mm512_add_epi8(_mm512_set1_epi64(0x3727170736261606), lane);
    /* the second half lies 4 bytes on among the low bits, 2 among the high ones */
    const __m512i second = _mm512_set1_epi16(0x0204);
    __m512i rows = keys_four(turbo3_codes(row, b), stride);
    __m512i at = _mm512_add_epi8(_mm512_loadu_si512(word_at), _mm512_set1_epi8((char)turbo3_early(b)));
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_permutexvar_epi8(h ? _mm512_add_epi8(at, second) : at, rows);
        x[h] = turbo3_lookup(_mm512_multishift_epi64_epi8(low_bit, w), _mm512_multishift_epi64_epi8(high_bit, w));
    }
}

#define INT_KEYS turbo3_keys
#define INT_QUAD turbo3_quad
#define INT_VALUE(j) (j)
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TURBO3_STEP8
#define INT_OFFSET INT_CENTRE8
#define INT_DIGITS 1
#define INT_MAX_ROW (16 * 14)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_turbo3_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
