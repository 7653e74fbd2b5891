/* check_bad_input.c: what the cache formats say to bad input, as docs/formats/README.md lists it.
 * Argument structs of ops with one wrong field each: check_op_args.  Unknown names given to the program: check_cli. */
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include "verify/golden/golden.h"
#include "kvant/format.h"
#include "kvant/ops.h"
#include "kvant/polar.h"
#include "kvant/qjl.h"
#include "support/check.h"

enum { D = 128, ROW = 4 * KVANT_MAX_PLAIN_HEAD_DIM, SDIM = 2 * KVANT_MAX_HEAD_DIM };

static float projection[KVANT_QJL_VALUES];

static const void *param_of(const kvant_format *f)
{
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

/* A head_dim that a format cannot hold: the message names the format, the value and what is wanted. */
static void head_dims(void)
{
    char number[16];

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const int most = f->group == 1 ? KVANT_MAX_PLAIN_HEAD_DIM : KVANT_MAX_HEAD_DIM;
        const int bad[] = { -128, -1, 0, most + 1, 1 << 30 };
        kvant_diag diag = { "" };
        for (int j = 0; j < 5; j++) {
            snprintf(number, sizeof number, "%d", bad[j]);
            CHECK(kvant_format_check(f, bad[j], &diag) == KVANT_EINVAL, "%s holds %d values", f->name, bad[j]);
            CHECK(strstr(diag.text, f->name) && strstr(diag.text, number) && strstr(diag.text, "want"), "%s",
                  diag.text);
        }
        for (int d = 1; d <= most; d++)      /* whatever is accepted fits the promises of format.h */
            if (kvant_format_check(f, d, &diag) == KVANT_OK)
                CHECK(kvant_format_padded(f, d) >= d && kvant_format_padded(f, d) % f->group == 0 &&
                          kvant_format_row_bytes(f, d) <= ROW && kvant_format_sdim(f, d) <= SDIM,
                      "%s: sizes of d=%d", f->name, d);
    }
}

/* The same through an op, before anything is queued. */
static void head_dims_of_ops(void)
{
    uint8_t pages[64 * 256];
    int32_t ids[1] = { 0 };
    float y[256];
    kvant_diag diag = { "" };
    const kvant_format *f = kvant_format_find("turbo4");
    kvant_cache_read_args a = { .side = { .fmt = f, .pages = pages, .row_bytes = 72, .head_bytes = 64 * 72,
                                          .page_bytes = 64 * 72 }, .page = ids, .row = ids, .y = y, .n = 1, .h = 1 };

    a.d = 96;
    CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_EINVAL && strstr(diag.text, "turbo4") &&
              strstr(diag.text, "96"), "%s", diag.text);
    a.d = 128;
    CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_OK, "%s", diag.text);
}

/* An unknown format: the message lists the names. */
static void unknown_names(void)
{
    static const char *const bad[] = { "", "tbq", "TBQ4_0x", "turbo5", "q4_0 ", "../tbq4_0", "%s%n" };
    const kvant_format *f = NULL;
    kvant_diag diag = { "" };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(kvant_format_parse(bad[i], &f, &diag) == KVANT_EINVAL && f == NULL, "\"%s\" accepted", bad[i]);
        for (int j = 0; j < kvant_format_count(); j++)
            CHECK(strstr(diag.text, kvant_format_at(j)->name), "\"%s\" does not list %s", diag.text,
                  kvant_format_at(j)->name);
    }
}

/* A projection file of another size, with values that say nothing, or that is none. */
static void projections(void)
{
    static const long sizes[] = { 0, 1, KVANT_QJL_FILE_BYTES - 1, KVANT_QJL_FILE_BYTES + 1, 2 * KVANT_QJL_FILE_BYTES };
    const char *path = "check_bad_input.projection.tmp";
    static float out[KVANT_QJL_VALUES];
    kvant_diag diag = { "" };

    for (int i = 0; i < 5; i++) {
        FILE *file = fopen(path, "wb");
        CHECK(file != NULL, "cannot write %s", path);
        for (long b = 0; file && b < sizes[i]; b += 4)
            fwrite(&projection[b / 4 % KVANT_QJL_VALUES], 1, sizes[i] - b < 4 ? (size_t)(sizes[i] - b) : 4, file);
        if (file)
            fclose(file);
        out[0] = 7.0f;
        CHECK(kvant_qjl_projection_load(path, out, &diag) == KVANT_EFORMAT && out[0] == 7.0f, "%ld bytes accepted",
              sizes[i]);
        CHECK(strstr(diag.text, sizes[i] ? "131072" : "0 bytes"), "no size: %s", diag.text);
    }
    remove(path);
    CHECK(kvant_qjl_projection_load(".", out, &diag) < 0 && diag.text[0], "a folder accepted");
    CHECK(kvant_qjl_projection_load("no/such/file", out, &diag) == KVANT_ENOENT, "%s", diag.text);
}

/* Rows shorter than row_bytes: in an op's side, and in a golden file. */
static void short_rows(void)
{
    uint8_t pages[1] = { 0 };
    int32_t ids[1] = { 0 };
    float y[D];
    kvant_diag diag = { "" };

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const size_t rb = kvant_format_row_bytes(f, D);
        kvant_cache_read_args a = { .side = { .fmt = f, .param = param_of(f), .pages = pages, .row_bytes = rb - 1,
                                              .head_bytes = 64 * rb, .page_bytes = 64 * rb },
                                    .page = ids, .row = ids, .y = y, .n = 1, .h = 1, .d = D };
        CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_EINVAL && strstr(diag.text, "row_bytes"), "%s",
              diag.text);
        a.side.row_bytes = rb;
        a.side.head_bytes = 63 * rb;
        CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_EINVAL && strstr(diag.text, "head_bytes"), "%s",
              diag.text);
        a.side.head_bytes = 64 * rb;
        a.side.page_bytes = 64 * rb - 1;
        CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_EINVAL && strstr(diag.text, "page_bytes"), "%s",
              diag.text);
        a.side.page_bytes = 64 * rb;
        CHECK(kvant_op_check(KVANT_OP_CACHE_READ, &a, &diag) == KVANT_OK, "%s", diag.text);
    }
}

static void short_golden_row(void)
{
    static const char text[] = "{\"format\": \"tbq4_0\", \"vectors\": [{\"name\": \"v\", \"x_f32\": "
                               "\"0000803f\", \"enc\": \"00\"}]}";
    static golden_report r;
    char dir[] = "/tmp/kvant_bad_XXXXXX", path[64];
    kvant_diag diag = { "" };

    CHECK(mkdtemp(dir) != NULL, "no folder in /tmp");
    snprintf(path, sizeof path, "%s/short.json", dir);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0, "cannot write %s", path);
    if (file)
        fclose(file);
    const int rc = golden_run_dir(dir, NULL, &r, &diag);
    CHECK(rc < 0 || r.total.failed > 0 || r.total.passed == 0, "a vector of one value passes");
    remove(path);
    rmdir(dir);
}

/* How many values of the acc space are not finite when one input value is NaN, or Inf (docs/formats/README.md). */
static const struct {
    const char *name;
    int nan, inf;
} not_finite[] = {
    { "f32", 1, 1 },       { "f16", 1, 1 },       { "bf16", 1, 1 },       { "q8_0", 0, 32 },      { "q4_0", 0, 32 },
    { "tbq4_0", 32, 32 },  { "tbq3_0", 32, 32 },  { "turbo3", 128, 128 }, { "turbo4", 32, 32 },
    { "turbo4_66", 128, 128 }, { "turbo3_tcq", 128, 128 }, { "qjl1_256", 256, 256 }, { "q4_polar", 128, 128 },
    { "q4_polar_r", 128, 128 }, { "f8_e4m3", 1, 0 },
};

static void nan_and_inf(void)
{
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const int d = 2 * D, sdim = kvant_format_sdim(f, d);
        int known = (f->flags & KVANT_FORMAT_PAGE) != 0;           /* check_pages */
        for (size_t t = 0; t < sizeof not_finite / sizeof *not_finite; t++)
            for (int s = 0; s < 6 && strcmp(not_finite[t].name, f->name) == 0; s++) {
                float x[2 * D], acc[SDIM];
                uint8_t row[ROW];
                int first = 0, last = 0;
                known = 1;
                check_fill_normal(x, (size_t)d, 5);
                x[d - 7] = s % 3 == 0 ? NAN : s % 3 == 1 ? INFINITY : -INFINITY;
                kvant_format_best(f)->encode(param_of(f), x, row, d, s / 3);
                f->ref.decode_acc(param_of(f), row, 0, 1, acc, d);
                for (int e = 0; e < sdim; e++)
                    *(e < sdim / 2 ? &first : &last) += !isfinite(acc[e]);
                CHECK(first == 0, "%s: a value of the second 128 spoils %d of the first", f->name, first);
                CHECK(last == (s % 3 ? not_finite[t].inf : not_finite[t].nan), "%s, %g: %d values are not finite",
                      f->name, (double)x[d - 7], last);
            }
        CHECK(known, "%s: say what NaN and Inf do, here and in docs/formats/README.md", f->name);
    }
}

/* Zero vectors decode to zeros and score zero, in every variant and encoder. */
static void zero_vectors(void)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        for (int v = 0; (k = kvant_format_variant(f, v, &name, &usable)) != NULL; v++)
            for (int e = 0; e < 2 && usable && k->encode; e++) {
                float x[D] = { 0 }, y[D], q[D], qp[SDIM], s = 1.0f;
                uint8_t row[ROW];
                int zeros = 0;
                x[3] = -0.0f;
                check_fill_normal(q, D, 8);
                k->encode(param_of(f), x, row, D, e);
                k->prep_q(param_of(f), q, qp, D);
                k->score(param_of(f), qp, SDIM, 1, row, sizeof row, 1, &s, 1, D);
                kvant_row_decode(f, param_of(f), row, y, D);
                for (int j = 0; j < D; j++)
                    zeros += y[j] == 0.0f;
                CHECK(zeros == D && s == 0.0f, "%s %s encoder %d: %d zeros, score %g", f->name, name, e, zeros,
                      (double)s);
                k->prep_q(param_of(f), x, qp, D);           /* a zero query */
                check_fill_normal(q, D, 9);
                k->encode(param_of(f), q, row, D, e);
                k->score(param_of(f), qp, SDIM, 1, row, sizeof row, 1, &s, 1, D);
                CHECK(s == 0.0f, "%s %s: a zero query scores %g", f->name, name, (double)s);
            }
    }
}

/* n = 0: nothing is read or written, rows may be NULL. */
static void no_rows(void)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        for (int v = 0; (k = kvant_format_variant(f, v, &name, &usable)) != NULL; v++) {
            float q[SDIM] = { 1 }, acc[SDIM] = { 3 }, one = 5.0f;
            if (!usable)
                continue;
            if (k->decode_page) {
                k->decode_page(param_of(f), NULL, 0, 0, &one, D);
                k->score_page(param_of(f), q, SDIM, 1, NULL, 0, 0, &one, 1, D);
                k->axpy_page(param_of(f), &one, 1, 1, NULL, 0, 0, acc, SDIM, D);
            } else {
                k->decode_acc(param_of(f), NULL, 0, 0, &one, D);
                k->score(param_of(f), q, SDIM, 1, NULL, 0, 0, &one, 1, D);
                k->axpy(param_of(f), &one, 1, 1, NULL, 0, 0, acc, SDIM, D);
            }
            CHECK(one == 5.0f && acc[0] == 3.0f && acc[1] == 0.0f, "%s %s: n = 0 wrote", f->name, name);
        }
    }
    float s = 5.0f;
    int8_t q8[KVANT_QJL_SKETCH] = { 1 };
    kvant_qjl_score_i8(q8, 1.0f, NULL, 34, 0, &s);
    kvant_polar_preht_score(projection, NULL, 82, 0, &s, D, 0);
    CHECK(s == 5.0f, "n = 0 wrote a score");
}

int main(void)
{
    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    head_dims();
    head_dims_of_ops();
    unknown_names();
    projections();
    short_rows();
    short_golden_row();
    nan_and_inf();
    zero_vectors();
    no_rows();
    return check_end("check_bad_input");
}
