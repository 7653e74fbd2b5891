/* server/textout.h: tokens -> text that may be sent: whole UTF-8 characters, and nothing that could still turn out
 * to be the beginning of a stop string. */
#ifndef KVANT_SERVER_TEXTOUT_H
#define KVANT_SERVER_TEXTOUT_H

#include "kvant/engine.h"
#include "base/text/sbuf.h"

typedef struct text_stops {
    char *const *text;
    const int *len;
    int n;
} text_stops;

typedef struct textout {
    kvant_detok detok;
    sbuf held;   /* characters that wait for the rest of a stop string */
    int stopped; /* which stop string is complete, from 1; later text is dropped */
} textout;

void textout_free(textout *t);
/* Appends one token's text; what is safe goes to out.  Returns 1 when a stop string is complete (its text and what
 * follows are left out), 0 when not, or KVANT_E*. */
int textout_token(textout *t, const kvant_model *m, int32_t token, const text_stops *stops, sbuf *out);
/* A token's whole characters, whatever stop strings there are.  KVANT_OK or KVANT_E*. */
int textout_detok(textout *t, const kvant_model *m, int32_t token, sbuf *out);
/* As textout_token, for text that is already whole characters (tests, fuzzing). */
int textout_text(textout *t, const char *s, size_t n, const text_stops *stops, sbuf *out);
/* End of the generation: what was held back goes out. */
int textout_end(textout *t, sbuf *out);

#endif
