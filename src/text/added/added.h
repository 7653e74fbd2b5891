/* text/added/added.h: tokens that are looked for in a text before it is cut into pieces: control tokens, and
 * those that a file calls user-defined.  Internal to tokenizer*.c; immutable once built.
 *
 * As `tokenizers` has it: leftmost first, at one place the longest; first those that are looked for in the raw text,
 * then, between these, those that are looked for in the normalised text.  A token may take the blanks around it, or
 * stand only where no letter touches it. */
#ifndef KVANT_TEXT_ADDED_H
#define KVANT_TEXT_ADDED_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "model/gguf/gguf.h"

enum added_flag {
    ADDED_LSTRIP = 1,     /* takes the blanks before it */
    ADDED_RSTRIP = 2,     /* takes the blanks behind it */
    ADDED_WORD = 4,       /* no letter, mark or digit beside it */
    ADDED_NORMALIZED = 8, /* looked for in the normalised text, as its own normalised text */
    ADDED_SYMBOL = 32, /* the model has it in its vocabulary, too: a character may become it where the search did not */
    ADDED_MARKER = 16, /* user-defined, but a part of the chat's format: never made from a user's text */
};

enum added_set {
    ADDED_RAW,
    ADDED_AFTER,  /* ADDED_NORMALIZED */
    ADDED_MARKED, /* ADDED_RAW, and control tokens and markers of ADDED_AFTER by their raw texts: for texts with an
                   * origin, which a normalised text has no longer */
    ADDED_SETS,
};

/* A trie; node 0 is unused, children are chained by `sibling`. */
typedef struct added_node {
    uint32_t child, sibling;
    int32_t user, any; /* token that ends here: one that every text may have; any; -1 none */
    uint8_t byte;
} added_node;

typedef struct added_trie {
    added_node *nodes;
    uint32_t n, cap;
    uint32_t root[256];
} added_trie;

/* A text, and where control tokens and markers may be: nowhere, everywhere (control), or where origin has
 * ADDED_ORIGIN for each byte. */
typedef struct added_text {
    const char *s;
    size_t n;
    const uint8_t *origin; /* NULL: none */
    int control;
} added_text;

enum { ADDED_ORIGIN = 0 }; /* as JINJA_TEMPLATE; template_ids.c checks that */

/* A search through one text: begins as {0}. */
typedef struct added_scan {
    size_t next;       /* where the search goes on */
    size_t done;       /* end of what the last match took */
    size_t blanks_end; /* of the run of blanks that was walked last */
    int32_t id;        /* the match, and the bytes that it takes */
    size_t from, to;
} added_scan;

struct vocab;
/* Reads kvant.tokenizer.lstrip, rstrip, single_word, normalized; without kvant.tokenizer.rules, what is known of the
 * model (added_models.c).  KVANT_EFORMAT: ids that are no tokens. */
int added_read(struct vocab *v, const gguf *g, kvant_diag *diag);
/* Marks user-defined tokens that are a part of the chat's format: before the merges are read. */
void added_mark(struct vocab *v, const gguf *g);
/* Does the text look like a part of a chat's format? */
int added_is_marker(const char *s, size_t n);
/* Adds token id by the text s[n], n >= 1.  KVANT_ENOMEM. */
int added_insert(added_trie *t, const struct vocab *v, uint32_t id, const char *s, size_t n);
/* The next match after the last one: 1 and scan->id, from, to; 0: none. */
int added_next(const added_trie *t, const struct vocab *v, const added_text *text, added_scan *scan);
void added_known_model(struct vocab *v, const gguf *g); /* added_models.c */

#endif
