/* layers.c: a different format per layer, for K and for V: fewer bits where an error matters less.  An engine keeps
 * two formats beside each layer's cache; nothing else changes, because rows are only touched through them.
 *
 *     cc layers.c $(pkg-config --cflags --libs kvant-formats) -lm -o layers
 *     ./layers f16/f16 tbq4_0/tbq3_0 turbo3/tbq4_0
 *
 * Each argument is K/V of one layer. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <kvant/format.h>

enum { D = 128, MAX_LAYERS = 64 };

typedef struct layer {
    const kvant_format *k, *v;
} layer;

/* "tbq4_0/tbq3_0" */
static int parse(const char *text, layer *out, kvant_diag *diag)
{
    char k[64];
    const char *slash = strchr(text, '/');
    if (!slash || (size_t)(slash - text) >= sizeof k) {
        snprintf(diag->text, sizeof diag->text, "%.64s: wanted K/V, such as tbq4_0/tbq3_0", text);
        return KVANT_EINVAL;
    }
    memcpy(k, text, (size_t)(slash - text));
    k[slash - text] = 0;
    int rc = kvant_format_parse(k, &out->k, diag);
    if (rc == 0)
        rc = kvant_format_parse(slash + 1, &out->v, diag);
    if (rc == 0)
        rc = kvant_format_check_param(out->k, NULL, diag);          /* a projection: see qjl.c */
    return rc ? rc : kvant_format_check_param(out->v, NULL, diag);
}

/* Relative error of x after one trip through a format. */
static double error_of(const kvant_format *f, const float *x)
{
    uint8_t row[D * sizeof(float)];
    float back[D];
    double error = 0, size = 0;
    kvant_format_best(f)->encode(NULL, x, row, D, KVANT_ENCODER_BEST);
    kvant_row_decode(f, NULL, row, back, D);
    for (int i = 0; i < D; i++) {
        error += (back[i] - x[i]) * (back[i] - x[i]);
        size += x[i] * x[i];
    }
    return sqrt(error / size);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = { "layers", "f16/f16", "q8_0/tbq4_0", "tbq4_0/tbq3_0", "turbo3/tbq4_0" };
    const char *const *texts = argc > 1 ? (const char *const *)argv : usual;
    int n = argc > 1 ? argc - 1 : 4;
    layer layers[MAX_LAYERS];
    kvant_diag diag;
    float x[D];
    size_t total = 0;

    for (int i = 0; i < D; i++)
        x[i] = sinf((float)(i * i) * 0.37f);
    if (n > MAX_LAYERS)
        return 2;
    for (int i = 0; i < n; i++) {
        if (parse(texts[i + 1], &layers[i], &diag)) {
            fprintf(stderr, "layers: %s\n", diag.text);
            return 2;
        }
        size_t bytes = kvant_format_row_bytes(layers[i].k, D) + kvant_format_row_bytes(layers[i].v, D);
        total += bytes;
        printf("layer %d: K %-8s error %.4f, V %-8s error %.4f, %4zu bytes per token and head\n", i, layers[i].k->name,
               error_of(layers[i].k, x), layers[i].v->name, error_of(layers[i].v, x), bytes);
    }
    printf("all: %zu bytes per token and head (f16: %zu)\n", total, (size_t)n * 4 * D);
    return 0;
}
