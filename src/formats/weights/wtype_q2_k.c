/* wtype_q2_k.c: Q2_K weights.
 * Block of 256 values, 84 bytes: u8 sc[16] | u8 qs[64] | f16 d | f16 dmin.
 * Sub-block k (16 values in order) has scale sc[k] & 15 and minimum sc[k] >> 4.  Half H (128 values): value 32q + l of
 * it is bits 2q, 2q+1 of qs[32H + l].   x = d*s*n - dmin*m.   Encoder: wtype_affine.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 16, SUBS = 16, BYTES = 84, QS = 16, D = 80 };

void wtype_q2_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D)), dmin = half_to_f32(load_u16(src + D + 2));
        for (int i = 0; i < N; i++) {
            const int sc = src[i / SUB], code = src[QS + 32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
            const float a = d * (float)(sc & 15), b = dmin * (float)(sc >> 4);  /* exact: 11 + 4 bits */
            dst[i] = a * (float)code - b;
        }
    }
}

static const wtype_affine search = { SUB, SUBS, 3, 15, 15 };

static void quant_block(const float *x, const float *importance, uint8_t *dst)
{
    wtype_affine_block t;

    wtype_affine_fit(&search, x, importance, &t);
    memset(dst, 0, BYTES);
    store_u16(dst + D, f32_to_half(t.d));
    store_u16(dst + D + 2, f32_to_half(t.dmin));
    for (int k = 0; k < SUBS; k++)
        dst[k] = (uint8_t)(t.s[k] | t.m[k] << 4);
    for (int i = 0; i < N; i++) {
        const int k = i / SUB, n = wtype_affine_code(&search, x[i], t.d * (float)t.s[k], t.dmin * (float)t.m[k]);
        uint8_t *q = &dst[QS + 32 * (i / 128) + i % 32];
        *q = (uint8_t)(*q | n << 2 * (i % 128 / 32));
    }
}

void wtype_q2_k_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES)
        quant_block(src + i, importance ? importance + i : NULL, dst);
}

void wtype_q2_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_q2_k_weighted(src, NULL, dst, n / N * N);
}
