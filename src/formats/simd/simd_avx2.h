/* simd_avx2.h: the vector layer of the AVX2 kernels: 8 lanes, and the order in which lanes are summed.
 *
 * simd_wide.h (f32, f16, bf16) and simd_blocks.h (formats with blocks of 32 values) are written once over this layer;
 * simd_avx512.h and simd_neon.h offer the same names.
 *
 * The bit rule of this ISA: lane l of a dot holds values l, l + 8, l + 16, ... in one FMA chain, ascending; lanes are
 * then summed as ((0+1)+(2+3)) + ((4+5)+(6+7)).  Nothing else about a tile shows in its result. */
#ifndef KVANT_FORMATS_SIMD_AVX2_H
#define KVANT_FORMATS_SIMD_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vf;
typedef __m256i vi;                        /* 8 int32 */
typedef __m256i vb;                        /* 32 bytes */

#define VF_N 8                             /* lanes */
#define VF_B 4                             /* vectors per block of 32 values */
#define VF_BLOCK(M) M(0) M(1) M(2) M(3)
#define SIMD_NAME_(format, op) kvant_##format##_##op##_avx2
#define SIMD_NAME(format, op) SIMD_NAME_(format, op)
#define SIMD_KERNELS_(format) kvant_##format##_kernels_avx2
#define SIMD_KERNELS(format) SIMD_KERNELS_(format)

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

/* a*b + c, one rounding */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
} /* c - a*b */

static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/* The result is b if an operand is NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline float vf_hmax(vf x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Nearest integer, as float. */
static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline void vf_prefetch(const uint8_t *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

static inline vf vf_load_f32(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}

static inline vf vf_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vf vf_load_bf16(const uint8_t *p)
{
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

static inline void vf_store_f16(uint8_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Round to nearest even; a NaN keeps its upper bits and becomes quiet: as f32_to_bf16. */
static inline void vf_store_bf16(uint8_t *p, vf v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(r));
}

/* Computes the result of vhaddps; two shuffles and an add run twice as fast on Zen 3 (measured). */
static inline vf vf_hadd(vf a, vf b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Lane sums of four vectors. */
static inline __m128 vf_sum4(vf a, vf b, vf c, vf d)
{
    vf t = vf_hadd(vf_hadd(a, b), vf_hadd(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}

static inline void vf_put4(float *s, vf a, vf b, vf c, vf d)
{
    _mm_storeu_ps(s, vf_sum4(a, b, c, d));
}

static inline void vf_put3(float *s, vf a, vf b, vf c)
{
    __m128 t = vf_sum4(a, b, c, c);
    _mm_storel_pi((__m64 *)(void *)s, t);
    _mm_store_ss(s + 2, _mm_movehl_ps(t, t));
}

static inline void vf_put2(float *s, vf a, vf b)
{
    _mm_storel_pi((__m64 *)(void *)s, vf_sum4(a, b, a, b));
}

static inline void vf_put1(float *s, vf a)
{
    _mm_store_ss(s, vf_sum4(a, a, a, a));
}

/* s0[0..1] = sums of a, b;  s1[0..1] = sums of c, d */
static inline void vf_put22(float *s0, float *s1, vf a, vf b, vf c, vf d)
{
    __m128 t = vf_sum4(a, b, c, d);
    _mm_storel_pi((__m64 *)(void *)s0, t);
    _mm_storeh_pi((__m64 *)(void *)s1, t);
}

static inline float f16_scalar(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

/* f16 at p in every lane */
static inline vf vf_splat_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

static inline __m256i bytes_twice(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* 32 codes, one per byte, in the order that vunpack* turns into natural order:
 * lane 0: 0-3, 8-11, 16-19, 24-27;  lane 1: 4-7, 12-15, 20-23, 28-31.
 * low_high: code j < 16 is the low nibble of byte j, code j + 16 the high one. */
static inline __m256i codes4_halves(const uint8_t *qs)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14,
                                            15, 4, 5, 6, 7, 12, 13, 14, 15);
    __m256i x = bytes_twice(qs);
    x = _mm256_srlv_epi64(_mm256_shuffle_epi8(x, spread), _mm256_setr_epi64x(0, 4, 0, 4));
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

/* Puts these codes in natural order: low nibbles in lane 0, high ones in lane 1. */
static inline __m256i natural4_halves(const uint8_t *qs)
{
    return _mm256_and_si256(_mm256_srlv_epi64(bytes_twice(qs), _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

/* Code 2i is the low nibble of byte i, 2i + 1 the high one: in the order of vunpack*, ... */
static inline __m256i codes4_pairs(const uint8_t *qs)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, 2, 3, 6, 7, 10,
                                            11, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i x = _mm256_shuffle_epi8(bytes_twice(qs), spread);
    return _mm256_and_si256(_mm256_unpacklo_epi8(x, _mm256_srli_epi16(x, 4)), _mm256_set1_epi8(15));
}

/* ... and in natural order. */
static inline __m256i natural4_pairs(const uint8_t *qs)
{
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)qs));
    return _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi16(x, 4)), _mm256_set1_epi8(15));
}

/* 32 f32 of a table of 16, looked up byte plane by byte plane: exact, and three times cheaper than vpermps on Zen 3.
 * codes: as from codes4_halves or codes4_pairs. */
static inline void lookup16_plain(const uint8_t plane[4][16], __m256i codes, vf *v)
{
    __m256i p0 = _mm256_shuffle_epi8(bytes_twice(plane[0]), codes);
    __m256i p1 = _mm256_shuffle_epi8(bytes_twice(plane[1]), codes);
    __m256i p2 = _mm256_shuffle_epi8(bytes_twice(plane[2]), codes);
    __m256i p3 = _mm256_shuffle_epi8(bytes_twice(plane[3]), codes);
    __m256i lo01 = _mm256_unpacklo_epi8(p0, p1), hi01 = _mm256_unpackhi_epi8(p0, p1);
    __m256i lo23 = _mm256_unpacklo_epi8(p2, p3), hi23 = _mm256_unpackhi_epi8(p2, p3);
    v[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(lo01, lo23));
    v[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(lo01, lo23));
    v[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(hi01, hi23));
    v[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(hi01, hi23));
}

/* As lookup16_plain, each value times scale. */
static inline void lookup16(const uint8_t plane[4][16], __m256i codes, vf scale, vf *v)
{
    lookup16_plain(plane, codes, v);
    v[0] = _mm256_mul_ps(scale, v[0]);
    v[1] = _mm256_mul_ps(scale, v[1]);
    v[2] = _mm256_mul_ps(scale, v[2]);
    v[3] = _mm256_mul_ps(scale, v[3]);
}

/* table[code], code < 16 */
static inline vb vb_lookup(const uint8_t table[16], vb codes)
{
    return _mm256_shuffle_epi8(bytes_twice(table), codes);
}

/* fp16 bits of x, round to nearest even */
static inline uint16_t f16_bits(float x)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT));
}

/* 8 bytes S.EEEE.MMM.  Normal codes get their exponent rebased by an addition; the eight subnormal magnitudes are
 * the integers times 2^-9 (a product of f32 denormals would do for both, at a hundred cycles each). */
static inline vf vf_load_e4m3(const uint8_t *p)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)),
            low = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(x, low), 24);
    vf normal = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low, 20), _mm256_set1_epi32(120 << 23)));
    vf small = vf_mul(_mm256_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), low)));
    vf nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, _mm256_set1_epi32(0x7f)));
    return _mm256_or_ps(_mm256_or_ps(v, nan), _mm256_castsi256_ps(sign));
}

/* 32 bytes S.EEEE.MMM, times 2^-8: moved to the exponent and mantissa of an f16 a code is that, subnormals included.
 * A block with a NaN code goes the longer way. */
static inline void block_e4m3(const uint8_t *p, vf *v)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p), low = _mm256_set1_epi8(0x7f);
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(x, low), low))) {
#define E4M3_NAN(c) v[c] = vf_mul(vf_load_e4m3(p + VF_N * (c)), vf_set1(0x1p-8f));
        VF_BLOCK(E4M3_NAN)
        return;
    }
    const __m256i keep = _mm256_set1_epi16((short)0xbf80);
    __m256i a = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)), 7);
    __m256i b = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)), 7);
    a = _mm256_and_si256(a, keep);
    b = _mm256_and_si256(b, keep);
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    v[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(b));
    v[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1));
}
#define VF_E4M3_BLOCK

/* Shared by all formats of this ISA. */
void kvant_f32_score_avx2(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                          int n, float *s, size_t lds, int d);
void kvant_f32_axpy_avx2(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                         int n, float *acc, size_t lda, int d);

#endif
