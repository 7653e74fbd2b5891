/* simd_encode_avx2.h: what the AVX2 encoders share: rotations, thresholds, packing of codes.
 * Rotations do the reference's operations in the reference's order, so they equal it bit for bit. */
#ifndef KVANT_FORMATS_SIMD_ENCODE_AVX2_H
#define KVANT_FORMATS_SIMD_ENCODE_AVX2_H

#include "formats/search_avx2.h"
#include "formats/simd_avx2.h"

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

/* Butterfly of 32 values. */
static inline void butterfly32(vf *v)
{
    vf a = butterfly8(v[0]), b = butterfly8(v[1]), c = butterfly8(v[2]), d = butterfly8(v[3]);
    vf ab = _mm256_add_ps(a, b), ba = _mm256_sub_ps(a, b), cd = _mm256_add_ps(c, d), dc = _mm256_sub_ps(c, d);
    v[0] = _mm256_add_ps(ab, cd);
    v[1] = _mm256_add_ps(ba, dc);
    v[2] = _mm256_sub_ps(ab, cd);
    v[3] = _mm256_sub_ps(ba, dc);
}

/* Butterfly of 128 values in memory. */
static inline void butterfly128(float *x)
{
    for (int c = 0; c < 128; c += 32) {
        vf v[4] = { vf_load(x + c), vf_load(x + c + 8), vf_load(x + c + 16), vf_load(x + c + 24) };
        butterfly32(v);
        for (int k = 0; k < 4; k++)
            vf_store(x + c + 8 * k, v[k]);
    }
    for (int c = 0; c < 32; c += 8) {      /* steps 32 and 64 */
        vf a = vf_load(x + c), b = vf_load(x + c + 32), d = vf_load(x + c + 64), e = vf_load(x + c + 96);
        vf ab = _mm256_add_ps(a, b), ba = _mm256_sub_ps(a, b), de = _mm256_add_ps(d, e), ed = _mm256_sub_ps(d, e);
        vf_store(x + c, _mm256_add_ps(ab, de));
        vf_store(x + c + 32, _mm256_add_ps(ba, ed));
        vf_store(x + c + 64, _mm256_sub_ps(ab, de));
        vf_store(x + c + 96, _mm256_sub_ps(ba, ed));
    }
}

static inline void load32(const float *x, vf *v)
{
    for (int c = 0; c < 4; c++)
        v[c] = vf_load(x + 8 * c);
}

static inline void store32(float *x, const vf *v)
{
    for (int c = 0; c < 4; c++)
        vf_store(x + 8 * c, v[c]);
}

/* v[c] *= table[8c..] */
static inline void mul32(vf *v, const float *table)
{
    for (int c = 0; c < 4; c++)
        v[c] = _mm256_mul_ps(v[c], vf_load(table + 8 * c));
}

static inline void scale32(vf *v, float k)
{
    for (int c = 0; c < 4; c++)
        v[c] = _mm256_mul_ps(v[c], _mm256_set1_ps(k));
}

/* max |v|; a NaN is passed over */
static inline float largest32(const vf *v)
{
    vf m = _mm256_setzero_ps();
    for (int c = 0; c < 4; c++)
        m = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[c]), m);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

/* s + x[0] + x[1] + ... in this order, as the references sum */
static inline float sum_ascending(const float *x, int n, float s)
{
    for (int j = 0; j < n; j++)
        s += x[j];
    return s;
}

/* Number of limits k with !(v <= limit[k]), limits as bits; NaN counts all. */
static inline __m256i count_above(vf v, const uint32_t *limit, int n)
{
    __m256i code = _mm256_setzero_si256();
    for (int k = 0; k < n; k++) {
        vf t = _mm256_castsi256_ps(_mm256_set1_epi32((int)limit[k]));
        code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(v, t, _CMP_NLE_UQ)));
    }
    return code;
}

/* Number of midpoints k with !(v < mid[k]); NaN counts all. */
static inline __m256i count_from(vf v, const float *mid, int n)
{
    __m256i code = _mm256_setzero_si256();
    for (int k = 0; k < n; k++)
        code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_set1_ps(mid[k]), _CMP_NLT_UQ)));
    return code;
}

/* search_scale_avx2 on codes held in vectors (8 per vector); y f32[8*vectors]. */
static inline void refine(const search_book *book, const float *y, int vectors, float guess, __m256i *code,
                          uint16_t *scale)
{
    int k[SEARCH_MAX];
    for (int c = 0; c < vectors; c++)
        _mm256_storeu_si256((__m256i *)(void *)(k + 8 * c), code[c]);
    search_scale_avx2(book, y, 8 * vectors, guess, k, scale);
    for (int c = 0; c < vectors; c++)
        code[c] = _mm256_loadu_si256((const __m256i *)(const void *)(k + 8 * c));
}

/* 16 codes (two vectors, natural order) -> 16 bytes */
static inline __m128i pack16(__m256i a, __m256i b)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}

/* 32 codes of 4 bits -> 16 bytes, code j and j + 16 in byte j */
static inline void put_low_high(uint8_t *qs, const __m256i *code)
{
    __m256i a = _mm256_or_si256(code[0], _mm256_slli_epi32(code[2], 4));
    __m256i b = _mm256_or_si256(code[1], _mm256_slli_epi32(code[3], 4));
    _mm_storeu_si128((__m128i *)(void *)qs, pack16(a, b));
}

/* 32 codes of 4 bits -> 16 bytes, code 2i and 2i + 1 in byte i */
static inline void put_adjacent(uint8_t *qs, const __m256i *code)
{
    __m128i a = pack16(code[0], code[1]), b = pack16(code[2], code[3]);
    a = _mm_maddubs_epi16(a, _mm_set1_epi16(0x1001));
    b = _mm_maddubs_epi16(b, _mm_set1_epi16(0x1001));
    _mm_storeu_si128((__m128i *)(void *)qs, _mm_packus_epi16(a, b));
}

/* 32 codes of 3 bits -> 12 bytes, code j at bits 3j..3j+2 */
static inline void put_bits3(uint8_t *qs, const __m256i *code)
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

#endif
