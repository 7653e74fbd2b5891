/* engine/draft/draft_ngram.h: guesses the next tokens of a text from the text itself: where its last tokens stood
 * before, what came behind them comes again.  Edits of code and long quotations are such texts; others cost a hash per
 * token.
 *
 * Grams of DRAFT_GRAM tokens are chained by hash, the latest first.  Memory: some 8 bytes a token.  One thread. */
#ifndef KVANT_ENGINE_DRAFT_DRAFT_NGRAM_H
#define KVANT_ENGINE_DRAFT_DRAFT_NGRAM_H

#include <stdint.h>

enum { DRAFT_GRAM = 3, DRAFT_GRADES = 4 };

typedef struct draft_ngram {
    int32_t *head;                 /* [room] by hash: the last token of the latest gram, -1: none */
    int32_t *prev;                 /* [room] by place of a gram's last token: the gram of this hash before it */
    int room, n;                   /* a power of 2; tokens taken in */
} draft_ngram;

/* A guess: n tokens, and how well it was founded: 0 .. DRAFT_GRADES - 1, by the tokens that agree. */
typedef struct draft_guess {
    int n, grade;
} draft_guess;

/* tokens[n], which begin with those of the last call -> at most k tokens behind them, in out.  Without memory there is
 * no guess. */
draft_guess draft_ngram_propose(draft_ngram *g, const int32_t *tokens, int n, int32_t *out, int k);
void draft_ngram_free(draft_ngram *g);

#endif
