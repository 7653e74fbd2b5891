/* engine/sampler/sampler_impl.h: the insides of a sampler, shared by its files: sampler.c (the usual chain),
 * sampler_order.c (candidates in order), sampler_chain.c (the samplers beyond it), sampler_repeat.c (what looks for
 * repetitions in the text so far). */
#ifndef KVANT_ENGINE_SAMPLER_SAMPLER_IMPL_H
#define KVANT_ENGINE_SAMPLER_SAMPLER_IMPL_H

#include "base/error.h"
#include "base/rng.h"
#include "kvant/engine.h"

typedef struct cand {
    float logit;
    int32_t id;
} cand;

struct kvant_sampler {
    kvant_sampler_params p;
    rng random;
    int n_vocab;
    int raises;              /* a bias or penalty may make a logit larger */
    float *bias;             /* by token; NULL: none */
    int32_t *count;          /* by token, in the window; NULL: no penalties */
    int32_t *seen, *seen_at; /* tokens with a count, and where each is in `seen` */
    int n_seen;
    int32_t *window; /* ring of the last accepted tokens; NULL: all count */
    int window_len, window_at;
    float *logits; /* with bias and penalties */
    cand *cands;
    /* The last draw chose among these, in `cands`; n_drawn 0: nothing was drawn, the first was taken. */
    const cand *drawn;
    int n_drawn;
    float drawn_max;
    double drawn_temp;
    /* sampler_repeat.c */
    int32_t *past; /* ring of the last accepted tokens; NULL: nobody looks back */
    int past_room, past_len, past_at;
    int32_t *match;         /* [past_room] */
    unsigned char *breaker; /* by token: no repetition goes across it */
    int32_t *longest;       /* by token: 1 + the longest of the repetitions that it would go on with; 0: none */
    double mu;              /* sampler_chain.c: mirostat's bound of the surprise, in bits */
};

/* ---- sampler.c ---- */
float sampler_bounded(double x);
/* One of c[n] with probability exp((logit - max) / temp); its place.  The order of c is the order of the draw. */
int sampler_draw(kvant_sampler *s, const cand *c, int n, float max, double temp);
/* For the last choice, `token`: its log-probability among the tokens that the samplers left, and the likeliest of these
 * (not those of probability 0).  top has room for n; returns how many there are. */
int sampler_left(const kvant_sampler *s, int32_t token, float *logprob, cand *top, int n);
int sampler_range(const char *name, float v, double lo, double hi, kvant_diag *diag);

/* ---- sampler_order.c ---- */
/* The order of everything: higher logit first, then lower id. */
int cand_before(cand a, cand b);
/* Heap of n with the first (worst 0) or the last (worst 1) of the order at its root; sift: but for i, which sinks. */
void cand_sift(cand *h, int n, int i, int worst);
void cand_heapify(cand *h, int n, int worst);
/* The first of the order first. */
void sampler_sort(cand *c, int n);
/* The finite logits, at most the first k of the order (k 0: all) -> s->cands; returns their number. */
int sampler_collect(kvant_sampler *s, const float *logits, int k);

/* ---- sampler_chain.c ---- */
/* 1: one of its samplers is on; then it chooses. */
int chain_is_on(const kvant_sampler_params *p);
int chain_check(const kvant_sampler_params *p, kvant_diag *diag);
/* A token of logits that have bias and penalties; -1: none is finite. */
int32_t chain_pick(kvant_sampler *s, const float *logits);

/* ---- sampler_repeat.c ---- */
int repeat_is_on(const kvant_sampler_params *p);
int repeat_check(const kvant_sampler_params *p, int n_vocab, kvant_diag *diag);
int repeat_alloc(kvant_sampler *s); /* 0: no memory */
void repeat_free(kvant_sampler *s);
void repeat_accept(kvant_sampler *s, int32_t token);
void repeat_penalise(kvant_sampler *s); /* s->logits */

#endif
