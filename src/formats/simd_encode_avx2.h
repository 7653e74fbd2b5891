/* simd_encode_avx2.h: the AVX2 half of what the encoders need; simd_encode.h is the shared one. */
#ifndef KVANT_FORMATS_SIMD_ENCODE_AVX2_H
#define KVANT_FORMATS_SIMD_ENCODE_AVX2_H

#include "formats/simd_avx2.h"

#define SEARCH_SCALE search_scale_avx2
#define SEARCH_UNBIASED search_unbiased_avx2

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vi vi_load(const int *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline void vi_store(int *p, vi v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

static inline vi vi_add(vi a, int b)
{
    return _mm256_add_epi32(a, _mm256_set1_epi32(b));
}

static inline vf vi_to_float(vi v)
{
    return _mm256_cvtepi32_ps(v);
}

/* Nearest integers, halves to even. */
static inline vi vf_to_int(vf v)
{
    return _mm256_cvtps_epi32(v);
}

static inline vf vf_of_bits(int bits)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32(bits));
}

static inline vi vf_to_bits(vf v)
{
    return _mm256_castps_si256(v);
}

/* A comparison gives -1 in lanes where it holds; count_*: code + 1 there. */
#define COUNT(code, v, t, how) _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(v, t, how)))

/* v >= t */
static inline vi count_ge(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_GE_OQ);
}

/* !(v <= t) */
static inline vi count_not_le(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_NLE_UQ);
}

/* !(v < t) */
static inline vi count_not_lt(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_NLT_UQ);
}

/* t >= 0 ? k : -1 - k */
static inline vi mirror(vi k, vf t)
{
    return _mm256_xor_si256(k, _mm256_castps_si256(_mm256_cmp_ps(t, vf_zero(), _CMP_NGE_UQ)));
}

/* table[k], k < 8 */
static inline vf vf_lookup8(vf table, vi k)
{
    return _mm256_permutevar8x32_ps(table, k);
}

/* k < 8 ? lo[k] : hi[k - 8] */
static inline vf vf_lookup16(vf lo, vf hi, vi k)
{
    return _mm256_blendv_ps(vf_lookup8(lo, k), vf_lookup8(hi, k), _mm256_castsi256_ps(_mm256_slli_epi32(k, 28)));
}

/* Four sums in double. */
typedef __m256d vd;

static inline vd vd_zero(void)
{
    return _mm256_setzero_pd();
}

/* sum + (a - scale*v)^2 */
static inline vd vd_add_error(vd sum, double scale, vf v, vf a)
{
    vd s = _mm256_set1_pd(scale);
    vd e = _mm256_fnmadd_pd(s, _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                            _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
    vd f = _mm256_fnmadd_pd(s, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)),
                            _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    return _mm256_fmadd_pd(e, e, _mm256_fmadd_pd(f, f, sum));
}

static inline double vd_sum(vd v)
{
    double t[4];
    _mm256_storeu_pd(t, v);
    return (t[0] + t[1]) + (t[2] + t[3]);
}

/* Butterfly steps h = 1, 2, 4 inside a vector: (a, b) -> (a + b, a - b) = partner + (+-self). */
static inline vf butterfly8(vf v)
{
    const vf odd1 = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    const vf odd2 = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    const vf odd4 = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xb1), _mm256_xor_ps(v, odd1));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4e), _mm256_xor_ps(v, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, odd4));
}

/* v[k] lane j = x[8*j + k]: rows of 8 to columns; every even/odd pair, then every second pair, then halves */
static inline void transpose8(const float *x, vf *v)
{
#define TRANSPOSE_PAIR(i, j) vf e##i = _mm256_unpacklo_ps(vf_load(x + 8 * i), vf_load(x + 8 * j)), \
                                e##j = _mm256_unpackhi_ps(vf_load(x + 8 * i), vf_load(x + 8 * j));
    TRANSPOSE_PAIR(0, 1) TRANSPOSE_PAIR(2, 3) TRANSPOSE_PAIR(4, 5) TRANSPOSE_PAIR(6, 7)
    vf f0 = _mm256_shuffle_ps(e0, e2, 0x44), f1 = _mm256_shuffle_ps(e0, e2, 0xee);
    vf f2 = _mm256_shuffle_ps(e1, e3, 0x44), f3 = _mm256_shuffle_ps(e1, e3, 0xee);
    vf f4 = _mm256_shuffle_ps(e4, e6, 0x44), f5 = _mm256_shuffle_ps(e4, e6, 0xee);
    vf f6 = _mm256_shuffle_ps(e5, e7, 0x44), f7 = _mm256_shuffle_ps(e5, e7, 0xee);
    v[0] = _mm256_permute2f128_ps(f0, f4, 0x20);
    v[4] = _mm256_permute2f128_ps(f0, f4, 0x31);
    v[1] = _mm256_permute2f128_ps(f1, f5, 0x20);
    v[5] = _mm256_permute2f128_ps(f1, f5, 0x31);
    v[2] = _mm256_permute2f128_ps(f2, f6, 0x20);
    v[6] = _mm256_permute2f128_ps(f2, f6, 0x31);
    v[3] = _mm256_permute2f128_ps(f3, f7, 0x20);
    v[7] = _mm256_permute2f128_ps(f3, f7, 0x31);
}

/* 16 codes (two vectors, natural order) -> 16 bytes */
static inline __m128i pack16(__m256i a, __m256i b)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}

/* 32 codes of 4 bits -> 16 bytes, code j and j + 16 in byte j */
static inline void put_low_high(uint8_t *qs, const vi *code)
{
    __m256i a = _mm256_or_si256(code[0], _mm256_slli_epi32(code[2], 4));
    __m256i b = _mm256_or_si256(code[1], _mm256_slli_epi32(code[3], 4));
    _mm_storeu_si128((__m128i *)(void *)qs, pack16(a, b));
}

/* 32 codes of 4 bits -> 16 bytes, code 2i and 2i + 1 in byte i */
static inline void put_adjacent(uint8_t *qs, const vi *code)
{
    __m128i a = pack16(code[0], code[1]), b = pack16(code[2], code[3]);
    a = _mm_maddubs_epi16(a, _mm_set1_epi16(0x1001));
    b = _mm_maddubs_epi16(b, _mm_set1_epi16(0x1001));
    _mm_storeu_si128((__m128i *)(void *)qs, _mm_packus_epi16(a, b));
}

/* 32 codes of 3 bits -> 12 bytes, code j at bits 3j..3j+2 */
static inline void put_bits3(uint8_t *qs, const vi *code)
{
    const __m128i take = _mm_setr_epi8(0, 1, 2, 8, 9, 10, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    for (int h = 0; h < 2; h++) {          /* 16 codes are 6 bytes */
        __m128i x = pack16(code[2 * h], code[2 * h + 1]);
        x = _mm_maddubs_epi16(x, _mm_set1_epi16(0x0801));           /* pairs: 6 bits */
        x = _mm_madd_epi16(x, _mm_set1_epi32(0x00400001));          /* fours: 12 bits */
        x = _mm_or_si128(x, _mm_srli_epi64(x, 20));                 /* eights: 24 bits */
        x = _mm_shuffle_epi8(x, take);
        uint64_t w = (uint64_t)_mm_cvtsi128_si64(x);
        memcpy(qs + 6 * h, &w, 6);
    }
}

/* 32 codes of 3 bits -> low two bits, four to a byte; high bits, eight to a byte */
static inline void put_planes(uint8_t *qs, uint8_t *signs, const vi *code)
{
    uint32_t high = 0;
    for (int h = 0; h < 2; h++) {
        __m128i x = pack16(code[2 * h], code[2 * h + 1]);
        high |= (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(x, 5)) << (16 * h);
        x = _mm_and_si128(x, _mm_set1_epi8(3));
        x = _mm_maddubs_epi16(x, _mm_set1_epi16(0x0401));
        x = _mm_madd_epi16(x, _mm_set1_epi32(0x00100001));
        x = _mm_shuffle_epi8(x, _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
        int32_t low = _mm_cvtsi128_si32(x);
        memcpy(qs + 4 * h, &low, sizeof low);
    }
    memcpy(signs, &high, sizeof high);
}

#include "formats/simd_encode.h"

#endif
