/* engine/sampler/sampler_words.h: samplers as llama.cpp's programs and requests name them: which of them run, and the
 * texts that end DRY's repetitions. */
#ifndef KVANT_ENGINE_SAMPLER_SAMPLER_WORDS_H
#define KVANT_ENGINE_SAMPLER_SAMPLER_WORDS_H

#include "kvant/engine.h"

/* All names, in their order, for messages. */
#define SAMPLER_NAMES "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature"

/* Switches off what names[n] (names, or llama.cpp's letters) does not have.  Returns -1, or the first item that is no
 * name or not in order; then p is unchanged.  NULL is no name. */
int sampler_only(kvant_sampler_params *p, const char *const *names, int n);

enum { SAMPLER_BREAKERS = 32 };
extern const char *const sampler_usual_breakers[4]; /* llama.cpp's */
/* A breaker is one character: longer texts may begin in one token and end in the next. */
int sampler_is_breaker(const char *text);
/* Tokens whose text has one of texts[n] (each a breaker) -> ids[n_vocab]; returns how many. */
int sampler_find_breakers(const kvant_model *m, const char *const *texts, int n, int32_t *ids);

#endif
