/* server/grammar/grammar_vocab.h: a vocabulary sorted by bytes, with the length that each token shares with the one
 * before. */
#ifndef KVANT_SERVER_GRAMMAR_VOCAB_H
#define KVANT_SERVER_GRAMMAR_VOCAB_H

#include "server/grammar/grammar.h"

enum { GRAMMAR_MAX_TOKEN = 4096 }; /* bytes of one token's text */

struct grammar_vocab {
    int n, n_sorted, n_eog;
    int64_t walk; /* units of work (grammar.h) to try every token: how many there are, and their bytes */
    int32_t *ids, *eog; /* [n_sorted] in byte order; [n_eog] end tokens */
    int32_t *at;        /* [n] index in the sorted order; -1: no text (control tokens) */
    size_t *off;
    int *len, *common;
    unsigned char *bytes;
};

#endif
