/* make/convert/vocab/hf_rules.h: what tokenizer.json does to a text, as keys of a GGUF file.
 *
 * GGUF has a name for a way to cut texts and no more.  Each part of tokenizer.json is said by that name, said by a
 * kvant.tokenizer.* key, harmless, or refused by its name. */
#ifndef KVANT_MAKE_HF_RULES_H
#define KVANT_MAKE_HF_RULES_H

#include <stdint.h>
#include "base/error.h"
#include "base/text/json.h"
#include "make/gguf/gguf_keys.h"
#include "text/normal/normal.h"

/* In the order of tokenizer_parts.h's enum spaces_mode. */
enum {
    HF_SPACES_REPLACE,
    HF_SPACES_PREPEND,
    HF_SPACES_ALWAYS,
    HF_SPACES_FIRST,
    HF_SPACES_NEVER,
    HF_SPACES_BEGIN,
    HF_SPACES_UNSAID,
};

enum { HF_MOST_PREFIX = 8 };

typedef struct hf_rules {
    normal steps; /* without the spaces of a vocabulary of characters */
    int spaces;
    int split_spaces, fuse_unk, ignore_merges;
    int other_nfc, other_ignore;  /* the name says otherwise: a key is wanted */
    int byte_level;               /* else characters */
    int by_rank;                  /* characters, merged by rank, written as a vocabulary with scores */
    gjson prefix[HF_MOST_PREFIX]; /* tokens before every text */
    int n_prefix;
} hf_rules;

struct hf_vocab;
int hf_is(gjson v, const char *word); /* the string "word" */
int hf_true(gjson v);
int hf_has_byte_level(gjson json);
/* All of tokenizer.json but the vocabulary.  KVANT_EUNSUPPORTED names what is not understood. */
int hf_rules_read(struct hf_vocab *v, kvant_diag *diag);
/* For a folder with tokenizer.model: its rules are those of tokenizer.json but for the spaces. */
void hf_rules_read_spm(struct hf_vocab *v);
/* The tokens before every text, where BOS alone (is_bos: it is what stands there) does not say it. */
void hf_rules_put_prefix(const struct hf_vocab *v, int is_bos, gguf_keys *k);
/* The keys that say what the field's own do not. */
void hf_rules_put(const struct hf_vocab *v, gguf_keys *k);

#endif
