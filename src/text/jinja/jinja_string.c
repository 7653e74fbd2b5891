/* jinja_string.c: text that remembers where its bytes came from, and characters in it as Python counts them. */
#include "text/jinja/jinja_run.h"

#include <string.h>
#include "text/utf8.h"

/* ---- building ---- */

static int reserve(jinja_run *r, jbuf *b, size_t more)
{
    if (more > UINT32_MAX - 1 - b->n)
        return j_fail(r, "a text of over 4 GiB");
    if (b->n + more + 1 <= b->cap)
        return KVANT_OK;
    size_t cap = b->cap < 64 ? 128 : 2 * b->cap;
    if (cap < b->n + more + 1)
        cap = b->n + more + 1;
    char *s = jarena_alloc(&r->mem, cap);
    uint8_t *mask = b->mask && s ? jarena_alloc(&r->mem, cap) : NULL;
    if (!s || (b->mask && !mask))
        return j_nomem(r);
    if (b->n)
        memcpy(s, b->s, b->n);
    if (mask)
        memcpy(mask, b->mask, b->n);
    b->s = s;
    b->mask = mask;
    b->cap = cap;
    return KVANT_OK;
}

static int mix(jinja_run *r, jbuf *b)
{
    b->mask = jarena_alloc(&r->mem, b->cap);
    if (!b->mask)
        return j_nomem(r);
    memset(b->mask, b->origin, b->n);
    return KVANT_OK;
}

int jbuf_put(jinja_run *r, jbuf *b, const char *s, size_t n, int origin)
{
    if (n == 0)
        return KVANT_OK;
    KVANT_TRY(j_charge_bytes(r, n));
    KVANT_TRY(reserve(r, b, n));
    if (b->n == 0)
        b->origin = origin;
    if (b->origin != origin && !b->mask)
        KVANT_TRY(mix(r, b));
    if (b->mask)
        memset(b->mask + b->n, origin, n);
    memcpy(b->s + b->n, s, n);
    b->n += n;
    return KVANT_OK;
}

int jbuf_str(jinja_run *r, jbuf *b, const jstr *s, size_t from, size_t n)
{
    if (s->origin != J_MIXED || n == 0)
        return jbuf_put(r, b, s->s + from, n, s->origin);
    KVANT_TRY(j_charge_bytes(r, n));
    KVANT_TRY(reserve(r, b, n));
    if (!b->mask)
        KVANT_TRY(mix(r, b));
    memcpy(b->mask + b->n, s->mask + from, n);
    memcpy(b->s + b->n, s->s + from, n);
    b->n += n;
    return KVANT_OK;
}

int jbuf_done(jinja_run *r, jbuf *b, jval *out)
{
    jstr *s = jarena_alloc(&r->mem, sizeof *s);

    if (!s)
        return j_nomem(r);
    KVANT_TRY(reserve(r, b, 0));
    b->s[b->n] = 0;
    *s = (jstr){ b->s, b->mask, (uint32_t)b->n, (uint8_t)(b->mask ? J_MIXED : b->origin), 0 };
    *out = (jval){ .type = J_STR, .u.s = s };
    *b = (jbuf){ 0 };
    return KVANT_OK;
}

int j_slice(jinja_run *r, const jstr *s, size_t from, size_t to, jval *out)
{
    jstr *t = jarena_alloc(&r->mem, sizeof *t);

    if (!t)
        return j_nomem(r);
    *t = (jstr){ s->s + from, s->origin == J_MIXED ? s->mask + from : NULL, (uint32_t)(to - from), s->origin,
                 s->markup };
    *out = (jval){ .type = J_STR, .u.s = t };
    return KVANT_OK;
}

int j_text(jinja_run *r, const char *s, jval *out)
{
    return j_string(&r->mem, s, strlen(s), JINJA_TEMPLATE, out) ? KVANT_OK : j_nomem(r);
}

int jstr_any_data(const jstr *s)
{
    return s->origin == J_MIXED ? memchr(s->mask, JINJA_DATA, s->n) != NULL : s->n && s->origin == JINJA_DATA;
}

/* ---- characters ---- */

uint32_t jstr_char(const jstr *s, size_t i, int *len)
{
    uint32_t c = (uint8_t)s->s[i];

    *len = 1;
    if (c < 0x80)
        return c;
    int k = utf8_decode((const uint8_t *)s->s + i, s->n - i, &c);
    if (k <= 0)
        return 0xFFFD;
    *len = k;
    return c;
}

size_t jstr_back(const jstr *s, size_t end)
{
    size_t from = end - 1;
    uint32_t c;

    while (from > 0 && end - from < 4 && ((uint8_t)s->s[from] & 0xC0) == 0x80)
        from--;
    return utf8_decode((const uint8_t *)s->s + from, end - from, &c) == (int)(end - from) ? from : end - 1;
}

size_t jstr_length(const jstr *s)
{
    size_t n = 0;
    int k;

    for (size_t i = 0; i < s->n; i += (size_t)k, n++)
        jstr_char(s, i, &k);
    return n;
}

size_t jstr_byte(const jstr *s, size_t chars)
{
    size_t i = 0;
    int k;

    for (; chars && i < s->n; chars--, i += (size_t)k)
        jstr_char(s, i, &k);
    return i;
}

size_t jstr_find(const jstr *s, const jstr *what, size_t from, size_t to, int last)
{
    if (from > to || what->n > to - from)
        return SIZE_MAX;
    if (!last) {
        const char *at = what->n ? memmem(s->s + from, to - from, what->s, what->n) : s->s + from;
        return at ? (size_t)(at - s->s) : SIZE_MAX;
    }
    for (size_t at = to - what->n;; at--) {
        if (memcmp(s->s + at, what->s, what->n) == 0)
            return at;
        if (at == from)
            return SIZE_MAX;
    }
}

size_t j_seek(jinja_run *r, const jstr *s, const jstr *what, size_t from, size_t to, int last)
{
    int64_t *steps = &r->mem.steps;

    if (from > to || what->n > to - from)
        return SIZE_MAX;
    if (!last || !what->n) {
        const size_t at = jstr_find(s, what, from, to, last);
        *steps -= 4 + (int64_t)((at == SIZE_MAX ? to : at) - from + what->n) / 16;
        return at;
    }
    *steps -= 1;
    for (size_t end = to - what->n + 1; end > from && *steps >= 0;) { /* from place to place of the first byte */
        const char *hit = memrchr(s->s + from, what->s[0], end - from);
        const size_t at = hit ? (size_t)(hit - s->s) : from;
        *steps -= (int64_t)((end - at) / 64 + what->n / 64) + 1;
        if (!hit || memcmp(hit, what->s, what->n) == 0)
            return hit ? at : SIZE_MAX;
        end = at;
    }
    return SIZE_MAX;
}

/* str.isspace() */
int j_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static int stripped(uint32_t c, const jstr *chars)
{
    int k;

    if (!chars)
        return j_is_space(c);
    for (size_t i = 0; i < chars->n; i += (size_t)k)
        if (jstr_char(chars, i, &k) == c)
            return 1;
    return 0;
}

int j_strip(jinja_run *r, const jstr *s, const jstr *chars, int left, int right, size_t *from, size_t *to)
{
    const size_t one = chars ? chars->n / 8 : 0; /* steps to look for one character */
    int k;

    *from = 0;
    *to = s->n;
    while (left && *from < *to && stripped(jstr_char(s, *from, &k), chars)) {
        KVANT_TRY(j_charge(r, one + (*from % 16 == 0)));
        *from += (size_t)k;
    }
    while (right && *to > *from) {
        size_t at = jstr_back(s, *to);
        KVANT_TRY(j_charge(r, one + (*to % 8 == 0)));
        if (!stripped(jstr_char(s, at, &k), chars))
            break;
        *to = at;
    }
    return j_charge(r, one + 1);
}
