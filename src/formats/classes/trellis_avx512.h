/* trellis_avx512.h: codes that are windows of a stream (trellis_avx2.h): 16 states from two words, a gather from the
 * codebook. */
#include "formats/simd/simd_trellis.h"
#include "formats/tcq/tcq.h"

/* 16 values from the 6 bytes (and a bit) at p */
static inline vf trellis_chunk(const uint8_t *p, vf norm)
{
    const __m512i shift = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 0, 3, 6, 9, 12, 15, 18, 21);
    __m512i state = _mm512_and_si512(_mm512_srlv_epi32(words(p, p + 3), shift), _mm512_set1_epi32(511));
    return vf_mul(_mm512_i32gather_ps(state, card_levels, 4), norm);
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += CARD_VALUES, row += CARD_BYTES_OF_RECORD)
        tcq_encode_group(tcq_walk_avx512, x + g, row, encoder);
}
