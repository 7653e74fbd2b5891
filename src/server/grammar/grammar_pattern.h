/* server/grammar/grammar_pattern.h: a regular expression of a JSON schema -> GBNF for a quoted JSON string. */
#ifndef KVANT_SERVER_GRAMMAR_PATTERN_H
#define KVANT_SERVER_GRAMMAR_PATTERN_H

#include "base/error.h"
#include "base/text/sbuf.h"

/* Literals, classes, \d \w \s, ., groups, |, * + ? {m,n}, and ^ $ at the ends of the whole or of its alternatives.
 * KVANT_EINVAL says what else was found.  Characters that JSON escapes come out only where the pattern names them. */
typedef struct pattern_lengths {
    int more, cap; /* in: repetitions without end come so often more at least, and cap times more than that; -1 */
    int whole;     /* in: nothing comes before or behind what the pattern matches, anchors or not */
    int raw;         /* in: the text as it is, not as a JSON string */
    int least, most; /* out: lengths of the texts; -1: any */
} pattern_lengths;
int grammar_from_pattern(const char *pattern, pattern_lengths *n, sbuf *out, kvant_diag *diag);

#endif
