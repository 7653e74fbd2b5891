/* jsonw.c: the JSON writer.  Owns commas, nesting, escapes and number text; the caller owns the buffer's lifetime. */
#include "base/text/jsonw.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "base/mem.h"

/* first[depth]: what the innermost container is and whether it is still empty. */
enum { IN_OBJECT = 1, IN_ARRAY = 2, NOT_EMPTY = 4 };
enum { MAX_DEPTH = 64 };

void jsonw_init(jsonw *w)
{
    memset(w, 0, sizeof *w);
}

void jsonw_free(jsonw *w)
{
    kvant_free(w->buf);
    jsonw_init(w);
}

static int reserve(jsonw *w, size_t more)
{
    size_t need, cap = w->cap ? w->cap : 256;

    if (w->error)
        return 0;
    if (!size_add(w->len, more, &need) || !size_add(need, 1, &need)) {
        w->error |= 1;
        return 0;
    }
    if (need <= w->cap)
        return 1;
    if (w->max && need > w->max) {
        w->error = JSONW_FULL;
        return 0;
    }
    while (cap < need)
        if (!size_mul(cap, 2, &cap)) {
            w->error |= 1;
            return 0;
        }
    char *p = kvant_realloc(w->buf, w->cap, cap);
    if (!p) {
        w->error |= 1;
        return 0;
    }
    w->buf = p;
    w->cap = cap;
    return 1;
}

static void put(jsonw *w, const char *s, size_t n)
{
    if (!reserve(w, n))
        return;
    if (n)
        memcpy(w->buf + w->len, s, n);
    w->len += n;
    w->buf[w->len] = 0;
}

/* Comma before a value or a key, where one is due; a value straight after its key needs none. */
static void separate(jsonw *w)
{
    unsigned char *top = w->depth ? &w->first[w->depth - 1] : NULL;

    if (w->after_key) {
        w->after_key = 0;
        return;
    }
    if (top && (*top & NOT_EMPTY))
        put(w, ",", 1);
    if (top)
        *top |= NOT_EMPTY;
}

/* A value inside an object must follow a key; everything else would not be JSON. */
static int value_allowed(jsonw *w)
{
    if (w->depth && (w->first[w->depth - 1] & IN_OBJECT) && !w->after_key)
        w->error |= 1;
    return !w->error;
}

static void open_container(jsonw *w, const char *brace, unsigned char kind)
{
    if (!value_allowed(w))
        return;
    if (w->depth >= MAX_DEPTH) {
        w->error |= 1;
        return;
    }
    separate(w);
    w->first[w->depth++] = kind;
    put(w, brace, 1);
}

void jsonw_object(jsonw *w)
{
    open_container(w, "{", IN_OBJECT);
}

void jsonw_array(jsonw *w)
{
    open_container(w, "[", IN_ARRAY);
}

void jsonw_end(jsonw *w)
{
    if (w->depth == 0 || w->after_key) {
        w->error |= 1;
        return;
    }
    w->depth--;
    put(w, w->first[w->depth] & IN_OBJECT ? "}" : "]", 1);
}

/* Length of the well-formed UTF-8 character at s (n bytes left), 0 if there is none (Unicode table 3-7). */
static size_t utf8_len(const unsigned char *s, size_t n)
{
    unsigned char lo = 0x80, hi = 0xBF;
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        len = 2;
    else if ((s[0] & 0xF0) == 0xE0)
        len = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xE0)
        lo = 0xA0;
    if (s[0] == 0xED)
        hi = 0x9F;
    if (s[0] == 0xF0)
        lo = 0x90;
    if (s[0] == 0xF4)
        hi = 0x8F;
    if (n < len || s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    return len;
}

static void put_ascii(jsonw *w, unsigned char c)
{
    static const char *const names = "\"\"\\\\\bb\ff\nn\rr\tt";
    char esc[8];

    for (const char *p = names; *p; p += 2)
        if (c == (unsigned char)p[0]) {
            esc[0] = '\\';
            esc[1] = p[1];
            put(w, esc, 2);
            return;
        }
    if (c >= 0x20 && c != 0x7F) {
        put(w, (const char *)&c, 1);
        return;
    }
    snprintf(esc, sizeof esc, "\\u%04x", c);
    put(w, esc, 6);
}

static void put_string(jsonw *w, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;

    put(w, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(p + i, n - i);
        if (len == 1) {
            put_ascii(w, p[i]);
        } else if (len) {
            put(w, s + i, len);
        } else {
            put(w, "\xEF\xBF\xBD", 3);
            len = 1;
        }
        i += len;
    }
    put(w, "\"", 1);
}

void jsonw_key(jsonw *w, const char *key)
{
    if (w->depth == 0 || !(w->first[w->depth - 1] & IN_OBJECT) || w->after_key) {
        w->error |= 1;
        return;
    }
    separate(w);
    put_string(w, key, strlen(key));
    put(w, ":", 1);
    w->after_key = 1;
}

void jsonw_strn(jsonw *w, const char *s, size_t n)
{
    if (!value_allowed(w))
        return;
    separate(w);
    put_string(w, s, n);
}

void jsonw_str(jsonw *w, const char *s)
{
    if (s)
        jsonw_strn(w, s, strlen(s));
    else
        jsonw_null(w);
}

void jsonw_raw(jsonw *w, const char *s)
{
    if (!value_allowed(w))
        return;
    separate(w);
    put(w, s, strlen(s));
}

void jsonw_int(jsonw *w, int64_t v)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, v);
    jsonw_raw(w, text);
}

void jsonw_num(jsonw *w, double v)
{
    char text[40];

    if (!isfinite(v)) {
        jsonw_null(w);
        return;
    }
    snprintf(text, sizeof text, "%.9g", v);
    jsonw_raw(w, text);
}

void jsonw_bool(jsonw *w, int v)
{
    jsonw_raw(w, v ? "true" : "false");
}

void jsonw_null(jsonw *w)
{
    jsonw_raw(w, "null");
}

void jsonw_kstr(jsonw *w, const char *key, const char *s)
{
    jsonw_key(w, key);
    jsonw_str(w, s);
}

void jsonw_kint(jsonw *w, const char *key, int64_t v)
{
    jsonw_key(w, key);
    jsonw_int(w, v);
}

void jsonw_knum(jsonw *w, const char *key, double v)
{
    jsonw_key(w, key);
    jsonw_num(w, v);
}

void jsonw_kbool(jsonw *w, const char *key, int v)
{
    jsonw_key(w, key);
    jsonw_bool(w, v);
}

int jsonw_error(const jsonw *w)
{
    return w->error;
}
