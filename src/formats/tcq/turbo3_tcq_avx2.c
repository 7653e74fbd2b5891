/* turbo3_tcq_avx2.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c).
 * State t is the 9 bits of the stream at bit 3t: 8 states lie in one 32-bit word at byte 3t/8 (bits 0 to 29).
 * The codebook is by spiritbuun (tables.toml). */
#include "formats/simd_encode_avx2.h"
#include "formats/tcq/tcq_pairs.inc"
#include "formats/tcq/turbo3_tcq_simd.h"

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

/* The integer path looks up two values at once: 12 bits of the stream, a table of 8 KiB.  (AVX2 gathers are five times
 * slower.)  Bits 6p .. 6p+11 from p hold pair p. */
static const uint16_t pairs[4096] = { TCQ_PAIRS };

static inline __m128i tcq_bytes16(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    __m128i x = _mm_cvtsi32_si128(pairs[w & 4095]);
#define TCQ_INSERT(k) x = _mm_insert_epi16(x, pairs[w >> (6 * (k)) & 4095], k);
    TCQ_INSERT(1) TCQ_INSERT(2) TCQ_INSERT(3) TCQ_INSERT(4) TCQ_INSERT(5) TCQ_INSERT(6) TCQ_INSERT(7)
    return x;
}

static inline __m256i tcq_bytes(const uint8_t *row, int b)
{
    const uint8_t *qs = row + (size_t)(b / 4) * 52 + 2 + b % 4 * 12;
    return _mm256_set_m128i(tcq_bytes16(qs + 6), tcq_bytes16(qs));
}

static inline __m256i tcq_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(tcq_bytes(row, b), _mm256_set1_epi8(64));
}

#define INT_CODES tcq_bytes
#define INT_SIGNED tcq_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 52)
#define INT_GROUP 4
#define INT_STEP TCQ_STEP_VALUE
#define INT_OFFSET 64
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_avx2 = {
    .encode = tcq_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
