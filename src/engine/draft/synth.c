/* synth.c: see synth.h. */
#include "engine/draft/synth.h"

#include "engine/session_impl.h"

int synth_from_rates(const double *rates, int n, draft_synth *out, kvant_diag *diag)
{
    double before = 1;

    *out = (draft_synth){ .n = n };
    for (int i = 0; i < n; before = rates[i++]) {
        if (!(rates[i] >= 0 && rates[i] <= 1))
            return kvant_fail(diag, KVANT_EINVAL, "rate %d: found %g, wanted 0 to 1", i + 1, rates[i]);
        if (rates[i] > before)
            return kvant_fail(diag, KVANT_EINVAL, "rate %d: found %g, wanted at most %g, the one before", i + 1,
                              rates[i], before);
        out->chance[i] = before > 0 ? rates[i] / before : 0;
    }
    return KVANT_OK;
}

draft_synth synth_of_chance(double chance, int n)
{
    draft_synth s = { .n = n };

    for (int i = 0; i < n; i++)
        s.chance[i] = chance;
    return s;
}

double synth_length(const draft_synth *s)
{
    double sum = 1, p = 1;

    for (int i = 0; i < s->n; i++)
        sum += p *= s->chance[i];
    return sum;
}

int synth_from_length(double length, int n, draft_synth *out, kvant_diag *diag)
{
    double lo = 0, hi = 1;

    if (!(length >= 1 && length <= n + 1))
        return kvant_fail(diag, KVANT_EINVAL, "found %g tokens, wanted 1 to %d", length, n + 1);
    for (int i = 0; i < 53; i++) { /* bits of a double */
        const double mid = 0.5 * (lo + hi);
        const draft_synth s = synth_of_chance(mid, n);
        *(synth_length(&s) < length ? &lo : &hi) = mid;
    }
    *out = synth_of_chance(length > 1 ? hi : 0, n);
    return KVANT_OK;
}

int synth_takes(const draft_synth *s, int place, rng *r)
{
    return rng_unit(r) < s->chance[place];
}

void synth_set(kvant_session *session, const draft_synth *s)
{
    session->drafts.synth = *s;
}
