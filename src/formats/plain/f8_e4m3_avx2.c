/* f8_e4m3_avx2.c: one byte per value, S.EEEE.MMM, times one f32 scale (see f8_e4m3.c).
 * Normal codes get their exponent rebased by an addition; the eight subnormal magnitudes are the integers times 2^-9
 * (a product of f32 denormals would do for both, at a hundred cycles each).  score and axpy go through a panel of
 * decoded rows and the f32 kernels. */
#include "formats/format.h"
#include "formats/simd_avx2.h"

static inline vf f8_chunk(__m128i bytes, vf scale)
{
    __m256i x = _mm256_cvtepu8_epi32(bytes), low = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(x, low), 24);
    vf normal = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low, 20), _mm256_set1_epi32(120 << 23)));
    vf small = vf_mul(_mm256_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), low)));
    vf nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, _mm256_set1_epi32(0x7f)));
    v = _mm256_or_ps(_mm256_or_ps(v, nan), _mm256_castsi256_ps(sign));
    return vf_mul(v, scale);
}

static void f8_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    float scale = 1.0f;
    if (param)
        memcpy(&scale, param, sizeof scale);
    for (int i = 0; i < n; i++, rows += stride, out += d) {
        int c = 0;
        for (; c + 8 <= d; c += 8)
            vf_store(out + c, f8_chunk(_mm_loadl_epi64((const __m128i *)(const void *)(rows + c)), vf_set1(scale)));
        if (c < d) {
            uint8_t last[8] = { 0 };
            float part[8];
            memcpy(last, rows + c, (size_t)(d - c));
            vf_store(part, f8_chunk(_mm_loadl_epi64((const __m128i *)(const void *)last), vf_set1(scale)));
            memcpy(out + c, part, (size_t)(d - c) * sizeof *part);
        }
    }
}

enum { F8_PANEL = 4096 };

static void f8_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                     float *s, size_t lds, int d)
{
    float panel[F8_PANEL];
    int step = F8_PANEL / d;
    for (int i = 0; i < n; i += step) {
        int m = n - i < step ? n - i : step;
        f8_decode_acc(param, rows + (size_t)i * stride, stride, m, panel, d);
        kvant_f32_score_avx2(NULL, qp, ldq, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, s + i, lds, d);
    }
}

static void f8_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                    float *acc, size_t lda, int d)
{
    float panel[F8_PANEL];
    int step = F8_PANEL / d;
    for (int i = 0; i < n; i += step) {
        int m = n - i < step ? n - i : step;
        f8_decode_acc(param, rows + (size_t)i * stride, stride, m, panel, d);
        kvant_f32_axpy_avx2(NULL, w + i, ldw, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, acc, lda, d);
    }
}

const kvant_format_kernels kvant_f8_e4m3_kernels_avx2 = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
