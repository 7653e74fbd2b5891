/* text/pretok.h: normalisation and pre-tokenisation, the two steps before byte-pair merging.
 *
 * A pretok is one row of pretok_table.c with its compiled patterns: immutable, any thread.  A pretok_scan holds
 * the match buffers of one call of the tokenizer and belongs to one thread.  All text here is valid UTF-8. */
#ifndef KVANT_TEXT_PRETOK_H
#define KVANT_TEXT_PRETOK_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct pretok pretok;
typedef struct pretok_scan pretok_scan;

enum { PRETOK_NO_JIT = 1 }; /* tests: take the interpreter where the JIT would be used */

/* name[len]: the value of tokenizer.ggml.pre.  KVANT_EFORMAT: not in the table (the message lists it). */
int pretok_open(const char *name, size_t len, int flags, pretok **out, kvant_diag *diag);
void pretok_close(pretok *p);
const char *pretok_name(const pretok *p);  /* canonical name: "qwen2", ... */
int pretok_nfc(const pretok *p);           /* text is normalised to NFC first, unless the file says otherwise */
int pretok_ignore_merges(const pretok *p); /* a piece that is a token needs no merging */
int pretok_add_bos(const pretok *p);       /* default of tokenizer.ggml.add_bos_token */
int pretok_raw(const pretok *p);           /* characters as they are, U+2581 for the space; else the byte alphabet */
int pretok_has_jit(const pretok *p);
/* i-th name that pretok_open takes, NULL at the end (canonical names and aliases). */
const char *pretok_known(int i);

int pretok_scan_open(const pretok *p, pretok_scan **out, kvant_diag *diag);
void pretok_scan_close(pretok_scan *s);
/* Sets the resource limits for a text of len bytes; call before the first pretok_next of that text. */
void pretok_scan_limits(pretok_scan *s, size_t len);
/* Tests: the limits themselves (see PCRE2's match, depth and heap limit). */
void pretok_scan_limits_raw(pretok_scan *s, uint32_t match, uint32_t depth, uint32_t heap_kib);
/* The piece that begins at text[at], at < len: *end is where it ends, *end > at.  Pieces are taken in order from 0.
 * KVANT_EINVAL when a limit is hit (never a shorter piece), KVANT_ENOMEM. */
int pretok_next(pretok_scan *s, const char *text, size_t len, size_t at, size_t *end, kvant_diag *diag);

/* A growing byte buffer, reused between calls; zero-initialise, free with kvant_free(data). */
typedef struct pretok_buf {
    uint8_t *data;
    size_t len, cap;
    int32_t *cps; /* code points of the segment in work; kvant_free too */
    size_t n_cps, cap_cps;
} pretok_buf;
void pretok_buf_free(pretok_buf *b);

/* The four normalisation forms of Unicode. */
enum pretok_form { PRETOK_NFC, PRETOK_NFD, PRETOK_NFKC, PRETOK_NFKD };

/* text[len] in NFC.  *out points into text when it already is NFC by a quick check, else into b (until its next use).
 * Time O(n log n) at worst, whatever the combining marks.  KVANT_ENOMEM. */
int pretok_to_form(enum pretok_form form, pretok_buf *b, const char *text, size_t len, const char **out,
                   size_t *out_len, kvant_diag *diag);
int pretok_to_nfc(pretok_buf *b, const char *text, size_t len, const char **out, size_t *out_len, kvant_diag *diag);

#endif
