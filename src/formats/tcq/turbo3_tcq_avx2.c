/* turbo3_tcq_avx2.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c).
 * State t is the 9 bits of the stream at bit 3t: 8 states lie in one 32-bit word at byte 3t/8 (bits 0 to 29).
 * The codebook is by spiritbuun (tcq_tables.inc). */
#include "formats/format.h"
#include "formats/tcq/tcq_tables.inc"
#include "formats/turbo/turbo_avx2.h"

static const float codebook[512] = { TCQ_CODEBOOK };

/* 8 values from the 3 bytes (and a bit) at p */
static inline vf tcq_chunk(const uint8_t *p, vf norm)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    __m256i state = _mm256_srlv_epi32(_mm256_set1_epi32(w), _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21));
    return vf_mul(_mm256_i32gather_ps(codebook, _mm256_and_si256(state, _mm256_set1_epi32(511)), 4), norm);
}

static inline void tcq_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 52, *qs = group + 2 + b % 4 * 12;
    vf norm = vf_splat_f16(group);
    v[0] = tcq_chunk(qs, norm);
    v[1] = tcq_chunk(qs + 3, norm);
    v[2] = tcq_chunk(qs + 6, norm);
    v[3] = tcq_chunk(qs + 9, norm);        /* of the last block: bytes 47 to 50, before the pad */
}

#define BLOCK_DECODE tcq_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_avx2 = {
    .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
};
