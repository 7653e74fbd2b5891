/* text/tokenizer_unigram.h: SentencePiece's unigram vocabularies (tokenizer.ggml.model = t5): the pieces whose
 * scores add up to most, after a normalisation that the file brings.  Internal to tokenizer*.c; immutable once open. */
#ifndef KVANT_TEXT_TOKENIZER_UNIGRAM_H
#define KVANT_TEXT_TOKENIZER_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"
#include "text/pretok.h"
#include "text/tokenizer_vocab.h"

/* A trie over the normal tokens; node 0 is the root, the children of a node lie side by side, by byte. */
typedef struct unigram_node {
    uint32_t first;
    int32_t id; /* of the token that ends here, -1 none */
    uint16_t n;
    uint8_t byte;
} unigram_node;

/* precompiled_charsmap: a double array (Darts-clone's) from texts to places in `texts`, which ends in NUL. */
typedef struct charsmap {
    uint32_t *units, n_units; /* none: texts stay as they are */
    char *texts;
    size_t n_texts;
} charsmap;

typedef struct unigram {
    float *scores; /* v->n */
    double unknown;
    unigram_node *nodes;
    uint32_t n_nodes, cap_nodes;
    charsmap map;
    int squeeze; /* spaces around a text go, runs of them become one */
} unigram;

/* Room of one call: by place in the word, what ends there. */
typedef struct unigram_work {
    double *sum;
    uint32_t *from;
    int32_t *id; /* -1: a character without token */
    size_t cap;
} unigram_work;

/* Reads the scores and precompiled_charsmap.  KVANT_EFORMAT: scores that are not finite, one per token; a map that is
 * cut short, or has texts of more than 256 bytes. */
int unigram_read(unigram *u, const vocab *v, const gguf *g, kvant_diag *diag);
/* After vocab_finish: the trie over the tokens that are still normal. */
int unigram_finish(unigram *u, const vocab *v, kvant_diag *diag);
void unigram_free(unigram *u);
/* text[len] as the map has it, U+2581 for each space, one before it where `prefix` -> out.  KVANT_EINVAL: it would be
 * longer than a GiB; KVANT_ENOMEM. */
int unigram_normalise(const unigram *u, const char *text, size_t len, int prefix, pretok_buf *out, kvant_diag *diag);
/* The best cut of s[n], valid UTF-8, n >= 1 -> w: its first piece ends at from[0], the next at from[from[0]], and
 * so on to n; a piece that ends at i is token id[i].  Time O(n * longest token), 16 bytes of memory per byte. */
int unigram_cut(const unigram *u, unigram_work *w, const char *s, size_t n);
void unigram_work_free(unigram_work *w);

/* ---- charsmap ---- */

int charsmap_read(charsmap *m, const gguf *g, kvant_diag *diag);
/* The longest text of the map that s[n] begins with: its length, and what stands for it; 0: none. */
size_t charsmap_find(const charsmap *m, const char *s, size_t n, const char **text);

enum { CHARSMAP_MAX_TEXT = 256 };

#endif
