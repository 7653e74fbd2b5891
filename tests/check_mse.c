/* check_mse.c: mean squared error of the cache formats on Gaussian rows of 128 values, relative to unit variance.
 *
 *   check_mse [ROWS]      default 32768 (about 5 s); 1048576 are the rows of docs/formats/mse.md
 *
 * The encoders are the fastest of this CPU (their rows equal the references' but for codes at a decision boundary). */
#include "kvant/format.h"
#include "kvant/qjl.h"
#include "support/check.h"

enum { D = 128, MAX_FORMATS = 32 };

/* The limits of the specification; others are shown only. */
static const struct {
    const char *name;
    double limit;
} limits[] = { { "tbq4_0", 0.0091 }, { "tbq3_0", 0.0328 }, { "turbo3", 0.0343 }, { "turbo4_66", 0.0097 },
               { "turbo3_tcq", 0.0220 } };

static double limit_of(const kvant_format *f)
{
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (strcmp(limits[i].name, f->name) == 0)
            return limits[i].limit;
    return 0;
}

static double row_error(const kvant_format *f, const float *x, int encoder)
{
    uint8_t row[4 * D];
    float y[D];
    double err = 0;

    kvant_format_best(f)->encode(NULL, x, row, D, encoder);
    kvant_row_decode(f, NULL, row, y, D);
    for (int j = 0; j < D; j++)
        err += ((double)y[j] - (double)x[j]) * ((double)y[j] - (double)x[j]);
    return err;
}

int main(int argc, char **argv)
{
    const long rows = argc > 1 ? atol(argv[1]) : 32768;
    static double err[MAX_FORMATS][2];
    float x[D];

    for (long i = 0; i < rows; i++) {
        check_fill_normal(x, D, 50000u + (unsigned long long)i);
        for (int f = 0; f < kvant_format_count(); f++)
            for (int e = 0; e < 2; e++)
                if (!(kvant_format_at(f)->flags & (KVANT_FORMAT_PARAM | KVANT_FORMAT_WIDE | KVANT_FORMAT_PAGE)))
                    err[f][e] += row_error(kvant_format_at(f), x, e);
    }
    printf("| format | upstream | best | limit |\n|---|--:|--:|--:|\n");
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const double n = (double)rows * D, limit = limit_of(f);
        if (f->flags & (KVANT_FORMAT_PARAM | KVANT_FORMAT_WIDE | KVANT_FORMAT_PAGE))
            continue;
        printf("| %s | %.5f | %.5f | ", f->name, err[i][0] / n, err[i][1] / n);
        printf(limit > 0 ? "%.4f |\n" : "- |\n", limit);
        for (int e = 0; e < 2 && limit > 0; e++)
            CHECK(err[i][e] / n <= limit, "%s: mean squared error %.5f, want at most %.5f", f->name, err[i][e] / n,
                  limit);
        CHECK(err[i][1] <= err[i][0] * 1.0001, "%s: best errs more than upstream", f->name);
    }
    return check_end("check_mse");
}
