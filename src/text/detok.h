/* text/detok.h: the streaming detokeniser over bytes.  The public face (kvant/engine.h) adds the token lookup.
 *
 * State is the at most 3 bytes of a character whose end has not come yet (kvant_detok).  Ill-formed bytes give one
 * U+FFFD per maximal subpart.  Output is always valid UTF-8 and NUL-terminated; NUL bytes in the text are
 * kept and counted. */
#ifndef KVANT_TEXT_DETOK_H
#define KVANT_TEXT_DETOK_H

#include "kvant/engine.h"

/* Appends bytes[n]; out[cap] gets the characters that are complete now.  Returns their length in bytes, or, with d
 * unchanged, KVANT_ENOSPC (cap >= 3 * (n + 3) + 1 is always enough) or KVANT_EINVAL (n < 0, a damaged state). */
int detok_push(kvant_detok *d, const char *bytes, int n, char *out, int cap);
/* End of the stream: the bytes still held become one U+FFFD.  Returns 0 or 3; cap >= 4. */
int detok_flush(kvant_detok *d, char *out, int cap);

#endif
