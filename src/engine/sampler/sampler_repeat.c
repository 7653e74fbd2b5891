/* sampler_repeat.c: samplers that look for repetitions in the text so far: DRY, whose penalty grows with the length of
 * what a token would repeat, and the ban of n-grams that were there. */
#include "engine/sampler/sampler_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include "base/mem.h"

enum { MOST_PAST = 1 << 24, MOST_NGRAM = 1 << 16 };

static int dry_is_on(const kvant_sampler_params *p)
{
    return p->dry_multiplier > 0 && p->dry_last_n != 0 && p->mirostat == 0;
}

int repeat_is_on(const kvant_sampler_params *p)
{
    return dry_is_on(p) || p->no_repeat_ngram > 0;
}

static int in_range(const char *name, int v, int lo, int hi, kvant_diag *diag)
{
    return v >= lo && v <= hi ? KVANT_OK
                              : kvant_fail(diag, KVANT_EINVAL, "%s: %d, want %d to %d", name, v, lo, hi);
}

int repeat_check(const kvant_sampler_params *p, int n_vocab, kvant_diag *diag)
{
    KVANT_TRY(sampler_range("dry_multiplier", p->dry_multiplier, 0, FLT_MAX, diag));
    KVANT_TRY(in_range("no_repeat_ngram", p->no_repeat_ngram, 0, MOST_NGRAM, diag));
    KVANT_TRY(in_range("dry_last_n", p->dry_last_n, -1, MOST_PAST, diag));
    if (p->no_repeat_ngram > 0 || (dry_is_on(p) && p->dry_last_n < 0))
        KVANT_TRY(in_range("context", p->context, 1, MOST_PAST, diag));
    if (!dry_is_on(p))
        return KVANT_OK;
    KVANT_TRY(sampler_range("dry_base", p->dry_base, 1, FLT_MAX, diag));
    KVANT_TRY(in_range("dry_allowed_length", p->dry_allowed_length, 0, MOST_PAST, diag));
    KVANT_TRY(in_range("n_dry_breakers", p->n_dry_breakers, 0, p->dry_breakers ? n_vocab : 0, diag));
    for (int i = 0; i < p->n_dry_breakers; i++)
        KVANT_TRY(in_range("dry_breakers", p->dry_breakers[i], 0, n_vocab - 1, diag));
    return KVANT_OK;
}

int repeat_alloc(kvant_sampler *s)
{
    const kvant_sampler_params *p = &s->p;
    const size_t v = (size_t)s->n_vocab;

    if (!repeat_is_on(p))
        return 1;
    s->past_room = p->no_repeat_ngram > 0 || p->dry_last_n < 0 ? p->context : p->dry_last_n;
    s->past_room = s->past_room > p->dry_last_n ? s->past_room : p->dry_last_n;
    s->past = kvant_calloc((size_t)s->past_room, sizeof *s->past);
    s->match = kvant_calloc((size_t)s->past_room, sizeof *s->match);
    s->breaker = kvant_calloc(v, 1);
    s->longest = kvant_calloc(v, sizeof *s->longest);
    for (int i = 0; s->breaker && dry_is_on(p) && i < p->n_dry_breakers; i++)
        s->breaker[p->dry_breakers[i]] = 1;
    return s->past && s->match && s->breaker && s->longest;
}

void repeat_free(kvant_sampler *s)
{
    kvant_free(s->past);
    kvant_free(s->match);
    kvant_free(s->breaker);
    kvant_free(s->longest);
}

void repeat_accept(kvant_sampler *s, int32_t token)
{
    if (!s->past || token < 0 || token >= s->n_vocab)
        return;
    s->past[s->past_at] = token;
    s->past_at = (s->past_at + 1) % s->past_room;
    s->past_len += s->past_len < s->past_room;
}

/* The i-th token from the end, 0 the last. */
static int32_t back(const kvant_sampler *s, int i)
{
    const int at = s->past_at - 1 - i;

    return s->past[at < 0 ? at + s->past_room : at];
}

/* match[k]: how many tokens before the k-th from the end, with it, are those at the end, at most `most`.  Linear: what
 * is known of an earlier match [left, right) serves for the places in it. */
static void find_matches(kvant_sampler *s, int n, int most)
{
    int left = 0, right = 0; /* right: one past it */

    for (int k = 1; k < n; k++) {
        int m = k < right ? (s->match[k - left] < right - k ? s->match[k - left] : right - k) : 0;
        while (k + m < n && back(s, m) == back(s, k + m))
            m++;
        s->match[k] = m;
        if (k + m > right) {
            left = k;
            right = k + m;
        }
    }
    for (int k = 1; k < n; k++)
        s->match[k] = s->match[k] < most ? s->match[k] : most;
}

static void penalise_repeat(kvant_sampler *s, int32_t token)
{
    const double beyond = s->longest[token] - 1 - s->p.dry_allowed_length;
    const double penalty = (double)s->p.dry_multiplier * pow((double)s->p.dry_base, beyond);

    s->longest[token] = 0;
    if (isfinite(s->logits[token]))
        s->logits[token] = sampler_bounded((double)s->logits[token] - (penalty < FLT_MAX ? penalty : FLT_MAX));
}

/* A token that would go on with a repetition of at least the allowed length. */
static void penalise_dry(kvant_sampler *s)
{
    const int last_n = s->p.dry_last_n < 0 ? s->past_room : s->p.dry_last_n;
    const int n = s->past_len < last_n ? s->past_len : last_n, allowed = s->p.dry_allowed_length;
    int most = 0;

    while (most < n && !s->breaker[back(s, most)])
        most++;
    if (n <= allowed || most < allowed)
        return;
    find_matches(s, n, most);
    for (int k = 1; k < n; k++) {
        const int32_t next = back(s, k - 1);
        if (s->match[k] >= allowed && s->longest[next] <= s->match[k])
            s->longest[next] = s->match[k] + 1;
    }
    for (int k = 1; k < n; k++) {
        const int32_t next = back(s, k - 1);
        if (s->longest[next] > 0 && s->breaker[next])
            s->longest[next] = 0;
        if (s->longest[next] > 0)
            penalise_repeat(s, next);
    }
}

/* A token that would complete n tokens that were there already. */
static void ban_ngrams(kvant_sampler *s)
{
    const int n = s->p.no_repeat_ngram;

    for (int k = 1; k + n - 1 <= s->past_len; k++) {
        int same = 0;
        while (same < n - 1 && back(s, same) == back(s, k + same))
            same++;
        if (same == n - 1)
            s->logits[back(s, k - 1)] = -INFINITY;
    }
}

void repeat_penalise(kvant_sampler *s)
{
    if (dry_is_on(&s->p))
        penalise_dry(s);
    if (s->p.no_repeat_ngram > 0)
        ban_ngrams(s);
}
