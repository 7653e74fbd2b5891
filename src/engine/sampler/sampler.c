/* sampler.c: logits -> one token.  Owns the random state, the penalty window and one work buffer; nothing is allocated
 * after creation.
 *
 * Order, as llama.cpp's default chain: logit bias, penalties, top-k, top-p, min-p, temperature, pick.  top-p and min-p
 * look at the probabilities at temperature 1 of what top-k left, and both keep a prefix of the tokens sorted by logit:
 * one pass over that order serves both.  Equal logits: the lower id first, everywhere.
 *
 * Where top-k leaves at most KVANT_STEP_TOP tokens they are sorted first, so that a list that a device has sorted gives
 * the same sums and the same draw.
 *
 * Candidates are the tokens with a finite logit: NaN and infinite logits are left out, as is what a bias of -infinity
 * bans.  Sums are double, in a fixed order; a seed gives the same tokens on every machine with the same libm. */
#include "engine/engine.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include "base/abi/sized.h"
#include "base/mem.h"
#include "engine/sampler/sampler_impl.h"

enum {
    MAX_WINDOW = 1 << 24, /* tokens of penalty_last_n; arbitrary, beyond any context */
    MAX_VOCAB = 1 << 28
};

/* Finite stays finite: a huge penalty makes a token unlikely, only a bias of -infinity bans it. */
float sampler_bounded(double x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

static float bias_sum(float a, float b)
{
    return isinf(a) || isinf(b) ? -INFINITY : sampler_bounded((double)a + (double)b);
}

/* ---- creation ---- */

void kvant_sampler_params_init(kvant_sampler_params *p, size_t size)
{
    const kvant_sampler_params d = { .temp = 0.8f,
                                   .top_k = 40,
                                   .top_p = 0.95f,
                                   .min_p = 0.05f,
                                   .repeat_penalty = 1.0f,
                                   .penalty_last_n = 64,
                                   .typical_p = 1.0f,
                                   .xtc_threshold = 0.1f,
                                   .dynatemp_exponent = 1.0f,
                                   .mirostat_tau = 5.0f,
                                   .mirostat_eta = 0.1f,
                                   .dry_base = 1.75f,
                                   .dry_allowed_length = 2,
                                   .dry_last_n = 64 };

    params_give(p, size, &d, sizeof d);
}

int sampler_range(const char *name, float v, double lo, double hi, kvant_diag *diag)
{
    if (v >= lo && v <= hi) /* false for NaN */
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: %g, want %g to %g", name, (double)v, lo, hi);
}

static int check_bias(const kvant_sampler_params *p, int n_vocab, kvant_diag *diag)
{
    if (p->n_bias < 0 || (p->n_bias > 0 && (!p->bias_ids || !p->bias)))
        return kvant_fail(diag, KVANT_EINVAL, "n_bias: %d, want 0 or as many ids and values", p->n_bias);
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias_ids[i] < 0 || p->bias_ids[i] >= n_vocab)
            return kvant_fail(diag, KVANT_EINVAL, "bias_ids[%d]: token %d, want 0 to %d", i, p->bias_ids[i],
                              n_vocab - 1);
        if (isnan(p->bias[i]) || p->bias[i] > FLT_MAX)
            return kvant_fail(diag, KVANT_EINVAL, "bias[%d]: %g, want a finite number or -infinity", i,
                              (double)p->bias[i]);
    }
    return KVANT_OK;
}

static int check_params(const kvant_sampler_params *p, int n_vocab, kvant_diag *diag)
{
    if (n_vocab < 1 || n_vocab > MAX_VOCAB)
        return kvant_fail(diag, KVANT_EINVAL, "n_vocab: %d, want 1 to %d", n_vocab, MAX_VOCAB);
    KVANT_TRY(sampler_range("temp", p->temp, -FLT_MAX, FLT_MAX, diag));
    KVANT_TRY(sampler_range("top_p", p->top_p, 0, 1, diag));
    KVANT_TRY(sampler_range("min_p", p->min_p, 0, 1, diag));
    KVANT_TRY(sampler_range("repeat_penalty", p->repeat_penalty, FLT_MIN, FLT_MAX, diag));
    KVANT_TRY(sampler_range("presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX, diag));
    KVANT_TRY(sampler_range("frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX, diag));
    if (p->penalty_last_n < -1 || p->penalty_last_n > MAX_WINDOW)
        return kvant_fail(diag, KVANT_EINVAL, "penalty_last_n: %d, want -1 to %d", p->penalty_last_n, MAX_WINDOW);
    KVANT_TRY(chain_check(p, diag));
    KVANT_TRY(repeat_check(p, n_vocab, diag));
    return check_bias(p, n_vocab, diag);
}

static int has_penalties(const kvant_sampler_params *p)
{
    return p->penalty_last_n != 0 &&
           (p->repeat_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f);
}

static int alloc_parts(kvant_sampler *s)
{
    const size_t n = (size_t)s->n_vocab;

    s->logits = kvant_calloc(n, sizeof *s->logits);
    s->cands = kvant_calloc(n, sizeof *s->cands);
    if (!s->logits || !s->cands || !repeat_alloc(s))
        return 0;
    if (s->p.n_bias && !(s->bias = kvant_calloc(n, sizeof *s->bias)))
        return 0;
    if (!has_penalties(&s->p))
        return 1;
    s->count = kvant_calloc(n, sizeof *s->count);
    s->seen = kvant_calloc(n, sizeof *s->seen);
    s->seen_at = kvant_calloc(n, sizeof *s->seen_at);
    if (!s->count || !s->seen || !s->seen_at)
        return 0;
    if (s->p.penalty_last_n > 0)
        s->window = kvant_calloc((size_t)s->p.penalty_last_n, sizeof *s->window);
    return s->p.penalty_last_n < 0 || s->window;
}

int kvant_sampler_create(const kvant_sampler_params *params, int n_vocab, kvant_sampler **out, kvant_diag *diag)
{
    kvant_sampler_params own = kvant_sampler_defaults(), *p = &own;

    KVANT_TRY(params_take(p, sizeof *p, params, "kvant_sampler_params", diag));
    KVANT_TRY(check_params(p, n_vocab, diag));
    kvant_sampler *s = kvant_calloc(1, sizeof *s);
    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "sampler: out of memory");
    s->p = *p;
    s->n_vocab = n_vocab;
    s->random.state = p->seed;
    s->mu = 2 * (double)p->mirostat_tau;
    if (!alloc_parts(s)) {
        kvant_sampler_free(s);
        return kvant_fail(diag, KVANT_ENOMEM, "sampler: no memory for %d tokens", n_vocab);
    }
    s->raises = p->repeat_penalty < 1 || p->presence_penalty < 0 || p->frequency_penalty < 0;
    for (int i = 0; i < p->n_bias; i++)
        s->raises |= p->bias[i] > 0;
    for (int i = 0; i < p->n_bias; i++)
        s->bias[p->bias_ids[i]] = bias_sum(s->bias[p->bias_ids[i]], p->bias[i]);
    s->p.bias = NULL; /* the caller's arrays are not kept */
    s->p.bias_ids = s->p.dry_breakers = NULL;
    *out = s;
    return KVANT_OK;
}

void kvant_sampler_free(kvant_sampler *s)
{
    if (!s)
        return;
    kvant_free(s->bias);
    kvant_free(s->count);
    kvant_free(s->seen);
    kvant_free(s->seen_at);
    kvant_free(s->window);
    kvant_free(s->logits);
    kvant_free(s->cands);
    repeat_free(s);
    kvant_free(s);
}

/* ---- penalties ---- */

static void count_add(kvant_sampler *s, int32_t token)
{
    if (s->count[token] == 0) {
        s->seen_at[token] = s->n_seen;
        s->seen[s->n_seen++] = token;
    }
    if (s->count[token] < INT32_MAX)
        s->count[token]++;
}

static void count_drop(kvant_sampler *s, int32_t token)
{
    if (--s->count[token] > 0)
        return;
    int32_t last = s->seen[--s->n_seen];
    s->seen[s->seen_at[token]] = last;
    s->seen_at[last] = s->seen_at[token];
}

void kvant_sampler_accept(kvant_sampler *s, int32_t token)
{
    repeat_accept(s, token);
    if (!s->count || token < 0 || token >= s->n_vocab)
        return;
    if (s->window) {
        if (s->window_len == s->p.penalty_last_n)
            count_drop(s, s->window[s->window_at]);
        else
            s->window_len++;
        s->window[s->window_at] = token;
        s->window_at = (s->window_at + 1) % s->p.penalty_last_n;
    }
    count_add(s, token);
}

/* A logit of a token in the window. */
static float penalised(const kvant_sampler *s, int32_t token, float logit)
{
    double x = logit;

    if (!isfinite(x))
        return logit;
    x = x > 0 ? x / (double)s->p.repeat_penalty : x * (double)s->p.repeat_penalty;
    x -= (double)s->count[token] * (double)s->p.frequency_penalty + (double)s->p.presence_penalty;
    return sampler_bounded(x);
}

static void penalise(kvant_sampler *s)
{
    for (int i = 0; i < s->n_seen; i++)
        s->logits[s->seen[i]] = penalised(s, s->seen[i], s->logits[s->seen[i]]);
}

static const float *adjust(kvant_sampler *s, const float *logits)
{
    if (!s->bias && !s->n_seen && !s->past)
        return logits;
    for (int i = 0; i < s->n_vocab; i++) {
        float x = logits[i];
        if (s->bias && isfinite(x))
            x = bias_sum(x, s->bias[i]);
        s->logits[i] = x;
    }
    if (!s->p.mirostat)
        penalise(s);
    repeat_penalise(s);
    return s->logits;
}

/* ---- choosing ---- */

static float highest(const cand *c, int n)
{
    float max = c[0].logit;

    for (int i = 1; i < n; i++)
        max = c[i].logit > max ? c[i].logit : max;
    return max;
}

/* Keeps the prefix of the order that top-p and min-p allow, at least one; it ends at the array's end.  Returns its
 * length: the m kept are c[n-m .. n), the first of the order last. */
static int cut(const kvant_sampler *s, cand *c, int n, float max)
{
    const double floor_logit = s->p.min_p > 0 ? (double)max + log((double)s->p.min_p) : -INFINITY;
    double total = 0, sum = 0;
    int kept = 0;

    for (int i = 0; i < n; i++)
        total += exp((double)c[i].logit - (double)max);
    cand_heapify(c, n, 0);
    for (int left = n; left > 0;) {
        const cand first = c[0];
        if (kept > 0 && (double)first.logit < floor_logit)
            break;
        c[0] = c[--left];
        cand_sift(c, left, 0, 0);
        c[left] = first;
        kept++;
        sum += exp((double)first.logit - (double)max) / total;
        if (s->p.top_p < 1 && sum >= (double)s->p.top_p)
            break;
    }
    return kept;
}

int sampler_draw(kvant_sampler *s, const cand *c, int n, float max, double temp)
{
    double total = 0, sum = 0;
    int last = 0;

    s->drawn = c;
    s->n_drawn = n;
    s->drawn_max = max;
    s->drawn_temp = temp;
    for (int i = 0; i < n; i++)
        total += exp(((double)c[i].logit - (double)max) / temp);
    const double u = rng_unit(&s->random) * total;
    for (int i = 0; i < n; i++) {
        const double p = exp(((double)c[i].logit - (double)max) / temp);
        sum += p;
        if (p > 0)
            last = i;
        if (sum > u)
            break;
    }
    return last;
}

int sampler_left(const kvant_sampler *s, int32_t token, float *logprob, cand *top, int n)
{
    double total = 0;
    int have = 0;

    *logprob = 0;
    if (s->n_drawn == 0 && n > 0)
        top[have++] = (cand){ 0, token };
    for (int i = 0; i < s->n_drawn; i++)
        total += exp(((double)s->drawn[i].logit - (double)s->drawn_max) / s->drawn_temp);
    for (int i = 0; i < s->n_drawn; i++) {
        const cand c = s->drawn[i];
        const cand p = { (float)(((double)c.logit - (double)s->drawn_max) / s->drawn_temp - log(total)), c.id };
        if (c.id == token)
            *logprob = p.logit;
        if (n == 0 || exp((double)p.logit) <= 0 || (have == n && !cand_before(p, top[n - 1])))
            continue;
        int k = have < n ? have++ : n - 1;
        for (; k > 0 && cand_before(p, top[k - 1]); k--)
            top[k] = top[k - 1];
        top[k] = p;
    }
    return have;
}

int32_t sampler_argmax(const float *logits, int n)
{
    int32_t best = -1;

    for (int i = 0; i < n; i++)
        if (isfinite(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    return best;
}

/* One of the n candidates, by top-p, min-p and the draw. */
static int32_t choose(kvant_sampler *s, int n)
{
    cand *c = s->cands;
    const float max = highest(c, n);

    if (s->p.top_p < 1 || s->p.min_p > 0) {
        const int kept = cut(s, c, n, max);
        c += n - kept;
        n = kept;
    }
    return c[sampler_draw(s, c, n, max, (double)s->p.temp)].id;
}

static int few(const kvant_sampler *s)
{
    return s->p.top_k > 0 && s->p.top_k <= KVANT_STEP_TOP;
}

/* The most tokens whose logits a bias or penalties lower; -1: they may raise some, or lower any number. */
static int most_lowered(const kvant_sampler *s)
{
    if (s->raises || (s->count && !s->window))
        return -1;
    return (s->bias ? s->p.n_bias : 0) + (s->count ? s->p.penalty_last_n : 0);
}

/* If at most m logits are lowered, the k largest of all are among the k + m that were the largest before. */
int kvant_sampler_wants(const kvant_sampler *s)
{
    const int lowered = most_lowered(s), greedy = s->p.temp <= 0, k = greedy ? 1 : s->p.top_k;

    if (s->past || chain_is_on(&s->p) || lowered < 0 || lowered > KVANT_STEP_TOP - k || (!greedy && !few(s)))
        return KVANT_LOGITS_LAST;
    return greedy && lowered == 0 ? KVANT_LOGITS_GREEDY : KVANT_LOGITS_TOP;
}

/* n logits with bias and penalties -> s->cands, in order, without those that are not finite; returns their number. */
static int lower(kvant_sampler *s, const float *logits, const int32_t *ids, int n)
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        float x = logits[i];
        if (s->bias && isfinite(x))
            x = bias_sum(x, s->bias[ids[i]]);
        if (s->count && s->count[ids[i]] > 0)
            x = penalised(s, ids[i], x);
        s->cands[kept] = (cand){ x, ids[i] };
        kept += isfinite(x) != 0;
    }
    sampler_sort(s->cands, kept);
    return kept;
}

static int none_finite(const kvant_sampler *s, int logits_were, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_ENUMERIC, "logits: none of %d is finite%s", s->n_vocab,
                      logits_were ? " after the logit bias or no_repeat_ngram, which bans every token" : "");
}

int kvant_sampler_pick_top(kvant_sampler *s, const float *logits, const int32_t *ids, int n, int32_t *token,
                           kvant_diag *diag)
{
    const int k = s->p.temp <= 0 ? 1 : s->p.top_k, lowered = most_lowered(s);
    int most = k < s->n_vocab ? k : s->n_vocab;

    if (kvant_sampler_wants(s) == KVANT_LOGITS_LAST)
        return kvant_fail(diag, KVANT_EINVAL, "sampler: penalties, a bias, or top_k %d: all logits are wanted",
                          s->p.top_k);
    const int need = most + lowered < s->n_vocab ? most + lowered : s->n_vocab;
    s->n_drawn = 0;
    if (n < need)
        return kvant_fail(diag, KVANT_EINVAL, "sampler: %d logits, wanted the %d largest", n, need);
    if (lowered > 0) {
        const int kept = lower(s, logits, ids, need);
        if (kept == 0)
            return none_finite(s, 1, diag);
        most = kept < most ? kept : most;
    } else {
        for (int i = 0; i < most; i++)
            s->cands[i] = (cand){ logits[i], ids[i] };
    }
    *token = s->p.temp <= 0 ? s->cands[0].id : choose(s, most);
    return KVANT_OK;
}

int kvant_sampler_pick(kvant_sampler *s, const float *logits, int32_t *token, kvant_diag *diag)
{
    const float *x = adjust(s, logits);

    s->n_drawn = 0;
    if (chain_is_on(&s->p)) {
        if ((*token = chain_pick(s, x)) < 0)
            goto none;
        return KVANT_OK;
    }
    if (s->p.temp <= 0) {
        const int32_t best = sampler_argmax(x, s->n_vocab);
        if (best < 0)
            goto none;
        *token = best;
        return KVANT_OK;
    }
    int n = sampler_collect(s, x, s->p.top_k);
    if (n == 0)
        goto none;
    if (few(s))
        sampler_sort(s->cands, n);
    *token = choose(s, n);
    return KVANT_OK;
none:
    return none_finite(s, sampler_argmax(logits, s->n_vocab) >= 0, diag);
}

int kvant_step_sample(const kvant_engine *e, int item, kvant_sampler *s, int32_t *token, kvant_diag *diag)
{
    return kvant_step_sample_row(e, item, 0, s, token, diag);
}

int kvant_step_sample_row(const kvant_engine *e, int item, int row, kvant_sampler *s, int32_t *token,
                          kvant_diag *diag)
{
    const float *all = kvant_step_logits(e, item, row), *top;
    const int32_t *ids;

    if (engine_row_code(e, item, row) < 0)
        return kvant_fail(diag, KVANT_ENUMERIC, "item %d: logits of row %d are not finite", item, row);
    if (all)
        return kvant_sampler_pick(s, all, token, diag);
    const int n = engine_row_top(e, item, row, &top, &ids);
    if (n > 0)
        return kvant_sampler_pick_top(s, top, ids, n, token, diag);
    *token = engine_row_token(e, item, row);
    return *token >= 0 ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "item %d: it asked for no logits", item);
}
