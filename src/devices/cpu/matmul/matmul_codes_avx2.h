/* matmul_codes_avx2.h: scales and codes of packed panels on AVX2, shared by matmul_int_avx2.c and matmul_row_avx2.c. */
#ifndef KVANT_DEVICES_CPU_MATMUL_CODES_AVX2_H
#define KVANT_DEVICES_CPU_MATMUL_CODES_AVX2_H

#include "base/simd/vf_avx2.h"
#include "devices/cpu/matmul/matmul_int.h"

/* ---- scales: 16 floats of one group ---- */

/* f16 d at p times 16 small integers: u8 or i8. */
static inline void scale_times(const uint8_t *p, const uint8_t *n, int is_signed, float *dst)
{
    for (int i = 0; i < 2; i++) {
        __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(n + i * 8));
        __m256i v = is_signed ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b);
        vf_store(dst + i * 8, vf_mul(vf_load_f16(p + i * 16), _mm256_cvtepi32_ps(v)));
    }
}

/* 16 floats with their sign changed by `sign`. */
static inline void scale_sign(float *v, uint32_t sign)
{
    const __m256 s = _mm256_castsi256_ps(_mm256_set1_epi32((int)sign));

    for (int i = 0; i < PANEL; i += 8)
        vf_store(v + i, _mm256_xor_ps(vf_load(v + i), s));
}

#include "devices/cpu/matmul/matmul_scales8.h"

/* ---- codes of 8 outputs x 4 k at group g (0..7), half s of the panel: raw_<store> gives unsigned bytes, `centre`
 * above the signed code; byte and wide: the signed code (t: levels_of(h), for stores that look codes up) ---- */

static inline __m256i low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

static inline __m256i plane_four(const uint8_t *p, int g, int s)
{
    __m256i v = load256(p + g / 2 * 64 + s * 32);

    return low_nibbles(g % 2 ? _mm256_srli_epi16(v, 4) : v);
}

static inline __m256i plane_two(const uint8_t *p, int g, int s)
{
    __m256i v = load256(p + g / 4 * 64 + s * 32);

    return _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128(g % 4 * 2)), _mm256_set1_epi8(3));
}

static inline __m256i plane_one(const uint8_t *p, int g, int s)
{
    return _mm256_and_si256(_mm256_srl_epi16(load256(p + s * 32), _mm_cvtsi32_si128(g)), _mm256_set1_epi8(1));
}

/* The 16 levels plus centre, in both halves. */
static inline __m256i levels_of(const matmul_packed *h)
{
    __m256i v = load128_twice(h->levels);

    return _mm256_add_epi8(v, _mm256_set1_epi8((char)h->centre));
}

static inline __m256i raw_byte(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return load256(codes + g * 64 + s * 32);
}

static inline __m256i raw_nibble(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return plane_four(codes, g, s);
}

static inline __m256i raw_table(const uint8_t *codes, int g, int s, __m256i t)
{
    return _mm256_shuffle_epi8(t, plane_four(codes, g, s));
}
#define raw_wide raw_table

static inline __m256i raw_two(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return plane_two(codes, g, s);
}

static inline __m256i raw_three(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return _mm256_or_si256(plane_two(codes, g, s), _mm256_slli_epi16(plane_one(codes + 128, g, s), 2));
}

static inline __m256i raw_five(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return _mm256_or_si256(plane_four(codes, g, s), _mm256_slli_epi16(plane_one(codes + 256, g, s), 4));
}

static inline __m256i raw_six(const uint8_t *codes, int g, int s, __m256i t)
{
    (void)t;
    return _mm256_or_si256(plane_four(codes, g, s), _mm256_slli_epi16(plane_two(codes + 256, g, s), 4));
}

#endif
