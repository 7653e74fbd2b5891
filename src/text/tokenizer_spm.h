/* text/tokenizer_spm.h: vocabularies of characters, with U+2581 for the space (SentencePiece's).  Internal to
 * tokenizer*.c.  Knows how characters become symbols and where a text may be cut; merging is tokenizer_bpe.c's. */
#ifndef KVANT_TEXT_TOKENIZER_SPM_H
#define KVANT_TEXT_TOKENIZER_SPM_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_vocab.h"

/* Symbols: the ids of the vocabulary, then the characters that are parts of tokens and no tokens themselves, then one
 * for all other characters. */
typedef struct spm {
    uint32_t *chars; /* code points, ascending */
    uint32_t n_chars;
    int cut_each;              /* every space begins a word, whatever the tokens are */
    int cut_spaces, cut_lines; /* no token has a space (a line end) after (next to) anything else */
} spm;

#define SPM_SPACE "\xe2\x96\x81"

/* The scores' merges: two symbols whose joint text is a token, the best score first, the leftmost among equals. */
int spm_merges(spm *s, bpe *b, vocab *v, const gguf *g, kvant_diag *diag);
/* Finds the places where texts may be cut: after vocab_open. */
void spm_find_cuts(spm *s, const vocab *v);
void spm_free(spm *s);
/* The symbol of one character c[len]. */
uint32_t spm_symbol(const spm *s, const vocab *v, const char *c, size_t len);
/* The word that begins at text[at], at < len: where it ends.  No merge reaches over that place. */
size_t spm_word(const spm *s, const char *text, size_t len, size_t at);
/* text[len] -> out: U+2581 for each space, one more before it where `prefix`.  out holds 3 * (len + 1) bytes. */
size_t spm_spaces(const char *text, size_t len, int prefix, char *out);

#endif
