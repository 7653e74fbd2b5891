/* json_mend.c: what JSON may hold and jansson's values may not: NUL, halves of surrogate pairs, numbers beyond
 * 64 bits. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text/sbuf.h"
#include "server/request/json_scan.h"

typedef struct mender {
    const char *s;
    size_t n, at, copied; /* copied: of s, in out */
    sbuf out;
} mender;

static void replace(mender *m, size_t n, const char *before, const char *text, size_t len, const char *behind)
{
    sbuf_put(&m->out, m->s + m->copied, m->at - m->copied);
    sbuf_puts(&m->out, before);
    sbuf_put(&m->out, text, len);
    sbuf_puts(&m->out, behind);
    m->copied = m->at += n;
}

/* The code of \uXXXX at `at`, or -1. */
static int escaped_code(const mender *m, size_t at)
{
    int code = 0;

    if (m->n - at < 6 || m->s[at] != '\\' || m->s[at + 1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char *hex = "0123456789abcdef", c = m->s[at + i];
        const char *p = c ? strchr(hex, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!p)
            return -1;
        code = code * 16 + (int)(p - hex);
    }
    return code;
}

/* An escape in a string: NUL, and half of a pair (clients cut texts between the two), become U+FFFD. */
static void mend_escape(mender *m)
{
    const int code = escaped_code(m, m->at), high = code >= 0xD800 && code <= 0xDBFF;
    const int next = high ? escaped_code(m, m->at + 6) : -1;

    if (high && next >= 0xDC00 && next <= 0xDFFF)
        m->at += 12;
    else if (code == 0 || (code >= 0xD800 && code <= 0xDFFF))
        replace(m, 6, "\\ufffd", "", 0, "");
    else
        m->at += m->n - m->at > 1 ? 2 : 1;
}

static size_t digits(const char *s, size_t n, size_t i)
{
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

/* The length of the number s[n] begins with, as RFC 8259 writes them, or 0. */
static size_t number_length(const char *s, size_t n, int *whole)
{
    const size_t first = n && s[0] == '-';
    size_t i = digits(s, n, first), k;

    if (i == first || (s[first] == '0' && i > first + 1))
        return 0;
    *whole = 1;
    if (i < n && s[i] == '.') {
        if ((k = digits(s, n, i + 1)) == i + 1)
            return 0;
        i = k;
        *whole = 0;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        k = i + 1 + (i + 1 < n && (s[i + 1] == '-' || s[i + 1] == '+'));
        if (digits(s, n, k) == k)
            return 0;
        i = digits(s, n, k);
        *whole = 0;
    }
    return i;
}

/* A number that no 64 bits hold is kept as its text, behind a NUL that no text of a client can have. */
static void mend_number(mender *m)
{
    int whole = 0;
    const size_t n = number_length(m->s + m->at, m->n - m->at, &whole);
    char text[400];

    if (n == 0) {
        m->at++;
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), m->s + m->at);
    errno = 0;
    const double d = whole ? (double)strtoll(text, NULL, 10) : strtod(text, NULL);
    if (n >= sizeof text || (whole && errno) || !isfinite(d))
        replace(m, n, "\"\\u0000", m->s + m->at, n, "\"");
    else
        m->at += n;
}

static void mend(mender *m)
{
    int in_string = 0;

    while (m->at < m->n) {
        const char c = m->s[m->at];
        if (in_string && c == '\\') {
            mend_escape(m);
        } else if (!in_string && (c == '-' || (c >= '0' && c <= '9'))) {
            mend_number(m);
        } else {
            in_string ^= c == '"';
            m->at++;
        }
    }
    if (m->copied)
        sbuf_put(&m->out, m->s + m->copied, m->n - m->copied);
}

int json_mend(const char *text, size_t len, struct sbuf *out)
{
    mender m = { .s = text, .n = len };

    mend(&m);
    *out = m.out;
    return m.copied > 0;
}

int json_is_wide(const json_t *v)
{
    return json_is_string(v) && json_string_length(v) > 1 && !json_string_value(v)[0];
}

void json_unmark(char *text)
{
    static const char mark[] = "\"\\u0000";
    char *from = strstr(text, mark), *to = from;

    while (from && *from) {
        if (strncmp(from, mark, sizeof mark - 1) != 0) {
            *to++ = *from++;
            continue;
        }
        for (from += sizeof mark - 1; *from && *from != '"';)
            *to++ = *from++;
        from += *from == '"';
    }
    if (to)
        *to = 0;
}

char *json_text(const json_t *v, size_t flags)
{
    char *text = json_dumps(v, flags);

    if (text)
        json_unmark(text);
    return text;
}
