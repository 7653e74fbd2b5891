/* three_bits_avx2.h: codes of 3 bits and 8 levels, in a stream (code j at bits 3j .. 3j+2) or in planes (8 bytes of
 * low bits, four codes to a byte, then 4 bytes of high ones). */
#include "formats/simd/simd_card.h"

static const float card_levels[8] = { CARD_LEVELS };

/* Stream: 8 codes are 24 bits: one broadcast, one variable shift, and vpermps, which reads the low three bits of an
 * index. */
static inline __m256i word_twice(const uint8_t *p)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    return _mm256_set1_epi32(w);
}

static inline void decode_stream3(const uint8_t *qs, vf scale, vf *v)
{
    const __m256i shift = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
    const __m256i shift8 = _mm256_setr_epi32(8, 11, 14, 17, 20, 23, 26, 29);
    const vf table = _mm256_mul_ps(scale, vf_load(card_levels));

    v[0] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(qs), shift));
    v[1] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(qs + 3), shift));
    v[2] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(qs + 6), shift));
    /* bytes 9 to 11 are the last: their word starts one byte early instead of reading one byte too far */
    v[3] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(qs + 8), shift8));
}

/* Planes: the low two bits of a code index four levels inside a lane (vpermilps, one cycle where vpermps takes
 * three), its high bit blends the two halves of the table. */
static inline vf planes_chunk(const uint8_t *qs, int c, __m256i signs, vf low, vf high)
{
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    uint16_t q;
    memcpy(&q, qs + 2 * c, sizeof q);
    __m256i code = _mm256_srlv_epi32(_mm256_set1_epi16((short)q), twos);
    return _mm256_blendv_ps(_mm256_permutevar_ps(low, code), _mm256_permutevar_ps(high, code),
                            _mm256_castsi256_ps(signs));
}

static inline void decode_planes(const uint8_t *qs, vf scale, vf *v)
{
    const __m256i top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24), signs = word_twice(qs + 8);
    const vf low = vf_mul(scale, _mm256_broadcast_ps((const __m128 *)(const void *)card_levels));
    const vf high = vf_mul(scale, _mm256_broadcast_ps((const __m128 *)(const void *)(card_levels + 4)));

    v[0] = planes_chunk(qs, 0, _mm256_sllv_epi32(signs, top), low, high);
    v[1] = planes_chunk(qs, 1, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(8))), low, high);
    v[2] = planes_chunk(qs, 2, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(16))), low, high);
    v[3] = planes_chunk(qs, 3, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(24))), low, high);
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    CARD_OF(decode)(card_codes(row, b), vf_splat_f16(card_scale(row, b)), v);
}

/* ---- the integer path: levels as bytes, natural order ---- */

/* The table stands twice, so that bit 3 of an index does not matter. */
static const uint8_t card_bytes7[16] = { CARD_BYTES7 }, card_centred7[16] = { CARD_CENTRED7 };

/* A 16-bit lane takes the two bytes that hold codes 2i and 2i + 1 (6 bits at bit 6i), a multiplication moves them to
 * its top, and two masks spread them to its bytes. */
static inline __m256i bytes_stream3(const uint8_t *qs, const uint8_t table[16])
{
    const __m256i window = _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6, 6, 7, 6, 7, 7, 8, 8, 9, 9,
                                            10, 9, 10, 10, 11, 10, 11);
    /* bit of the pair in its window: 0 6 4 2 0 6 4 2 ... and 10 for the last, whose window starts a byte early */
    const __m256i shift = _mm256_setr_epi16(1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 1);
    int64_t first;
    int32_t last;
    memcpy(&first, qs, sizeof first);
    memcpy(&last, qs + 8, sizeof last);
    /* the 12 bytes in both lanes */
    __m256i x = _mm256_blend_epi32(_mm256_set1_epi64x(first), _mm256_set1_epi32(last), 0x44);
    x = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, window), shift);          /* the pair at bits 10..15 */
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(x, 10), _mm256_set1_epi16(7));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 5), _mm256_set1_epi16(0x0700));
    return vb_lookup(table, _mm256_or_si256(low, high));
}

/* Value j takes byte qs[j/4]; values 2 and 3 of a byte move down by 4 bits, so that every code lies at bits 0-1 or
 * 2-3, as the tables expect: entry c, or entry 4c, of codes 0-3 and of codes 4-7. */
static inline __m256i bytes_planes(const uint8_t *qs, const uint8_t table[16])
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6,
                                            6, 6, 6, 7, 7, 7, 7);
    const __m256i each = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                          3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i fours = _mm256_setr_epi8(0, 1, 2, 3, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 0, 1, 2, 3, 1, -1,
                                           -1, -1, 2, -1, -1, -1, 3, -1, -1, -1);
    const __m256i t = load128_twice(table), low_half = _mm256_shuffle_epi8(t, fours),
                  high_half = _mm256_shuffle_epi8(_mm256_srli_si256(t, 4), fours);
    int64_t low;
    memcpy(&low, qs, sizeof low);
    __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x(low), spread);
    x = _mm256_and_si256(_mm256_blend_epi16(x, _mm256_srli_epi16(x, 4), 0xaa), _mm256_set1_epi16(0x0c03));
    __m256i s = _mm256_and_si256(_mm256_shuffle_epi8(word_twice(qs + 8), each), bit);
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(low_half, x), _mm256_shuffle_epi8(high_half, x),
                              _mm256_cmpeq_epi8(s, bit));
}

static inline __m256i card_bytes(const uint8_t *row, int b)
{
    return CARD_OF(bytes)(card_codes(row, b), card_bytes7);
}

static inline __m256i card_signed(const uint8_t *row, int b)
{
    return CARD_OF(bytes)(card_codes(row, b), card_centred7);
}
