/* cmd_bench_serve.c: `kvant bench-serve`: load on an OpenAI-compatible server and what came of it.  Owns prompts,
 * arrivals and the numbers; bench_client.c owns the connections, bench_serve_out.c tables, files and plots. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_client.h"
#include "cli/bench/bench_serve.h"

typedef struct load {
    const opts *o;
    bc_url url;
    char model[256];
    int turns, prompt_tokens, gen;
    double shared;
    rng random;
    bc_request *r; /* [n]: conversation i is requests i, n_conv + i, ... by turn */
    int n, n_conv;
    char **prompts; /* [n_conv] prompt so far, escaped */
    char **bodies;  /* [n] */
    int64_t *gaps;
    int n_gaps, cap_gaps;
    uint64_t nonce;
} load;

/* ---- prompts ---- */

static const char *const words[] = { "river",    "stone",   "garden",  "winter",  "letter",  "market",  "window",
                                     "mountain", "silver",  "morning", "captain", "engine",  "forest",  "harbor",
                                     "island",   "kitchen", "lantern", "museum",  "needle",  "orange",  "pepper",
                                     "quarter",  "railway", "summer",  "teacher", "village", "whisper", "yellow",
                                     "bridge",   "candle",  "desert",  "evening" };

typedef struct text {
    char *s;
    size_t n, cap;
} text;

static int add(text *t, const char *s)
{
    size_t k = strlen(s);

    if (t->n + k + 1 > t->cap) {
        size_t cap = (t->n + k + 1) * 2;
        char *p = kvant_realloc(t->s, t->cap, cap);
        if (!p)
            return 0;
        t->s = p;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, k + 1);
    t->n += k;
    return 1;
}

static int add_words(text *t, rng *r, int n)
{
    int ok = 1;

    for (int i = 0; i < n && ok; i++)
        ok = add(t, " ") && add(t, words[rng_below(r, sizeof words / sizeof *words)]);
    return ok;
}

/* The shared part comes from a fixed seed; then a nonce, so that nothing else is ever the same. */
static char *first_prompt(load *l)
{
    rng common = { 12345 };
    int same = (int)(l->shared * l->prompt_tokens);
    text t = { 0 };
    char nonce[40];

    snprintf(nonce, sizeof nonce, " %llx", (unsigned long long)(rng_u64(&l->random) ^ l->nonce) & 0xFFFFFF);
    int ok = add(&t, "Notes:") && add_words(&t, &common, same) && add(&t, nonce) &&
             add_words(&t, &l->random, l->prompt_tokens - same);
    if (!ok)
        kvant_free(t.s);
    return ok ? t.s : NULL;
}

/* Turn k of a conversation: everything before it, the answer, and a few words more. */
static int extend_prompt(load *l, int conv, const bc_request *before)
{
    text t = { l->prompts[conv], strlen(l->prompts[conv]), strlen(l->prompts[conv]) + 1 };
    int ok = (!before->text || add(&t, before->text)) && add_words(&t, &l->random, 32);

    l->prompts[conv] = t.s;
    return ok;
}

static int prepare(void *user, int i, kvant_diag *diag)
{
    load *l = user;
    int conv = i % l->n_conv;
    text t = { 0 };
    char tail[512];

    if (i >= l->n_conv && !extend_prompt(l, conv, &l->r[i - l->n_conv]))
        return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    snprintf(
        tail, sizeof tail,
        "\",\"max_tokens\":%d,\"stream\":true,\"ignore_eos\":true,\"stream_options\":{\"include_usage\":true}%s%.300s}",
        l->gen, opt_str(l->o, OPT_BS_BODY) ? "," : "", opt_str(l->o, OPT_BS_BODY) ? opt_str(l->o, OPT_BS_BODY) : "");
    if (!(add(&t, "{\"model\":\"") && add(&t, l->model) && add(&t, "\",\"prompt\":\"") && add(&t, l->prompts[conv]) &&
          add(&t, tail))) {
        kvant_free(t.s);
        return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    }
    l->bodies[i] = t.s;
    l->r[i].path = "/v1/completions";
    l->r[i].body = t.s;
    l->r[i].body_len = t.n;
    return KVANT_OK;
}

static void keep_gap(void *user, int64_t ns)
{
    load *l = user;

    if (l->n_gaps == l->cap_gaps) {
        int cap = l->cap_gaps ? l->cap_gaps * 2 : 1024;
        int64_t *p = kvant_realloc(l->gaps, (size_t)l->cap_gaps * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return;
        l->gaps = p;
        l->cap_gaps = cap;
    }
    l->gaps[l->n_gaps++] = ns;
}

/* ---- one run ---- */

static void free_run(load *l)
{
    for (int i = 0; i < l->n && l->r; i++)
        bc_request_free(&l->r[i]);
    for (int i = 0; i < l->n && l->bodies; i++)
        kvant_free(l->bodies[i]);
    for (int i = 0; i < l->n_conv && l->prompts; i++)
        kvant_free(l->prompts[i]);
    kvant_free(l->r);
    kvant_free(l->bodies);
    kvant_free(l->prompts);
    kvant_free(l->gaps);
    l->r = NULL;
    l->bodies = l->prompts = NULL;
    l->gaps = NULL;
    l->n_gaps = l->cap_gaps = 0;
}

static int make_run(load *l, int n_conv, double rate, kvant_diag *diag)
{
    int64_t at = clock_ns();

    l->n_conv = n_conv;
    l->n = n_conv * l->turns;
    l->r = kvant_calloc((size_t)l->n, sizeof *l->r);
    l->bodies = kvant_calloc((size_t)l->n, sizeof *l->bodies);
    l->prompts = kvant_calloc((size_t)n_conv, sizeof *l->prompts);
    if (!l->r || !l->bodies || !l->prompts)
        return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    for (int i = 0; i < n_conv; i++) {
        l->prompts[i] = first_prompt(l);
        if (!l->prompts[i])
            return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    }
    for (int i = 0; i < l->n; i++) {
        if (rate > 0 && i < n_conv)
            at += (int64_t)(-log(1 - rng_unit(&l->random)) / rate * 1e9);
        l->r[i].at_ns = i < n_conv ? at : 0;
        l->r[i].after = i < n_conv ? -1 : i - n_conv;
    }
    return KVANT_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* v[n] sorted; the value below which the part p lies. */
static double quantile(double *v, int n, double p)
{
    if (!n)
        return 0;
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    int i = (int)ceil(p * n) - 1;
    return v[i < 0 ? 0 : i >= n ? n - 1 : i];
}

static int count_errors(const load *l, bs_run *run)
{
    for (int i = 0; i < l->n; i++)
        if (l->r[i].error[0] || !l->r[i].first_ns) {
            if (!run->errors++)
                log_msg(LOG_WARN, "request %d: %s", i, l->r[i].error[0] ? l->r[i].error : "no token came");
        }
    return run->errors;
}

static void ttft_numbers(const load *l, bs_run *run, double *v)
{
    int n = 0, per_turn[BS_MAX_TURNS] = { 0 };

    for (int i = 0; i < l->n; i++) {
        const bc_request *r = &l->r[i];
        int turn = i / l->n_conv;
        if (!r->first_ns || r->error[0])
            continue;
        double ms = (double)(r->first_ns - r->start_ns) * 1e-6;
        v[n++] = ms;
        run->ttft_mean += ms;
        run->ttft_max = fmax(run->ttft_max, ms);
        run->ttft_turn[turn] += ms;
        per_turn[turn]++;
    }
    run->ttft_mean /= n ? n : 1;
    for (int t = 0; t < l->turns; t++)
        run->ttft_turn[t] /= per_turn[t] ? per_turn[t] : 1;
    run->ttft_p50 = quantile(v, n, 0.5);
    run->ttft_p99 = quantile(v, n, 0.99);
}

/* Definitions: see the help text of the command. */
static void rates(const load *l, bs_run *run)
{
    int64_t t0 = INT64_MAX, end = 0, first_max = 0;
    int n = 0;

    for (int i = 0; i < l->n; i++) {
        const bc_request *r = &l->r[i];
        if (!r->first_ns || r->error[0])
            continue;
        int gen = r->gen_tokens >= 0 ? r->gen_tokens : r->chunks;
        t0 = r->start_ns < t0 ? r->start_ns : t0;
        end = r->end_ns > end ? r->end_ns : end;
        first_max = r->first_ns > first_max ? r->first_ns : first_max;
        run->gen_total += gen;
        run->prompt_total += r->prompt_tokens > 0 ? r->prompt_tokens : 0;
        run->cached_total += r->cached_tokens > 0 ? r->cached_tokens : 0;
        if (gen > 1 && r->end_ns > r->first_ns) {
            run->perseq_tps += (gen - 1) * 1e9 / (double)(r->end_ns - r->first_ns);
            n++;
        }
    }
    run->perseq_tps /= n ? n : 1;
    if (end <= t0)
        return;
    run->wall_s = (double)(end - t0) * 1e-9;
    run->agg_tps = (double)run->gen_total / run->wall_s;
    run->prefill_tps = (double)run->prompt_total / ((double)(first_max - t0) * 1e-9);
    if (end > first_max)
        run->decode_agg_tps = (double)run->gen_total / ((double)(end - first_max) * 1e-9);
}

static int measure(load *l, bs_run *run, kvant_diag *diag)
{
    int most = l->n > l->n_gaps ? l->n : l->n_gaps;
    double *v = kvant_calloc((size_t)most + 1, sizeof *v);

    if (!v)
        return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    count_errors(l, run);
    ttft_numbers(l, run, v);
    rates(l, run);
    for (int i = 0; i < l->n_gaps; i++)
        v[i] = (double)l->gaps[i] * 1e-6;
    run->itl_p50 = quantile(v, l->n_gaps, 0.5);
    run->itl_p99 = quantile(v, l->n_gaps, 0.99);
    run->requests = l->n;
    run->turns = l->turns;
    kvant_free(v);
    return KVANT_OK;
}

static int one_run(load *l, int concurrency, bs_run *run, kvant_diag *diag)
{
    double rate = opt_num(l->o, OPT_BS_RATE);
    int n = (int)opt_int(l->o, OPT_BS_REQUESTS);
    bc_options o = { .url = &l->url,
                     .key = opt_str(l->o, OPT_BS_KEY),
                     .in_flight = rate > 0 ? 4096 : concurrency,
                     .timeout_ns = opt_int(l->o, OPT_BS_TIMEOUT) * 1000000000,
                     .prepare = prepare,
                     .gap = keep_gap,
                     .user = l };

    *run = (bs_run){ .concurrency = concurrency, .rate = rate };
    int code = make_run(l, n ? n : concurrency, rate, diag);
    if (code == KVANT_OK)
        code = bc_run(&o, l->r, l->n, diag);
    if (code == KVANT_OK)
        code = measure(l, run, diag);
    free_run(l);
    if (code == KVANT_OK && run->errors == run->requests)
        return kvant_fail(diag, KVANT_EIO, "bench-serve: no request was answered");
    return code;
}

/* ---- the command ---- */

/* Name of the first model of /v1/models. */
static int ask_model(load *l, kvant_diag *diag)
{
    bc_options o = { .url = &l->url, .key = opt_str(l->o, OPT_BS_KEY), .in_flight = 1, .timeout_ns = (int64_t)10e9 };
    bc_request r = { .path = "/v1/models", .after = -1 };

    if (opt_str(l->o, OPT_BS_MODEL)) {
        snprintf(l->model, sizeof l->model, "%s", opt_str(l->o, OPT_BS_MODEL));
        return KVANT_OK;
    }
    KVANT_TRY(bc_run(&o, &r, 1, diag));
    const char *s = r.reply && !r.error[0] ? strstr(r.reply, "\"id\"") : NULL;
    int found = s && sscanf(s, "\"id\" : \"%200[^\"]\"", l->model) == 1;
    int code = found ? KVANT_OK
                     : kvant_fail(diag, KVANT_EIO, "%s:%s/v1/models: %s", l->url.host, l->url.port,
                                  r.error[0] ? r.error : "no model in the answer");
    bc_request_free(&r);
    return code;
}

static int warm_up(load *l, kvant_diag *diag)
{
    bs_run unused;
    int gen = l->gen, turns = l->turns;

    if (opt_flag(l->o, OPT_BS_NO_WARMUP))
        return KVANT_OK;
    l->gen = 16;
    l->turns = 1;
    int code = one_run(l, 8, &unused, diag);
    l->gen = gen;
    l->turns = turns;
    return code;
}

static int all_rows(load *l, bs_report *rep, kvant_diag *diag)
{
    int64_t list[64];
    int n, reps = (int)opt_int(l->o, OPT_BS_REPS);

    KVANT_TRY(opt_ints(l->o, OPT_BS_CONC, list, 64, &n, diag));
    rep->runs = kvant_calloc((size_t)(n * reps), sizeof *rep->runs);
    if (!rep->runs)
        return kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    rep->reps = reps;
    for (int row = 0; row < n; row++) {
        for (int i = 0; i < reps; i++)
            KVANT_TRY(one_run(l, (int)list[row], &rep->runs[row * reps + i], diag));
        rep->rows = row + 1;
        bs_print_row(rep, row);
    }
    return KVANT_OK;
}

int cmd_bench_serve(const opts *o, kvant_diag *diag)
{
    load l = { .o = o,
               .turns = (int)opt_int(o, OPT_BS_TURNS),
               .prompt_tokens = (int)opt_int(o, OPT_BS_PROMPT),
               .gen = (int)opt_int(o, OPT_BS_GEN),
               .shared = opt_num(o, OPT_BS_SHARED),
               .random = { (uint64_t)opt_int(o, OPT_BS_SEED) },
               .nonce = (uint64_t)clock_ns() };
    bs_report rep = { .o = o, .model = l.model };

    if (o->n_pos != 1)
        return kvant_fail(diag, KVANT_EINVAL, "URL: found none, wanted for example http://127.0.0.1:8686");
    KVANT_TRY(bc_parse_url(o->pos[0], &l.url, diag));
    KVANT_TRY(bs_read_base(&rep, diag));
    int code = ask_model(&l, diag);
    if (code == KVANT_OK)
        code = warm_up(&l, diag);
    if (code == KVANT_OK)
        code = all_rows(&l, &rep, diag);
    if (code == KVANT_OK)
        code = bs_finish(&rep, diag);
    kvant_free(rep.runs);
    kvant_free(rep.base);
    return code;
}
