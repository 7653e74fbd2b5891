/* tbq3_0_avx512.c: 14 bytes per 32 values: [d fp16][qs u8 x 12], code j at bits 3j..3j+2 (see tbq3_0.c).
 * The table stands twice in a register, so that the fourth bit of an index does not matter. */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "cards/tables.inc"

static const float centroids[16] = { TBQ3_CENTROIDS, TBQ3_CENTROIDS };

static inline void tbq3_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 14, *qs = block + 2;
    const __m512i shift = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 0, 3, 6, 9, 12, 15, 18, 21);
    /* bytes 9 to 11 are the last: their word starts one byte early */
    const __m512i shift8 = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
    vf table = vf_mul(vf_splat_f16(block), vf_load(centroids));
    v[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(words(qs, qs + 3), shift), table);
    v[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(words(qs + 6, qs + 8), shift8), table);
}

#define BLOCK_DECODE tbq3_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_tbq3_0_kernels_avx512 = {
    .encode = best_tbq3_0_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
