/* wtype_tq1_0.c: TQ1_0 weights (ternary models), five codes of 0, 1 and 2 to a byte.
 * Block of 256 values, 54 bytes: u8 qs[48] | u8 qh[4] | f16 d.   Rows of bytes have 5, 5 and 4 digits each: value
 * 32n + m is digit n of qs[m]; 160 + 16n + m digit n of qs[32 + m]; 240 + 4n + m digit n of qh[m].   A byte is the
 * digits as a fraction of 3^5, rounded up to 256ths: digit n is what times 3^n and once more 3 carries out of the byte.
 * x = d * (digit - 1).   Encode: d = amax, digit = round(x/d) + 1, halves away from zero. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, BYTES = 54, D = 52 };

/* The three rows: where bytes and values begin, bytes, digits. */
static const struct {
    int at, first, bytes, digits;
} rows[] = { { 0, 0, 32, 5 }, { 32, 160, 16, 5 }, { 48, 240, 4, 4 } };

static void digits_of(uint8_t byte, float d, int step, int n, float *to)
{
    for (int i = 0; i < n; i++, byte = (uint8_t)(3 * byte))
        to[i * step] = d * (float)((3 * byte >> 8) - 1);
}

void wtype_tq1_0_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D));
        for (int r = 0; r < 3; r++)
            for (int m = 0; m < rows[r].bytes; m++)
                digits_of(src[rows[r].at + m], d, rows[r].bytes, rows[r].digits, dst + rows[r].first + m);
    }
}

static uint8_t byte_of(const float *x, float half, int step, int n)
{
    int q = 0;

    for (int i = 0; i < 5; i++) {
        const float v = i < n ? x[i * step] : 0.0f;
        q = 3 * q + (i >= n ? 0 : half > 0.0f && v >= half ? 2 : half > 0.0f && v <= -half ? 0 : 1);
    }
    return (uint8_t)((256 * q + 242) / 243);
}

void wtype_tq1_0_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        const float d = wtype_amax(src, N);
        store_u16(dst + D, f32_to_half(d));
        for (int r = 0; r < 3; r++)
            for (int m = 0; m < rows[r].bytes; m++)
                dst[rows[r].at + m] = byte_of(src + rows[r].first + m, 0.5f * d, rows[r].bytes, rows[r].digits);
    }
}
