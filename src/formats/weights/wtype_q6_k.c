/* wtype_q6_k.c: Q6_K weights.
 * Block of 256 values, 210 bytes: u8 ql[128] | u8 qh[64] | i8 sc[16] | f16 d.
 * Half H (128 values), l in 0..31, with ql' = ql + 64H, qh' = qh + 32H, sc' = sc + 8H:
 *   value l      : (ql'[l] & 15    | (qh'[l]      & 3) << 4) - 32, scale sc'[l/16]
 *   value l + 32 : (ql'[l+32] & 15 | (qh'[l] >> 2 & 3) << 4) - 32, scale sc'[l/16 + 2]
 *   value l + 64 : (ql'[l] >> 4    | (qh'[l] >> 4 & 3) << 4) - 32, scale sc'[l/16 + 4]
 *   value l + 96 : (ql'[l+32] >> 4 | (qh'[l] >> 6)     << 4) - 32, scale sc'[l/16 + 6]
 * So sub-block k (16 values in order) has scale sc[k].   x = d * sc * q.
 * Encoder: wtype_signed.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 16, SUBS = 16, BYTES = 210, QH = 128, SC = 192, D = 208 };

void wtype_q6_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D));
        for (int i = 0; i < N; i++) {
            const int half = i / 128, l = i % 32, quarter = i % 128 / 32;
            const int lo = src[64 * half + l + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
            const int hi = src[QH + 32 * half + l] >> 2 * quarter & 3;
            const float scale = d * (float)(int8_t)src[SC + i / SUB]; /* exact: 11 + 7 bits */
            dst[i] = scale * (float)((lo | hi << 4) - 32);
        }
    }
}

static const wtype_signed search = { N, SUB, SUBS, -32, 31, -128, 127, NULL };

static void store_block(uint8_t *dst, const float *x, float d, const int *s)
{
    memset(dst, 0, BYTES);
    for (int k = 0; k < SUBS; k++)
        dst[SC + k] = (uint8_t)s[k];
    store_u16(dst + D, f32_to_half(d));
    for (int i = 0; i < N; i++) {
        const int half = i / 128, l = i % 32, quarter = i % 128 / 32;
        const int q = wtype_signed_code(&search, x[i], d * (float)s[i / SUB]) + 32;
        uint8_t *lo = &dst[64 * half + l + 32 * (quarter & 1)], *hi = &dst[QH + 32 * half + l];
        *lo = (uint8_t)(*lo | (q & 15) << 4 * (quarter >> 1));
        *hi = (uint8_t)(*hi | (q >> 4) << 2 * quarter);
    }
}

void wtype_q6_k_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES) {
        int s[SUBS];
        const float d = wtype_signed_fit(&search, src + i, importance ? importance + i : NULL, s);
        store_block(dst, src + i, d, s);
    }
}

void wtype_q6_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_q6_k_weighted(src, NULL, dst, n / N * N);
}
