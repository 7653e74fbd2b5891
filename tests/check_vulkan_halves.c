/* check_vulkan_halves.c: products of many rows by halves (vk_halves.c) beside sums in double precision: weights that do
 * not fit the room for halves at once, as rows or as experts, and values far outside what a half can hold.  In the
 * plain form, where every driver makes the products one by one.  Without a Vulkan driver it says so and passes. */
#include <math.h>
#include <stdlib.h>

#include "devices/device.h"
#include "support/check.h"

enum { MOST_OUT = 1500, MOST_IN = 512, ROWS = 9 };

static kvant_device *dev;
static kvant_diag diag;

static float w[MOST_OUT * MOST_IN], x[ROWS * MOST_IN], got[ROWS * MOST_OUT], want[ROWS * MOST_OUT];
static unsigned char packed[MOST_OUT * MOST_IN * 4];

static float *room(const float *from, size_t n)
{
    void *at = NULL;
    CHECK(dev->vt->alloc(dev, n * sizeof(float), &at, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_in(dev, at, from, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    return at;
}

static void load(kvant_weight *a, const char *type, int n_in, int n_out, int n_expert)
{
    const int64_t values = (int64_t)n_in * n_out * n_expert;
    *a = (kvant_weight){ .type = kvant_wtype_find(type), .data = packed, .n_in = n_in, .n_out = n_out,
                         .n_expert = n_expert, .name = "a weight", .use = KVANT_WEIGHT_MATMUL };
    a->type->quant(w, packed, values);
    a->type->dequant(packed, w, values);
    CHECK(dev->vt->weight_load(dev, a, KVANT_COMPUTE_AUTO, &diag) == KVANT_OK, "%s", diag.text);
}

/* One output here. */
static float sum_of(const float *row, const float *weights, int n_in)
{
    double sum = 0.0;
    for (int k = 0; k < n_in; k++)
        sum += (double)row[k] * (double)weights[k];
    return (float)sum;
}

/* w as the type holds it, times x, on the device and here. */
static void multiply(const char *type, int n_in, int n_out)
{
    kvant_weight a;
    load(&a, type, n_in, n_out, 1);
    memset(got, 0xff, sizeof got);
    float *y = room(got, (size_t)ROWS * (size_t)n_out);
    const kvant_matmul_args p = { &a, room(x, (size_t)ROWS * (size_t)n_in), y, ROWS, n_in, n_out, KVANT_COMPUTE_AUTO };
    const kvant_op op = { KVANT_OP_MATMUL, &p };
    CHECK(dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK, "%s", diag.text);
    const size_t bytes = (size_t)ROWS * (size_t)n_out * sizeof(float);
    CHECK(dev->vt->copy_out(dev, got, y, bytes, &diag) == KVANT_OK, "%s", diag.text);
    dev->vt->weight_free(dev, &a);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < n_out; o++)
            want[r * n_out + o] = sum_of(x + r * n_in, w + (size_t)o * (size_t)n_in, n_in);
}

/* 1.5 MB of halves where 0.5 MB are to be bound at once: three windows.  Of rows of 1022 bytes a window that takes all
 * that fit would end within a word, and the scale of the next row would be that of other values: not of its last. */
static void windows(const char *type, int n_in)
{
    check_fill_normal(w, MOST_OUT * MOST_IN, 1);
    check_fill_normal(x, ROWS * MOST_IN, 2);
    for (int o = 1; o < MOST_OUT; o += 2)
        w[o * n_in + n_in - 1] = 1000.0f;
    multiply(type, n_in, MOST_OUT);
    const double error = check_nmse(got, want, ROWS * MOST_OUT);
    CHECK(error <= 1e-6, "windows of %s: error %g, wanted 1e-6", type, error);
    CHECK(error > 1e-12, "windows of %s: error %g: halves were not used", type, error);
}

/* Two of six experts at once; one without rows, one with more than a tile has. */
static void experts(void)
{
    enum { EXPERTS = 6, N_OUT = MOST_OUT / EXPERTS, TOKENS = 36, K = 2 };
    static float y[TOKENS * K * N_OUT], here[TOKENS * K * N_OUT], in[TOKENS * MOST_IN];
    int32_t ids[TOKENS * K];
    float as[TOKENS * K];
    kvant_weight a;

    check_fill_normal(w, MOST_OUT * MOST_IN, 5);
    check_fill_normal(in, TOKENS * MOST_IN, 6);
    load(&a, "Q8_0", MOST_IN, N_OUT, EXPERTS);
    for (int i = 0; i < TOKENS * K; i++)
        ids[i] = i < 66 ? 5 : i % (EXPERTS - 2);           /* none for expert 4 */
    memcpy(as, ids, sizeof ids);
    memset(y, 0xff, sizeof y);
    float *dy = room(y, TOKENS * K * N_OUT);
    const float *dx = room(in, TOKENS * MOST_IN), *dids = room(as, TOKENS * K);
    const kvant_matmul_id_args p = { &a, dx, (const int32_t *)(const void *)dids, dy, TOKENS, K, K, MOST_IN,
                                     KVANT_COMPUTE_AUTO };
    const kvant_op op = { KVANT_OP_MATMUL_ID, &p };
    CHECK(dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, y, dy, sizeof y, &diag) == KVANT_OK, "%s", diag.text);
    dev->vt->weight_free(dev, &a);
    for (int i = 0; i < TOKENS * K; i++)
        for (int o = 0; o < N_OUT; o++)
            here[i * N_OUT + o] = sum_of(in + i / K * MOST_IN, w + (size_t)(ids[i] * N_OUT + o) * MOST_IN, MOST_IN);
    const double error = check_nmse(y, here, TOKENS * K * N_OUT);
    CHECK(error <= 1e-6, "experts: error %g, wanted 1e-6", error);
    CHECK(error > 1e-12, "experts: error %g: halves were not used", error);
}

/* Rows of activations from 1e-18 to 1e18, a row of zeros among them, and such weights. Two values of 11 bits:
 * the error of a product is below 2^-10 of its size; twice that for the sums. */
static void ranges(void)
{
    enum { N_IN = 77, N_OUT = 66 };
    check_fill_normal(w, N_IN * N_OUT, 3);
    check_fill_normal(x, ROWS * N_IN, 4);
    for (int o = 0; o < N_OUT; o++)
        for (int k = 0; k < N_IN; k++)
            w[o * N_IN + k] *= powf(10.0f, (float)(o % 31 - 15));
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < N_IN; k++)
            x[r * N_IN + k] *= r == 4 ? 0.0f : powf(10.0f, 4.5f * (float)(r - 4));
    multiply("F32", N_IN, N_OUT);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < N_OUT; o++) {
            double size = 0.0;
            for (int k = 0; k < N_IN; k++)
                size += fabs((double)x[r * N_IN + k] * (double)w[o * N_IN + k]);
            const double error = fabs((double)got[r * N_OUT + o] - (double)want[r * N_OUT + o]);
            CHECK(error <= size / 512, "row %d, output %d: %g, wanted %g", r, o, (double)got[r * N_OUT + o],
                  (double)want[r * N_OUT + o]);
        }
}

int main(void)
{
    const kvant_device_config config = { .threads = 1 };
    setenv("KVANT_VK_DISABLE", "bda,range:1", 1);
    setenv("KVANT_VK_FORCE", "matrix", 1);
    if (device_open("vulkan", &config, &dev, &diag) != KVANT_OK) {
        printf("skipped: %s\n", diag.text);
        return check_end("check_vulkan_halves");
    }
    windows("Q8_0", MOST_IN);
    windows("F16", MOST_IN - 1);
    experts();
    ranges();
    dev->vt->close(dev);
    return check_end("check_vulkan_halves");
}
