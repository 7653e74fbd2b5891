/* json.c: see json.h.  The scanner is iterative: one bit per level tells object from array. */
#include "base/text/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text/hex.h"

typedef struct scan {
    const char *p, *end;
} scan;

static void skip_space(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

static int take(scan *s, char c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c)
        return 0;
    s->p++;
    return 1;
}

/* Reads an escape behind its backslash. */
static int take_escape(scan *s)
{
    if (s->p == s->end || !*s->p || !strchr("\"\\/bfnrtu", *s->p))
        return 0;
    int digits = *s->p++ == 'u' ? 4 : 0;
    for (; digits > 0 && s->p < s->end && hex_digit(*s->p) >= 0; digits--)
        s->p++;
    return digits == 0;
}

/* One character that is no escape: no control, valid UTF-8 by its lead byte and the count of the rest. */
static int take_character(scan *s)
{
    unsigned char c = (unsigned char)*s->p;
    int n = c < 0x20 ? 0 : c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (n == 0 || s->end - s->p < n)
        return 0;
    for (int i = 1; i < n; i++)
        if (((unsigned char)s->p[i] & 0xC0) != 0x80)
            return 0;
    s->p += n;
    return 1;
}

static int take_string(scan *s)
{
    if (!take(s, '"'))
        return 0;
    while (s->p < s->end && *s->p != '"') {
        if (*s->p != '\\') {
            if (!take_character(s))
                return 0;
            continue;
        }
        s->p++;
        if (!take_escape(s))
            return 0;
    }
    if (s->p == s->end)
        return 0;
    s->p++;
    return 1;
}

static int take_digits(scan *s)
{
    const char *start = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > start;
}

static int take_number(scan *s)
{
    if (s->p < s->end && *s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')     /* no digit may follow a leading zero */
        s->p++;
    else if (!take_digits(s))
        return 0;
    if (s->p < s->end && *s->p == '.' && (s->p++, !take_digits(s)))
        return 0;
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        return take_digits(s);
    }
    return 1;
}

static int take_word(scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return 1;
        }
    }
    return 0;
}

/* A string, number or word. */
static int take_scalar(scan *s)
{
    skip_space(s);
    if (s->p == s->end)
        return 0;
    if (*s->p == '"')
        return take_string(s);
    if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))
        return take_number(s);
    return take_word(s);
}

/* Moves over one whole value; 0 at the first wrong byte. */
static int take_value(scan *s)
{
    uint64_t objects = 0;                  /* bit k: level k is an object */
    int depth = 0;
    for (;;) {
        int opened = 0;
        if (take(s, '{'))
            opened = 2;
        else if (take(s, '['))
            opened = 1;
        else if (!take_scalar(s))
            return 0;
        if (opened) {
            if (depth == JSON_DEPTH)
                return 0;
            objects = opened == 2 ? objects | 1ull << depth : objects & ~(1ull << depth);
            depth++;
            if (!take(s, opened == 2 ? '}' : ']')) {
                if (opened == 2 && !(take_string(s) && take(s, ':')))
                    return 0;
                continue;
            }
            depth--;
        }
        while (depth && !take(s, ',')) {   /* the value ended: close levels until one goes on */
            if (!take(s, objects >> (depth - 1) & 1 ? '}' : ']'))
                return 0;
            depth--;
        }
        if (!depth)
            return 1;
        if (objects >> (depth - 1) & 1 && !(take_string(s) && take(s, ':')))
            return 0;
    }
}

/* The value at s as a span, s moved behind it. */
static gjson span_value(scan *s)
{
    skip_space(s);
    gjson v = { s->p, 0 };
    if (!take_value(s))
        return (gjson){ NULL, 0 };
    v.n = (size_t)(s->p - v.p);
    return v;
}

int gjson_parse(const char *text, size_t n, gjson *root, kvant_diag *diag)
{
    scan s = { text, text + n };
    gjson v = span_value(&s);
    skip_space(&s);
    if (!v.p || s.p != s.end)
        return kvant_fail(diag, KVANT_EFORMAT, "JSON: unexpected byte at offset %zu of %zu", (size_t)(s.p - text), n);
    *root = v;
    return KVANT_OK;
}

gjson gjson_get(gjson v, const char *key)
{
    size_t n = strlen(key);
    if (!v.p)
        return v;
    scan s = { v.p, v.p + v.n };
    if (!take(&s, '{'))
        return (gjson){ NULL, 0 };
    while (s.p < s.end && *s.p != '}') {
        skip_space(&s);
        const char *name = s.p + 1;
        if (!take_string(&s))
            break;
        int found = (size_t)(s.p - name) == n + 1 && memcmp(name, key, n) == 0;
        take(&s, ':');
        gjson value = span_value(&s);
        if (found || !value.p)
            return value;
        if (!take(&s, ','))
            break;
    }
    return (gjson){ NULL, 0 };
}

int gjson_next(gjson v, gjson *it)
{
    if (!v.p || !v.n || *v.p != '[')
        return 0;
    scan s = { it->p ? it->p + it->n : v.p, v.p + v.n };
    if (!take(&s, it->p ? ',' : '['))
        return 0;
    skip_space(&s);
    if (s.p == s.end || *s.p == ']')
        return 0;
    *it = span_value(&s);
    return it->p != NULL;
}

int gjson_member(gjson v, gjson *key, gjson *it)
{
    if (!v.p || !v.n || *v.p != '{')
        return 0;
    scan s = { it->p ? it->p + it->n : v.p, v.p + v.n };
    if (!take(&s, it->p ? ',' : '{'))
        return 0;
    skip_space(&s);
    gjson name = { s.p, 0 };
    if (s.p == s.end || *s.p == '}' || !take_string(&s))
        return 0;
    name.n = (size_t)(s.p - name.p);
    if (!take(&s, ':'))
        return 0;
    *key = name;
    *it = span_value(&s);
    return it->p != NULL;
}

static uint32_t hex4(const char *p)
{
    uint32_t u = 0;
    for (int i = 0; i < 4; i++)
        u = u << 4 | (uint32_t)hex_digit(p[i]);
    return u;
}

static size_t put_utf8(uint32_t u, char *out)
{
    if (u < 0x80) {
        out[0] = (char)u;
        return 1;
    }
    const int more = u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
    out[0] = (char)((0xFF00 >> (more + 1) & 0xFF) | u >> 6 * more);
    for (int i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (u >> 6 * (more - i) & 0x3F));
    return (size_t)more + 1;
}

/* The code point of \uXXXX at *p (behind the u), and of its second half. */
static uint32_t take_unicode(const char **p, const char *end)
{
    const uint32_t u = hex4(*p);
    *p += 4;
    if (u < 0xD800 || u > 0xDFFF)
        return u;
    if (u > 0xDBFF || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return 0xFFFD;
    const uint32_t low = hex4(*p + 2);
    if (low < 0xDC00 || low > 0xDFFF)
        return 0xFFFD;
    *p += 6;
    return 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
}

size_t gjson_unescape(gjson v, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    size_t n = 0;

    if (!v.p || v.n < 2 || *v.p != '"')
        return SIZE_MAX;
    for (const char *p = v.p + 1, *end = v.p + v.n - 1; p < end;) {
        if (*p != '\\') {
            out[n++] = *p++;
            continue;
        }
        const char c = p[1], *known = strchr(from, c);
        p += 2;
        if (c == 'u')
            n += put_utf8(take_unicode(&p, end), out + n);
        else
            out[n++] = known ? to[known - from] : c;
    }
    return n;
}

static gjson element(gjson v, long i)
{
    gjson it = { NULL, 0 };
    for (; i >= 0; i--)
        if (!gjson_next(v, &it))
            return (gjson){ NULL, 0 };
    return it;
}

gjson gjson_at(gjson v, const char *path)
{
    char key[128];
    while (*path && v.p) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key)
            return (gjson){ NULL, 0 };
        memcpy(key, path, n);
        key[n] = 0;
        v = *v.p == '[' ? element(v, strtol(key, NULL, 10)) : gjson_get(v, key);
        path += n + (path[n] == '.');
    }
    return v;
}

int gjson_text(gjson v, char *buf, size_t cap)
{
    if (!v.p || v.n < 2 || *v.p != '"')
        return 0;
    size_t n = v.n - 2 < cap - 1 ? v.n - 2 : cap - 1;
    memcpy(buf, v.p + 1, n);
    buf[n] = 0;
    return 1;
}

double gjson_number(gjson v)
{
    char buf[64];
    if (!v.p || !v.n || v.n >= sizeof buf || !(*v.p == '-' || (*v.p >= '0' && *v.p <= '9')))
        return NAN;
    memcpy(buf, v.p, v.n);
    buf[v.n] = 0;
    return strtod(buf, NULL);
}

size_t gjson_hex_bytes(gjson v)
{
    if (!v.p || v.n < 2 || *v.p != '"' || v.n % 2)
        return SIZE_MAX;
    for (size_t i = 1; i + 1 < v.n; i++)
        if (hex_digit(v.p[i]) < 0)
            return SIZE_MAX;
    return (v.n - 2) / 2;
}

int gjson_hex(gjson v, void *out, size_t n)
{
    uint8_t *bytes = out;
    if (gjson_hex_bytes(v) != n)
        return 0;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(hex_digit(v.p[1 + 2 * i]) << 4 | hex_digit(v.p[2 + 2 * i]));
    return 1;
}
