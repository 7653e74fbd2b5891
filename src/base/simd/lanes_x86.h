/* base/simd/lanes_x86.h: what AVX2 and AVX-512 share: bytes to and from registers at any alignment, and sums of eight
 * lanes.  vf_avx2.h and vf_avx512.h include it; without f32 lanes it serves alone.  Only files named after an
 * instruction set include it. */
#ifndef KVANT_BASE_LANES_X86_H
#define KVANT_BASE_LANES_X86_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void store128(void *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)p, v);
}

static inline void store256(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* 16 bytes in both halves */
static inline __m256i load128_twice(const void *p)
{
    return _mm256_broadcastsi128_si256(load128(p));
}

static inline int32_t load_dword(const void *p)
{
    int32_t w;

    memcpy(&w, p, sizeof w);
    return w;
}

/* Sum and largest of eight lanes, always by the same tree: halves first. */
static inline float reduce_add8(__m256 x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float reduce_max8(__m256 x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

#endif
