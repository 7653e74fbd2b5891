/* check_cards.c: what tools/gen_tables makes of the cards against the hand-written references: sizes, and the decoders
 * of cards/decode.h compiled as C.  Every cache format with every bit pattern of its scale, each beside other random
 * codes, so that each code (and each state of the trellis) stands at each place many times; every weight type on random
 * blocks; pages of page scope.  Bit for bit.  The same text is the CUDA device's, so this needs no GPU. */
#include <stdint.h>
#include "base/rng.h"
#define CARDS_PAGES
#include "cards/decode.h"
#include "kvant/format.h"
#include "kvant/qjl.h"
#include "kvant/wtype.h"
#include "support/check.h"

enum { D = 256, ROWS = 40, SDIM = 512, SCALES = 65536, MAX_RECORD = 256 };

typedef struct decoder {
    const char *name;
    int values, bytes;
    float (*value)(const uint8_t *row, int j, float scale);
} decoder;

#define CARD_FORMAT(name, values, bytes, space, cls, codes) { #name, values, bytes, fmt_##name },
static const decoder decoders[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

/* NaN against NaN counts as equal: random bytes decode to any of them. */
static int same(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(a[i] != a[i] && b[i] != b[i]))
            return 0;
    return 1;
}

static int row_same(const kvant_format *f, const decoder *dec, const uint8_t *row, int d)
{
    float want[SDIM], got[SDIM];
    const int sdim = kvant_format_sdim(f, d);

    f->ref.decode_acc(NULL, row, 0, 1, want, d);
    for (int j = 0; j < sdim; j++)
        got[j] = dec->value(row, j, 1.0f);
    return same(got, want, sdim);
}

static void random_bytes(rng *r, uint8_t *to, size_t n)
{
    for (size_t b = 0; b < n; b++)
        to[b] = (uint8_t)rng_below(r, 256);
}

/* One record per pattern of the first two bytes and of the last two: wherever a scale lies, it takes every value. */
static int records_differ(const kvant_format *f, const decoder *dec)
{
    uint8_t record[MAX_RECORD];
    int differ = 0;
    rng r = { 11 };

    for (int i = 0; i < SCALES; i++) {
        random_bytes(&r, record, (size_t)f->group_bytes);
        uint8_t *const at = i % 2 || f->group_bytes < 4 ? record : record + f->group_bytes - 2;
        at[0] = (uint8_t)i;
        if (f->group_bytes > 1)
            at[1] = (uint8_t)(i >> 8);
        differ += !row_same(f, dec, record, f->group);
    }
    return differ;
}

static void check_format(const kvant_format *f, const decoder *dec)
{
    static float projection[KVANT_QJL_VALUES];
    uint8_t row[D * 4];
    float x[D];
    rng r = { 5 };
    int differ = 0;

    CHECK(strcmp(f->name, dec->name) == 0, "%s stands where %s's card does", f->name, dec->name);
    CHECK(f->group_bytes * dec->values == dec->bytes * f->group_sdim,
          "%s: %d values in %d bytes, the card says %d in %d", f->name, f->group_sdim, f->group_bytes, dec->values,
          dec->bytes);
    kvant_qjl_projection_build(1, projection);
    for (int i = 0; i < ROWS; i++) {
        check_fill_normal(x, D, (unsigned long long)i + 1);
        f->ref.encode(f->flags & KVANT_FORMAT_PARAM ? projection : NULL, x, row, D, i % 2);
        differ += !row_same(f, dec, row, D);
        random_bytes(&r, row, kvant_format_row_bytes(f, D));
        differ += !row_same(f, dec, row, D);
    }
    CHECK(differ == 0, "%s: %d of %d rows decode differently", f->name, differ, 2 * ROWS);
    CHECK(f->group_bytes <= MAX_RECORD, "%s: records of %d bytes", f->name, f->group_bytes);
    differ = records_differ(f, dec);
    CHECK(differ == 0, "%s: %d of %d records decode differently", f->name, differ, SCALES);
}

/* ---- page scope ---- */

typedef struct page_decoder {
    const char *name;
    int values, bytes;
    float (*value)(const uint8_t *page, int r, int j, float mean);
    float (*mean)(const uint8_t *page, int j);
} page_decoder;

#define CARD_PAGE(name, values, bytes, space, bits, book) { #name, values, bytes, page_##name, page_mean_##name },
static const page_decoder page_decoders[] = {
#include "cards/lists.inc"
};
#undef CARD_PAGE

/* Pages of any bytes: every state, scale, step and mean at every place. */
static void check_page_format(const kvant_format *f, const page_decoder *dec)
{
    enum { PAGES = 64 };
    static uint8_t page[KVANT_PAGE * D];
    float want[D], got[D];
    int differ = 0;
    rng r = { 13 };

    CHECK(strcmp(f->name, dec->name) == 0 && f->group == dec->values && f->group_bytes == dec->bytes,
          "%s: %d values in %d bytes, the card of %s says %d in %d", f->name, f->group, f->group_bytes, dec->name,
          dec->values, dec->bytes);
    for (int i = 0; i < PAGES; i++) {
        random_bytes(&r, page, KVANT_PAGE * kvant_format_row_bytes(f, D));
        for (int row = 0; row < KVANT_PAGE; row++) {
            f->ref.decode_page(NULL, page, row, 1, want, D);
            for (int j = 0; j < D; j++)
                got[j] = dec->value(page, row, j, dec->mean(page, j));
            differ += !same(got, want, D);
        }
    }
    CHECK(differ == 0, "%s: %d of %d rows decode differently", f->name, differ, PAGES * KVANT_PAGE);
}

/* ---- weights ---- */

typedef struct wdecoder {
    const char *name;
    int id, block, bytes;
    void (*chunk)(const uint8_t *row, int64_t c, float *w);
} wdecoder;

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) { name, gguf, values, bytes, wt_##sym },
static const wdecoder wdecoders[] = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

enum { VALUES = 4 * D, BLOCKS = 4096 };

static void check_one(const kvant_wtype *t, const uint8_t *row, const float *want)
{
    for (int k = 0; k < VALUES && t->block == 1; k++) {
        const float v = t->bytes == 4 ? wt_f32_one(row, k) : strcmp(t->name, "F16") == 0 ? wt_f16_one(row, k)
                                                                                         : wt_bf16_one(row, k);
        CHECK(same(&v, &want[k], 1), "%s: value %d alone decodes differently", t->name, k);
    }
}

static void check_wtype(const kvant_wtype *t, const wdecoder *dec)
{
    uint8_t row[VALUES * 4];
    float want[VALUES], got[VALUES];
    int differ = 0;
    rng r = { 9 };

    CHECK(strcmp(dec->name, t->name) == 0 && dec->id == t->ggml_id && dec->block == t->block && dec->bytes == t->bytes,
          "%s stands where %s's card does", t->name, dec->name);
    for (int i = 0; i < BLOCKS; i++) {
        random_bytes(&r, row, (size_t)(VALUES / t->block * t->bytes));
        t->dequant(row, want, VALUES);
        for (int c = 0; c < VALUES / 8; c++)
            dec->chunk(row, c, got + 8 * c);
        differ += !same(got, want, VALUES);
    }
    CHECK(differ == 0, "%s: %d of %d rows of random blocks decode differently", t->name, differ, BLOCKS);
    check_one(t, row, want);
}

/* A level of every code, as kernels take it from the book. */
static void check_levels(void)
{
    for (int code = 0; code < 16; code++) {
        const float integer = fmt_level(FMT_q4_0, code), level = fmt_level(FMT_tbq4_0, code);
        CHECK(integer == (float)(code - 8), "q4_0's code %d is %g", code, (double)integer);
        CHECK(level == -fmt_level(FMT_tbq4_0, 15 - code), "tbq4_0's book is not symmetric at code %d", code);
    }
}

int main(void)
{
    int rows = 0, pages = 0;
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        if ((f->flags & KVANT_FORMAT_PAGE) && pages < FMT_ALL - FMT_COUNT)
            check_page_format(f, &page_decoders[pages++]);
        else if (rows < FMT_COUNT)
            check_format(f, &decoders[rows++]);
    }
    CHECK(rows == FMT_COUNT && pages == FMT_ALL - FMT_COUNT && kvant_wtype_count() == WT_COUNT,
          "%d and %d formats and %d weight types, cards: %d, %d, %d", rows, pages, kvant_wtype_count(), FMT_COUNT,
          FMT_ALL - FMT_COUNT, WT_COUNT);
    for (int i = 0; i < kvant_wtype_count(); i++)
        check_wtype(kvant_wtype_at(i), &wdecoders[i]);
    check_levels();
    return check_end("check_cards");
}
