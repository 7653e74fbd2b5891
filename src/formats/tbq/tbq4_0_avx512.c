/* tbq4_0_avx512.c: 18 bytes per 32 values: [d fp16][qs u8 x 16] (see tbq4_0.c).
 * The 16 centroids times d are one register; a code is the index of one permutation. */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "cards/tables.inc"

static const float centroids[16] = { TBQ4_CENTROIDS };

static inline void tbq4_0_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    vf table = vf_mul(vf_splat_f16(block), vf_load(centroids));
    __m512i lo, hi;
    codes4_low_high(block + 2, &lo, &hi);
    v[0] = _mm512_permutexvar_ps(lo, table);
    v[1] = _mm512_permutexvar_ps(hi, table);
}

#define BLOCK_DECODE tbq4_0_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_tbq4_0_kernels_avx512 = {
    .encode = best_tbq4_0_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
