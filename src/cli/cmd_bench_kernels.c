/* cmd_bench_kernels.c: `kvant bench-kernels`: the face of kernel_bench_run. */
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench_device.h"
#include "cli/common.h"
#include "cli/term.h"
#include "formats/kernel_bench.h"

enum { MAX_CASES = 1024, MAX_LIST = 64, PROJECTION = 128 * 256 };

typedef struct kernel_cases {
    kernel_bench_case c[MAX_CASES];
    const char *variant[MAX_CASES];
    kernel_bench_result r[MAX_CASES];
    int n;
    float projection[PROJECTION]; /* for the formats that need one; its values do not change the speed */
} kernel_cases;

static int op_wanted(const opts *o, enum kernel_bench_op op)
{
    char word[32];

    for (int i = 0; opt_item(o, OPT_BK_OPS, i, word, sizeof word); i++)
        if (strcmp(word, kernel_bench_op_name(op)) == 0 || strcmp(word, "all") == 0)
            return 1;
    return 0;
}

static int check_ops(const opts *o, kvant_diag *diag)
{
    char word[32];

    for (int i = 0; opt_item(o, OPT_BK_OPS, i, word, sizeof word); i++) {
        int known = strcmp(word, "all") == 0;
        for (int op = 0; op < KERNEL_BENCH_OPS; op++)
            known |= strcmp(word, kernel_bench_op_name((enum kernel_bench_op)op)) == 0;
        if (!known)
            return kvant_fail(diag, KVANT_EINVAL,
                              "%s: found \"%s\", wanted score, axpy, score_q8, axpy_q8, decode_acc, encode, "
                              "encode_best or all",
                              opt_origin(o, OPT_BK_OPS), word);
    }
    return KVANT_OK;
}

static int add_case(kernel_cases *k, const opts *o, const kvant_format *f, int variant, enum kernel_bench_op op, int r,
                    kvant_diag *diag)
{
    kernel_bench_case *c = &k->c[k->n];
    int usable, d = kvant_format_padded(f, (int)opt_int(o, OPT_BK_DIM));

    if (k->n >= MAX_CASES)
        return kvant_fail(diag, KVANT_EINVAL, "bench-kernels: more than %d cases", MAX_CASES);
    c->kernels = kvant_format_variant(f, variant, &k->variant[k->n], &usable);
    c->format = f;
    c->param = f->flags & KVANT_FORMAT_PARAM ? k->projection : NULL;
    c->op = op;
    c->r = r;
    c->d = d;
    c->tokens = (int)opt_int(o, OPT_BK_TOKENS);
    if (usable)
        k->n++;
    return KVANT_OK;
}

/* Rows of queries matter to score and axpy only. */
static int takes_queries(enum kernel_bench_op op)
{
    return op != KERNEL_BENCH_DECODE && op != KERNEL_BENCH_ENCODE && op != KERNEL_BENCH_ENCODE_BEST;
}

static int add_format(kernel_cases *k, const opts *o, const kvant_format *f, kvant_diag *diag)
{
    const char *name;
    int64_t r[MAX_LIST];
    int n_r, usable, best = 0, all = opt_is(o, OPT_BK_VARIANTS, "all");

    if (kvant_format_check(f, kvant_format_padded(f, (int)opt_int(o, OPT_BK_DIM)), NULL) != KVANT_OK)
        return KVANT_OK;
    KVANT_TRY(opt_ints(o, OPT_BK_QUERIES, r, MAX_LIST, &n_r, diag));
    for (int v = 0; kvant_format_variant(f, v, &name, &usable); v++)
        best = usable ? v : best;
    for (int op = 0; op < KERNEL_BENCH_OPS; op++)
        for (int i = 0; op_wanted(o, (enum kernel_bench_op)op) && i < n_r; i++)
            for (int v = all ? 0 : best; v <= best && (i == 0 || takes_queries((enum kernel_bench_op)op)); v++)
                KVANT_TRY(add_case(k, o, f, v, (enum kernel_bench_op)op, (int)r[i], diag));
    return KVANT_OK;
}

static int collect(kernel_cases *k, const opts *o, kvant_diag *diag)
{
    char name[64];
    rng r = { 42 };

    for (int i = 0; i < PROJECTION; i++)
        k->projection[i] = rng_normal(&r);
    KVANT_TRY(check_ops(o, diag));
    for (int i = 0; !opt_given(o, OPT_BK_FORMATS) && i < kvant_format_count(); i++)
        KVANT_TRY(add_format(k, o, kvant_format_at(i), diag));
    for (int i = 0; opt_given(o, OPT_BK_FORMATS) && opt_item(o, OPT_BK_FORMATS, i, name, sizeof name); i++)
        KVANT_TRY(add_format(k, o, kvant_format_find(name), diag));
    return k->n ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "bench-kernels: no format can hold rows of this size");
}

static void show_text(const kernel_cases *k)
{
    printf("| format | op | variant | d | queries | ns/row | median | row bytes | GB/s |\n"
           "|---|---|---|--:|--:|--:|--:|--:|--:|\n");
    for (int i = 0; i < k->n; i++)
        printf("| %s | %s | %s | %d | %d | %.2f | %.2f | %.0f | %.2f |\n", k->c[i].format->name,
               kernel_bench_op_name(k->c[i].op), k->variant[i], k->c[i].d, k->c[i].r, k->r[i].min_ns, k->r[i].median_ns,
               k->r[i].row_bytes, k->r[i].row_bytes / k->r[i].min_ns);
}

static int show_json(const kernel_cases *k, const opts *o, kvant_diag *diag)
{
    char cpu[128];
    jsonw w;

    cpu_model_name(cpu, sizeof cpu);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "cpu", cpu);
    jsonw_kint(&w, "tokens", opt_int(o, OPT_BK_TOKENS));
    jsonw_kint(&w, "rounds", opt_int(o, OPT_BK_ROUNDS));
    jsonw_key(&w, "results");
    jsonw_array(&w);
    for (int i = 0; i < k->n; i++) {
        jsonw_object(&w);
        jsonw_kstr(&w, "format", k->c[i].format->name);
        jsonw_kstr(&w, "op", kernel_bench_op_name(k->c[i].op));
        jsonw_kstr(&w, "variant", k->variant[i]);
        jsonw_kint(&w, "d", k->c[i].d);
        jsonw_kint(&w, "queries", k->c[i].r);
        jsonw_knum(&w, "min_ns", k->r[i].min_ns);
        jsonw_knum(&w, "median_ns", k->r[i].median_ns);
        jsonw_knum(&w, "row_bytes", k->r[i].row_bytes);
        jsonw_end(&w);
    }
    jsonw_end(&w);
    jsonw_end(&w);
    return put_json(&w, diag);
}

int cmd_bench_kernels(const opts *o, kvant_diag *diag)
{
    if (strcmp(opt_str(o, OPT_DEVICE), "cpu") != 0)
        return bench_device(o, diag);
    kernel_cases *k = kvant_calloc(1, sizeof *k);
    int code = k ? collect(k, o, diag) : kvant_fail(diag, KVANT_ENOMEM, "bench-kernels: out of memory");

    if (code == KVANT_OK)
        code = kernel_bench_run(k->c, k->n, (int)opt_int(o, OPT_BK_ROUNDS), (int)opt_int(o, OPT_BK_MIN_US), k->r, diag);
    if (code == KVANT_OK && opt_flag(o, OPT_JSON))
        code = show_json(k, o, diag);
    else if (code == KVANT_OK)
        show_text(k);
    kvant_free(k);
    return code;
}
