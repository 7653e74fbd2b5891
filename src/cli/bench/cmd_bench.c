/* cmd_bench.c: `kvant bench`: llama-bench's tests.  Owns the order of the tests and the clock around them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_spec.h"
#include "cli/bench/peak.h"
#include "cli/common.h"
#include "cli/term.h"
#include "engine/place/profile.h"

enum { MAX_LIST = 64, MAX_TESTS = 1024, PROFILE_TOKENS = 8 };

typedef struct int_list {
    int64_t v[MAX_LIST];
    int n;
} int_list;
typedef struct bench_test {
    int n_prompt, n_gen, n_depth;
} bench_test;

typedef struct bench {
    const opts *o;
    kvant_model *m;
    kvant_engine *e;
    const char *path;
    bench_test tests[MAX_TESTS];
    int n_tests, n_ctx;
    int parallel;    /* sequences that run at once */
    int *seqs;       /* [parallel] */
    kvant_item *items;
    int32_t *tokens; /* n_ctx random ones */
    bench_spec spec;
    int profile;     /* the next test is measured op by op */
    bench_printer out[2];
    int64_t *samples;
    int memory_threads; /* memory_gbs was measured with so many */
    double memory_gbs;
} bench;

/* ---- the list of tests ---- */

static int add_test(bench *b, int64_t p, int64_t g, int64_t d, kvant_diag *diag)
{
    if (p + g == 0)
        return KVANT_OK;
    if (b->n_tests >= MAX_TESTS || p + g + d > 16777216)
        return kvant_fail(diag, KVANT_EINVAL, "bench: more than %d tests, or a test of more than 16777216 tokens",
                          MAX_TESTS);
    b->tests[b->n_tests++] = (bench_test){ (int)p, (int)g, (int)d };
    if (p + g + d > b->n_ctx)
        b->n_ctx = (int)(p + g + d);
    return KVANT_OK;
}

static int parse_pg(const bench *b, const char *s, int64_t *p, int64_t *g, kvant_diag *diag)
{
    char *end;

    *p = strtol(s, &end, 10);
    if (end != s && *end == ',' && *p >= 0 && *p <= 16777216) {
        const char *second = end + 1;
        *g = strtol(second, &end, 10);
        if (end != second && !*end && *g >= 0 && *g <= 16777216)
            return KVANT_OK;
    }
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.40s\", wanted PP,TG such as 512,128", opt_origin(b->o, OPT_PG),
                      s);
}

static int collect_tests(bench *b, kvant_diag *diag)
{
    int_list pp, tg, depth;
    int64_t p = 0, g = 0;
    const opts *o = b->o;

    KVANT_TRY(opt_ints(o, OPT_N_PROMPT, pp.v, MAX_LIST, &pp.n, diag));
    KVANT_TRY(opt_ints(o, OPT_N_GEN, tg.v, MAX_LIST, &tg.n, diag));
    KVANT_TRY(opt_ints(o, OPT_DEPTH, depth.v, MAX_LIST, &depth.n, diag));
    for (int d = 0; d < depth.n; d++) {
        for (int i = 0; i < pp.n; i++)
            KVANT_TRY(add_test(b, pp.v[i], 0, depth.v[d], diag));
        for (int i = 0; i < tg.n; i++)
            KVANT_TRY(add_test(b, 0, tg.v[i], depth.v[d], diag));
        for (int i = 0; i < o->n_all; i++)
            if (o->all[i].id == OPT_PG) {
                KVANT_TRY(parse_pg(b, o->all[i].text, &p, &g, diag));
                KVANT_TRY(add_test(b, p, g, depth.v[d], diag));
            }
    }
    return b->n_tests ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "bench: found no test, wanted -p, -n or -pg above 0");
}

/* ---- one test ---- */

/* One step per token; every sequence gets its own.  The device picks the likeliest token, as a greedy run does. */
static int decode_tokens(bench *b, const int32_t *ids, int n, kvant_diag *diag)
{
    if (b->spec.k > 0)
        return bench_spec_decode(b->e, &b->spec, b->seqs, b->parallel, ids, n, diag);
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < b->parallel; s++)
            b->items[s] = (kvant_item){ b->seqs[s], ids + (i + s) % n, 1, 0, KVANT_LOGITS_GREEDY };
        KVANT_TRY(kvant_step(b->e, b->items, b->parallel, diag));
    }
    return KVANT_OK;
}

/* Reads of memory that no cache holds.  Measured where the test has something to compare. */
static void add_memory_rate(bench *b, bench_reads *r)
{
    enum { BYTES = 512 << 20, MIN_US = 40000 };
    const int threads = kvant_engine_get_params(b->e)->threads;

    if (r->ns <= 0)
        return;
    if (b->memory_threads != threads)
        b->memory_gbs = peak_read_threads_gbs(BYTES, threads, MIN_US);
    b->memory_threads = threads;
    r->memory_gbs = b->memory_gbs;
}

static int measure(bench *b, const bench_test *t, int n_batch, int64_t *ns, kvant_diag *diag)
{
    const int32_t *prompt = b->tokens + t->n_depth;

    for (int s = 0; s < b->parallel; s++)
        KVANT_TRY(feed_prompt(b->e, b->seqs[s], b->tokens, t->n_depth, n_batch, KVANT_LOGITS_NONE, NULL, diag));
    if (b->profile)
        KVANT_TRY(engine_profile_begin(b->e, diag));
    int64_t t0 = clock_ns();
    for (int s = 0; s < b->parallel; s++)
        KVANT_TRY(feed_prompt(b->e, b->seqs[s], prompt, t->n_prompt, n_batch, KVANT_LOGITS_LAST, NULL, diag));
    KVANT_TRY(decode_tokens(b, prompt + t->n_prompt, t->n_gen, diag));
    *ns = clock_ns() - t0;
    return KVANT_OK;
}

static int repeat(bench *b, const bench_test *t, int n_batch, int64_t *ns, int64_t *cache_bytes, kvant_diag *diag)
{
    int code = KVANT_OK, n = 0;

    while (n < b->parallel && (code = kvant_seq_new(b->e, &b->seqs[n], diag)) == KVANT_OK)
        n++;
    if (code == KVANT_OK)
        code = measure(b, t, n_batch, ns, diag);
    *cache_bytes = n ? kvant_seq_cache_bytes(b->e, b->seqs[0]) : 0;
    for (int s = 0; s < n; s++)
        kvant_seq_free(b->e, b->seqs[s]);
    return code;
}

/* Touches weights, cache pages and buffers once, and runs a pass of full size, whose kernels a GPU loads then: so the
 * first sample is like the others.  Steps with drafts are of several shapes, some of them once or twice in a test: a
 * GPU loads the kernels of a shape that it sees first and records one that it sees again, so it has the test twice. */
static int warm_up(bench *b, const bench_test *t, int n_batch, kvant_diag *diag)
{
    const int pass = kvant_engine_get_params(b->e)->n_ubatch;
    const int whole = b->spec.k > 0 && !device_is_cpu(kvant_engine_get_params(b->e)->device);
    const bench_test first = { t->n_prompt < pass ? t->n_prompt : pass, t->n_gen > 0, 0 }, w = whole ? *t : first;
    int64_t ns, bytes;
    int code = KVANT_OK;

    for (int i = 0; i <= whole && code == KVANT_OK && !opt_flag(b->o, OPT_NO_WARMUP); i++)
        code = repeat(b, &w, n_batch, &ns, &bytes, diag);
    return code;
}

static void now_text(char *buf, size_t cap)
{
    time_t t = (time_t)clock_wall_s();
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(buf, cap, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* "CPU (AMD ...)" -> "CPU"; of several devices their names: "cuda:0+cpu". */
static void backend_name(const kvant_engine *e, char *buf, size_t cap)
{
    char *const end = buf + cap - 1;
    char about[512], *to = buf;

    kvant_engine_describe(e, about, sizeof about);
    snprintf(buf, cap, "%.*s", (int)strcspn(about, " ("), about);
    for (int i = 0; kvant_engine_device(e, 1) && kvant_engine_device(e, i) && to < end; i++)
        to += snprintf(to, (size_t)(end - to), "%s%.40s", i ? "+" : "", kvant_engine_device(e, i));
}

/* The test once more, op by op: a table behind its line. */
static int profile_test(bench *b, const bench_test *t, const bench_result *r, kvant_diag *diag)
{
    const int few = t->n_gen < PROFILE_TOKENS ? t->n_gen : PROFILE_TOKENS;
    const bench_test short_one = { t->n_prompt, few, t->n_depth };
    int64_t ns, bytes;
    char name[128];

    if (!opt_flag(b->o, OPT_PROFILE))
        return KVANT_OK;
    b->profile = 1;
    const int code = repeat(b, &short_one, r->n_batch, &ns, &bytes, diag);
    b->profile = 0;
    if (code == KVANT_OK) {
        bench_test_name(r, name, sizeof name);
        bench_profile_print(b->out[0].f, engine_profile_of(b->e), name);
        b->out[0].again = 1;
    }
    engine_profile_end(b->e);
    return code;
}

static int run_test(bench *b, const bench_test *t, int n_batch, progress *pr, int64_t *done, kvant_diag *diag)
{
    char backend[160];
    bench_result r = { b->path,
                       kvant_model_get_info(b->m),
                       kvant_engine_get_params(b->e),
                       backend,
                       n_batch,
                       t->n_prompt,
                       t->n_gen,
                       t->n_depth,
                       b->parallel,
                       0,
                       b->samples,
                       0,
                       b->spec,
                       { 0, 0, 0.0 },
                       "" };
    bench_reads before = { 0, 0, 0.0 };
    int reps = (int)opt_int(b->o, OPT_REPS);

    backend_name(b->e, backend, sizeof backend);
    now_text(r.test_time, sizeof r.test_time);
    sleep((unsigned)opt_int(b->o, OPT_DELAY));
    KVANT_TRY(warm_up(b, t, n_batch, diag));
    kvant_engine_expert_reads(b->e, &before.bytes, &before.ns);
    for (int i = 0; i < reps; i++) {
        if (term_interrupted())
            return kvant_fail(diag, KVANT_ECANCELED, "stopped by Ctrl-C");
        KVANT_TRY(repeat(b, t, n_batch, &b->samples[i], &r.cache_bytes, diag));
        r.n_samples++;
        progress_show(pr, ++*done);
    }
    progress_end(pr);
    kvant_engine_expert_reads(b->e, &r.reads.bytes, &r.reads.ns);
    r.reads.bytes -= before.bytes;
    r.reads.ns -= before.ns;
    add_memory_rate(b, &r.reads);
    for (int i = 0; i < 2; i++)
        KVANT_TRY(bench_print(&b->out[i], &r, diag));
    KVANT_TRY(profile_test(b, t, &r, diag));
    progress_start(pr, "bench", pr->total);
    return KVANT_OK;
}

/* ---- engines ---- */

static int run_engine(bench *b, const kvant_engine_params *p, const int_list *batches, progress *pr, int64_t *done,
                      kvant_diag *diag)
{
    kvant_engine_params q = *p;
    int code = open_engine(b->m, &q, &b->e, diag);

    if (code == KVANT_OK && b->spec.k > 0)
        code = kvant_engine_verifies(b->e, diag);

    if (code == KVANT_OK && opt_flag(b->o, OPT_PROFILE))
        code = engine_profile_begin(b->e, diag); /* says before the first test that a device has no clock */
    engine_profile_end(b->e);
    if (code == KVANT_OK)
        keep_in_memory(b->o, b->m);
    for (int i = 0; i < 2; i++)
        b->out[i].show_reads |= q.cpu_experts > 0 || q.tensors;
    for (int i = 0; code == KVANT_OK && i < batches->n; i++)
        for (int t = 0; code == KVANT_OK && t < b->n_tests; t++)
            code = run_test(b, &b->tests[t], (int)batches->v[i], pr, done, diag);
    kvant_engine_free(b->e);
    b->e = NULL;
    return code;
}

/* Measured as asked, but not unsaid: more threads than CPUs wait for each other at every op. */
static void warn_threads(int threads)
{
    if (threads > threads_of(0))
        log_msg(LOG_WARN, "%d threads on %d CPUs: they wait for each other", threads, threads_of(0));
}

typedef struct sweep {
    kv_pair pairs[MAX_PAIRS];
    int n_pairs;
    int_list threads, ubatch, batch;
} sweep;

static int read_sweep(bench *b, sweep *s, kvant_diag *diag)
{
    KVANT_TRY(pairs_from_opts(b->o, s->pairs, MAX_PAIRS, &s->n_pairs, diag));
    KVANT_TRY(opt_ints(b->o, OPT_THREADS_LIST, s->threads.v, MAX_LIST, &s->threads.n, diag));
    KVANT_TRY(opt_ints(b->o, OPT_UBATCH_LIST, s->ubatch.v, MAX_LIST, &s->ubatch.n, diag));
    KVANT_TRY(opt_ints(b->o, OPT_BATCH_LIST, s->batch.v, MAX_LIST, &s->batch.n, diag));
    for (int i = 0; i < 2; i++) {
        bench_printer *p = &b->out[i];
        p->f = i ? stderr : stdout;
        p->kind = opt_str(b->o, i ? OPT_OUTPUT_ERR : OPT_OUTPUT);
        if (!i && opt_flag(b->o, OPT_BENCH_JSON))
            p->kind = "json";
        if (!i && opt_flag(b->o, OPT_PROFILE) && strcmp(p->kind, "md") != 0)
            return kvant_fail(diag, KVANT_EINVAL, "--profile prints tables: found -o %s, wanted md", p->kind);
        p->show_threads = 1;
        p->show_batch = opt_given(b->o, OPT_BATCH_LIST);
        p->show_ubatch = opt_given(b->o, OPT_UBATCH_LIST);
        p->show_types = s->n_pairs > 1 || strcmp(s->pairs[0].k, "f16") != 0 || strcmp(s->pairs[0].v, "f16") != 0;
        p->show_tail = opt_given(b->o, OPT_TAIL);
    }
    return KVANT_OK;
}

static int run_sweep(bench *b, sweep *s, kvant_diag *diag)
{
    kvant_engine_params p;
    progress pr;
    int64_t done = 0, engines = (int64_t)s->n_pairs * s->threads.n * s->ubatch.n * s->batch.n;

    params_from_opts(b->o, &p);
    p.n_ctx = b->n_ctx;
    p.max_seqs = b->parallel;
    p.logits_rows = b->parallel * (1 + b->spec.k);
    p.draft_rows = b->spec.k > 0 ? p.logits_rows : 0;
    p.mtp = b->spec.mtp;
    progress_start(&pr, "bench", engines * b->n_tests * opt_int(b->o, OPT_REPS));
    for (int i = 0; i < s->n_pairs; i++)
        for (int t = 0; t < s->threads.n; t++)
            for (int u = 0; u < s->ubatch.n; u++) {
                p.type_k = s->pairs[i].k;
                p.type_v = s->pairs[i].v;
                p.threads = threads_of(s->threads.v[t]);
                warn_threads(p.threads);
                p.n_ubatch = (int)s->ubatch.v[u];
                KVANT_TRY(run_engine(b, &p, &s->batch, &pr, &done, diag));
            }
    progress_end(&pr);
    return KVANT_OK;
}

static int make_tokens(bench *b, kvant_diag *diag)
{
    rng r = { 20260101 }; /* arbitrary, but the same in every run: a mixture of experts depends on the tokens */
    int n_vocab = kvant_model_get_info(b->m)->n_vocab;

    b->tokens = kvant_calloc((size_t)b->n_ctx, sizeof *b->tokens);
    b->samples = kvant_calloc((size_t)opt_int(b->o, OPT_REPS), sizeof *b->samples);
    b->seqs = kvant_calloc((size_t)b->parallel, sizeof *b->seqs);
    b->items = kvant_calloc((size_t)b->parallel, sizeof *b->items);
    if (!b->tokens || !b->samples || !b->seqs || !b->items)
        return kvant_fail(diag, KVANT_ENOMEM, "bench: no memory for %d tokens", b->n_ctx);
    for (int i = 0; i < b->n_ctx; i++)
        b->tokens[i] = (int32_t)rng_below(&r, (uint32_t)n_vocab);
    return KVANT_OK;
}

/* A file, or a shape with random weights. */
static int open_bench_model(bench *b, kvant_diag *diag)
{
    const char *made = opt_str(b->o, OPT_SYNTHETIC);

    if (made && *made) {
        const kvant_model_params p = { .size = sizeof(kvant_model_params), .synthetic = made };
        if (b->o->n_pos || opt_given(b->o, OPT_MODEL))
            return kvant_fail(diag, KVANT_EINVAL, "model: found both a file and --synthetic, wanted one");
        if (opt_given(b->o, OPT_OVERRIDE_KV))
            return kvant_fail(diag, KVANT_EINVAL, "%s: --synthetic has no file whose keys it could replace",
                              opt_origin(b->o, OPT_OVERRIDE_KV));
        b->path = made;
        return kvant_model_open(&p, &b->m, diag);
    }
    KVANT_TRY(model_path(b->o, &b->path, diag));
    return open_model(b->o, &b->m, diag);
}

static int bench_all(bench *b, sweep *s, kvant_diag *diag)
{
    b->parallel = (int)opt_int(b->o, OPT_BENCH_PARALLEL);
    KVANT_TRY(collect_tests(b, diag));
    KVANT_TRY(bench_spec_read(b->o, &b->spec, diag));
    KVANT_TRY(read_sweep(b, s, diag));
    KVANT_TRY(open_bench_model(b, diag));
    KVANT_TRY(make_tokens(b, diag));
    term_catch_interrupt();
    for (int i = 0; i < 2; i++)
        bench_begin(&b->out[i]);
    int code = run_sweep(b, s, diag);
    for (int i = 0; i < 2; i++)
        bench_end(&b->out[i]);
    return code;
}

int cmd_bench(const opts *o, kvant_diag *diag)
{
    bench *b = kvant_calloc(1, sizeof *b);
    sweep *s = kvant_calloc(1, sizeof *s);
    int code = KVANT_ENOMEM;

    if (b && s) {
        b->o = o;
        code = bench_all(b, s, diag);
        kvant_free(b->tokens);
        kvant_free(b->samples);
        kvant_free(b->seqs);
        kvant_free(b->items);
        kvant_model_close(b->m);
    }
    kvant_free(b);
    kvant_free(s);
    return code;
}
