/* check_kernels.c: every kernel variant of every cache format against its reference, over shapes and alignments.
 * The cases, bounds and rules are src/verify/kernels.h; this program chooses among them.
 *
 *   check_kernels [format [variant [op [d [r [n]]]]]]     "-" for any; a failure prints the command that repeats it */
#include "base/cpu.h"
#include "support/check.h"
#include "verify/kernels.h"

static const char *want[6];                /* the arguments, NULL: any */

static int wanted(int i, const char *value)
{
    return !want[i] || strcmp(want[i], "-") == 0 || strcmp(want[i], value) == 0;
}

static int number(int i)
{
    return want[i] && strcmp(want[i], "-") != 0 ? atoi(want[i]) : 0;
}

static void show(const verify_kernel *k)
{
    int cases = 0;

    for (int op = 0; op < VERIFY_KERNEL_OPS; op++) {
        const verify_tally *t = &k->op[op];
        cases += t->cases;
        check_passed += t->cases - t->failed;
        CHECK(t->failed == 0, "%s %s %s: %d of %d cases failed", k->f->name, k->variant, verify_kernel_name(op),
              t->failed, t->cases);
        if (t->boundary || t->searched)
            printf("  %s %s: of %ld encoded rows %ld differ at a boundary (upstream), %ld were found elsewhere (best)\n",
                   k->f->name, k->variant, t->rows, t->boundary, t->searched);
    }
    printf("%-11s %-10s %d cases\n", k->f->name, k->variant, cases);
}

/* A CPU without a feature never reaches its code. */
static void check_masks(const kvant_format *f)
{
    const char *isa;
    int usable;
    cpu_set_mask(0);
    CHECK(memcmp(kvant_format_best(f), &f->ref, sizeof f->ref) == 0, "%s: not the reference without features", f->name);
    for (int i = 0; kvant_format_variant(f, i, &isa, &usable); i++)
        CHECK(usable == (i == 0), "%s %s: usable %d without features", f->name, isa, usable);
    cpu_set_mask(~0u);
}

static void check_format(const kvant_format *f)
{
    static verify_report texts;
    const char *isa;
    int usable;

    check_masks(f);
    for (int i = 0; kvant_format_variant(f, i, &isa, &usable); i++) {
        const verify_kernel_filter filter = { want[2] && strcmp(want[2], "-") != 0 ? want[2] : NULL, number(3),
                                              number(4), number(5), i == 0, check_sanitized };
        kvant_diag diag = { "" };
        verify_kernel k;

        if (!wanted(1, isa))
            continue;
        texts.n_failures = 0;
        CHECK(verify_kernels(f, i, &filter, &k, &texts, &diag) == 1, "%s %s: %s", f->name, isa, diag.text);
        for (int t = 0; t < texts.n_failures; t++)
            printf("FAIL %s\n", texts.failures[t]);
        if (k.usable)
            show(&k);
        else
            printf("%-11s %-10s SKIP: this CPU cannot run it\n", f->name, isa);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc && i <= 6; i++)
        want[i - 1] = argv[i];
    for (int i = 0; i < kvant_format_count(); i++)
        if (wanted(0, kvant_format_at(i)->name))
            check_format(kvant_format_at(i));
    return check_end("check_kernels");
}
