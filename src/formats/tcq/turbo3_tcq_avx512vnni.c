/* turbo3_tcq_avx512vnni.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c): the integer path.
 * The codebook in 8 bits is eight registers: vpermb reads 64 entries, the three upper bits of a state choose among
 * them.  64 states cost 16 instructions; gathers take three times as long.
 * The codebook is by spiritbuun (tables.toml). */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"
#include "formats/tcq/tcq_bytes.inc"

static const uint8_t bytes[512] = { TCQ_BYTES };

/* 16 bytes that hold the 13 of block b; those of the last block of a group begin 2 bytes early, so that nothing behind
 * the row is read. */
static inline int tcq_early(int b)
{
    return b % 4 == 3 ? 2 : 0;
}

static inline const uint8_t *tcq_codes(const uint8_t *row, int b)
{
    return row + (size_t)(b / 4) * 52 + 2 + b % 4 * 12 - tcq_early(b);
}

/* low: bits 0-7 of 64 states, bit8: the others.  vpermb reads 64 entries by bits 0-5; bit 6 masks the second of a
 * pair. */
static inline __m512i tcq_lookup(__m512i low, __mmask64 bit8)
{
    const __mmask64 bit6 = _mm512_movepi8_mask(_mm512_add_epi8(low, low)), bit7 = _mm512_movepi8_mask(low);
#define TCQ_TABLE(i) _mm512_loadu_si512(bytes + 64 * (i))
#define TCQ_QUARTER(i)                                                                                      \
    _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(low, TCQ_TABLE(2 * (i))), bit6, low,               \
                                 TCQ_TABLE(2 * (i) + 1))
    __m512i a = _mm512_mask_blend_epi8(bit7, TCQ_QUARTER(0), TCQ_QUARTER(1));
    __m512i b = _mm512_mask_blend_epi8(bit7, TCQ_QUARTER(2), TCQ_QUARTER(3));
    return _mm512_mask_blend_epi8(bit8, a, b);
}

/* States `first`/3 .. + 3 of the windows of x: 8 states begin in 24 bits, the last ends at bit 29. */
static inline __m512i tcq_values(__m512i x, int first)
{
    const __m512i bit8 = _mm512_add_epi8(_mm512_set1_epi64(0x2926232009060300), _mm512_set1_epi8((char)(first + 8)));
    return tcq_lookup(keys_bits3(x, first), _mm512_bitshuffle_epi64_mask(x, bit8));
}

static inline void tcq_keys(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    __m512i w[4];
    keys_sixteen_spread(tcq_codes(row, b), stride, keys_windows(tcq_early(b)), w);
    for (int c = 0; c < 4; c++) {
        x[2 * c] = tcq_values(w[c], 0);
        x[2 * c + 1] = tcq_values(w[c], 12);
    }
}

/* x[0]: values 0-3, 8-11, 16-19, 24-27; x[1]: the others */
static inline void tcq_quad(const uint8_t *row, size_t stride, int b, __m512i *x)
{
    const __m512i by_row = _mm512_loadu_si512(keys_quad_index);
    __m512i w = _mm512_shuffle_epi8(keys_four(tcq_codes(row, b), stride), keys_windows(tcq_early(b)));
    x[0] = _mm512_permutexvar_epi8(by_row, tcq_values(w, 0));
    x[1] = _mm512_permutexvar_epi8(by_row, tcq_values(w, 12));
}

#define INT_KEYS tcq_keys
#define INT_QUAD tcq_quad
#define INT_VALUE(j) (j)
#define INT_COLUMNS 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 52)
#define INT_GROUP 4
#define INT_STEP TCQ_BYTE_STEP
#define INT_OFFSET INT_CENTRE8
#define INT_DIGITS 1
#define INT_MAX_ROW (4 * 52)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
