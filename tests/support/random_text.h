/* tests/support/random_text.h: short random texts for the tokenizer's tests. */
#ifndef KVANT_TESTS_RANDOM_TEXT_H
#define KVANT_TESTS_RANDOM_TEXT_H

#include <stddef.h>
#include "base/rng.h"

/* Words, spaces, marks, emoji, control-token texts and, with `bad`, bytes that are not UTF-8 -> out[cap]; returns the
 * length. */
size_t random_text(rng *r, char *out, size_t cap, int bad);

#endif
