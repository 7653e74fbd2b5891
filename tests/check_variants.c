/* check_variants.c: every variant of every op of the CPU through the op harness: against the reference, within the op's
 * class, nothing else written, and the same bits for any number of parts.  check_variants OPS: those ops alone.
 *
 * Of the references, which are compared with themselves here, formats of each kind stand for all (KVANT_LONG=1: all).
 *
 * What is not an op's contract is checked elsewhere: bits that do not depend on the batch (check_attn, check_gdn,
 * check_matmul), fused ops against their parts and known answers (check_ops). */
#include "support/check.h"
#include "support/parts_device.h"
#include "verify/verify.h"

/* Formats whose rows the references' ops read in each way that there is: what a format does of its own is compared with
 * golden vectors and by the other variants. */
static const char few_formats[] = "f16,q8_0,tbq4_0,turbo3_tcq,qjl1_256,q4_polar_r,F32,Q8_0,Q4_K";

static void check_variant(const char *name, const char *ops)
{
    static verify_report r;
    const int few = strcmp(name, "ref") == 0 && !getenv("KVANT_LONG");
    const verify_options o = { .ops = ops, .quick = 1, .formats = few ? few_formats : NULL };
    kvant_diag diag = { "" };
    int ran = 0;

    memset(&r, 0, sizeof r);
    CHECK(verify_device(parts_device(name), &o, &r, &diag) == KVANT_OK, "%s: %s", name, diag.text);
    for (int i = 0; i < r.n_failures; i++)
        CHECK(0, "variant %s: %s", name, r.failures[i]);
    CHECK(r.failed == 0, "variant %s: %d cases failed", name, r.failed);
    for (int i = 0; i < r.n; i++)
        ran += r.entries[i].state == VERIFY_VERIFIED;
    CHECK(ran > 0 || ops, "variant %s: nothing was run", name);
    check_passed += r.passed;
    printf("%s: %d cases in %d shape classes\n", name, r.passed, ran);
    verify_report_free(&r);
}

/* The variant is the first of its name over all ops. */
static int is_first(int id, int i, const char *name)
{
    const char *other;
    int usable;

    for (int j = 0; j <= id; j++)
        for (int k = 0; kvant_op_variant(j, k, &other, &usable) && (j < id || k < i); k++)
            if (strcmp(other, name) == 0)
                return 0;
    return 1;
}

/* What is checked where no ops are named: NULL is all; under a sanitizer not what takes minutes there and has a check
 * of all its variants of its own: check_attn, check_matmul, check_kernels. */
static const char *usual_ops(void)
{
    static const int apart[] = { KVANT_OP_ATTN, KVANT_OP_MATMUL, KVANT_OP_MATMUL_ID, KVANT_OP_CACHE_WRITE,
                                 KVANT_OP_PAGE_SEAL, KVANT_OP_CACHE_READ };
    static char list[1024];
    size_t n = 0;

    if (!check_sanitized)
        return NULL;
    for (int id = 0; id < KVANT_OP_COUNT; id++) {
        int skip = 0;
        for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
            skip |= apart[i] == id;
        if (!skip)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? "," : "", kvant_op_get(id)->name);
    }
    return list;
}

int main(int argc, char **argv)
{
    const char *name, *ops = argc > 1 ? argv[1] : usual_ops();
    int usable;

    for (int id = 0; id < KVANT_OP_COUNT; id++)
        for (int i = 0; kvant_op_variant(id, i, &name, &usable); i++)
            if (is_first(id, i, name) && usable)
                check_variant(name, ops);
            else if (is_first(id, i, name))
                printf("%s: skipped, this CPU cannot run it\n", name);
    return check_end("check_variants");
}
