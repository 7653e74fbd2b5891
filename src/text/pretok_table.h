/* text/pretok_table.h: the pre-tokenizers that exist, as data.  Internal to pretok*.c. */
#ifndef KVANT_TEXT_PRETOK_TABLE_H
#define KVANT_TEXT_PRETOK_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { PRETOK_STAGES = 6 };

/* A text is cut by the first pattern into its matches and what lies between them, each of these by the next pattern as
 * a text of its own, and so on (tokenizer.json: a Sequence of Split, Isolated). */
typedef struct pretok_row {
    const char *name;
    const char *stages[PRETOK_STAGES]; /* NULL after the last */
    uint8_t nfc, ignore_merges, add_bos;
    uint8_t groups; /* 1: the first stage's matches are digits, cut in threes from the right */
    uint8_t raw;    /* characters as they are, U+2581 for the space; else the byte alphabet */
} pretok_row;

/* NULL: no such name. */
const pretok_row *pretok_row_find(const char *name, size_t len);

#endif
