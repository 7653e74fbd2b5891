/* text/tokenizer.h: byte-level BPE behind the pre-tokenizers of pretok_table.c, and BPE of characters
 * by score (SentencePiece) or rank.
 * Built from a gguf's tokenizer.ggml.* keys; immutable afterwards, any thread.  Public face: kvant/engine.h. */
#ifndef KVANT_TEXT_TOKENIZER_H
#define KVANT_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"

typedef struct tokenizer tokenizer;

/* Longest token text in bytes that a file may have, so that a caller's buffer can be fixed.  Arbitrary; vocabularies in
 * use stay below 1024. */
enum { TOKENIZER_MAX_TEXT = 4096 };

int tokenizer_open(const gguf *g, tokenizer **out, kvant_diag *diag);
/* As tokenizer_open, for a model whose embedding has so many rows: added tokens beyond them are left out. */
int tokenizer_open_rows(const gguf *g, int rows, tokenizer **out, kvant_diag *diag);
void tokenizer_close(tokenizer *t);
int tokenizer_count(const tokenizer *t); /* tokens in the vocabulary */
/* As kvant_tokenize; flags KVANT_TOK_*. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t len, int flags, int32_t *ids, int cap, int *n,
                     kvant_diag *diag);
int tokenizer_bytes(const tokenizer *t, int32_t id, int special, char *buf, int cap);
int tokenizer_is_eog(const tokenizer *t, int32_t id);
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
int tokenizer_add_bos(const tokenizer *t);
int tokenizer_add_eos(const tokenizer *t);
/* A text of which origin[i] says where byte i comes from (enum jinja_origin): control tokens and the marks of the
 * chat's format are made from the template's own text alone.  BOS where the file asks for it, unless the text begins
 * with it. */
int tokenizer_encode_marked(const tokenizer *t, const char *text, size_t len, const uint8_t *origin, int32_t *ids,
                            int cap, int *n, kvant_diag *diag);
/* Bytes of the BOS that such a text begins with; 0: it does not. */
size_t tokenizer_leading_bos(const tokenizer *t, const char *text, size_t len, const uint8_t *origin);

#endif
