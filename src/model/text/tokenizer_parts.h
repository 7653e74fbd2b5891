/* model/text/tokenizer_parts.h: what a tokenizer is made of.  Internal to tokenizer*.c; immutable once opened. */
#ifndef KVANT_MODEL_TOKENIZER_PARTS_H
#define KVANT_MODEL_TOKENIZER_PARTS_H

#include "model/text/pretok.h"
#include "model/text/tokenizer.h"
#include "model/text/tokenizer_bpe.h"
#include "model/text/tokenizer_spm.h"
#include "model/text/tokenizer_unigram.h"
#include "model/text/tokenizer_vocab.h"

struct tokenizer {
    vocab v;
    bpe b;
    pretok *pre; /* NULL: merged by score */
    spm s;       /* v.raw */
    int is_unigram;
    unigram u; /* is_unigram: instead of b */
    int32_t bos, eos, unk;
    int add_bos, add_eos, space_prefix;
};

#endif
