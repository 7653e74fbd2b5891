/* turbo3_tcq_avx512.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c, turbo3_tcq_avx2.c).
 * The codebook is by spiritbuun (tables.toml). */
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "formats/tcq/tcq.h"
#include "cards/tables.inc"

static const float codebook[512] = { TCQ_CODEBOOK };

/* 16 values from the 6 bytes (and a bit) at p */
static inline vf tcq_chunk(const uint8_t *p, vf norm)
{
    const __m512i shift = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 0, 3, 6, 9, 12, 15, 18, 21);
    __m512i state = _mm512_and_si512(_mm512_srlv_epi32(words(p, p + 3), shift), _mm512_set1_epi32(511));
    return vf_mul(_mm512_i32gather_ps(state, codebook, 4), norm);
}

static inline void tcq_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 52, *qs = group + 2 + b % 4 * 12;
    vf norm = vf_splat_f16(group);
    v[0] = tcq_chunk(qs, norm);
    v[1] = tcq_chunk(qs + 6, norm);
}

#define BLOCK_DECODE tcq_decode32
#include "formats/simd_blocks.h"

static void tcq_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128, row += 52)
        tcq_encode_group(tcq_walk_avx512, x + g, row, encoder);
}

const kvant_format_kernels kvant_turbo3_tcq_kernels_avx512 = {
    .encode = tcq_encode,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
