/* wtype_q5_k.c: Q5_K weights.
 * Block of 256 values, 176 bytes: f16 d | f16 dmin | u8 sc[12] | u8 qh[32] | u8 qs[128].
 * Eight sub-blocks of 32; scales and minima in sc, low nibbles in qs as in Q4_K (wtype_q4_k.c); bit k of qh[i] is bit 4
 * of value i of sub-block k.   x = d*s_k*n - dmin*m_k.   Encoder: wtype_affine.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 32, SUBS = 8, BYTES = 176, QH = 16, QS = 48 };

void wtype_q5_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src)), dmin = half_to_f32(load_u16(src + 2));
        for (int k = 0; k < SUBS; k++) {
            int s, m;
            wtype_six_bit_unpack(src + 4, k, &s, &m);
            const float a = d * (float)s, b = dmin * (float)m;  /* exact: 11 + 6 bits */
            for (int i = 0; i < SUB; i++) {
                const int low = src[QS + 32 * (k / 2) + i] >> 4 * (k & 1) & 15;
                dst[SUB * k + i] = a * (float)(low | (src[QH + i] >> k & 1) << 4) - b;
            }
        }
    }
}

static const wtype_affine search = { SUB, SUBS, 31, 63, 63 };

static void quant_block(const float *x, const float *importance, uint8_t *dst)
{
    wtype_affine_block t;

    wtype_affine_fit(&search, x, importance, &t);
    memset(dst, 0, BYTES);
    store_u16(dst, f32_to_half(t.d));
    store_u16(dst + 2, f32_to_half(t.dmin));
    wtype_six_bit_pack(dst + 4, t.s, t.m);
    for (int i = 0; i < N; i++) {
        const int k = i / SUB, n = wtype_affine_code(&search, x[i], t.d * (float)t.s[k], t.dmin * (float)t.m[k]);
        uint8_t *q = &dst[QS + 32 * (k / 2) + i % SUB], *h = &dst[QH + i % SUB];
        *q = (uint8_t)(*q | (n & 15) << 4 * (k & 1));
        *h = (uint8_t)(*h | n >> 4 << k);
    }
}

void wtype_q5_k_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES)
        quant_block(src + i, importance ? importance + i : NULL, dst);
}

void wtype_q5_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_q5_k_weighted(src, NULL, dst, n / N * N);
}
