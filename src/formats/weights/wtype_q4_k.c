/* wtype_q4_k.c: Q4_K weights.
 * Block of 256 values, 144 bytes: f16 d | f16 dmin | u8 sc[12] | u8 qs[128].
 * Eight sub-blocks of 32 with a 6-bit scale s_k and a 6-bit minimum m_k packed into sc:
 *   k < 4:  s_k = sc[k] & 63                          m_k = sc[k+4] & 63
 *   k >= 4: s_k = sc[k+4] & 15 | sc[k-4] >> 6 << 4    m_k = sc[k+4] >> 4 | sc[k] >> 6 << 4
 * qs[32p .. 32p+31]: low nibbles are sub-block 2p, high nibbles 2p+1.   x = d*s_k*n - dmin*m_k.
 * Encoder: wtype_affine.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 32, SUBS = 8, BYTES = 144 };

void wtype_q4_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src)), dmin = half_to_f32(load_u16(src + 2));
        for (int k = 0; k < SUBS; k++) {
            int s, m;
            wtype_six_bit_unpack(src + 4, k, &s, &m);
            const float a = d * (float)s, b = dmin * (float)m; /* exact: 11 + 6 bits */
            const uint8_t *qs = src + 16 + 32 * (k / 2);
            for (int i = 0; i < SUB; i++)
                dst[SUB * k + i] = a * (float)(qs[i] >> 4 * (k & 1) & 15) - b;
        }
    }
}

static const wtype_affine search = { SUB, SUBS, 15, 63, 63 };

static void quant_block(const float *x, const float *importance, uint8_t *dst)
{
    wtype_affine_block t;

    wtype_affine_fit(&search, x, importance, &t);
    store_u16(dst, f32_to_half(t.d));
    store_u16(dst + 2, f32_to_half(t.dmin));
    wtype_six_bit_pack(dst + 4, t.s, t.m);
    for (int i = 0; i < N; i++) {
        const int k = i / SUB, n = wtype_affine_code(&search, x[i], t.d * (float)t.s[k], t.dmin * (float)t.m[k]);
        uint8_t *q = &dst[16 + 32 * (k / 2) + i % SUB];
        *q = (uint8_t)(k & 1 ? *q | n << 4 : n);
    }
}

void wtype_q4_k_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES)
        quant_block(src + i, importance ? importance + i : NULL, dst);
}

void wtype_q4_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_q4_k_weighted(src, NULL, dst, n / N * N);
}
