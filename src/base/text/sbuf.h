/* base/text/sbuf.h: a growing text with a limit.  A failed allocation or a passed limit is sticky in `error`. */
#ifndef KVANT_BASE_SBUF_H
#define KVANT_BASE_SBUF_H

#include <stddef.h>

typedef struct sbuf {
    char *s;            /* NUL-terminated once anything was put; NULL before */
    size_t n, cap, max; /* max 0: no limit */
    int error;
} sbuf;

static inline const char *sbuf_text(const sbuf *b) /* "" while it is empty */
{
    return b->s ? b->s : "";
}
void sbuf_free(sbuf *b);
void sbuf_put(sbuf *b, const char *s, size_t n);
void sbuf_puts(sbuf *b, const char *s);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void sbuf_printf(sbuf *b, const char *fmt, ...);      /* at most 512 bytes per call */
/* Drops the first n bytes. */
void sbuf_drop(sbuf *b, size_t n);

#endif
