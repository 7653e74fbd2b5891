/* cmd_bench_kernels.c: `kvant bench-kernels`: the face of kernel_bench_run. */
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_device.h"
#include "cli/common.h"
#include "cli/table.h"
#include "cli/term.h"
#include "cli/bench/kernel_bench.h"
#include "cli/bench/peak.h"

enum { MAX_CASES = 4096, MAX_LIST = 64, PROJECTION = 128 * 256, REF_TOKENS = 64, REF_ROUNDS = 3 };

typedef struct kernel_cases {
    kernel_bench_case c[MAX_CASES];
    const char *variant[MAX_CASES];
    kernel_bench_result r[MAX_CASES];
    double ref_ns[MAX_CASES];     /* the scalar reference on 64 rows; 0: not asked */
    int n;
    int64_t tokens[MAX_LIST];
    double read_gbs[MAX_LIST];    /* of tokens[i] rows of f16 */
    int n_tokens;
    double fma_gflops;
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

static int add_case(kernel_cases *k, const opts *o, const kvant_format *f, int variant, const kernel_bench_case *like,
                    kvant_diag *diag)
{
    int usable;

    if (k->n >= MAX_CASES)
        return kvant_fail(diag, KVANT_EINVAL, "bench-kernels: more than %d cases", MAX_CASES);
    kernel_bench_case *c = &k->c[k->n];
    *c = *like;
    c->kernels = kvant_format_variant(f, variant, &k->variant[k->n], &usable);
    c->format = f;
    c->param = f->flags & KVANT_FORMAT_PARAM ? k->projection : NULL;
    c->d = kvant_format_padded(f, (int)opt_int(o, OPT_BK_DIM));
    k->n += usable;
    return KVANT_OK;
}

/* Rows of queries matter to score and axpy only. */
static int takes_queries(enum kernel_bench_op op)
{
    return op != KERNEL_BENCH_DECODE && op != KERNEL_BENCH_ENCODE && op != KERNEL_BENCH_ENCODE_BEST;
}

/* All variants of one format, or the best, for an op, a number of queries and a number of rows. */
static int add_format(kernel_cases *k, const opts *o, const kvant_format *f, const kernel_bench_case *like,
                      kvant_diag *diag)
{
    const char *name;
    int usable, best = 0, all = opt_is(o, OPT_BK_VARIANTS, "all");

    if (kvant_format_check(f, kvant_format_padded(f, (int)opt_int(o, OPT_BK_DIM)), NULL) != KVANT_OK)
        return KVANT_OK;
    for (int v = 0; kvant_format_variant(f, v, &name, &usable); v++)
        best = usable ? v : best;
    for (int v = all ? 0 : best; v <= best; v++)
        KVANT_TRY(add_case(k, o, f, v, like, diag));
    return KVANT_OK;
}

static int add_formats(kernel_cases *k, const opts *o, const kernel_bench_case *like, kvant_diag *diag)
{
    char name[64];

    for (int i = 0; !opt_given(o, OPT_BK_FORMATS) && i < kvant_format_count(); i++)
        KVANT_TRY(add_format(k, o, kvant_format_at(i), like, diag));
    for (int i = 0; opt_given(o, OPT_BK_FORMATS) && opt_item(o, OPT_BK_FORMATS, i, name, sizeof name); i++)
        KVANT_TRY(add_format(k, o, kvant_format_find(name), like, diag));
    return KVANT_OK;
}

/* Cases of one op, query count and row count lie side by side: they are measured interleaved. */
static int collect(kernel_cases *k, const opts *o, kvant_diag *diag)
{
    int64_t r[MAX_LIST];
    int n_r;
    rng g = { 42 };

    for (int i = 0; i < PROJECTION; i++)
        k->projection[i] = rng_normal(&g);
    KVANT_TRY(check_ops(o, diag));
    KVANT_TRY(opt_ints(o, OPT_BK_QUERIES, r, MAX_LIST, &n_r, diag));
    KVANT_TRY(opt_ints(o, OPT_BK_TOKENS, k->tokens, MAX_LIST, &k->n_tokens, diag));
    for (int t = 0; t < k->n_tokens; t++)
        for (int op = 0; op < KERNEL_BENCH_OPS; op++)
            for (int i = 0; op_wanted(o, (enum kernel_bench_op)op) && i < n_r; i++) {
                const kernel_bench_case like = { .op = (enum kernel_bench_op)op, .r = (int)r[i],
                                                 .tokens = (int)k->tokens[t] };
                if (i == 0 || takes_queries(like.op))
                    KVANT_TRY(add_formats(k, o, &like, diag));
            }
    return k->n ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "bench-kernels: no format can hold rows of this size");
}

static int same_group(const kernel_bench_case *a, const kernel_bench_case *b)
{
    return a->op == b->op && a->r == b->r && a->tokens == b->tokens;
}

/* The scalar references of a group, on few rows. */
static int measure_refs(kernel_cases *k, int first, int n, kvant_diag *diag)
{
    for (int i = first; i < first + n; i++) {
        kernel_bench_case c = k->c[i];
        kernel_bench_result r;
        c.kernels = &c.format->ref;
        c.tokens = REF_TOKENS;
        KVANT_TRY(kernel_bench_run(&c, 1, REF_ROUNDS, 1, &r, diag));
        k->ref_ns[i] = r.min_ns;
    }
    return KVANT_OK;
}

static int measure(kernel_cases *k, const opts *o, kvant_diag *diag)
{
    int us = (int)opt_int(o, OPT_BK_MIN_US), d = (int)opt_int(o, OPT_BK_DIM);

    k->fma_gflops = peak_fma_gflops(us);
    for (int t = 0; t < k->n_tokens; t++)
        k->read_gbs[t] = peak_read_gbs((size_t)k->tokens[t] * (size_t)d * 2, us);
    for (int first = 0, n; first < k->n; first += n) {
        for (n = 1; first + n < k->n && same_group(&k->c[first], &k->c[first + n]); n++)
            ;
        KVANT_TRY(kernel_bench_run(k->c + first, n, (int)opt_int(o, OPT_BK_ROUNDS), us, k->r + first, diag));
        if (k->c[first].tokens == k->tokens[0])
            KVANT_TRY(measure_refs(k, first, n, diag));
    }
    return KVANT_OK;
}

/* Numbers derived from a measurement; 0 if there is nothing to compare with. */
typedef struct shares {
    double gbs, read, peak, x_ref, x_f16;
} shares;

static shares shares_of(const kernel_cases *k, int i)
{
    const kernel_bench_case *c = &k->c[i];
    shares s = { .gbs = k->r[i].row_bytes / k->r[i].median_ns };
    int last_f16 = -1;

    for (int t = 0; t < k->n_tokens; t++)
        if (k->tokens[t] == c->tokens && k->read_gbs[t] > 0.0)
            s.read = s.gbs / k->read_gbs[t];
    for (int j = 0; j < k->n; j++) {
        if (same_group(&k->c[j], c) && strcmp(k->c[j].format->name, "f16") == 0)
            last_f16 = j;
        if (k->c[j].op == c->op && k->c[j].r == c->r && k->c[j].format == c->format && k->ref_ns[j] > 0.0)
            s.x_ref = k->ref_ns[j] / k->r[i].median_ns;
    }
    if (last_f16 >= 0)
        s.x_f16 = k->r[last_f16].median_ns / k->r[i].median_ns;
    if (takes_queries(c->op))
        s.peak = 2.0 * kvant_format_sdim(c->format, c->d) * c->r / k->r[i].median_ns / k->fma_gflops;
    return s;
}

static void show_peaks(const kernel_cases *k)
{
    printf("peak of one thread in this run: %.0f Gflop/s (f32 FMA)", k->fma_gflops);
    for (int t = 0; t < k->n_tokens; t++)
        printf(", read %.1f GB/s from %lld rows of f16", k->read_gbs[t], (long long)k->tokens[t]);
    printf("\nmedians; %% read: of that bandwidth; %% peak: of that arithmetic, as if done in f32; x ref: times the scalar "
           "reference\n\n");
}

static void show_text(const kernel_cases *k)
{
    static const char columns[] = "format|op|variant|>d|>queries|>rows|>ns/row|>least|>row bytes|>GB/s|>% read|>% peak|"
                                  ">x ref|>x f16";

    show_peaks(k);
    table_head(stdout, columns);
    for (int i = 0; i < k->n; i++) {
        const shares s = shares_of(k, i);
        table_row(stdout, columns, "%s|%s|%s|%d|%d|%d|%.2f|%.2f|%.0f|%.2f|%.0f|%.0f|%.1f|%.2f", k->c[i].format->name,
                  kernel_bench_op_name(k->c[i].op), k->variant[i], k->c[i].d, k->c[i].r, k->c[i].tokens,
                  k->r[i].median_ns, k->r[i].min_ns, k->r[i].row_bytes, s.gbs, 100.0 * s.read, 100.0 * s.peak, s.x_ref,
                  s.x_f16);
    }
}

static void put_peaks(jsonw *w, const kernel_cases *k)
{
    jsonw_knum(w, "fma_gflops", k->fma_gflops);
    jsonw_key(w, "read");
    jsonw_array(w);
    for (int t = 0; t < k->n_tokens; t++) {
        jsonw_object(w);
        jsonw_kint(w, "rows", k->tokens[t]);
        jsonw_knum(w, "gbs", k->read_gbs[t]);
        jsonw_end(w);
    }
    jsonw_end(w);
}

/* Bits and error of every format measured. */
static void put_formats(jsonw *w, const kernel_cases *k)
{
    jsonw_key(w, "formats");
    jsonw_array(w);
    for (int i = 0; i < k->n && same_group(&k->c[i], &k->c[0]); i++) {
        const kernel_bench_case *c = &k->c[i];
        if (i && c->format == k->c[i - 1].format)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "name", c->format->name);
        jsonw_knum(w, "bits", 8.0 * (double)kvant_format_row_bytes(c->format, c->d) / c->d);
        jsonw_knum(w, "error_upstream", kernel_bench_error(c->format, c->param, c->d, KVANT_ENCODER_UPSTREAM));
        jsonw_knum(w, "error_best", kernel_bench_error(c->format, c->param, c->d, KVANT_ENCODER_BEST));
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void put_case(jsonw *w, const kernel_cases *k, int i)
{
    const shares s = shares_of(k, i);

    jsonw_object(w);
    jsonw_kstr(w, "format", k->c[i].format->name);
    jsonw_kstr(w, "op", kernel_bench_op_name(k->c[i].op));
    jsonw_kstr(w, "variant", k->variant[i]);
    jsonw_kint(w, "d", k->c[i].d);
    jsonw_kint(w, "queries", k->c[i].r);
    jsonw_kint(w, "rows", k->c[i].tokens);
    jsonw_knum(w, "min_ns", k->r[i].min_ns);
    jsonw_knum(w, "median_ns", k->r[i].median_ns);
    jsonw_knum(w, "row_bytes", k->r[i].row_bytes);
    jsonw_knum(w, "gbs", s.gbs);
    jsonw_knum(w, "read_share", s.read);
    jsonw_knum(w, "peak_share", s.peak);
    jsonw_knum(w, "x_ref", s.x_ref);
    jsonw_knum(w, "x_f16", s.x_f16);
    jsonw_end(w);
}

static int show_json(const kernel_cases *k, const opts *o, kvant_diag *diag)
{
    char cpu[128], features[256];
    jsonw w;

    cpu_model_name(cpu, sizeof cpu);
    kvant_cpu_text(kvant_cpu_features(), features, sizeof features);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "device", "cpu");
    jsonw_kstr(&w, "cpu", cpu);
    jsonw_kstr(&w, "features", features);
    jsonw_kint(&w, "threads", 1);
    jsonw_kint(&w, "rounds", opt_int(o, OPT_BK_ROUNDS));
    put_peaks(&w, k);
    put_formats(&w, k);
    jsonw_key(&w, "results");
    jsonw_array(&w);
    for (int i = 0; i < k->n; i++)
        put_case(&w, k, i);
    jsonw_end(&w);
    jsonw_end(&w);
    return put_json(&w, diag);
}

int cmd_bench_kernels(const opts *o, kvant_diag *diag)
{
    if (!device_is_cpu(opt_str(o, OPT_DEVICE)) || opt_given(o, OPT_BK_CASES))
        return bench_device(o, diag);
    kernel_cases *k = kvant_calloc(1, sizeof *k);
    int code = k ? collect(k, o, diag) : kvant_fail(diag, KVANT_ENOMEM, "bench-kernels: out of memory");

    if (code == KVANT_OK)
        code = measure(k, o, diag);
    if (code == KVANT_OK && opt_flag(o, OPT_JSON))
        code = show_json(k, o, diag);
    else if (code == KVANT_OK)
        show_text(k);
    kvant_free(k);
    return code;
}
