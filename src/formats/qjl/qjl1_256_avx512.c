/* qjl1_256_avx512.c: 34 bytes per 128 values: [signs u8 x 32][norm bf16], 256 sketch values (see qjl1_256.c).
 * A byte pair of signs is a mask between +scale and -scale. */
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "base/half.h"

static inline void qjl_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 8) * 34;
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, group + b % 8 * 4, sizeof bits);
    memcpy(&norm, group + 32, sizeof norm);
    vf scale = vf_mul(vf_set1(bits_f32(0x3ba06c99u)), vf_set1(bf16_to_f32(norm)));
    vf minus = _mm512_xor_ps(scale, vf_set1(-0.0f));
    v[0] = _mm512_mask_blend_ps((__mmask16)bits, minus, scale);
    v[1] = _mm512_mask_blend_ps((__mmask16)(bits >> 16), minus, scale);
}

/* d counts real values: a row has 2*d sketch values, which is what blocks run over */
#define BLOCK_DECODE qjl_decode32
#include "formats/simd_blocks.h"

static void qjl_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    blocks_decode_acc(param, rows, stride, n, out, 2 * d);
}

static void qjl_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                      float *s, size_t lds, int d)
{
    blocks_score(param, qp, ldq, r, rows, stride, n, s, lds, 2 * d);
}

static void qjl_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                     float *acc, size_t lda, int d)
{
    blocks_axpy(param, w, ldw, r, rows, stride, n, acc, lda, 2 * d);
}

const kvant_format_kernels kvant_qjl1_256_kernels_avx512 = {
    .decode_acc = qjl_decode_acc, .score = qjl_score, .axpy = qjl_axpy,
};
