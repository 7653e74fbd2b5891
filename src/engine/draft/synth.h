/* engine/draft/synth.h: drafts that are accepted by stated chances instead of by the text: what steps cost at an
 * acceptance that no drafter at hand has.  The texts of such a session are not the model's: accepted drafts stand in
 * them whatever the model says of them.  For measurements alone (bench --spec-accept, --spec-synth-rates, as in
 * llama-server). */
#ifndef KVANT_ENGINE_DRAFT_SYNTH_H
#define KVANT_ENGINE_DRAFT_SYNTH_H

#include "base/rng.h"
#include "kvant/session.h"

typedef struct draft_synth {
    double chance[KVANT_MOST_DRAFTS]; /* of the draft at each place, once those before it are accepted */
    int n;                            /* places; 0: the text decides */
} draft_synth;

/* rates[n]: how often all drafts up to each place are accepted.  KVANT_EINVAL names the place: wanted are 0 to 1, none
 * above the one before. */
int synth_from_rates(const double *rates, int n, draft_synth *out, kvant_diag *diag);
/* One chance for n places, such that a step brings so many tokens on average, the model's own included.
 * KVANT_EINVAL: not 1 to n + 1. */
int synth_from_length(double length, int n, draft_synth *out, kvant_diag *diag);
/* One chance for all places. */
draft_synth synth_of_chance(double chance, int n);
/* Tokens of a step on average. */
double synth_length(const draft_synth *s);
/* 1: the draft at this place is accepted. */
int synth_takes(const draft_synth *s, int place, rng *r);
/* Before the first submit. */
void synth_set(kvant_session *session, const draft_synth *s);

#endif
