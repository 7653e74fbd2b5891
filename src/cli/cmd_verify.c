/* cmd_verify.c: `kvant verify`: golden vectors made by other programs, and every kernel variant against its
 * reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/common.h"
#include "cli/term.h"
#include "cli/verify_formats.h"
#include "formats/golden.h"

typedef struct verifier {
    const opts *o;
    jsonw w;
    int json, passed, failed;
} verifier;

static void count(verifier *v, int ok)
{
    if (ok)
        v->passed++;
    else
        v->failed++;
}

static const char *verdict(int ok)
{
    return ok ? "ok" : "FAILED";
}

/* ---- golden vectors ---- */

static void golden_text(const golden_report *r)
{
    printf("%-36s %-12s %8s %8s %8s %8s\n", "golden file", "format", "passed", "failed", "skipped", "ties");
    for (int i = 0; i < r->n_files; i++)
        printf("%-36s %-12s %8d %8d %8d %8d\n", r->files[i].name, r->files[i].format[0] ? r->files[i].format : "-",
               r->files[i].count.passed, r->files[i].count.failed, r->files[i].count.skipped, r->files[i].count.ties);
    for (int i = 0; i < r->n_failures; i++)
        printf("FAILED %s\n", r->failures[i]);
    putchar('\n');
}

static void golden_json(jsonw *w, const golden_report *r)
{
    jsonw_key(w, "golden");
    jsonw_array(w);
    for (int i = 0; i < r->n_files; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "file", r->files[i].name);
        jsonw_kstr(w, "format", r->files[i].format);
        jsonw_kint(w, "passed", r->files[i].count.passed);
        jsonw_kint(w, "failed", r->files[i].count.failed);
        jsonw_kint(w, "skipped", r->files[i].count.skipped);
        jsonw_kint(w, "informative", r->files[i].count.informative);
        jsonw_kint(w, "ties", r->files[i].count.ties);
        jsonw_end(w);
    }
    jsonw_end(w);
    jsonw_key(w, "golden_failures");
    jsonw_array(w);
    for (int i = 0; i < r->n_failures; i++)
        jsonw_str(w, r->failures[i]);
    jsonw_end(w);
}

static int check_golden(verifier *v, const char *dir, kvant_diag *diag)
{
    golden_report *r = kvant_calloc(1, sizeof *r);
    int code = r ? golden_run_dir(dir, r, diag) : kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");

    if (code == KVANT_OK && r->total.passed == 0)
        code = kvant_fail(diag, KVANT_EFORMAT, "%.120s: found no golden vector to compare", dir);
    if (code == KVANT_OK) {
        v->passed += r->total.passed;
        v->failed += r->total.failed;
        if (v->json)
            golden_json(&v->w, r);
        else
            golden_text(r);
    }
    kvant_free(r);
    return code;
}

/* ---- kernel variants ---- */

static void variant_text(const verify_result *r)
{
    printf("%-12s %-12s ", r->f->name, r->variant);
    if (!r->usable) {
        printf("not on this CPU\n");
        return;
    }
    for (int op = 0; op < VERIFY_OPS; op++)
        printf("%10.3f ", r->worst[op]);
    printf(" %s\n", verdict(r->ok));
}

static void variant_json(jsonw *w, const verify_result *r)
{
    jsonw_object(w);
    jsonw_kstr(w, "format", r->f->name);
    jsonw_kstr(w, "variant", r->variant);
    jsonw_kstr(w, "state", !r->usable ? "supported" : r->ok ? "verified" : "failed");
    jsonw_kint(w, "head_sizes", r->cases);
    for (int op = 0; op < VERIFY_OPS && r->usable; op++)
        jsonw_knum(w, verify_op_name(op), r->worst[op]);
    jsonw_end(w);
}

static int check_variants(verifier *v, kvant_diag *diag)
{
    verify_result r;

    if (v->json) {
        jsonw_key(&v->w, "kernels");
        jsonw_array(&v->w);
    } else {
        printf("%-12s %-12s ", "format", "variant");
        for (int op = 0; op < VERIFY_OPS; op++)
            printf("%10s ", verify_op_name(op));
        printf(" (largest error as a part of its bound)\n");
    }
    for (int i = 0; i < kvant_format_count(); i++)
        for (int j = 0;; j++) {
            int more = verify_format(kvant_format_at(i), j, &r, diag);
            if (more < 0)
                return more;
            if (!more)
                break;
            if (r.usable)
                count(v, r.ok);
            if (v->json)
                variant_json(&v->w, &r);
            else
                variant_text(&r);
        }
    if (v->json)
        jsonw_end(&v->w);
    return KVANT_OK;
}

/* ---- the command ---- */

/* --golden DIR, else tests/golden when the program is started in the source tree, else none. */
static const char *golden_dir(const opts *o)
{
    struct stat st;

    if (opt_given(o, OPT_GOLDEN))
        return opt_str(o, OPT_GOLDEN);
    if (!opt_flag(o, OPT_VERIFY_FORMATS) && stat("tests/golden", &st) == 0 && S_ISDIR(st.st_mode))
        return "tests/golden";
    return NULL;
}

static int verify_all(verifier *v, kvant_diag *diag)
{
    const char *dir = golden_dir(v->o);
    int formats = opt_flag(v->o, OPT_VERIFY_FORMATS) || !opt_given(v->o, OPT_GOLDEN);

    if (dir)
        KVANT_TRY(check_golden(v, dir, diag));
    else if (!opt_flag(v->o, OPT_VERIFY_FORMATS))
        log_msg(LOG_WARN, "golden vectors: not checked, no folder tests/golden here; --golden DIR names one");
    if (formats)
        KVANT_TRY(check_variants(v, diag));
    if (!v->json)
        printf("\n%d passed, %d failed\n", v->passed, v->failed);
    if (v->failed)
        kvant_fail(diag, KVANT_EGATE, "verify: %d of %d checks failed", v->failed, v->passed + v->failed);
    return KVANT_OK;
}

int cmd_verify(const opts *o, kvant_diag *diag)
{
    verifier v;

    memset(&v, 0, sizeof v);
    v.o = o;
    v.json = opt_flag(o, OPT_JSON);
    jsonw_init(&v.w);
    jsonw_object(&v.w);
    int code = verify_all(&v, diag);
    jsonw_kint(&v.w, "passed", v.passed);
    jsonw_kint(&v.w, "failed", v.failed);
    jsonw_end(&v.w);
    if (code == KVANT_OK && v.json)
        code = put_json(&v.w, diag);
    jsonw_free(&v.w);
    return code == KVANT_OK && v.failed ? KVANT_EGATE : code;
}
