/* cmd_verify.c: `kvant verify`: golden vectors made by other programs, every kernel variant of the cache formats
 * against its reference, and every op of a device against its reference.  Owns the selection and the printing. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/cpu.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/common.h"
#include "cli/term.h"
#include "verify/golden/golden.h"
#include "verify/cross.h"
#include "verify/kernels.h"
#include "verify/verify.h"

typedef struct verifier {
    const opts *o;
    jsonw w;
    int silent;             /* the JSON goes to standard output, and nothing else */
    int passed, failed;
} verifier;

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

/* dev runs the fixtures among them.  may_lack: a folder without anything for this device is no error. */
static int check_golden(verifier *v, const char *dir, kvant_device *dev, int may_lack, kvant_diag *diag)
{
    golden_report *r = kvant_calloc(1, sizeof *r);
    int code = r ? golden_run_dir(dir, dev, r, diag) : kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");

    if (code == KVANT_OK && r->total.passed + r->total.failed == 0 && !may_lack)
        code = kvant_fail(diag, KVANT_EFORMAT, "%.120s: found no golden vector to compare on device %s", dir,
                          dev->vt->name);
    if (code == KVANT_OK) {
        v->passed += r->total.passed;
        v->failed += r->total.failed;
        golden_json(&v->w, r);
        if (!v->silent)
            golden_text(r);
    }
    kvant_free(r);
    return code;
}

/* ---- kernel variants ---- */

static void kernel_text(const verify_kernel *k)
{
    printf("%-12s %-11s ", k->f->name, k->variant);
    if (!k->usable) {
        printf("not on this CPU\n");
        return;
    }
    for (int op = 0; op < VERIFY_KERNEL_OPS; op++)
        if (k->op[op].cases == 0)
            printf("%10s ", "-");
        else
            printf("%10.3f%c", k->op[op].worst, k->op[op].failed ? '!' : ' ');
    const verify_tally *e = &k->op[VERIFY_ENCODE];
    printf(" %5ld %5ld %5ld\n", e->boundary, e->searched, e->rows);
}

static void kernel_json(jsonw *w, const verify_kernel *k)
{
    for (int op = 0; op < VERIFY_KERNEL_OPS; op++) {
        const verify_tally *t = &k->op[op];
        if (k->usable && t->cases == 0)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "format", k->f->name);
        jsonw_kstr(w, "variant", k->variant);
        jsonw_kstr(w, "op", verify_kernel_name(op));
        jsonw_kstr(w, "class", verify_kernel_class(op));
        jsonw_kstr(w, "state", !k->usable ? "supported" : t->failed ? "failed" : "verified");
        if (k->usable) {
            jsonw_kint(w, "cases", t->cases);
            jsonw_kint(w, "failed", t->failed);
            jsonw_knum(w, "worst", t->worst);
        }
        if (t->rows) {
            jsonw_kint(w, "rows", t->rows);
            jsonw_kint(w, "boundary", t->boundary);
            jsonw_kint(w, "searched", t->searched);
        }
        jsonw_end(w);
    }
}

static void put_failures(const verifier *v, const verify_report *texts)
{
    for (int i = 0; i < texts->n_failures && !v->silent; i++)
        printf("FAILED %s\n", texts->failures[i]);
}

static int check_format(verifier *v, const kvant_format *f, verify_report *texts, kvant_diag *diag)
{
    const verify_kernel_filter filter = { .quick = opt_flag(v->o, OPT_QUICK) };
    verify_kernel k;

    for (int j = 0;; j++) {
        texts->n_failures = 0;
        const int more = verify_kernels(f, j, &filter, &k, texts, diag);
        if (more <= 0)
            return more;
        for (int op = 0; op < VERIFY_KERNEL_OPS; op++) {
            v->passed += k.op[op].cases - k.op[op].failed;
            v->failed += k.op[op].failed;
        }
        kernel_json(&v->w, &k);
        if (!v->silent)
            kernel_text(&k);
        put_failures(v, texts);
    }
}

static void kernel_head(const verifier *v)
{
    if (v->silent)
        return;
    printf("\n%-12s %-11s ", "format", "variant");
    for (int op = 0; op < VERIFY_KERNEL_OPS; op++)
        printf("%10s ", verify_kernel_name(op));
    printf(" rows at a boundary (upstream), found elsewhere (best), of\n%-24s ", "largest error/bound");
    for (int op = 0; op < VERIFY_KERNEL_OPS; op++)
        printf("%10s ", verify_kernel_class(op));
    putchar('\n');
}

static int check_kernels(verifier *v, verify_report *texts, kvant_diag *diag)
{
    int rc = KVANT_OK;

    jsonw_key(&v->w, "kernels");
    jsonw_array(&v->w);
    kernel_head(v);
    for (int i = 0; i < kvant_format_count() && rc == KVANT_OK; i++)
        if (verify_listed(opt_str(v->o, OPT_VERIFY_FORMATS), kvant_format_at(i)->name))
            rc = check_format(v, kvant_format_at(i), texts, diag);
    jsonw_end(&v->w);
    return rc;
}

/* ---- cross-checks ---- */

static int check_cross(verifier *v, verify_report *texts, kvant_diag *diag)
{
    verify_cross list[VERIFY_CROSS_CHECKS];

    texts->n_failures = 0;
    KVANT_TRY(verify_cross_checks(list, texts, diag));
    jsonw_key(&v->w, "cross");
    jsonw_array(&v->w);
    if (!v->silent)
        printf("\n%-24s %6s %6s %10s %8s\n", "cross-check", "cases", "failed", "worst", "limit");
    for (int i = 0; i < VERIFY_CROSS_CHECKS; i++) {
        const verify_cross *c = &list[i];
        v->passed += c->cases - c->failed;
        v->failed += c->failed;
        jsonw_object(&v->w);
        jsonw_kstr(&v->w, "name", c->name);
        jsonw_kint(&v->w, "cases", c->cases);
        jsonw_kint(&v->w, "failed", c->failed);
        jsonw_knum(&v->w, "worst", c->worst);
        jsonw_knum(&v->w, "limit", c->limit);
        jsonw_kstr(&v->w, "reason", c->reason);
        jsonw_end(&v->w);
        if (!v->silent)
            printf("%-24s %6d %6d %10.3g %8.1g %s\n", c->name, c->cases, c->failed, c->worst, c->limit, c->reason);
    }
    jsonw_end(&v->w);
    put_failures(v, texts);
    return KVANT_OK;
}

/* Kernels of the CPU, and, unless formats were named, the cross-checks. */
static int check_cpu(verifier *v, kvant_diag *diag)
{
    verify_report *texts = kvant_calloc(1, sizeof *texts);
    int rc = texts ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");

    if (rc == KVANT_OK)
        rc = check_kernels(v, texts, diag);
    if (rc == KVANT_OK && !opt_given(v->o, OPT_VERIFY_FORMATS))
        rc = check_cross(v, texts, diag);
    kvant_free(texts);
    return rc;
}

/* ---- ops of a device ---- */

static void ops_text(const verify_report *r)
{
    verify_entry *sum = NULL;
    int n = verify_summary(r, &sum);

    printf("\n%s\n%-14s %-17s %-11s %6s %6s %11s %9s %s\n", r->device, "op", "shape", "state", "cases", "failed",
           "worst", "limit", "subjects");
    for (int i = 0; i < n; i++)
        printf("%-14s %-17s %-11s %6d %6d %11.3g %9.2g %s\n", kvant_op_get(sum[i].op)->name, sum[i].shape,
               verify_state_name(sum[i].state), sum[i].cases, sum[i].failed, sum[i].worst, sum[i].limit,
               sum[i].subject);
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].reason[0])
            printf("%s %s %s: refused: %s\n", kvant_op_get(r->entries[i].op)->name, r->entries[i].shape,
                   r->entries[i].subject, r->entries[i].reason);
    for (int i = 0; i < r->n_failures; i++)
        printf("FAILED %s\n", r->failures[i]);
    kvant_free(sum);
}

/* One lower rung of the CPU's ladder: fewer sizes, but every op's variant. */
static int check_rung(verifier *v, const verify_options *o, kvant_device *dev, const char *name, verify_report *r,
                      kvant_diag *diag)
{
    memset(r, 0, sizeof *r);
    const int rc = verify_device(dev, o, r, diag);
    v->passed += r->passed;
    v->failed += r->failed;
    jsonw_object(&v->w);
    jsonw_kstr(&v->w, "rung", name);
    jsonw_kint(&v->w, "passed", r->passed);
    jsonw_kint(&v->w, "failed", r->failed);
    jsonw_end(&v->w);
    if (!v->silent)
        printf("the same ops with KVANT_CPU=%s, reduced sizes: %d passed, %d failed\n", name, r->passed, r->failed);
    put_failures(v, r);
    verify_report_free(r);
    return rc;
}

/* The variants that this CPU would not choose: every rung between the references and the best. */
static int check_rungs(verifier *v, const verify_options *all, kvant_device *dev, verify_report *r, kvant_diag *diag)
{
    const uint32_t features = kvant_cpu_features();
    verify_options o = *all;
    uint32_t mask, last = 0;
    const char *name;
    int rc = KVANT_OK;

    o.quick = 1;
    jsonw_key(&v->w, "rungs");
    jsonw_array(&v->w);
    for (int i = 0; rc == KVANT_OK && (name = cpu_cap_at(i, &mask)) != NULL; i++) {
        mask &= features;
        if (mask == 0 || mask == features || mask == last)
            continue;
        last = mask;
        cpu_set_mask(mask);
        rc = check_rung(v, &o, dev, name, r, diag);
        cpu_set_mask(~0u);
    }
    jsonw_end(&v->w);
    return rc;
}

static verify_options options_of(const opts *o)
{
    return (verify_options){ opt_str(o, OPT_VERIFY_OPS), opt_str(o, OPT_VERIFY_FORMATS), opt_str(o, OPT_VERIFY_PAIRS),
                             opt_flag(o, OPT_QUICK) };
}

/* --jobs, else as many as CPUs for a device that computes on one thread. */
static int jobs_of(const opts *o, const kvant_device *dev)
{
    const int jobs = (int)opt_int(o, OPT_VERIFY_JOBS);

    return jobs ? jobs : dev->vt->on_caller ? cpu_count() : 1;
}

/* name: as the device was opened by. */
static int check_ops(verifier *v, const char *name, kvant_device *dev, kvant_diag *diag)
{
    const verify_options o = options_of(v->o);
    verify_report *r = kvant_calloc(1, sizeof *r);
    int rc = r ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");

    if (rc == KVANT_OK) {
        rc = verify_jobs(dev, name, jobs_of(v->o, dev), &o, r, diag);
        v->passed += r->passed;
        v->failed += r->failed;
        verify_report_json(r, &v->w);
        if (!v->silent && r->n > 0)
            ops_text(r);
        verify_report_free(r);
        if (rc == KVANT_OK && !o.quick && strcmp(dev->vt->name, "cpu") == 0)
            rc = check_rungs(v, &o, dev, r, diag);
    }
    kvant_free(r);
    return rc;
}

/* ---- the command ---- */

/* --golden DIR, else tests/golden when the program is started in the source tree, else none. */
static const char *golden_dir(const opts *o)
{
    struct stat st;

    if (opt_given(o, OPT_GOLDEN))
        return opt_str(o, OPT_GOLDEN);
    return stat("tests/golden", &st) == 0 && S_ISDIR(st.st_mode) ? "tests/golden" : NULL;
}

/* --golden alone: golden vectors, on another device than the CPU the fixtures among them.  --ops or --pairs: ops of
 * the device.  Another device than the CPU: its ops.  --formats: not the golden vectors, unless --golden.  Nothing of
 * these: everything. */
static int verify_device_whole(verifier *v, const char *name, kvant_device *dev, kvant_diag *diag)
{
    const opts *o = v->o;
    const int golden = opt_given(o, OPT_GOLDEN), ops = opt_given(o, OPT_VERIFY_OPS) || opt_given(o, OPT_VERIFY_PAIRS);
    const int formats = opt_given(o, OPT_VERIFY_FORMATS), all = opt_flag(o, OPT_VERIFY_ALL);
    const int other = strcmp(dev->vt->name, "cpu") != 0;
    const char *dir = golden || !(ops || formats || other) ? golden_dir(o) : NULL;

    if (dir)
        KVANT_TRY(check_golden(v, dir, dev, other && all, diag));
    else if (!(ops || formats || other))
        log_msg(LOG_WARN, "golden vectors: not checked, no folder tests/golden here; --golden DIR names one");
    if (golden && !(ops || formats || all)) {
        char text[256];
        dev->vt->describe(dev, text, sizeof text);
        verify_head_json(text, &v->w);
        return KVANT_OK;
    }
    if (!ops && !other)
        KVANT_TRY(check_cpu(v, diag));
    return check_ops(v, name, dev, diag);
}

/* The device that was named. */
static int verify_one(verifier *v, kvant_diag *diag)
{
    kvant_device *dev;
    KVANT_TRY(device_open(opt_str(v->o, OPT_DEVICE), NULL, &dev, diag));
    const int rc = verify_device_whole(v, opt_str(v->o, OPT_DEVICE), dev, diag);
    dev->vt->close(dev);
    return rc;
}

/* One of all: an entry of the report.  An error that ends a device's checks is a failure; the next is tried. */
static void see_device(void *ctx, const char *name, kvant_device *dev, const char *why)
{
    verifier *v = (verifier *)ctx;
    const int passed = v->passed, failed = v->failed;
    kvant_diag diag = { "" };

    jsonw_object(&v->w);
    jsonw_kstr(&v->w, "name", name);
    if (!v->silent)
        printf("\n== %s%s%s ==\n", name, dev ? "" : ": not here: ", dev ? "" : why);
    if (!dev)
        jsonw_kstr(&v->w, "absent", why);
    else if (verify_device_whole(v, name, dev, &diag) != KVANT_OK) {
        v->failed++;
        jsonw_kstr(&v->w, "error", diag.text);
        if (!v->silent)
            printf("FAILED %s: %s\n", name, diag.text);
    }
    jsonw_kint(&v->w, "passed", v->passed - passed);
    jsonw_kint(&v->w, "failed", v->failed - failed);
    jsonw_end(&v->w);
}

static int verify_all(verifier *v, kvant_diag *diag)
{
    if (opt_given(v->o, OPT_DEVICE))
        return kvant_fail(diag, KVANT_EINVAL, "verify: found --all and --device %.40s, wanted one of them",
                          opt_str(v->o, OPT_DEVICE));
    const verify_options wanted = options_of(v->o);
    KVANT_TRY(verify_options_check(&wanted, diag));
    jsonw_key(&v->w, "reports");
    jsonw_array(&v->w);
    each_device(see_device, v);
    jsonw_end(&v->w);
    return KVANT_OK;
}

static int write_report(verifier *v, kvant_diag *diag)
{
    const char *path = opt_str(v->o, OPT_VERIFY_JSON);

    if (v->silent)
        return put_json(&v->w, diag);
    if (jsonw_error(&v->w))
        return kvant_fail(diag, KVANT_ENOMEM, "report: out of memory");
    FILE *f = fopen(path, "w");
    const int bad = !f || fprintf(f, "%s\n", v->w.buf) < 0;
    if ((f && fclose(f) != 0) || bad)
        return kvant_fail(diag, KVANT_EIO, "%.120s: cannot be written", path);
    return KVANT_OK;
}

int cmd_verify(const opts *o, kvant_diag *diag)
{
    verifier v;

    memset(&v, 0, sizeof v);
    v.o = o;
    v.silent = opt_given(o, OPT_VERIFY_JSON) && strcmp(opt_str(o, OPT_VERIFY_JSON), "-") == 0;
    jsonw_init(&v.w);
    jsonw_object(&v.w);
    int code = opt_flag(o, OPT_VERIFY_ALL) ? verify_all(&v, diag) : verify_one(&v, diag);
    jsonw_kint(&v.w, "passed", v.passed);
    jsonw_kint(&v.w, "failed", v.failed);
    jsonw_end(&v.w);
    if (opt_given(o, OPT_VERIFY_JSON) && (code == KVANT_OK || v.failed)) {
        const int rc = write_report(&v, diag);
        code = code == KVANT_OK ? rc : code;
    }
    jsonw_free(&v.w);
    if (!v.silent && (code == KVANT_OK || v.failed))
        printf("\n%d passed, %d failed\n", v.passed, v.failed);
    if (code == KVANT_OK && v.failed)
        code = kvant_fail(diag, KVANT_EGATE, "verify: %d of %d checks failed", v.failed, v.passed + v.failed);
    return code;
}
