/* sbuf.c: see sbuf.h. */
#include "base/text/sbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void sbuf_free(sbuf *b)
{
    kvant_free(b->s);
    *b = (sbuf){ .max = b->max };
}

void sbuf_put(sbuf *b, const char *s, size_t n)
{
    size_t need;

    if (b->error)
        return;
    if (!size_add(b->n, n, &need) || !size_add(need, 1, &need) || (b->max && need > b->max)) {
        b->error = 1;
        return;
    }
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 128;
        while (cap < need)
            cap *= 2;
        char *p = kvant_realloc(b->s, b->cap, cap);
        if (!p) {
            b->error = 1;
            return;
        }
        b->s = p;
        b->cap = cap;
    }
    if (n)
        memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}

void sbuf_puts(sbuf *b, const char *s)
{
    sbuf_put(b, s, strlen(s));
}

void sbuf_printf(sbuf *b, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof text)
        b->error = 1;
    else
        sbuf_put(b, text, (size_t)n);
}

void sbuf_drop(sbuf *b, size_t n)
{
    if (n > b->n)
        n = b->n;
    if (n && b->n > n)
        memmove(b->s, b->s + n, b->n - n);
    b->n -= n;
    if (b->s)
        b->s[b->n] = 0;
}
