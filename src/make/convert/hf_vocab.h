/* make/convert/hf_vocab.h: the vocabulary of a model's folder -> tokenizer.ggml.*.
 *
 * tokenizer.model (SentencePiece) where there is one, else tokenizer.json (byte-level BPE). */
#ifndef KVANT_MAKE_CONVERT_HF_VOCAB_H
#define KVANT_MAKE_CONVERT_HF_VOCAB_H

#include <stdint.h>
#include "base/error.h"
#include "base/text/json.h"
#include "make/convert/vocab/hf_rules.h"
#include "make/gguf/gguf_keys.h"

enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

typedef struct hf_vocab_token {
    const char *s; /* NULL: no such id yet */
    size_t n;
    float score;
    int type;
    uint8_t flags, is_added; /* ADDED_* */
} hf_vocab_token;

/* The contents of a folder's files. */
typedef struct hf_vocab {
    const char *folder;
    char *text, *config_text; /* of tokenizer.json, tokenizer_config.json */
    gjson json, config;       /* absent where the file is */
    char *names;              /* the bytes of the tokens */
    size_t n_names, cap_names;
    hf_vocab_token *tokens;
    uint32_t n;      /* what config.json says (vocab_size); ids without a token are [PADid] */
    const char *pre; /* asked for, or found by what tokenizer.json does */
    int spm;
    /* Unigram models: spaces before and in a text, and the map of its characters, among the names. */
    struct {
        int on, space_prefix, squeeze;
        const char *map;
        size_t n_map;
    } unigram;
    int characters; /* tokens of characters, with bytes to fall back on, merged by rank: "gemma4" */
    hf_rules rules;
} hf_vocab;

int hf_vocab_open(const char *folder, uint32_t size, const char *pre, int characters, hf_vocab *v, kvant_diag *diag);
void hf_vocab_close(hf_vocab *v);
/* model, pre, tokens, scores, token_type. */
int hf_vocab_put(const hf_vocab *v, gguf_keys *k);
/* merges, the special tokens, what is added to a text, the chat template.  root: config.json; names: pairs of a kind
 * and a token that the architecture has it be unless the files say otherwise, NULL after the last. */
int hf_vocab_put_special(const hf_vocab *v, gjson root, const char *const *names, gguf_keys *k, kvant_diag *diag);

/* ---- between the files of this folder ---- */

/* The place of a token; an error for an id at or above v.n. */
int hf_vocab_slot(hf_vocab *v, uint64_t id, hf_vocab_token **t, kvant_diag *diag);
/* Copies a JSON string into v.names. */
int hf_vocab_name(hf_vocab *v, gjson s, hf_vocab_token *t, kvant_diag *diag);
/* The vocabulary of characters of tokenizer.json (hf_vocab_characters.c). */
int hf_vocab_read_characters(hf_vocab *v, kvant_diag *diag);
/* tokenizer.model of n bytes; v.names has room for as many. */
int hf_vocab_read_spm(hf_vocab *v, const uint8_t *p, size_t n, kvant_diag *diag);
int hf_vocab_looks_special(const char *s, size_t n);
/* tokenizer.chat_template, and .NAME of the others (hf_vocab_template.c). */
int hf_vocab_put_template(const hf_vocab *v, gguf_keys *k, kvant_diag *diag);
/* The id of an added token, its text as it is written in the files; -1: none. */
int64_t hf_vocab_listed_id(const hf_vocab *v, gjson text);
/* v->pre: the name of the pre-tokenizer that cuts a text as tokenizer.json does, unless one is asked for; and what it
 * says that the file does not. */
int hf_vocab_find_pre(hf_vocab *v, kvant_diag *diag);

#endif
