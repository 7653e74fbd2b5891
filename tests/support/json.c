/* json.c: see json.h. */
#include "support/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scan {
    const char *p, *end;
    int depth;
} scan;

static int value(scan *s);

static void space(scan *s)
{
    while (s->p < s->end && strchr(" \t\r\n", *s->p) && *s->p)
        s->p++;
}

static int take(scan *s, char c)
{
    if (s->p < s->end && *s->p == c) {
        s->p++;
        return 1;
    }
    return 0;
}

static int digits(scan *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static int number(scan *s)
{
    take(s, '-');
    if (!take(s, '0') && !digits(s))
        return 0;
    if (take(s, '.') && !digits(s))
        return 0;
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+'))
            take(s, '-');
        return digits(s);
    }
    return 1;
}

static int word(scan *s, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
        return 0;
    s->p += n;
    return 1;
}

static int utf8(scan *s)
{
    unsigned char c = (unsigned char)*s->p;
    int n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (n == 0 || s->end - s->p < n)
        return 0;
    for (int i = 1; i < n; i++)
        if (((unsigned char)s->p[i] & 0xC0) != 0x80)
            return 0;
    s->p += n;
    return 1;
}

static int string(scan *s)
{
    if (!take(s, '"'))
        return 0;
    while (s->p < s->end && *s->p != '"') {
        if ((unsigned char)*s->p < 0x20)
            return 0;
        if (take(s, '\\')) {
            if (s->p >= s->end || !*s->p || !strchr("\"\\/bfnrtu", *s->p))
                return 0;
            if (*s->p++ == 'u')
                for (int i = 0; i < 4; i++, s->p++)
                    if (s->p >= s->end || !*s->p || !strchr("0123456789abcdefABCDEF", *s->p))
                        return 0;
        } else if (!utf8(s)) {
            return 0;
        }
    }
    return take(s, '"');
}

static int members(scan *s, char close, int keyed)
{
    space(s);
    if (take(s, close))
        return 1;
    do {
        space(s);
        if (keyed && !string(s))
            return 0;
        space(s);
        if (keyed && !take(s, ':'))
            return 0;
        if (!value(s))
            return 0;
        space(s);
    } while (take(s, ','));
    return take(s, close);
}

static int value(scan *s)
{
    int ok;

    space(s);
    if (s->p >= s->end || ++s->depth > 64)
        return 0;
    if (take(s, '{'))
        ok = members(s, '}', 1);
    else if (take(s, '['))
        ok = members(s, ']', 0);
    else if (*s->p == '"')
        ok = string(s);
    else
        ok = word(s, "true") || word(s, "false") || word(s, "null") || number(s);
    s->depth--;
    return ok;
}

int json_valid(const char *text, size_t n)
{
    scan s = { text, text + n, 0 };
    if (!value(&s))
        return 0;
    space(&s);
    return s.p == s.end;
}

/* Moves s into the member named key[n] (object) or numbered so (array); 0 if there is none. */
static int descend(scan *s, const char *key, size_t n)
{
    int keyed;
    long want = strtol(key, NULL, 10), i = 0;

    space(s);
    keyed = take(s, '{');
    if (!keyed && !take(s, '['))
        return 0;
    do {
        space(s);
        const char *k = s->p;
        if (keyed && !string(s))
            return 0;
        int hit = keyed ? (size_t)(s->p - k) == n + 2 && memcmp(k + 1, key, n) == 0 : i == want;
        space(s);
        if (keyed && !take(s, ':'))
            return 0;
        space(s);
        if (hit)
            return s->p < s->end && *s->p != ']';
        i++;
        if (!value(s))
            return 0;
        space(s);
    } while (take(s, ','));
    return 0;
}

const char *json_at(const char *text, const char *path, size_t *n)
{
    scan s = { text, text + strlen(text), 0 };

    while (*path) {
        size_t len = strcspn(path, ".");
        if (!descend(&s, path, len))
            return NULL;
        path += len + (path[len] == '.');
    }
    space(&s);
    const char *start = s.p;
    if (!value(&s))
        return NULL;
    *n = (size_t)(s.p - start);
    return start;
}

double json_num(const char *text, const char *path)
{
    size_t n;
    const char *p = json_at(text, path, &n);
    char *end;

    if (!p)
        return NAN;
    double v = strtod(p, &end);
    return end == p + n ? v : NAN;
}
