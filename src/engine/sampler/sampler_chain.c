/* sampler_chain.c: the samplers beyond the usual chain, in llama.cpp's order: top-n-sigma, top-k, typical, top-p,
 * min-p, XTC, temperature (fixed or by entropy), draw; or mirostat in place of all but the temperature.  Candidates are
 * sorted here, which is plain and takes longer than sampler.c's way: only for who asks for one of these. */
#include "engine/sampler/sampler_impl.h"

#include <math.h>
#include <string.h>

enum { MIROSTAT_LIKELIEST = 100 }; /* of which mirostat 1 estimates the slope: as in its paper */

static int typical_is_on(const kvant_sampler_params *p)
{
    return p->typical_p > 0 && p->typical_p < 1;
}

int chain_is_on(const kvant_sampler_params *p)
{
    return p->mirostat != 0 || p->top_n_sigma > 0 || typical_is_on(p) || p->xtc_probability > 0 ||
           p->dynatemp_range > 0;
}

int chain_check(const kvant_sampler_params *p, kvant_diag *diag)
{
    KVANT_TRY(sampler_range("typical_p", p->typical_p, 0, 1, diag));
    KVANT_TRY(sampler_range("top_n_sigma", p->top_n_sigma, -1, 1e6, diag));
    KVANT_TRY(sampler_range("xtc_probability", p->xtc_probability, 0, 1, diag));
    KVANT_TRY(sampler_range("xtc_threshold", p->xtc_threshold, 0, 1, diag));
    KVANT_TRY(sampler_range("dynatemp_range", p->dynatemp_range, 0, 1e6, diag));
    KVANT_TRY(sampler_range("dynatemp_exponent", p->dynatemp_exponent, 0, 1e6, diag));
    KVANT_TRY(sampler_range("mirostat_tau", p->mirostat_tau, 0, 1e6, diag));
    KVANT_TRY(sampler_range("mirostat_eta", p->mirostat_eta, 0, 1e6, diag));
    if (p->mirostat >= 0 && p->mirostat <= 2)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "mirostat: %d, want 0, 1 or 2", p->mirostat);
}

/* Sum of exp(logit - that of the first). */
static double total_of(const cand *c, int n)
{
    double total = 0;

    for (int i = 0; i < n; i++)
        total += exp((double)c[i].logit - (double)c[0].logit);
    return total;
}

static double prob(const cand *c, int i, double total)
{
    return exp((double)c[i].logit - (double)c[0].logit) / total;
}

/* In nats. */
static double entropy(const cand *c, int n, double total)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const double p = prob(c, i, total);
        sum -= p > 0 ? p * log(p) : 0;
    }
    return sum;
}

/* ---- what stays ---- */

/* Those within n standard deviations of the best; finite logits count. */
static int keep_sigma(const kvant_sampler *s, const float *logits, const cand *c, int n)
{
    double sum = 0, squares = 0;
    int count = 0, kept = 0;

    for (int i = 0; i < s->n_vocab; i++)
        if (isfinite(logits[i])) {
            sum += (double)logits[i];
            count++;
        }
    for (int i = 0; i < s->n_vocab; i++)
        if (isfinite(logits[i]))
            squares += ((double)logits[i] - sum / count) * ((double)logits[i] - sum / count);
    const double least = (double)c[0].logit - (double)s->p.top_n_sigma * sqrt(squares / count);
    while (kept < n && (double)c[kept].logit >= least)
        kept++;
    return kept > 0 ? kept : 1;
}

/* The tokens whose surprise is nearest to the entropy, until they have more than p of the probability.  Surprise grows
 * along the order, so that they are one stretch of it, which grows from where the surprise meets the entropy. */
static int keep_typical(const kvant_sampler *s, cand *c, int n)
{
    const double total = total_of(c, n), h = entropy(c, n, total);
    int first, last = 0; /* kept are first .. last - 1 */
    double sum = 0;

    while (last < n && -log(prob(c, last, total)) < h)
        last++;
    first = last;
    while (sum <= (double)s->p.typical_p && (first > 0 || last < n)) {
        const double above = first > 0 ? fabs(-log(prob(c, first - 1, total)) - h) : INFINITY;
        const double below = last < n ? fabs(-log(prob(c, last, total)) - h) : INFINITY;
        if (last >= n || above <= below)
            sum += prob(c, --first, total);
        else
            sum += prob(c, last++, total);
    }
    memmove(c, c + first, (size_t)(last - first) * sizeof *c);
    return last - first;
}

/* top-p and min-p: at least one. */
static int keep_likely(const kvant_sampler *s, const cand *c, int n)
{
    const double total = total_of(c, n), best = prob(c, 0, total);
    double sum = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && prob(c, i, total) < (double)s->p.min_p * best)
            return i;
        sum += prob(c, i, total);
        if (s->p.top_p < 1 && sum >= (double)s->p.top_p)
            return i + 1;
    }
    return n;
}

/* With its probability: of the tokens that reach the threshold only the least likely one. */
static int drop_likeliest(kvant_sampler *s, cand *c, int n)
{
    const double total = total_of(c, n);
    int reach = 0;

    if (s->p.xtc_probability <= 0 || s->p.xtc_threshold > 0.5f || n < 2 ||
        rng_unit(&s->random) > (double)s->p.xtc_probability)
        return n;
    while (reach < n && prob(c, reach, total) >= (double)s->p.xtc_threshold)
        reach++;
    if (reach < 2)
        return n;
    memmove(c, c + reach - 1, (size_t)(n - reach + 1) * sizeof *c);
    return n - reach + 1;
}

/* ---- temperature ---- */

static double temperature(const kvant_sampler *s, const cand *c, int n)
{
    const double mid = (double)s->p.temp, range = (double)s->p.dynatemp_range;

    if (range <= 0 || n < 2)
        return mid;
    const double low = mid > range ? mid - range : 0, share = entropy(c, n, total_of(c, n)) / log(n);
    return low + (mid + range - low) * pow(share, (double)s->p.dynatemp_exponent);
}

/* ---- mirostat: the next tokens' surprise is steered to tau bits ---- */

/* How many tokens are to be looked at, by Zipf's law with the slope of the likeliest. */
static int mirostat_size(const kvant_sampler *s, const cand *c, int n)
{
    double ti_bi = 0, ti_ti = 0;

    for (int i = 0; i < MIROSTAT_LIKELIEST - 1 && i < n - 1; i++) {
        const double t = log((i + 2.0) / (i + 1.0)), b = (double)c[i].logit - (double)c[i + 1].logit;
        ti_bi += t * b;
        ti_ti += t * t;
    }
    const double slope = ti_bi / ti_ti, e = slope - 1;
    const double k = pow(e * pow(2, s->mu) / (1 - pow(s->n_vocab, -e)), 1 / slope);
    return k >= n ? n : k >= 1 ? (int)k : 1; /* 1 too where the slope is 0 or 1 and k no number */
}

static int mirostat_keep(const kvant_sampler *s, const cand *c, int n)
{
    const double total = total_of(c, n);
    int kept = 0;

    if (s->p.mirostat == 1)
        return n > 1 ? mirostat_size(s, c, n) : n;
    while (kept < n && -log2(prob(c, kept, total)) <= s->mu)
        kept++;
    return kept > 0 ? kept : 1;
}

static int32_t mirostat_pick(kvant_sampler *s, cand *c, int n)
{
    for (int i = 0; i < n; i++)
        c[i].logit /= s->p.temp;
    n = mirostat_keep(s, c, n);
    const int at = sampler_draw(s, c, n, c[0].logit, 1);
    s->mu -= (double)s->p.mirostat_eta * (-log2(prob(c, at, total_of(c, n))) - (double)s->p.mirostat_tau);
    return c[at].id;
}

int32_t chain_pick(kvant_sampler *s, const float *logits)
{
    cand *c = s->cands;
    int n = sampler_collect(s, logits, s->p.mirostat ? 0 : s->p.top_k);

    if (n == 0)
        return -1;
    sampler_sort(c, n);
    if (s->p.mirostat)
        return s->p.temp > 0 ? mirostat_pick(s, c, n) : c[0].id;
    if (s->p.top_n_sigma > 0)
        n = keep_sigma(s, logits, c, n);
    if (typical_is_on(&s->p))
        n = keep_typical(s, c, n);
    n = keep_likely(s, c, n);
    n = drop_likeliest(s, c, n);
    const double temp = temperature(s, c, n);
    return temp > 0 ? c[sampler_draw(s, c, n, c[0].logit, temp)].id : c[0].id;
}
