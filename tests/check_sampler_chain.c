/* check_sampler_chain.c: the samplers beyond the usual chain against their definitions, written down again in the
 * plainest way: which tokens may come, how often they do, what a penalty does to each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/check.h"

enum { V = 60, DRAWS = 20000 };

typedef struct entry {
    double logit, p;
    int id;
} entry;

static float logits[V];

static kvant_sampler_params off(void)
{
    return (kvant_sampler_params){ sizeof(kvant_sampler_params), .temp = 1, .top_p = 1, .repeat_penalty = 1,
                                   .seed = 7 };
}

static kvant_sampler *make(kvant_sampler_params p)
{
    kvant_sampler *s = NULL;
    kvant_diag diag = { "" };

    CHECK(kvant_sampler_create(&p, V, &s, &diag) == KVANT_OK, "%s", diag.text);
    if (!s)
        exit(2);
    return s;
}

static int32_t pick(kvant_sampler *s, const float *x)
{
    int32_t token = -1;
    kvant_diag diag = { "" };

    CHECK(kvant_sampler_pick(s, x, &token, &diag) == KVANT_OK, "%s", diag.text);
    return token;
}

static void random_logits(uint64_t seed)
{
    rng r = { seed };

    for (int i = 0; i < V; i++)
        logits[i] = (float)(8 * rng_unit(&r) - 4);
}

/* ---- the plain chain ---- */

static int by_logit(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static double entropy_of_order;
static int by_typical(const void *a, const void *b)
{
    const double x = fabs(-log(((const entry *)a)->p) - entropy_of_order);
    const double y = fabs(-log(((const entry *)b)->p) - entropy_of_order);
    return x < y ? -1 : x > y;
}

static void softmax(entry *e, int n, double temp)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = e[i].logit > max ? e[i].logit : max;
    for (int i = 0; i < n; i++)
        sum += exp((e[i].logit - max) / temp);
    for (int i = 0; i < n; i++)
        e[i].p = exp((e[i].logit - max) / temp) / sum;
}

static double entropy(const entry *e, int n)
{
    double h = 0;

    for (int i = 0; i < n; i++)
        h -= e[i].p * log(e[i].p);
    return h;
}

static int sigma(entry *e, int n, double times)
{
    double mean = 0, squares = 0;
    int kept = 0;

    for (int i = 0; i < n; i++)
        mean += e[i].logit / n;
    for (int i = 0; i < n; i++)
        squares += (e[i].logit - mean) * (e[i].logit - mean) / n;
    for (int i = 0; i < n; i++)
        if (e[i].logit >= e[0].logit - times * sqrt(squares))
            e[kept++] = e[i];
    return kept;
}

static int typical(entry *e, int n, double most)
{
    double sum = 0;
    int kept = 0;

    softmax(e, n, 1);
    entropy_of_order = entropy(e, n);
    qsort(e, (size_t)n, sizeof *e, by_typical);
    while (kept < n && sum <= most)
        sum += e[kept++].p;
    qsort(e, (size_t)kept, sizeof *e, by_logit);
    return kept;
}

/* Probabilities of all tokens by the definitions; xtc: whether it strikes. */
static void plain(const kvant_sampler_params *p, int xtc, double *prob)
{
    entry e[V];
    double temp = (double)p->temp, sum = 0;
    int n = V, kept = 0, reach = 0;

    for (int i = 0; i < V; i++)
        e[i] = (entry){ (double)logits[i], 0, i };
    qsort(e, V, sizeof *e, by_logit);
    if (p->top_n_sigma > 0)
        n = sigma(e, n, (double)p->top_n_sigma);
    n = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    if (p->typical_p > 0 && p->typical_p < 1)
        n = typical(e, n, (double)p->typical_p);
    softmax(e, n, 1);
    while (kept < n && (p->top_p >= 1 || kept == 0 || sum < (double)p->top_p) &&
           e[kept].p >= (double)p->min_p * e[0].p)
        sum += e[kept++].p;
    n = kept;
    softmax(e, n, 1);
    while (reach < n && e[reach].p >= (double)p->xtc_threshold)
        reach++;
    const int first = xtc && reach > 1 ? reach - 1 : 0;
    softmax(e + first, n - first, 1);
    if (p->dynatemp_range > 0 && n - first > 1) {
        const double low = fmax(0, (double)(p->temp - p->dynatemp_range));
        temp = low + ((double)(p->temp + p->dynatemp_range) - low) *
                         pow(entropy(e + first, n - first) / log(n - first), (double)p->dynatemp_exponent);
    }
    softmax(e + first, n - first, temp);
    for (int i = 0; i < V; i++)
        prob[i] = 0;
    for (int i = first; i < n; i++)
        prob[e[i].id] = e[i].p;
}

/* Draws follow the probabilities: within 5 standard deviations, and never what has none. */
static void check_draws(const double *prob, const int *seen, const char *what, uint64_t seed)
{
    for (int i = 0; i < V; i++) {
        const double want = prob[i] * DRAWS, room = 5 * sqrt(want * (1 - prob[i])) + 3;
        CHECK(prob[i] > 1e-9 ? fabs(seen[i] - want) <= room : seen[i] == 0, "%s, seed %llu: token %d came %d times, %g",
              what, (unsigned long long)seed, i, seen[i], want);
    }
}

static void check_case(kvant_sampler_params p, const char *what)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        double with[V], without[V];
        int seen[V] = { 0 };
        random_logits(seed);
        kvant_sampler *s = make(p);
        CHECK(kvant_sampler_wants(s) == KVANT_LOGITS_LAST, "%s: wants all logits", what);
        for (int i = 0; i < DRAWS; i++)
            seen[pick(s, logits)]++;
        plain(&p, 1, with);
        plain(&p, 0, without);
        for (int i = 0; i < V; i++)
            with[i] = (double)p.xtc_probability * with[i] + (1 - (double)p.xtc_probability) * without[i];
        check_draws(with, seen, what, seed);
        kvant_sampler_free(s);
    }
}

static void check_chain(void)
{
    static const struct {
        float typical, sigma, xtc, threshold, range, exponent, top_p, min_p, temp;
        int top_k;
    } cases[] = {
        { .typical = 0.2f }, { .typical = 0.7f, .top_k = 20 }, { .typical = 0.999f, .temp = 2 },
        { .sigma = 1 }, { .sigma = 1.5f, .top_k = 7, .temp = 0.5f }, { .xtc = 1, .threshold = 0.1f },
        { .xtc = 0.5f, .threshold = 0.05f, .min_p = 0.02f }, { .xtc = 0.3f, .threshold = 0.6f },
        { .range = 0.5f, .exponent = 1 }, { .range = 2, .exponent = 0.5f, .top_p = 0.9f },
        { .typical = 0.8f, .sigma = 2, .xtc = 0.4f, .threshold = 0.1f, .range = 0.3f, .exponent = 2, .top_p = 0.95f,
          .min_p = 0.01f, .temp = 1.3f, .top_k = 40 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kvant_sampler_params p = off();
        char what[20];
        p.typical_p = cases[i].typical;
        p.top_n_sigma = cases[i].sigma;
        p.xtc_probability = cases[i].xtc;
        p.xtc_threshold = cases[i].threshold;
        p.dynatemp_range = cases[i].range;
        p.dynatemp_exponent = cases[i].exponent;
        p.top_p = cases[i].top_p > 0 ? cases[i].top_p : 1;
        p.min_p = cases[i].min_p;
        p.temp = cases[i].temp > 0 ? cases[i].temp : 1;
        p.top_k = cases[i].top_k;
        snprintf(what, sizeof what, "case %zu", i);
        check_case(p, what);
    }
}

/* Temperature 0 takes the best of what the others leave. */
static void check_greedy(void)
{
    kvant_sampler_params p = off();
    double prob[V];
    int best = 0;

    random_logits(3);
    p.typical_p = 0.3f;
    plain(&p, 0, prob);
    for (int i = 1; i < V; i++)
        best = prob[i] > prob[best] ? i : best;
    p.temp = 0;
    kvant_sampler *s = make(p);
    CHECK(pick(s, logits) == best, "not the best of what is left");
    kvant_sampler_free(s);
}

/* ---- mirostat ---- */

/* The tokens that may come at a surprise of mu, most likely first; returns how many. */
static int mirostat_kept(int version, double mu, double temp, entry *e)
{
    double above = 0, below = 0;
    int n = 0;

    for (int i = 0; i < V; i++)
        e[i] = (entry){ (double)logits[i], 0, i };
    qsort(e, V, sizeof *e, by_logit);
    softmax(e, V, temp);
    if (version == 2) {
        while (n < V && -log2(e[n].p) <= mu)
            n++;
        return n > 0 ? n : 1;
    }
    for (int i = 0; i < V - 1; i++) {
        above += log((i + 2.0) / (i + 1)) * log(e[i].p / e[i + 1].p);
        below += log((i + 2.0) / (i + 1)) * log((i + 2.0) / (i + 1));
    }
    const double slope = above / below, x = slope - 1;
    const int k = (int)pow(x * pow(2, mu) / (1 - pow(V, -x)), 1 / slope);
    return k < 1 ? 1 : k < V ? k : V;
}

static void check_mirostat(void)
{
    for (int version = 1; version <= 2; version++) {
        kvant_sampler_params p = off();
        double mu = 6, surprise = 0;
        int same = 0;
        p.mirostat = version;
        p.mirostat_tau = 3;
        p.mirostat_eta = 0.1f;
        p.temp = 0.9f;
        p.top_k = 1; /* counts for nothing, as in llama.cpp */
        p.repeat_penalty = 100;
        p.penalty_last_n = -1;
        kvant_sampler *s = make(p);
        for (int i = 0; i < 2000; i++) {
            entry e[V];
            random_logits((uint64_t)i % 50);
            const int n = mirostat_kept(version, mu, 0.9, e), token = pick(s, logits);
            int at = 0;
            while (at < n && e[at].id != token)
                at++;
            CHECK(at < n, "mirostat %d: step %d: token %d is none of the %d at %g", version, i, token, n, mu);
            softmax(e, n, 0.9);
            same += at == 0;
            mu -= (double)0.1f * (-log2(e[at < n ? at : 0].p) - 3);
            surprise += -log2(e[at < n ? at : 0].p) / 2000;
            kvant_sampler_accept(s, token);
        }
        CHECK(fabs(surprise - 3) < 0.15 && same < 1900, "mirostat %d: surprise %g, wanted 3", version, surprise);
        kvant_sampler_free(s);
    }
}

/* ---- repetitions ---- */

static int is_in(const int32_t *list, int n, int32_t x)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x)
            return 1;
    return 0;
}

/* What DRY takes from the logit of `token` after text[n]: by trying every earlier place. */
static double dry_penalty(const kvant_sampler_params *p, const int32_t *text, int n, int32_t token)
{
    const int first = p->dry_last_n >= 0 && n > p->dry_last_n ? n - p->dry_last_n : 0;
    int longest = -1;

    if (is_in(p->dry_breakers, p->n_dry_breakers, token) || n - first <= p->dry_allowed_length)
        return 0;
    for (int at = first + 1; at < n; at++) {
        int same = 0;
        if (text[at] != token)
            continue;
        while (at - 1 - same >= first && text[at - 1 - same] == text[n - 1 - same] &&
               !is_in(p->dry_breakers, p->n_dry_breakers, text[n - 1 - same]))
            same++;
        longest = same > longest ? same : longest;
    }
    int clear = 0; /* of breakers, from the end */
    while (clear < n - first && !is_in(p->dry_breakers, p->n_dry_breakers, text[n - 1 - clear]))
        clear++;
    if (longest < p->dry_allowed_length || clear < p->dry_allowed_length)
        return 0;
    return (double)p->dry_multiplier * pow((double)p->dry_base, longest - p->dry_allowed_length);
}

static int banned_by_ngram(int n_gram, const int32_t *text, int n, int32_t token)
{
    for (int at = n_gram - 1; at < n; at++)
        if (text[at] == token && memcmp(text + at - n_gram + 1, text + n - n_gram + 1, (size_t)(n_gram - 1) * 4) == 0)
            return 1;
    return 0;
}

static int best_of(const double *x)
{
    int best = 0;

    for (int i = 1; i < V; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Greedy over random texts of few tokens, which repeat themselves much: the best of the penalised logits comes. */
static void check_repeats(void)
{
    static const int32_t breakers[] = { 2, 5 };
    rng r = { 11 };
    int changed = 0;

    for (int round = 0; round < 3000; round++) {
        kvant_sampler_params p = off();
        int32_t text[80];
        double want[V];
        const int n = (int)rng_below(&r, 80), few = 2 + (int)rng_below(&r, 8);
        random_logits((uint64_t)round);
        p.temp = 0;
        p.context = 80;
        p.no_repeat_ngram = round % 3 == 0 ? 1 + (int)rng_below(&r, 4) : 0;
        p.dry_multiplier = round % 3 != 0 || round % 2 ? 0.8f : 0;
        p.dry_base = 1.75f;
        p.dry_allowed_length = (int)rng_below(&r, 4);
        p.dry_last_n = round % 5 ? (int)rng_below(&r, 70) : -1;
        p.dry_breakers = breakers;
        p.n_dry_breakers = (int)rng_below(&r, 3);
        kvant_sampler *s = make(p);
        for (int i = 0; i < n; i++) {
            text[i] = (int32_t)rng_below(&r, (uint32_t)few);
            kvant_sampler_accept(s, text[i]);
        }
        for (int i = 0; i < few; i++)
            logits[i] += 6; /* those that the text has */
        for (int i = 0; i < V; i++) {
            const int dry = p.dry_multiplier > 0 && p.dry_last_n != 0;
            want[i] = (double)logits[i] - (dry ? dry_penalty(&p, text, n, i) : 0);
            if (p.no_repeat_ngram > 0 && banned_by_ngram(p.no_repeat_ngram, text, n, i))
                want[i] = -1e9;
        }
        const int token = pick(s, logits), best = best_of(want);
        CHECK(token == best || fabs(want[token] - want[best]) < 1e-5, "round %d: token %d, wanted %d", round, token,
              best);
        for (int i = 0; i < V; i++)
            want[i] = (double)logits[i];
        changed += best_of(want) != best;
        kvant_sampler_free(s);
    }
    CHECK(changed > 500, "the penalties changed only %d choices", changed);
}

/* The ring: what is older than the window counts for nothing. */
static void check_ring(void)
{
    kvant_sampler_params p = off();

    p.temp = 0;
    p.no_repeat_ngram = 2;
    p.context = 4;
    kvant_sampler *s = make(p);
    random_logits(1);
    logits[9] = 50;
    static const int32_t text[] = { 7, 9, 1, 2, 7 };
    for (int i = 0; i < 5; i++)
        kvant_sampler_accept(s, text[i]);
    CHECK(pick(s, logits) == 9, "7 9 is older than the context of 4");
    kvant_sampler_accept(s, 9);
    kvant_sampler_accept(s, 7);
    CHECK(pick(s, logits) != 9, "7 9 is within it");
    kvant_sampler_free(s);
}

static void check_refused(void)
{
    static const struct {
        const char *name;
        kvant_sampler_params p;
    } bad[] = {
        { "typical_p", { .typical_p = 1.5f } },
        { "top_n_sigma", { .top_n_sigma = NAN } },
        { "xtc_probability", { .xtc_probability = 2 } },
        { "xtc_threshold", { .xtc_threshold = -1 } },
        { "dynatemp_range", { .dynatemp_range = -1 } },
        { "dynatemp_exponent", { .dynatemp_exponent = -1 } },
        { "mirostat:", { .mirostat = 3 } },
        { "mirostat_tau", { .mirostat_tau = -1 } },
        { "mirostat_eta", { .mirostat_eta = INFINITY } },
        { "dry_multiplier", { .dry_multiplier = -1 } },
        { "dry_base", { .dry_multiplier = 1, .dry_last_n = 4, .dry_base = 0.5f } },
        { "dry_allowed_length", { .dry_multiplier = 1, .dry_last_n = 4, .dry_base = 2, .dry_allowed_length = -1 } },
        { "dry_last_n", { .dry_last_n = -2 } },
        { "n_dry_breakers", { .dry_multiplier = 1, .dry_last_n = 4, .dry_base = 2, .n_dry_breakers = 1 } },
        { "context", { .dry_multiplier = 1, .dry_last_n = -1, .dry_base = 2 } },
        { "context", { .no_repeat_ngram = 2 } },
        { "no_repeat_ngram", { .no_repeat_ngram = -1 } },
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kvant_sampler_params p = bad[i].p;
        kvant_sampler *s = NULL;
        kvant_diag diag = { "" };
        p.temp = p.top_p = p.repeat_penalty = 1;
        p.size = sizeof p;
        CHECK(kvant_sampler_create(&p, V, &s, &diag) == KVANT_EINVAL && strstr(diag.text, bad[i].name), "%s: %s",
              bad[i].name, diag.text);
        kvant_sampler_free(s);
    }
}

int main(void)
{
    check_chain();
    check_greedy();
    check_mirostat();
    check_repeats();
    check_ring();
    check_refused();
    return check_end("check_sampler_chain");
}
