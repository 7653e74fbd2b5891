/* jinja_literal.c: the values of strings and numbers in a template's source. */
#include "text/jinja/jinja_code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/text/hex.h"
#include "text/utf8.h"

/* \xHH, \uHHHH, \UHHHHHHHH: `digits` of them at s[0..n) -> out; 0 when they are not a character. */
static int code_point(const char *s, size_t n, int digits, uint8_t *out)
{
    uint32_t c = 0;

    if (n < (size_t)digits)
        return 0;
    for (int i = 0; i < digits; i++) {
        if (hex_digit(s[i]) < 0)
            return 0;
        c = c << 4 | (uint32_t)hex_digit(s[i]);
    }
    return c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF) ? 0 : utf8_encode(c, out);
}

static size_t octal(const char *s, size_t n, uint8_t *out, int *len)
{
    uint32_t c = 0;
    size_t i = 0;

    for (; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
        c = c * 8 + (uint32_t)(s[i] - '0');
    *len = utf8_encode(c, out);
    return i;
}

/* The escape behind a backslash at s[0..n): its bytes -> out[4], their number in *len.  Returns how much of s it took;
 * 0: no such escape, the backslash stays. */
static size_t escape(const char *s, size_t n, uint8_t *out, int *len)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = n ? memchr(from, s[0], sizeof from - 1) : NULL;
    int digits;

    *len = 1;
    if (simple) {
        out[0] = (uint8_t)to[simple - from];
        return 1;
    }
    if (n && s[0] == '\n') {
        *len = 0;
        return 1;
    }
    if (n && s[0] >= '0' && s[0] <= '7')
        return octal(s, n, out, len);
    digits = !n ? 0 : s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (!digits)
        return 0;
    *len = code_point(s + 1, n - 1, digits, out);
    return *len ? (size_t)digits + 1 : 0;
}

/* SIZE_MAX: an escape of a code point that is none. */
static size_t unescape(const char *s, size_t n, char *out)
{
    size_t len = 0;
    uint8_t c[4];
    int k;

    for (size_t i = 0; i < n;) {
        size_t took = s[i] == '\\' ? escape(s + i + 1, n - i - 1, c, &k) : 0;
        if (took) {
            memcpy(out + len, c, (size_t)k);
            len += (size_t)k;
            i += took + 1;
        } else if (s[i] == '\\' && i + 1 < n && strchr("xuUN", s[i + 1]) && s[i + 1]) {
            return SIZE_MAX;
        } else {
            out[len++] = s[i++];
        }
    }
    return len;
}

/* Strings side by side are one. */
static int string(jparser *p)
{
    const size_t pos = p->lex.from;
    size_t n = 0, cap = 0;
    jval v;

    /* The text is at most the source up to the end of the last of the strings. */
    jlexer ahead = p->lex;
    while (ahead.kind == JT_STRING) {
        cap += ahead.to - ahead.from;
        jlex_next(&ahead);
    }
    char *text = jarena_alloc(&p->t->mem, cap + 1);
    if (!text)
        return jparse_nomem(p);
    for (; p->lex.kind == JT_STRING; jlex_next(&p->lex)) {
        size_t more = unescape(p->lex.s + p->lex.from, p->lex.to - p->lex.from, text + n);
        if (more == SIZE_MAX)
            return jparse_fail(p, p->lex.from, "a text with \\x, \\u, \\U or \\N that names no character");
        n += more;
    }
    if (!j_string(&p->t->mem, text, n, JINJA_TEMPLATE, &v))
        return jparse_nomem(p);
    return jemit_const(p, v, pos);
}

static int number(jparser *p)
{
    const size_t pos = p->lex.from;
    char text[64];
    size_t n = 0;
    jval v;

    for (size_t i = p->lex.from; i < p->lex.to && n + 1 < sizeof text; i++)
        if (p->lex.s[i] != '_')
            text[n++] = p->lex.s[i];
    text[n] = 0;
    errno = 0;
    if (p->lex.kind == JT_FLOAT) {
        v = j_float(strtod(text, NULL));
    } else {
        int base = n > 1 && text[0] == '0' ? ((text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2) : 10;
        char *end, *digits = base != 10 ? text + 2 : text;
        v = j_int(strtoll(digits, &end, base));
        if (errno || *end || end == digits)
            return jparse_fail(p, pos, "number '%s', want an integer of 64 bits", text);
    }
    jlex_next(&p->lex);
    return jemit_const(p, v, pos);
}

int jparse_literal(jparser *p)
{
    return p->lex.kind == JT_STRING ? string(p) : number(p);
}
