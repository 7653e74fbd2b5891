/* check_cuda_formats.c: the CUDA device's decoders, compiled as C, against the references: every cache format and every
 * weight type, on encoded rows and on random bytes, bit for bit.  Needs no GPU. */
#include <stdint.h>
#include "base/rng.h"
#include "cards/decode.h"
#include "cards/decode.h"
#include "kvant/format.h"
#include "kvant/qjl.h"
#include "kvant/wtype.h"
#include "support/check.h"

enum { D = 256, ROWS = 40, SDIM = 512 };

typedef struct decoder {
    const char *name;
    float (*value)(const uint8_t *row, int j, float scale);
} decoder;

#define CARD_FORMAT(name, values, bytes, space, cls, codes) { #name, fmt_##name },
static const decoder decoders[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

static const decoder *find(const char *name)
{
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++)
        if (strcmp(decoders[i].name, name) == 0)
            return &decoders[i];
    return NULL;
}

/* NaN against NaN counts as equal: random bytes decode to any of them. */
static int same(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(a[i] != a[i] && b[i] != b[i]))
            return 0;
    return 1;
}

static void compare_row(const kvant_format *f, const decoder *dec, const uint8_t *row, const char *what)
{
    float want[SDIM], got[SDIM];
    const int sdim = kvant_format_sdim(f, D);

    f->ref.decode_acc(NULL, row, 0, 1, want, D);
    for (int j = 0; j < sdim; j++)
        got[j] = dec->value(row, j, 1.0f);
    CHECK(same(got, want, sdim), "%s: %s decode differently", f->name, what);
}

static void check_format(const kvant_format *f)
{
    static float projection[KVANT_QJL_VALUES];
    const decoder *dec = find(f->name);
    const size_t bytes = kvant_format_row_bytes(f, D);
    uint8_t row[D * 4];
    float x[D];
    rng r = { 5 };

    CHECK(dec != NULL, "%s has no decoder in cards/decode.h", f->name);
    if (dec == NULL)
        return;
    kvant_qjl_projection_build(1, projection);
    for (int i = 0; i < ROWS; i++) {
        check_fill_normal(x, D, (unsigned long long)i + 1);
        f->ref.encode(f->flags & KVANT_FORMAT_PARAM ? projection : NULL, x, row, D, i % 2);
        compare_row(f, dec, row, "encoded rows");
        for (size_t b = 0; b < bytes; b++)
            row[b] = (uint8_t)rng_below(&r, 256);
        compare_row(f, dec, row, "random rows");
    }
}

/* ---- weights ---- */

typedef struct wdecoder {
    const char *name;
    void (*chunk)(const uint8_t *row, int64_t c, float *w);
} wdecoder;

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) { name, wt_##sym },
static const wdecoder wdecoders[] = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

static void check_wtype(const kvant_wtype *t)
{
    const wdecoder *dec = NULL;
    uint8_t row[D * 4 * 4];
    float want[4 * D], got[4 * D];
    rng r = { 9 };

    for (size_t i = 0; i < sizeof wdecoders / sizeof wdecoders[0]; i++)
        if (strcmp(wdecoders[i].name, t->name) == 0)
            dec = &wdecoders[i];
    CHECK(dec != NULL, "%s has no decoder in cards/decode.h", t->name);
    for (int i = 0; dec && i < ROWS; i++) {
        const size_t bytes = (size_t)(4 * D / t->block * t->bytes);
        for (size_t b = 0; b < bytes; b++)
            row[b] = (uint8_t)rng_below(&r, 256);
        t->dequant(row, want, 4 * D);
        for (int c = 0; c < 4 * D / 8; c++)
            dec->chunk(row, c, got + 8 * c);
        CHECK(same(got, want, 4 * D), "%s: random blocks decode differently", t->name);
    }
    for (int k = 0; dec && k < 4 * D && t->block == 1; k++) {
        const float v = t->bytes == 4 ? wt_f32_one(row, k) : strcmp(t->name, "F16") == 0 ? wt_f16_one(row, k)
                                                                                         : wt_bf16_one(row, k);
        CHECK(same(&v, &want[k], 1), "%s: value %d alone decodes differently", t->name, k);
    }
}

int main(void)
{
    for (int i = 0; i < kvant_format_count(); i++)
        check_format(kvant_format_at(i));
    for (int i = 0; i < kvant_wtype_count(); i++)
        check_wtype(kvant_wtype_at(i));
    return check_end("check_cuda_formats");
}
