/* wtype_iq4_xs.c: IQ4_XS weights.
 * Block of 256 values, 136 bytes: f16 d | u16 sh | u8 sl[4] | u8 qs[128].
 * Eight sub-blocks of 32 with a 6-bit scale: nibble k of sl (low nibble first), above it bits 2k, 2k+1 of sh; 32 is
 * zero.  Sub-block k has qs[16k .. 16k+15], nibbles as in IQ4_NL.   x = d * (s - 32) * level[nibble].
 * Encoder: wtype_signed.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 32, SUBS = 8, HALF = 16, BYTES = 136, SL = 4, QS = 8 };

void wtype_iq4_xs_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int k = 0; k < SUBS; k++) {
            const int s = (src[SL + k / 2] >> 4 * (k & 1) & 15) | (load_u16(src + 2) >> 2 * k & 3) << 4;
            const float a = d * (float)(s - 32);        /* exact: 11 + 6 bits */
            for (int j = 0; j < SUB; j++) {
                const int q = src[QS + HALF * k + j % HALF] >> 4 * (j / HALF) & 15;
                dst[SUB * k + j] = a * (float)wtype_iq4_levels[q];
            }
        }
    }
}

static const wtype_signed search = { N, SUB, SUBS, -127, 113, -32, 31, wtype_iq4_levels };

static void store_block(uint8_t *dst, const float *x, float d, const int *s)
{
    unsigned high = 0;

    memset(dst, 0, BYTES);
    store_u16(dst, f32_to_half(d));
    for (int k = 0; k < SUBS; k++) {
        const unsigned v = (unsigned)(s[k] + 32);
        high |= v >> 4 << 2 * k;
        dst[SL + k / 2] = (uint8_t)(dst[SL + k / 2] | (v & 15) << 4 * (k & 1));
    }
    store_u16(dst + 2, (uint16_t)high);
    for (int i = 0; i < N; i++) {
        const int k = i / SUB, j = i % SUB, q = wtype_signed_code(&search, x[i], d * (float)s[k]);
        uint8_t *to = &dst[QS + HALF * k + j % HALF];
        *to = (uint8_t)(*to | q << 4 * (j / HALF));
    }
}

void wtype_iq4_xs_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES) {
        int s[SUBS];
        const float d = wtype_signed_fit(&search, src + i, importance ? importance + i : NULL, s);
        store_block(dst, src + i, d, s);
    }
}

void wtype_iq4_xs_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_iq4_xs_weighted(src, NULL, dst, n / N * N);
}
