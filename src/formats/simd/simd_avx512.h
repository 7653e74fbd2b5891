/* simd_avx512.h: the vector layer of the AVX-512 kernels (F, BW, DQ, VL): 16 lanes.  See simd_avx2.h for its use.
 *
 * The bit rule of this ISA: lane l of a dot holds values l, l + 16, l + 32, ... in one FMA chain, ascending; lanes l
 * and l + 8 are added first, then the eight as on AVX2.  Encoders and the integer path are those of AVX2. */
#ifndef KVANT_FORMATS_SIMD_AVX512_H
#define KVANT_FORMATS_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef __m512 vf;

#define VF_N 16
#define VF_B 2
#define VF_BLOCK(M) M(0) M(1)
#define VF_TILE44                          /* 32 registers: tiles of 16 accumulators, and vf_put44 */
#define SIMD_NAME_(format, op) kvant_##format##_##op##_avx512
#define SIMD_NAME(format, op) SIMD_NAME_(format, op)
#define SIMD_KERNELS_(format) kvant_##format##_kernels_avx512
#define SIMD_KERNELS(format) SIMD_KERNELS_(format)

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

/* The result is b if an operand is NaN. */
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline void vf_prefetch(const uint8_t *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

static inline __m128i bytes16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline vf vf_load_f32(const uint8_t *p)
{
    return _mm512_loadu_ps((const void *)p);
}

static inline vf vf_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vf vf_load_bf16(const uint8_t *p)
{
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

/* Lane sums of four vectors. */
static inline __m128 vf_sum4(vf a, vf b, vf c, vf d)
{
#define VF_FOLD(x) _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1))
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(VF_FOLD(a), VF_FOLD(b)), _mm256_hadd_ps(VF_FOLD(c), VF_FOLD(d)));
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

/* Both halves of a and of b added: what VF_FOLD gives, side by side. */
static inline vf vf_fold2(vf a, vf b)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* Neighbours added, in each 128-bit lane: those of a, then those of b. */
static inline vf vf_pairs(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Lane sums of a tile of 4 x 4, v[4j + k] to s[j*lds + k]: the sums of vf_sum4, 45 instructions for 16. */
static inline void vf_put44(float *s, size_t lds, const vf *v)
{
    vf a = vf_pairs(vf_pairs(vf_fold2(v[0], v[4]), vf_fold2(v[1], v[5])),
                    vf_pairs(vf_fold2(v[2], v[6]), vf_fold2(v[3], v[7])));
    vf b = vf_pairs(vf_pairs(vf_fold2(v[8], v[12]), vf_fold2(v[9], v[13])),
                    vf_pairs(vf_fold2(v[10], v[14]), vf_fold2(v[11], v[15])));
    vf t = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm_storeu_ps(s, _mm512_castps512_ps128(t));
    _mm_storeu_ps(s + lds, _mm512_extractf32x4_ps(t, 1));
    _mm_storeu_ps(s + 2 * lds, _mm512_extractf32x4_ps(t, 2));
    _mm_storeu_ps(s + 3 * lds, _mm512_extractf32x4_ps(t, 3));
}

/* f16 at p in every lane */
static inline vf vf_splat_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

/* Codes of 4 bits for vpermps, which reads the low four bits of an index: code j < 16 the low nibble of byte j, code
 * j + 16 the high one. */
static inline void codes4_halves(const uint8_t *qs, __m512i *lo, __m512i *hi)
{
    *lo = _mm512_cvtepu8_epi32(bytes16(qs));
    *hi = _mm512_srli_epi32(*lo, 4);
}

/* Code 2i the low nibble of byte i, 2i + 1 the high one. */
static inline __m512i pairs_sixteen(const uint8_t *qs)
{
    __m512i x = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)qs));
    return _mm512_or_si512(x, _mm512_slli_epi64(x, 28));
}

static inline void codes4_pairs(const uint8_t *qs, __m512i *lo, __m512i *hi)
{
    *lo = pairs_sixteen(qs);
    *hi = pairs_sixteen(qs + 8);
}

/* 8 lanes of the word at p, 8 lanes of the word at q */
static inline __m512i words(const uint8_t *p, const uint8_t *q)
{
    int32_t a, b;
    memcpy(&a, p, sizeof a);
    memcpy(&b, q, sizeof b);
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(a), 0xff00, b);
}

/* 16 bytes S.EEEE.MMM (see simd_avx2.h). */
static inline vf vf_load_e4m3(const uint8_t *p)
{
    __m512i x = _mm512_cvtepu8_epi32(bytes16(p)), low = _mm512_and_si512(x, _mm512_set1_epi32(0x7f));
    __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(low, 20), _mm512_set1_epi32(120 << 23));
    vf small = vf_mul(_mm512_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm512_mask_mov_ps(_mm512_castsi512_ps(normal), _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(8)), small);
    v = _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(v),
                                                   _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x7f)), 0x7fc00000));
    return _mm512_or_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(x, low), 24)));
}

/* 32 bytes S.EEEE.MMM, times 2^-8 (see simd_avx2.h). */
static inline void block_e4m3(const uint8_t *p, vf *v)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p), low = _mm256_set1_epi8(0x7f);
    if (_mm256_cmpeq_epi8_mask(_mm256_and_si256(x, low), low)) {
#define E4M3_NAN(c) v[c] = vf_mul(vf_load_e4m3(p + VF_N * (c)), vf_set1(0x1p-8f));
        VF_BLOCK(E4M3_NAN)
        return;
    }
    __m512i a = _mm512_slli_epi16(_mm512_cvtepi8_epi16(x), 7);
    a = _mm512_and_si512(a, _mm512_set1_epi16((short)0xbf80));
    v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(a));
    v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1));
}
#define VF_E4M3_BLOCK

/* Shared by all formats of this ISA. */
void kvant_f32_score_avx512(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                            int n, float *s, size_t lds, int d);
void kvant_f32_axpy_avx512(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                           int n, float *acc, size_t lda, int d);

#endif
