/* text/tokenizer_parts.h: what a tokenizer is made of.  Internal to tokenizer*.c; immutable once opened. */
#ifndef KVANT_TEXT_TOKENIZER_PARTS_H
#define KVANT_TEXT_TOKENIZER_PARTS_H

#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_spm.h"
#include "text/tokenizer_unigram.h"
#include "text/tokenizer_vocab.h"

/* How spaces become U+2581, and which span gets one more before it. */
enum spaces_mode {
    SPACES_REPLACE, /* none more */
    SPACES_PREPEND, /* every span */
    SPACES_ALWAYS,  /* every span that begins with none */
    SPACES_FIRST,   /* the span that begins the text, if it begins with none */
    SPACES_NEVER,   /* none more; tokens of the normalised text are looked for before spaces become U+2581 */
    SPACES_BEGIN,   /* the span that begins the text, whatever it begins with: SentencePiece with legacy = false */
};

struct tokenizer {
    vocab v;
    bpe b;
    pretok *pre; /* NULL: merged by score */
    spm s;       /* v.raw */
    int is_unigram;
    unigram u; /* is_unigram: instead of b */
    int32_t bos, eos, unk;
    int add_bos, add_eos;
    int32_t prefix[8];
    int n_prefix;  /* what comes before a text where BOS is asked for; 0: BOS alone */
    normal change; /* what is done to a span first */
    enum spaces_mode spaces;
    int nfc, ignore_merges; /* the pre-tokenizer's, unless the file says otherwise */
    int fuse_unk;           /* a run of unknown characters is one token */
};

#endif
