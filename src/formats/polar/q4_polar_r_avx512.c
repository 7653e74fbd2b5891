/* q4_polar_r_avx512.c: 82 bytes per 128 values with the residual sign (see polar.c): (centroid +- signs/(2 sqrt 128)) *
 * d. */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "cards/tables.inc"

static const float centroids[16] = { POLAR_CENTROIDS };
static const float signs[128] = { POLAR_SIGNS };

static inline void q4_polar_r_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 82, *qs = group + 2 + b % 4 * 16;
    const float *s = signs + b % 4 * 32;
    /* 0x3d3504f3 */
    vf residual = vf_set1(group[66] & 1 ? 0x1.6a09e6p-5f : -0x1.6a09e6p-5f), d = vf_splat_f16(group);
    vf x = _mm512_permutexvar_ps(codes4_adjacent(qs), vf_load(centroids));
    vf y = _mm512_permutexvar_ps(codes4_adjacent(qs + 8), vf_load(centroids));
    v[0] = vf_mul(_mm512_add_ps(x, vf_mul(residual, vf_load(s))), d);
    v[1] = vf_mul(_mm512_add_ps(y, vf_mul(residual, vf_load(s + 16))), d);
}

#define BLOCK_DECODE q4_polar_r_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q4_polar_r_kernels_avx512 = {
    .encode = best_q4_polar_r_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
