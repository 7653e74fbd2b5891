/* text/normal/normal.h: what a tokenizer does to a text before it cuts it (tokenizer.json: "normalizer"), as the
 * file says: kvant.tokenizer.normalizers.  Internal to tokenizer*.c; immutable once read.
 *
 * The key is a list of strings: the steps by name, each with its arguments behind it:
 *   nfc nfd nfkc nfkd lowercase strip_accents strip_left strip_right   prepend TEXT   replace FROM TO
 * FROM is a text, not a pattern.  A text is one span between two tokens that are looked for in the raw text. */
#ifndef KVANT_TEXT_NORMAL_H
#define KVANT_TEXT_NORMAL_H

#include <stddef.h>
#include "base/error.h"
#include "model/gguf/gguf.h"
#include "text/pretok.h"

enum normal_kind {
    NORMAL_NFC,
    NORMAL_NFD,
    NORMAL_NFKC,
    NORMAL_NFKD,
    NORMAL_LOWERCASE,
    NORMAL_STRIP_ACCENTS,
    NORMAL_STRIP_LEFT,
    NORMAL_STRIP_RIGHT,
    NORMAL_PREPEND,
    NORMAL_REPLACE,
    NORMAL_KINDS,
};

enum { NORMAL_MOST = 16, NORMAL_MAX_TEXT = 64 }; /* steps; bytes of an argument */

typedef struct normal_step {
    enum normal_kind kind;
    char from[NORMAL_MAX_TEXT], to[NORMAL_MAX_TEXT];
    size_t n_from, n_to;
} normal_step;

typedef struct normal {
    normal_step steps[NORMAL_MOST];
    int n;
} normal;

/* Buffers of one call: zero-initialise. */
typedef struct normal_work {
    pretok_buf a, b, form;
    int cut; /* a step took the first character away: the text begins elsewhere */
} normal_work;

/* Absent: no steps.  *said: the key is there.  KVANT_EFORMAT: unknown steps, arguments that are missing. */
int normal_read(normal *c, const gguf *g, int *said, kvant_diag *diag);
int normal_add(normal *c, enum normal_kind kind, const char *from, size_t n_from, const char *to, size_t n_to);
const char *normal_name(enum normal_kind kind);
/* text[*len] after all steps: *s points into it or into w.  Bytes that are not UTF-8 stay.  KVANT_EINVAL: more than a
 * GiB; KVANT_ENOMEM. */
int normal_apply(const normal *c, normal_work *w, const char **s, size_t *len, kvant_diag *diag);
void normal_work_free(normal_work *w);

#endif
