/* turbo3_avx512vnni.c: four blocks [norm fp16][qs u8 x 8][signs u8 x 4] of 32 values per 128 (see turbo3.c): the integer
 * path.  vpmultishiftqb brings the two low bits of a code to bit 0 and its high bit to bit 2; vpermb is the table. */
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

/* x[h]: a dword takes, from the four rows, the byte with its two bits and the byte with its high bit; values 4i .. 4i+3
 * lie in one byte, at bits 0, 2, 4, 6. */
static inline void turbo3_quad(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    static const uint8_t low_at[64] = {
#define TURBO3_ROWS(i) (i), (i) + 16, (i) + 32, (i) + 48
#define TURBO3_LOW(i) TURBO3_ROWS((i) / 4)
        KEYS_LIST16(TURBO3_LOW)
    };
    static const uint8_t high_at[64] = {
#define TURBO3_HIGH(i) TURBO3_ROWS(8 + (i) / 8)
        KEYS_LIST16(TURBO3_HIGH)
    };
    const __m512i low_bit = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 4, 6));
    const __m512i high_bit = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i rows = keys_four(turbo3_codes(row, b), stride);
    for (int h = 0; h < 2; h++) {
        __m512i early = _mm512_set1_epi8((char)(turbo3_early(b) + 4 * h));
        __m512i late = _mm512_set1_epi8((char)(turbo3_early(b) + 2 * h));
        __m512i low = _mm512_permutexvar_epi8(_mm512_add_epi8(_mm512_loadu_si512(low_at), early), rows);
        __m512i high = _mm512_permutexvar_epi8(_mm512_add_epi8(_mm512_loadu_si512(high_at), late), rows);
        /* bits cross into a byte only from its left neighbour, where they land above those that count */
        low = _mm512_srlv_epi32(low, low_bit);
        high = _mm512_slli_epi32(_mm512_and_si512(_mm512_srlv_epi32(high, high_bit), _mm512_set1_epi8(1)), 2);
        x[h] = turbo3_lookup(low, high);
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
