/* f8_e4m3_avx512.c: one byte per value, S.EEEE.MMM, times one f32 scale (see f8_e4m3.c, f8_e4m3_avx2.c). */
#include "formats/format.h"
#include "formats/simd_avx512.h"

static inline vf f8_chunk(const uint8_t *p, vf scale)
{
    __m512i x = _mm512_cvtepu8_epi32(bytes16(p)), low = _mm512_and_si512(x, _mm512_set1_epi32(0x7f));
    __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(low, 20), _mm512_set1_epi32(120 << 23));
    vf small = vf_mul(_mm512_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm512_mask_mov_ps(_mm512_castsi512_ps(normal), _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(8)), small);
    v = _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(v),
                                                   _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x7f)), 0x7fc00000));
    v = _mm512_or_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(x, low), 24)));
    return vf_mul(v, scale);
}

static void f8_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    float scale = 1.0f;
    if (param)
        memcpy(&scale, param, sizeof scale);
    for (int i = 0; i < n; i++, rows += stride, out += d) {
        int c = 0;
        for (; c + VF_N <= d; c += VF_N)
            vf_store(out + c, f8_chunk(rows + c, vf_set1(scale)));
        if (c < d) {
            uint8_t last[VF_N] = { 0 };
            float part[VF_N];
            memcpy(last, rows + c, (size_t)(d - c));
            vf_store(part, f8_chunk(last, vf_set1(scale)));
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
        kvant_f32_score_avx512(NULL, qp, ldq, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, s + i, lds, d);
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
        kvant_f32_axpy_avx512(NULL, w + i, ldw, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, acc, lda, d);
    }
}

const kvant_format_kernels kvant_f8_e4m3_kernels_avx512 = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
