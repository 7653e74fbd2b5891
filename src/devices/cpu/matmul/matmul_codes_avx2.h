/* matmul_codes_avx2.h: scales and codes of packed panels on AVX2, shared by matmul_int_avx2.c and matmul_row_avx2.c. */
#ifndef KVANT_DEVICES_CPU_MATMUL_CODES_AVX2_H
#define KVANT_DEVICES_CPU_MATMUL_CODES_AVX2_H

#include "devices/cpu/matmul/matmul_int.h"

#include <immintrin.h>
#include <string.h>

static inline __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void store256(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

static inline __m256i broadcast4(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* ---- scales: 16 floats of one group ---- */

static inline void scale_f16(const uint8_t *p, float *dst)
{
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)));
    _mm256_storeu_ps(dst + 8, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16))));
}

static inline void scale_bf16(const uint8_t *p, float *dst)
{
    for (int i = 0; i < 2; i++) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + i * 16)));
        _mm256_storeu_ps(dst + i * 8, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
}

/* f16 d at p times 16 small integers: u8 or i8. */
static inline void scale_times(const uint8_t *p, const uint8_t *n, int is_signed, float *dst)
{
    for (int i = 0; i < 2; i++) {
        __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(n + i * 8));
        __m256i v = is_signed ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b);
        __m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + i * 16)));
        _mm256_storeu_ps(dst + i * 8, _mm256_mul_ps(d, _mm256_cvtepi32_ps(v)));
    }
}

/* 16 floats times x, or with their sign changed by `sign`. */
static inline void scale_by(float *v, float x)
{
    for (int i = 0; i < PANEL; i += 8)
        _mm256_storeu_ps(v + i, _mm256_mul_ps(_mm256_loadu_ps(v + i), _mm256_set1_ps(x)));
}

static inline void scale_sign(float *v, uint32_t sign)
{
    const __m256 s = _mm256_castsi256_ps(_mm256_set1_epi32((int)sign));

    for (int i = 0; i < PANEL; i += 8)
        _mm256_storeu_ps(v + i, _mm256_xor_ps(_mm256_loadu_ps(v + i), s));
}

/* Scale record of 32-block b. */
static inline const uint8_t *record(const matmul_packed *h, const uint8_t *panel, int64_t b)
{
    return panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;
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
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)h->levels));

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
