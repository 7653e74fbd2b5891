/* text/tokenizer_vocab.h: the token texts: reading and checking them, finding them, finding special ones in a
 * text. Internal to tokenizer*.c.  Immutable once opened. */
#ifndef KVANT_TEXT_TOKENIZER_VOCAB_H
#define KVANT_TEXT_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"
#include "text/added/added.h"
#include "text/normal/normal.h"

enum vocab_kind { VOCAB_NORMAL = 1, VOCAB_UNKNOWN, VOCAB_CONTROL, VOCAB_USER, VOCAB_UNUSED, VOCAB_BYTE };

typedef struct vocab_token {
    uint32_t at, len; /* raw text as stored: byte alphabet for normal tokens, plain for the others */
    uint8_t kind, eog;
    uint8_t made;  /* a merge makes it: set while the merges are read */
    uint8_t flags; /* ADDED_* */
    uint8_t twin;  /* its text is another id's too, which stands for it: never made from text, but written */
} vocab_token;

typedef struct vocab {
    vocab_token *tokens;
    uint32_t n;
    char *text;      /* all raw texts, one after another */
    uint32_t *slots; /* open addressing by raw text: id + 1, 0 empty */
    uint32_t mask;
    int raw;              /* texts are as they are, U+2581 for the space; else in the byte alphabet */
    uint32_t longest;     /* bytes of the longest raw text */
    int32_t byte_id[256]; /* token of a single byte, -1 none */
    added_trie special[ADDED_SETS];
} vocab;

/* Reads tokens and token_type; raw: as the field; rows: the model has so many, 0: any number.  Empty and duplicate
 * texts, unknown types, a list of types of another length, added tokens beyond the rows: a warning.  KVANT_EFORMAT:
 * texts that are too long, other tokens beyond the rows. */
int vocab_open(vocab *v, const gguf *g, int raw, int rows, kvant_diag *diag);
/* After the merges are known: settles which tokens are special and builds the tries; change: what is done to a text
 * before those are looked for that are ADDED_NORMALIZED. */
int vocab_finish(vocab *v, const normal *change, kvant_diag *diag);
/* Control and unknown tokens: never made from text. */
int vocab_is_control(const vocab *v, int32_t id);
/* These, and user-defined tokens that are a part of the chat's format. */
int vocab_is_format(const vocab *v, int32_t id);
void vocab_close(vocab *v);
int32_t vocab_find(const vocab *v, const char *text, size_t len); /* -1: none */
/* 1: a token of this text ends an answer whatever the file says. */
int vocab_is_known_end(const char *s, size_t n);
/* A text from a file, made safe to print. */
const char *vocab_show(const char *s, size_t n, char *buf, size_t cap);

/* ---- tokenizer_bytes.c ---- */
/* The byte alphabet of GPT-2: every byte as one or two bytes of UTF-8.  Returns the number written to out[2]. */
int vocab_alphabet(uint8_t byte, char *out);
/* Byte of a token of kind byte, "<0x0A>"; -1 if it is written otherwise. */
int vocab_byte(const vocab *v, const vocab_token *t);
/* Bytes that token id stands for -> buf[cap], as tokenizer_bytes; returns their number. */
int vocab_bytes(const vocab *v, int32_t id, int special, char *buf, int cap);

#endif
