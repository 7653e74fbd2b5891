/* tool_json.c: see tool_json.h. */
#include "server/tools/tool_json.h"

#include <stdlib.h>
#include <string.h>
#include "server/tools/dialect.h"
#include "server/tools/json_steps.h"
#include "server/tools/tool_schema.h"

enum { MOST_DEPTH = 200 };

/* ---- to JSON ---- */

static int value(json_steps *r);
static int group(json_steps *r, char close, char separator);

/* Behind a backslash: what JSON has no name for stands for itself. */
static void put_escape(json_steps *r, char c)
{
    if (strchr("\"\\/bfnrtu", c))
        sbuf_put(r->out, (char[]){ '\\', c }, 2);
    else if (c != '\n')
        sbuf_put(r->out, &c, 1);
}

/* Gemma's quotes, of several characters. */
static const char *const long_quotes[] = { "<|\"|>", "<escape>" };

static size_t long_quote(const json_steps *r)
{
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(long_quotes[i]);
        if ((size_t)(r->end - r->s) >= n && memcmp(r->s, long_quotes[i], n) == 0)
            return n;
    }
    return 0;
}

static int at_text(json_steps *r)
{
    return json_at(r, '"') || json_at(r, '\'') || long_quote(r);
}

static int text(json_steps *r)
{
    const size_t n = long_quote(r), k = n ? n : 1;
    const char *quote = r->s;

    sbuf_put(r->out, "\"", 1);
    for (r->s += k; (size_t)(r->end - r->s) >= k && memcmp(r->s, quote, k) != 0; r->s++) {
        const unsigned char c = (unsigned char)*r->s;
        if (c == '\\' && n)
            sbuf_put(r->out, "\\\\", 2);
        else if (c == '\\' && r->s + 1 < r->end)
            put_escape(r, *++r->s);
        else if (c == '"')
            sbuf_put(r->out, "\\\"", 2);
        else if (c == '\n')
            sbuf_put(r->out, "\\n", 2);
        else if (c < 0x20)
            sbuf_printf(r->out, "\\u%04x", c);
        else
            sbuf_put(r->out, r->s, 1);
    }
    sbuf_put(r->out, "\"", 1);
    const int ends = (size_t)(r->end - r->s) >= k;
    r->s += ends ? k : 0;
    return ends;
}

static size_t digits(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

/* As JSON has them. */
static int is_number(const char *s, size_t n)
{
    size_t i = n && s[0] == '-', k = digits(s + i, n - i);

    if (!k || (k > 1 && s[i] == '0'))
        return 0;
    i += k;
    if (i < n && s[i] == '.') {
        k = digits(s + i + 1, n - i - 1);
        if (!k)
            return 0;
        i += k + 1;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i += 1 + (i + 1 < n && (s[i + 1] == '-' || s[i + 1] == '+'));
        k = i < n ? digits(s + i, n - i) : 0;
        if (!k)
            return 0;
        i += k;
    }
    return i == n;
}

static int bare(json_steps *r)
{
    static const char *const words[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };
    const size_t n = json_word(r);
    const char *s = r->s;

    if (!n)
        return 0;
    r->s += n;
    if (json_at(r, '(') && dialect_name_char(*s)) {
        r->s++;
        sbuf_printf(r->out, "{\"name\":\"%.*s\",\"arguments\":{", n < 200 ? (int)n : 200, s);
        if (!group(r, ')', '='))
            return 0;
        sbuf_puts(r->out, "}}");
        return 1;
    }
    for (int i = 0; i < 6; i++)
        if (n == strlen(words[i / 2][i % 2]) && memcmp(s, words[i / 2][i % 2], n) == 0) {
            sbuf_puts(r->out, words[i / 2][1]);
            return 1;
        }
    sbuf_put(r->out, s, n);
    return is_number(s, n);
}

/* The key of an object, which may be without quotes, or the name of a call's parameter, which is. */
static int key(json_steps *r, char separator)
{
    if (separator == ':' && at_text(r)) {
        if (!text(r))
            return 0;
    } else {
        const size_t n = json_word(r);
        sbuf_printf(r->out, "\"%.*s\"", n < 200 ? (int)n : 200, r->s);
        r->s += n;
        if (!n)
            return 0;
    }
    if (!json_at(r, separator))
        return 0;
    r->s++;
    sbuf_put(r->out, ":", 1);
    return 1;
}

/* Behind '[' or '{' or '(', up to `close`.  separator: what stands behind a key; 0: there are none. */
static int group(json_steps *r, char close, char separator)
{
    for (int first = 1;; first = 0) {
        if (json_at(r, close)) {
            r->s++;
            return 1;
        }
        if (!first && !json_at(r, ','))
            return 0;
        if (!first) {
            r->s++;
            if (json_at(r, close))
                continue;
            sbuf_put(r->out, ",", 1);
        }
        if (separator && !key(r, separator))
            return 0;
        if (!value(r))
            return 0;
    }
}

static int value(json_steps *r)
{
    int ok = 0;

    json_skip(r);
    if (r->s == r->end || ++r->depth > MOST_DEPTH || r->out->error)
        return 0;
    if (at_text(r)) {
        ok = text(r);
    } else if (*r->s == '{' || *r->s == '[' || *r->s == '(') {
        const char open = *r->s++;
        sbuf_put(r->out, open == '{' ? "{" : "[", 1);
        ok = group(r, open == '{' ? '}' : open == '[' ? ']' : ')', open == '{' ? ':' : 0);
        sbuf_put(r->out, open == '{' ? "}" : "]", 1);
    } else {
        ok = bare(r);
    }
    r->depth--;
    return ok;
}

int tool_json_normal(const char *s, size_t n, sbuf *out)
{
    json_steps r = { s, s + n, out, 0 };

    if (!value(&r))
        return 0;
    json_skip(&r);
    return r.s == r.end && !out->error;
}

json_t *tool_json_read(const char *s, size_t n)
{
    sbuf b = { 0 };
    json_t *v = json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    if (!v && tool_json_normal(s, n, &b))
        v = json_loadb(b.s, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    sbuf_free(&b);
    return v;
}

void tool_json_put(const json_t *v, sbuf *out)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_t *back = s ? json_loads(s, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;

    if (s && (!back || !json_equal(back, v))) {
        free(s); /* jansson's */
        s = json_dumps(v, JSON_ENCODE_ANY);
    }
    json_decref(back);
    if (s)
        sbuf_puts(out, s);
    else
        out->error = 1;
    free(s);
}

/* An object in the spelling of s[n] -> *out; integers of any length are as good as others. */
static int put_object(const char *s, size_t n, const tool *t, sbuf *out)
{
    sbuf normal = { 0 };
    json_t *v = NULL;

    if (tool_json_normal(s, n, &normal))
        v = json_loadb(normal.s, normal.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    const int ok = json_is_object(v) && tool_has_required(t, v);
    if (ok)
        sbuf_put(out, normal.s, normal.n);
    json_decref(v);
    sbuf_free(&normal);
    return ok;
}

int tool_json_arguments(const char *s, size_t n, const tool *t, sbuf *out)
{
    json_t *v = json_loadb(s, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    int ok = json_is_object(v) && tool_has_required(t, v);

    if (ok) /* as it came */
        sbuf_put(out, s, n);
    else if (json_is_string(v))
        ok = put_object(json_string_value(v), json_string_length(v), t, out);
    else if (!v)
        ok = put_object(s, n, t, out);
    json_decref(v);
    return ok;
}
