/* check_metal_shim_weights.c: products of many rows on Metal's matrices with the largest scales that a file may have:
 * what a type decodes to need not fit a half, whatever encoders write.  Every weight type, on the device metal-shim. */
#include "base/mem.h"
#include "devices/device.h"
#include "formats/weights/wtype_sample.h"
#include "support/check.h"

enum { IN = 256, OUT = 5, ROWS = 9 };              /* ROWS: from so many on matrices are used */

extern const kvant_device_vt kvant_device_metal_shim;
static kvant_device *dev;
static kvant_diag diag;

/* Rows of values up to the largest half; all f16 scales and minima but the last row's are then made great. */
static void *make_rows(const kvant_wtype *t, float *values)
{
    const int blocks = IN * OUT / t->block;
    uint8_t *rows = kvant_alloc((size_t)blocks * (size_t)t->bytes);

    check_fill(values, IN * OUT, -65504.0f, 65504.0f, 3);
    kvant_wtype_sample(t, values, rows, IN * OUT);
    for (int i = 0; i < blocks - IN / t->block; i++)
        kvant_wtype_set_halves(t, rows + i * t->bytes, i % 2 ? 1000.0f : -65504.0f, 65504.0f);
    t->dequant(rows, values, IN * OUT);
    return rows;
}

/* One product by the device; x and y of the device are made and freed here. */
static int multiply(kvant_weight *w, const float *x, float *y)
{
    void *in = NULL, *out = NULL;

    KVANT_TRY(dev->vt->weight_load(dev, w, KVANT_COMPUTE_AUTO, &diag));
    KVANT_TRY(dev->vt->alloc(dev, ROWS * IN * sizeof *x, &in, &diag));
    KVANT_TRY(dev->vt->alloc(dev, ROWS * OUT * sizeof *y, &out, &diag));
    KVANT_TRY(dev->vt->copy_in(dev, in, x, ROWS * IN * sizeof *x, &diag));
    const kvant_matmul_args a = { w, in, out, ROWS, IN, OUT, KVANT_COMPUTE_AUTO };
    const kvant_op op = { .id = KVANT_OP_MATMUL, .args = &a };
    KVANT_TRY(dev->vt->submit(dev, &op, 1, 0, &diag));
    KVANT_TRY(dev->vt->copy_out(dev, y, out, ROWS * OUT * sizeof *y, &diag));
    dev->vt->free(dev, in);
    dev->vt->free(dev, out);
    dev->vt->weight_free(dev, w);
    return KVANT_OK;
}

/* Sums of IN terms in any order: |error| <= IN 2^-24 sum |terms|; what halves hold of these types is exact. */
static void compare(const kvant_wtype *t, const float *values, const float *x, const float *y)
{
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            double want = 0, terms = 0;
            for (int i = 0; i < IN; i++) {
                const double term = (double)values[o * IN + i] * (double)x[r * IN + i];
                want += term;
                terms += fabs(term);
            }
            CHECK_CLOSE(y[r * OUT + o], want, IN * 0x1p-24 * terms, "%s: output %d of row %d: %g, wanted %g", t->name,
                        o, r, (double)y[r * OUT + o], want);
        }
}

static void great_scales(const kvant_wtype *t)
{
    static float values[IN * OUT], x[ROWS * IN], y[ROWS * OUT];
    void *rows = make_rows(t, values);
    kvant_weight w = { .type = t, .data = rows, .n_in = IN, .n_out = OUT, .n_expert = 1, .name = t->name,
                       .use = KVANT_WEIGHT_MATMUL };

    check_fill(x, ROWS * IN, -1.0f, 1.0f, 5);
    const int code = multiply(&w, x, y);
    CHECK(code == KVANT_OK, "%s: %s", t->name, diag.text);
    if (code == KVANT_OK)
        compare(t, values, x, y);
    kvant_free(rows);
}

int main(void)
{
    const kvant_device_config cfg = { 0 };
    const int code = kvant_device_metal_shim.open(&cfg, &dev, &diag);

    CHECK(code == KVANT_OK, "%s", diag.text);
    for (int i = 0; code == KVANT_OK && i < kvant_wtype_count(); i++)
        great_scales(kvant_wtype_at(i));
    if (code == KVANT_OK)
        dev->vt->close(dev);
    return check_end("check_metal_shim_weights");
}
