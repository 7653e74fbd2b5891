/* wtype_q3_k.c: Q3_K weights.
 * Block of 256 values, 110 bytes: u8 hm[32] | u8 qs[64] | u8 sc[12] | f16 d.
 * Half H (128 values): value 32q + l of it has bits 2q, 2q+1 of qs[32H + l] as its low two bits; bit 4H + q of hm[l] is
 * the third.  Sub-block k (16 values in order) has a 6-bit scale: low nibble of sc[k] (k < 8) or high nibble of
 * sc[k-8], and above it bits 2*(k/4), 2*(k/4)+1 of sc[8 + k%4]; 32 is zero.   x = d * (s - 32) * (code - 4).
 * Encoder: wtype_signed.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 16, SUBS = 16, BYTES = 110, QS = 32, SC = 96, D = 108 };

static int scale_of(const uint8_t *sc, int k)
{
    const int low = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;

    return (low | (sc[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}

void wtype_q3_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D));
        for (int i = 0; i < N; i++) {
            const int low = src[QS + 32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
            const int code = low | (src[i % 32] >> i / 32 & 1) << 2;
            const float a = d * (float)scale_of(src + SC, i / SUB);     /* exact: 11 + 6 bits */
            dst[i] = a * (float)(code - 4);
        }
    }
}

static const wtype_signed search = { N, SUB, SUBS, -4, 3, -32, 31, NULL };

static void store_block(uint8_t *dst, const float *x, float d, const int *s)
{
    memset(dst, 0, BYTES);
    store_u16(dst + D, f32_to_half(d));
    for (int k = 0; k < SUBS; k++) {
        const int v = s[k] + 32;
        dst[SC + k % 8] = (uint8_t)(dst[SC + k % 8] | (v & 15) << 4 * (k / 8));
        dst[SC + 8 + k % 4] = (uint8_t)(dst[SC + 8 + k % 4] | v >> 4 << 2 * (k / 4));
    }
    for (int i = 0; i < N; i++) {
        const int q = wtype_signed_code(&search, x[i], d * (float)s[i / SUB]) + 4;
        uint8_t *lo = &dst[QS + 32 * (i / 128) + i % 32], *hi = &dst[i % 32];
        *lo = (uint8_t)(*lo | (q & 3) << 2 * (i % 128 / 32));
        *hi = (uint8_t)(*hi | q >> 2 << i / 32);
    }
}

void wtype_q3_k_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES) {
        int s[SUBS];
        const float d = wtype_signed_fit(&search, src + i, importance ? importance + i : NULL, s);
        store_block(dst, src + i, d, s);
    }
}

void wtype_q3_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_q3_k_weighted(src, NULL, dst, n / N * N);
}
