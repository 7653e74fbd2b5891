/* golden_pages.c: vectors of formats of page scope: "x_f32" of 64 rows of 128 values, "enc" the page, "acc_f32" what
 * its rows decode to.  Bytes and values must be equal, in the reference and in every variant that this CPU may run. */
#include "verify/golden/golden_run.h"

#include <stdio.h>

enum { D = 128, VALUES = KVANT_PAGE * D };

typedef struct page_vector {
    char name[64];
    const float *x, *acc;
    const uint8_t *enc;
    size_t bytes;
} page_vector;

/* Rows decode together, and each alone. */
static void check_decode(golden_run *r, const kvant_format *f, const kvant_format_kernels *k, const char *variant,
                         const page_vector *v, float *got)
{
    float one[D];
    int alone = 1;

    k->decode_page(NULL, v->enc, 0, KVANT_PAGE, got, D);
    golden_check(r, golden_compare(got, v->acc, VALUES, 0.0) < 0, "%s %s: %s decodes differently", f->name, variant,
                 v->name);
    for (int i = 0; i < KVANT_PAGE; i++) {
        k->decode_page(NULL, v->enc, i, 1, one, D);
        alone &= golden_compare(one, got + i * D, D, 0.0) < 0;
    }
    golden_check(r, alone, "%s %s: a row of %s decodes differently alone", f->name, variant, v->name);
}

static void check_variants(golden_run *r, const kvant_format *f, const page_vector *v, uint8_t *page, float *got)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->encode_page(NULL, v->x, D, page, D, KVANT_ENCODER_UPSTREAM);
        golden_check(r, memcmp(page, v->enc, v->bytes) == 0, "%s %s: %s encodes differently", f->name, name, v->name);
        check_decode(r, f, k, name, v, got);
    }
}

void golden_pages(golden_run *r, gjson root, const kvant_format *f)
{
    const size_t bytes = KVANT_PAGE * kvant_format_row_bytes(f, D), mark = r->memory.used;
    gjson it = { NULL, 0 }, vectors = gjson_get(root, "vectors");

    while (gjson_next(vectors, &it)) {
        size_t n_x, n_acc;
        page_vector v = { .bytes = 0 };
        gjson_text(gjson_get(it, "name"), v.name, sizeof v.name);
        v.x = golden_floats(r, gjson_get(it, "x_f32"), &n_x);
        v.acc = golden_floats(r, gjson_get(it, "acc_f32"), &n_acc);
        v.enc = golden_bytes(r, gjson_get(it, "enc"), &v.bytes);
        uint8_t *page = arena_alloc(&r->memory, bytes);
        float *got = arena_alloc(&r->memory, VALUES * sizeof *got);
        const int whole = page && got && n_x == VALUES && n_acc == VALUES && v.bytes == bytes;
        golden_check(r, whole, "%s: %s: %zu values, %zu bytes, %zu decoded, wanted %d, %zu, %d", f->name, v.name, n_x,
                     v.bytes, n_acc, VALUES, bytes, VALUES);
        if (whole)
            check_variants(r, f, &v, page, got);
        r->memory.used = mark;             /* the vector's fields are no longer needed */
    }
}
