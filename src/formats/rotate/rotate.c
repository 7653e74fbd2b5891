/* rotate.c: the Hadamard rotations of docs/formats/README.md.  REFERENCE. */
#include "formats/rotate/rotate.h"

#include "base/half.h"
#include "cards/tables.inc"

static const float signs1[128] = { ROTATE_SIGNS1 };
static const float signs2[128] = { ROTATE_SIGNS2 };
static const float signs32[32] = { ROTATE_SIGNS32 };

enum { K128_BITS = 0x3db504f3, K32_BITS = 0x3e3504f3 };   /* 1/sqrt(128), 1/sqrt(32) */

void rotate_butterfly(float *x, int n)
{
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < n; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}

/* before, butterfly, times k, after: the shape of every rotation here. */
static void rotate(float *x, int n, const float *before, float k, const float *after)
{
    for (int j = 0; before && j < n; j++)
        x[j] *= before[j];
    rotate_butterfly(x, n);
    for (int j = 0; j < n; j++)
        x[j] *= k;
    for (int j = 0; after && j < n; j++)
        x[j] *= after[j];
}

void rotate_r128(float *x)
{
    rotate(x, 128, signs1, bits_f32(K128_BITS), signs2);
}

void rotate_r128_inverse(float *x)
{
    rotate(x, 128, signs2, bits_f32(K128_BITS), signs1);
}

void rotate_p32(float *x)
{
    rotate(x, 32, signs32, bits_f32(K32_BITS), 0);
}

void rotate_p32_inverse(float *x)
{
    rotate(x, 32, 0, bits_f32(K32_BITS), signs32);
}
