/* q4_polar_avx512.c: 82 bytes per 128 values: [d fp16][qs u8 x 64][qjl u8 x 16], the residual ignored (see polar.c). */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "cards/tables.inc"

static const float centroids[16] = { POLAR_CENTROIDS };

static inline void q4_polar_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 82, *qs = group + 2 + b % 4 * 16;
    vf table = vf_mul(vf_splat_f16(group), vf_load(centroids));
    v[0] = _mm512_permutexvar_ps(codes4_adjacent(qs), table);
    v[1] = _mm512_permutexvar_ps(codes4_adjacent(qs + 8), table);
}

#define BLOCK_DECODE q4_polar_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q4_polar_kernels_avx512 = {
    .encode = best_q4_polar_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
