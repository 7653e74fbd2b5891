/* q4_0_avx512.c: 18 bytes per 32 values: [d fp16][qs u8 x 16] (see q4_0.c).
 * d*(n - 8), the reference's single rounding and its infinities (see q4_0_avx2.c). */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"

static inline void q4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    const vf values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    vf d = vf_splat_f16(block);
    __m512i lo, hi;
    codes4_low_high(block + 2, &lo, &hi);
    v[0] = vf_mul(d, _mm512_permutexvar_ps(lo, values));       /* reads the low 4 bits of an index */
    v[1] = vf_mul(d, _mm512_permutexvar_ps(hi, values));
}

#define BLOCK_DECODE q4_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q4_0_kernels_avx512 = {
    .encode = best_q4_0_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
