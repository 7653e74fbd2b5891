/* base/text/jsonw.h: a small JSON writer.  Emits into a growing buffer or a FILE; commas and nesting are its business.
 * Strings are escaped and invalid UTF-8 becomes U+FFFD; NaN and Inf become null.  A failed allocation is sticky: check
 * jsonw_error once at the end. */
#ifndef KVANT_BASE_JSONW_H
#define KVANT_BASE_JSONW_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSONW_FULL = 2 }; /* the error of a text beyond max */
typedef struct jsonw {
    char *buf;             /* NUL-terminated text so far */
    size_t len, cap, max; /* max: more is an error (JSONW_FULL); 0: none */
    int depth, error;
    unsigned char first[64];
    unsigned char after_key;
} jsonw;

void jsonw_init(jsonw *w);
void jsonw_free(jsonw *w);
void jsonw_object(jsonw *w);          /* { */
void jsonw_array(jsonw *w);           /* [ */
void jsonw_end(jsonw *w);             /* closes the innermost */
void jsonw_key(jsonw *w, const char *key);
void jsonw_str(jsonw *w, const char *s);
void jsonw_strn(jsonw *w, const char *s, size_t n);
void jsonw_int(jsonw *w, int64_t v);
void jsonw_num(jsonw *w, double v);   /* %.9g */
void jsonw_bool(jsonw *w, int v);
void jsonw_null(jsonw *w);
void jsonw_raw(jsonw *w, const char *s);   /* one ready JSON value */
/* key + value in one call */
void jsonw_kstr(jsonw *w, const char *key, const char *s);
void jsonw_kint(jsonw *w, const char *key, int64_t v);
void jsonw_knum(jsonw *w, const char *key, double v);
void jsonw_kbool(jsonw *w, const char *key, int v);
int jsonw_error(const jsonw *w);

#endif
