/* check_sampler.c: the sampler against a plain one (sort everything, then cut), its distribution (chi-square), extreme
 * logits, penalties by hand, bad parameters. */
#include <float.h>
#include "base/mem.h"
#include "base/rng.h"
#include "kvant/engine.h"
#include "support/check.h"

enum { V = 200 };

/* Everything off: what is left is the distribution of the logits themselves. */
static kvant_sampler_params off(void)
{
    return (kvant_sampler_params){ sizeof(kvant_sampler_params), .temp = 1, .top_p = 1, .repeat_penalty = 1,
                                   .seed = 1 };
}

static kvant_sampler *make(kvant_sampler_params p, int n_vocab)
{
    kvant_sampler *s = NULL;
    kvant_diag diag = { "" };

    CHECK(kvant_sampler_create(&p, n_vocab, &s, &diag) == 0, "%s", diag.text);
    if (!s)
        exit(2);
    return s;
}

static int32_t pick(kvant_sampler *s, const float *logits)
{
    int32_t token = -1;
    kvant_diag diag = { "" };

    CHECK(kvant_sampler_pick(s, logits, &token, &diag) == 0, "%s", diag.text);
    return token;
}

/* ---- a plain sampler: which tokens may come, with what probability ---- */

typedef struct entry {
    double logit, p;
    int id;
} entry;

static int by_order(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->id - y->id;
}

static void softmax(entry *e, int n, double temp)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += e[i].p = exp((e[i].logit - e[0].logit) / temp);
    for (int i = 0; i < n; i++)
        e[i].p /= sum;
}

static void plain(const kvant_sampler_params *p, const float *logits, int n_vocab, double *prob)
{
    static entry e[4096];
    int n = 0;
    double sum = 0;

    for (int i = 0; i < n_vocab; i++) {
        prob[i] = 0;
        if (isfinite(logits[i]))
            e[n++] = (entry){ (double)logits[i], 0, i };
    }
    qsort(e, (size_t)n, sizeof *e, by_order);
    if (p->top_k > 0 && p->top_k < n)
        n = p->top_k;
    if (p->top_p < 1) {
        softmax(e, n, 1);
        int k = 0;
        while (k < n && (k == 0 || sum < (double)p->top_p))
            sum += e[k++].p;
        n = k;
    }
    if (p->min_p > 0) {
        int k = 1;
        while (k < n && e[k].logit >= e[0].logit + log((double)p->min_p))
            k++;
        n = k;
    }
    softmax(e, n, (double)p->temp);
    for (int i = 0; i < n; i++)
        prob[e[i].id] = e[i].p;
}

/* Upper 1e-6 quantile of chi-square (Wilson and Hilferty's approximation, z = 4.75). */
static double chi_limit(int df)
{
    double a = 2.0 / (9.0 * df);
    return df * pow(1 - a + 4.75 * sqrt(a), 3);
}

/* Draws and compares the counts; tokens expected less than 5 times are one bin. */
static void distribution_case(kvant_sampler_params p, const float *logits, int n_vocab, int draws, const char *what)
{
    static double prob[4096];
    static int count[4096];
    kvant_sampler *s = make(p, n_vocab);
    double chi = 0, rare_want = 0;
    int bins = 0, rare = 0, outside = 0;

    plain(&p, logits, n_vocab, prob);
    memset(count, 0, sizeof count);
    for (int i = 0; i < draws; i++)
        count[pick(s, logits)]++;
    for (int i = 0; i < n_vocab; i++) {
        double want = prob[i] * draws;
        outside += prob[i] == 0 ? count[i] : 0;
        if (want < 5) {
            rare += count[i];
            rare_want += want;
            continue;
        }
        chi += (count[i] - want) * (count[i] - want) / want;
        bins++;
    }
    if (rare_want > 1) {
        chi += (rare - rare_want) * (rare - rare_want) / rare_want;
        bins++;
    }
    CHECK(outside == 0, "%s: %d draws of tokens that were cut", what, outside);
    CHECK(bins < 2 || chi <= chi_limit(bins - 1), "%s: chi-square %.1f with %d bins, want at most %.1f", what, chi,
          bins, bins > 1 ? chi_limit(bins - 1) : 0);
    kvant_sampler_free(s);
}

static void test_distribution(void)
{
    float logits[V];
    kvant_sampler_params p = off();

    check_fill_normal(logits, V, 5);
    distribution_case(p, logits, V, 100000, "all off");
    p.temp = 0.3f;
    distribution_case(p, logits, V, 50000, "temp 0.3");
    p.temp = 3;
    distribution_case(p, logits, V, 50000, "temp 3");
    p.temp = 0.8f;
    p.top_k = 7;
    distribution_case(p, logits, V, 50000, "top-k 7");
    p.top_p = 0.6f;
    distribution_case(p, logits, V, 50000, "top-k 7, top-p 0.6");
    p.top_k = 0;
    distribution_case(p, logits, V, 50000, "top-p 0.6");
    p.min_p = 0.2f;
    distribution_case(p, logits, V, 50000, "top-p 0.6, min-p 0.2");
    p.top_p = 1;
    distribution_case(p, logits, V, 50000, "min-p 0.2");
    logits[3] = NAN;
    logits[4] = INFINITY;
    logits[5] = -INFINITY;
    distribution_case(kvant_sampler_defaults(), logits, V, 50000, "defaults, three logits not finite");
}

/* Many shapes, with ties: no token outside of what the plain sampler keeps, and all of it reachable. */
static void test_support(void)
{
    rng r = { 77 };
    float logits[V];
    double prob[V];

    for (int i = 0; i < 400; i++) {
        kvant_sampler_params p = off();
        int n = 1 + (int)rng_below(&r, V), kept = 0, reached = 0, seen[V] = { 0 };
        for (int k = 0; k < n; k++)
            logits[k] = (float)(int)rng_below(&r, i % 2 ? 4 : 40) / 4;
        p.top_k = rng_below(&r, 2) ? (int)rng_below(&r, 12) : 0;
        p.top_p = rng_below(&r, 2) ? (float)rng_unit(&r) : 1;
        p.min_p = (float[]){ 0, 1, (float)rng_unit(&r) }[rng_below(&r, 3)]; /* 1: all that equal the best */
        p.temp = 5; /* flat: everything that was kept comes soon */
        plain(&p, logits, n, prob);
        kvant_sampler *s = make(p, n);
        for (int k = 0; k < 4000; k++) {
            int32_t t = pick(s, logits);
            CHECK(prob[t] > 0, "case %d: token %d of %d was cut (top-k %d, top-p %g, min-p %g)", i, t, n, p.top_k,
                  (double)p.top_p, (double)p.min_p);
            seen[t] = 1;
        }
        for (int k = 0; k < n; k++) {
            kept += prob[k] > 0.005;
            reached += prob[k] > 0.005 && seen[k];
        }
        CHECK(reached == kept, "case %d: %d of %d tokens reached", i, reached, kept);
        kvant_sampler_free(s);
    }
}

/* ---- greedy, ties, extremes ---- */

static void test_greedy(void)
{
    float logits[V];
    kvant_sampler_params p = off();
    rng r = { 3 };

    for (int t = 0; t < 2; t++) {
        p.temp = t ? -1.0f : 0.0f;
        kvant_sampler *s = make(p, V);
        for (int i = 0; i < 200; i++) {
            int best = 0;
            for (int k = 0; k < V; k++)
                logits[k] = (float)(int)rng_below(&r, 20); /* ties: the lower id */
            for (int k = 1; k < V; k++)
                best = logits[k] > logits[best] ? k : best;
            CHECK(pick(s, logits) == best, "greedy");
        }
        kvant_sampler_free(s);
    }
    p.temp = 1e-40f; /* as good as greedy; nothing divides by zero */
    kvant_sampler *s = make(p, V);
    check_fill_normal(logits, V, 9);
    logits[17] = 50;
    CHECK(pick(s, logits) == 17, "temp 1e-40");
    kvant_sampler_free(s);
    p = off();
    p.top_k = 1;
    s = make(p, V);
    for (int k = 0; k < V; k++)
        logits[k] = k % 50 == 20 ? 2.0f : 1.0f;
    for (int i = 0; i < 50; i++)
        CHECK(pick(s, logits) == 20, "top-k 1: the lowest id among equals");
    kvant_sampler_free(s);
}

static void test_extremes(void)
{
    static const float values[] = { 3e38f, -3e38f, FLT_MAX, -FLT_MAX, FLT_MIN, 0, -0.0f, 1e-45f };
    rng r = { 5 };
    float logits[8], before[8];

    for (int i = 0; i < 2000; i++) {
        kvant_sampler_params p = kvant_sampler_defaults();
        p.temp = (float[]){ 0, 1e-30f, 1, 1e30f }[i % 4];
        p.repeat_penalty = i % 3 ? 1.0f : 1e30f;
        p.presence_penalty = i % 5 ? 0.0f : 3e38f;
        p.seed = (uint64_t)i;
        for (int k = 0; k < 8; k++)
            logits[k] = rng_below(&r, 5) ? values[rng_below(&r, 8)]
                                         : (float[]){ NAN, INFINITY, -INFINITY }[rng_below(&r, 3)];
        logits[rng_below(&r, 8)] = 1;
        kvant_sampler *s = make(p, 8);
        for (int k = 0; k < 4; k++) {
            memcpy(before, logits, sizeof logits);
            int32_t t = pick(s, logits);
            CHECK(t >= 0 && t < 8 && isfinite(logits[t]), "case %d: token %d", i, t);
            CHECK(memcmp(before, logits, sizeof logits) == 0, "logits were written");
            kvant_sampler_accept(s, t);
        }
        kvant_sampler_free(s);
    }
}

static void test_not_finite(void)
{
    float logits[4] = { NAN, INFINITY, -INFINITY, -NAN };
    const int32_t ids[] = { 0, 1 };
    const float ban[] = { -INFINITY, -INFINITY }, fine[] = { 0, 1 };
    kvant_sampler_params p = off();

    for (int greedy = 0; greedy < 2; greedy++) {
        kvant_diag diag = { "" };
        int32_t token = 77;
        p.temp = greedy ? 0.0f : 1.0f;
        kvant_sampler *s = make(p, 4);
        CHECK(kvant_sampler_pick(s, logits, &token, &diag) == KVANT_ENUMERIC && token == 77 &&
                  strstr(diag.text, "none of 4"),
              "%s", diag.text);
        kvant_sampler_free(s);
        p.bias_ids = ids;
        p.bias = ban;
        p.n_bias = 2;
        s = make(p, 2);
        CHECK(kvant_sampler_pick(s, fine, &token, &diag) == KVANT_ENUMERIC && strstr(diag.text, "bans every token"),
              "%s", diag.text);
        kvant_sampler_free(s);
        p.n_bias = 1;
        s = make(p, 2);
        CHECK(pick(s, (float[]){ 5, 1 }) == 1, "the banned one does not come");
        CHECK(pick(s, (float[]){ INFINITY, 1 }) == 1, "an infinite logit does not come");
        kvant_sampler_free(s);
    }
}

/* ---- bias and penalties, by hand ---- */

static void test_bias(void)
{
    int32_t ids[] = { 2, 2, 3, 0 };
    float bias[] = { 1.5f, 1.5f, -100, 3e38f }, logits[] = { 0, 2.5f, 0, 9 };
    kvant_sampler_params p = off();

    p.temp = 0;
    p.bias_ids = ids;
    p.bias = bias;
    p.n_bias = 3;
    kvant_sampler *s = make(p, 4);
    ids[0] = 1; /* copied: later changes do nothing */
    bias[0] = -5;
    CHECK(pick(s, logits) == 2, "biases of one token add up: 3 > 2.5");
    kvant_sampler_free(s);
    ids[0] = 0;
    bias[0] = 3e38f;
    p.n_bias = 4;
    s = make(p, 4);
    CHECK(pick(s, logits) == 0, "a sum beyond the range of float is no ban");
    kvant_sampler_free(s);
}

/* The greedy choice tells on which side of 1 the penalised logit of token 0 is. */
static void penalty_case(kvant_sampler_params p, const char *history, float logit, float want, const char *what)
{
    p.temp = 0;
    kvant_sampler *s = make(p, 3);
    for (const char *h = history; *h; h++)
        kvant_sampler_accept(s, *h - '0');
    CHECK(pick(s, (float[]){ logit, want - 1e-3f, -1e9f }) == 0, "%s: below %g", what, (double)want);
    CHECK(pick(s, (float[]){ logit, want + 1e-3f, -1e9f }) == 1, "%s: above %g", what, (double)want);
    kvant_sampler_free(s);
}

static void test_penalties(void)
{
    kvant_sampler_params p = off();

    p.penalty_last_n = 4;
    p.repeat_penalty = 2;
    penalty_case(p, "0", 3, 1.5f, "repeat, positive");
    penalty_case(p, "0", -3, -6, "repeat, negative");
    penalty_case(p, "000", 3, 1.5f, "repeat does not count");
    penalty_case(p, "02222", 3, 3, "left the window");
    penalty_case(p, "00222", 3, 1.5f, "one of two left the window");
    penalty_case(p, "", 3, 3, "nothing yet");
    p.penalty_last_n = -1;
    penalty_case(p, "0222222222222", 3, 1.5f, "no window");
    p.penalty_last_n = 0;
    penalty_case(p, "0000", 3, 3, "off");
    p = off();
    p.penalty_last_n = 4;
    p.frequency_penalty = 0.5f;
    penalty_case(p, "0020", 3, 1.5f, "frequency");
    penalty_case(p, "00200", 3, 1.5f, "frequency in the window");
    p.presence_penalty = 1;
    penalty_case(p, "0020", 3, 0.5f, "frequency and presence");
    p.repeat_penalty = 2;
    penalty_case(p, "0020", 3, -1, "all three: 3/2 - 1.5 - 1");
    p.frequency_penalty = p.presence_penalty = -1;
    penalty_case(p, "0020", 3, 5.5f, "negative ones reward");
}

/* The window against counting anew. */
static void test_window(void)
{
    rng r = { 31 };
    kvant_sampler_params p = off();
    int history[600], n = 0;

    p.temp = 0;
    p.penalty_last_n = 13;
    p.frequency_penalty = 1;
    kvant_sampler *s = make(p, 10);
    kvant_sampler_accept(s, -1); /* ignored */
    kvant_sampler_accept(s, 10);
    for (; n < 600; n++) {
        float logits[10], adjusted[10];
        int best = 0;
        for (int k = 0; k < 10; k++)
            adjusted[k] = logits[k] = (float)rng_below(&r, 8) + 0.01f * (float)k;
        for (int k = n > 13 ? n - 13 : 0; k < n; k++)
            adjusted[history[k]] -= 1;
        for (int k = 1; k < 10; k++)
            best = adjusted[k] > adjusted[best] + 1e-4f ? k : best;
        CHECK(pick(s, logits) == best, "step %d", n);
        kvant_sampler_accept(s, history[n] = (int)rng_below(&r, 10));
    }
    kvant_sampler_free(s);
}

/* ---- reproducible; parameters; memory ---- */

static void test_seeds(void)
{
    float logits[V];
    int32_t first[200];
    int differ = 0;

    check_fill_normal(logits, V, 8);
    for (int run = 0; run < 3; run++) {
        kvant_sampler_params p = kvant_sampler_defaults();
        p.seed = run < 2 ? 42 : 43;
        kvant_sampler *s = make(p, V);
        for (int i = 0; i < 200; i++) {
            int32_t t = pick(s, logits);
            if (run == 0)
                first[i] = t;
            else if (run == 1)
                CHECK(t == first[i], "the same seed, draw %d", i);
            else
                differ += t != first[i];
        }
        kvant_sampler_free(s);
    }
    CHECK(differ > 50, "another seed differs only %d times", differ);
}

static void test_defaults(void)
{
    kvant_sampler_params p = kvant_sampler_defaults();
    CHECK(p.temp == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f && p.repeat_penalty == 1 &&
              p.presence_penalty == 0 && p.frequency_penalty == 0 && p.n_bias == 0,
          "defaults");
}

static void expect_refused(kvant_sampler_params p, int n_vocab, const char *name)
{
    kvant_sampler *s = NULL;
    kvant_diag diag = { "" };
    int err = kvant_sampler_create(&p, n_vocab, &s, &diag);

    CHECK(err == KVANT_EINVAL && !s && strstr(diag.text, name), "%s: %d '%s'", name, err, diag.text);
    kvant_sampler_free(s);
}

#define REFUSED(field, value)                                                                                          \
    do {                                                                                                               \
        kvant_sampler_params q = off();                                                                                \
        q.field = (value);                                                                                             \
        expect_refused(q, 4, #field);                                                                                  \
    } while (0)

static void test_bad_params(void)
{
    const int32_t high = 4, low = -1, fine = 0;
    const float nan_bias = NAN, inf_bias = INFINITY, one = 1;
    kvant_sampler_params p = off();

    REFUSED(temp, NAN);
    REFUSED(temp, INFINITY);
    REFUSED(top_p, -0.1f);
    REFUSED(top_p, 1.01f);
    REFUSED(top_p, NAN);
    REFUSED(min_p, -1);
    REFUSED(min_p, 1.5f);
    REFUSED(min_p, NAN);
    REFUSED(repeat_penalty, 0);
    REFUSED(repeat_penalty, -1);
    REFUSED(repeat_penalty, INFINITY);
    REFUSED(presence_penalty, NAN);
    REFUSED(frequency_penalty, -INFINITY);
    REFUSED(penalty_last_n, -2);
    REFUSED(penalty_last_n, INT32_MAX);
    REFUSED(n_bias, -1);
    REFUSED(n_bias, 1); /* no arrays */
    expect_refused(off(), 0, "n_vocab");
    expect_refused(off(), -5, "n_vocab");
    p.n_bias = 1;
    p.bias = &one;
    p.bias_ids = &high;
    expect_refused(p, 4, "bias_ids[0]: token 4");
    p.bias_ids = &low;
    expect_refused(p, 4, "bias_ids[0]: token -1");
    p.bias_ids = &fine;
    p.bias = &nan_bias;
    expect_refused(p, 4, "bias[0]");
    p.bias = &inf_bias;
    expect_refused(p, 4, "bias[0]");
    p = off();
    p.top_k = -3; /* off, as in llama.cpp */
    kvant_sampler_free(make(p, 4));
    kvant_sampler_free(NULL);
}

static void test_out_of_memory(void)
{
    const int32_t id = 1;
    const float bias = 1;
    kvant_sampler_params p = kvant_sampler_defaults();
    float logits[V] = { 0 };
    int fails = 0;

    p.repeat_penalty = 1.1f;
    p.bias_ids = &id;
    p.bias = &bias;
    p.n_bias = 1;
    for (long at = 0; at < 50; at++) {
        kvant_sampler *s = NULL;
        kvant_diag diag = { "" };
        mem_fail_after(at, 0);
        int err = kvant_sampler_create(&p, V, &s, &diag);
        mem_fail_after(err ? -1 : 0, 1); /* from here on nothing may allocate */
        if (err == 0) {
            for (int i = 0; i < 100; i++)
                kvant_sampler_accept(s, pick(s, logits));
            mem_fail_after(-1, 0);
            kvant_sampler_free(s);
            break;
        }
        fails++;
        CHECK(err == KVANT_ENOMEM && diag.text[0], "allocation %ld: %d '%s'", at, err, diag.text);
    }
    CHECK(fails >= 5 && fails < 50, "%d failing allocations", fails);
}

/* ---- from the largest logits alone ---- */

/* Both ways, side by side from one seed: the same tokens, draw after draw. */
static void top_same(kvant_sampler_params p, int n_vocab, int64_t seed)
{
    float logits[4000], top[KVANT_STEP_TOP];
    int32_t ids[KVANT_STEP_TOP], token = -1;
    entry all[4000];
    rng r = { (uint64_t)seed };
    kvant_diag diag = { "" };

    p.seed = (uint64_t)seed;
    kvant_sampler *a = make(p, n_vocab), *b = make(p, n_vocab);
    const int plain = p.n_bias == 0 && p.penalty_last_n == 0;
    CHECK(kvant_sampler_wants(b) == (p.temp > 0 || !plain ? KVANT_LOGITS_TOP : KVANT_LOGITS_GREEDY), "wants");
    for (int draw = 0; draw < 30; draw++) {
        for (int i = 0; i < n_vocab; i++) {
            logits[i] = roundf(rng_normal(&r) * 64.0f) / 16.0f;    /* with ties */
            all[i] = (entry){ .logit = (double)logits[i], .id = i };
        }
        qsort(all, (size_t)n_vocab, sizeof *all, by_order);
        const int n = n_vocab < KVANT_STEP_TOP ? n_vocab : KVANT_STEP_TOP;
        for (int i = 0; i < n; i++) {
            ids[i] = all[i].id;
            top[i] = logits[ids[i]];
        }
        CHECK(kvant_sampler_pick_top(b, top, ids, n, &token, &diag) == 0, "%s", diag.text);
        const int32_t want = pick(a, logits);
        CHECK(token == want, "top_k %d top_p %g min_p %g, draw %d: %d from the largest, %d from all", p.top_k, (double)p.top_p,
              (double)p.min_p, draw, token, want);
        kvant_sampler_accept(a, want);
        kvant_sampler_accept(b, want);
    }
    kvant_sampler_free(a);
    kvant_sampler_free(b);
}

static void test_top(void)
{
    static const int top_k[] = { 1, 2, 40, 128 };
    kvant_sampler_params p = off();

    for (int i = 0; i < 32; i++) {
        p.top_k = top_k[i % 4];
        p.top_p = i & 4 ? 0.9f : 1.0f;
        p.min_p = i & 8 ? 0.02f : 0.0f;
        p.temp = i % 16 == 3 ? 0.0f : 0.7f;
        top_same(p, i & 16 ? 4000 : 90, i);
    }
}

/* With biases that ban or lower, and with penalties: those of the likeliest tokens, which come up again and again. */
static void test_top_lowered(void)
{
    static const float bias[] = { -INFINITY, -2, -0.25f, -100, 0, -1, -3, -INFINITY };
    static const int32_t ids[] = { 3, 17, 17, 40, 41, 55, 3, 89 };
    kvant_sampler_params p = off();

    for (int i = 0; i < 64; i++) {
        p.top_k = i & 1 ? 40 : 3;
        p.temp = i & 2 ? 0.7f : 0.0f;
        p.n_bias = i & 4 || !(i & 24) ? 8 : 0;
        p.bias = bias, p.bias_ids = ids;
        p.penalty_last_n = i & 24 ? 16 : 0;
        p.repeat_penalty = i & 8 ? 1.5f : 1.0f;
        p.presence_penalty = i & 16 ? 0.75f : 0.0f;
        p.frequency_penalty = i & 16 ? 0.5f : 0.0f;
        top_same(p, i & 32 ? 4000 : 90, 100 + i);
    }
}

/* Every token is banned; more logits may be lowered than come. */
static void test_top_all_banned(void)
{
    float bias[6], logits[6] = { 6, 5, 4, 3, 2, 1 };
    int32_t ids[6], token = 0;
    kvant_sampler_params p = off();
    kvant_diag diag = { "" };

    for (int i = 0; i < 6; i++)
        bias[i] = -INFINITY, ids[i] = i;
    p.n_bias = 6, p.bias = bias, p.bias_ids = ids, p.top_k = 4;
    kvant_sampler *s = make(p, 6);
    CHECK(kvant_sampler_pick_top(s, logits, ids, 6, &token, &diag) == KVANT_ENUMERIC && strstr(diag.text, "bans"), "%s",
          diag.text);
    CHECK(kvant_sampler_pick_top(s, logits, ids, 5, &token, &diag) == KVANT_EINVAL, "too few: %s", diag.text);
    kvant_sampler_free(s);
    p.n_bias = 0, p.penalty_last_n = KVANT_STEP_TOP, p.repeat_penalty = 1.1f;
    s = make(p, 6);
    CHECK(kvant_sampler_wants(s) == KVANT_LOGITS_LAST, "a window of %d tokens", KVANT_STEP_TOP);
    kvant_sampler_free(s);
}

/* What needs all logits says so, and is refused when it does not get them. */
static void test_top_refused(void)
{
    const float one = 1, bias = 2;
    const int32_t zero = 0;
    kvant_diag diag = { "" };
    int32_t token = 77;

    for (int i = 0; i < 6; i++) {
        kvant_sampler_params p = kvant_sampler_defaults();
        p.top_k = i == 0 ? 0 : i == 1 ? KVANT_STEP_TOP + 1 : 40;
        p.repeat_penalty = i == 2 ? 0.9f : 1.0f;
        p.n_bias = i == 3;
        p.bias = &bias;
        p.bias_ids = &zero;
        p.temp = i == 4 ? 0.0f : 0.8f;
        kvant_sampler *s = make(p, V);
        const int wants = i < 4 ? KVANT_LOGITS_LAST : i == 4 ? KVANT_LOGITS_GREEDY : KVANT_LOGITS_TOP;
        CHECK(kvant_sampler_wants(s) == wants, "case %d: wants %d", i, kvant_sampler_wants(s));
        const int rc = kvant_sampler_pick_top(s, &one, &zero, 1, &token, &diag);
        CHECK(rc == (i == 4 ? KVANT_OK : KVANT_EINVAL), "case %d: %d %s", i, rc, diag.text);
        CHECK(i < 5 || strstr(diag.text, "wanted the 40 largest"), "%s", diag.text);
        kvant_sampler_free(s);
    }
    CHECK(token == 0, "the greedy token is %d", token);
}

int main(void)
{
    test_distribution();
    test_support();
    test_greedy();
    test_extremes();
    test_not_finite();
    test_bias();
    test_penalties();
    test_window();
    test_seeds();
    test_top();
    test_top_lowered();
    test_top_all_banned();
    test_top_refused();
    test_defaults();
    test_bad_params();
    test_out_of_memory();
    return check_end("check_sampler");
}
