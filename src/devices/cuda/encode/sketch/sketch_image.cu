/* sketch_image.cu: the projection as sketch_wgmma.cu wants it, made on the host. */
#include "devices/cuda/encode/sketch/sketch.cuh"
#include "devices/cuda/core/wgmma.cuh"

#define IMAGE_LENGTH 1024.0     /* of a column as halves */

/* Place n of the operand's rows has this column: a lane's products are then neighbouring bits; its operands are
 * neighbouring values (group_value). */
static int image_column(int n)
{
    const int half = n / 128, j = n % 128 / 8, t = n % 8 / 2, e = n % 2;
    return 8 * (8 * t + 4 * half + 2 * (j / 8) + e) + j % 8;
}

static double image_length(const float *v)
{
    double sum = 0.0;
    for (int k = 0; k < GROUP_MAX; k++)
        sum += (double)v[k] * v[k];
    return sqrt(sum);
}

/* Bounds the sum of the partial sums of a row of length 1: each is no longer than the column's first values, or than
 * its last ones and the sum, which is nearly zero where this matters. */
static double image_partial_sums(const float *v)
{
    double sum = 0.0, first = 0.0;
    const double size = image_length(v);
    for (int k = 0; k < GROUP_MAX; k++) {
        first += (double)v[k] * v[k];
        sum += sqrt(fmax(fmin(first, size * size - first), 0.0));
    }
    return sum;
}

/* Place n of the operand; what its roundings come to. */
static double image_halves(sketch_image *m, int n, double by)
{
    const float *column = m->columns[image_column(n)];
    double error = 0.0;
    for (int k = 0; k < GROUP_MAX; k++) {
        const double want = by > 0.0 ? column[group_value(k)] * by : 0.0;
        const __half half = __float2half_rn((float)want);
        const double off = (double)__half2float(half) - want;
        /* rows of 128 bytes, pieces of 16 swizzled */
        m->halves[(k / 64 * SKETCH_COLUMNS + n) * 64 + (k / 8 % 8 ^ n % 8) * 8 + k % 8] = __half_as_ushort(half);
        error += off * off;
    }
    return sqrt(error);
}

/* A column so long that sums could overflow (or no number at all) leaves no bound: every bit is summed in order. */
static void image_of(const float *pi, sketch_image *m)
{
    double off = 0.0, doubt = 0.0;
    for (int j = 0; j < SKETCH_COLUMNS; j++)
        for (int k = 0; k < GROUP_MAX; k++)
            m->columns[j][k] = pi[k * SKETCH_COLUMNS + j];
    for (int n = 0; n < SKETCH_COLUMNS; n++) {
        const float *column = m->columns[image_column(n)];
        const double size = image_length(column);
        const bool fits = size < 0x1p20;
        const double error = image_halves(m, n, fits && size > 0.0 ? IMAGE_LENGTH / size : 0.0);
        off = fmax(off, fits ? error : INFINITY);
        /* the roundings of the reference's sums and products, and of the eight lanes' */
        doubt = fmax(doubt, fits ? image_partial_sums(column) + 16.0 * size : INFINITY);
    }
    m->length = (float)(IMAGE_LENGTH + off) * 1.001f;
    m->off = (float)(off + IMAGE_LENGTH * 0x1p-16) * 1.001f;    /* and the sums' own rounding */
    m->doubt = (float)(doubt * 0x1p-24) * 1.001f;
}

int cuda_sketch_image(cuda_device *d, const float *pi, sketch_image *to, kvant_diag *diag)
{
    sketch_image *m = (sketch_image *)malloc(sizeof *m);
    if (!m)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory for a projection");
    image_of(pi, m);
    const int rc = d->base.vt->copy_in(&d->base, to, m, sizeof *m, diag);
    free(m);
    return rc;
}
