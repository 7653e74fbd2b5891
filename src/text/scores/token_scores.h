/* text/scores/token_scores.h: tokenizer.ggml.scores, which order the merges of a SentencePiece BPE and are the
 * logarithms of a unigram model's probabilities. */
#ifndef KVANT_TEXT_TOKEN_SCORES_H
#define KVANT_TEXT_TOKEN_SCORES_H

#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"

/* n scores, the caller's to free.  A list of another length: a warning, and the rest come last; none at all: the order
 * of the tokens, or where they are required KVANT_EFORMAT. */
int scores_read(const gguf *g, uint32_t n, int required, float **out, kvant_diag *diag);

#endif
