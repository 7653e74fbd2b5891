/* server/grammar/grammar_pattern.h: a regular expression of a JSON schema -> GBNF for a quoted JSON string. */
#ifndef KVANT_SERVER_GRAMMAR_PATTERN_H
#define KVANT_SERVER_GRAMMAR_PATTERN_H

#include "base/error.h"
#include "base/text/sbuf.h"

/* Literals, classes, \d \w \s, ., groups, |, * + ? {m,n}, and ^ $ at the ends.  KVANT_EINVAL says what else was found.
 * Characters that JSON escapes come out only where the pattern names them. */
int grammar_from_pattern(const char *pattern, sbuf *out, kvant_diag *diag);

#endif
