/* tool_json.c: see tool_json.h. */
#include "server/tools/tool_json.h"

#include <stdlib.h>
#include <string.h>
#include "server/tools/dialect.h"
#include "server/tools/tool_schema.h"

enum { MOST_DEPTH = 200 };

/* ---- to JSON ---- */

typedef struct call_reader {
    const char *s, *end;
    sbuf *out;
    int depth;
} call_reader;

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '+' || c == '.';
}

static void skip(call_reader *r)
{
    while (r->s < r->end && is_blank(*r->s))
        r->s++;
}

static int at(call_reader *r, char c)
{
    skip(r);
    return r->s < r->end && *r->s == c;
}

static int value(call_reader *r);

/* Behind a backslash: what JSON has no name for stands for itself. */
static void put_escape(call_reader *r, char c)
{
    if (strchr("\"\\/bfnrtu", c))
        sbuf_put(r->out, (char[]){ '\\', c }, 2);
    else if (c != '\n')
        sbuf_put(r->out, &c, 1);
}

/* Gemma's quotes, of several characters. */
static const char *const long_quotes[] = { "<|\"|>", "<escape>" };

static size_t long_quote(const call_reader *r)
{
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(long_quotes[i]);
        if ((size_t)(r->end - r->s) >= n && memcmp(r->s, long_quotes[i], n) == 0)
            return n;
    }
    return 0;
}

static int at_text(call_reader *r)
{
    return at(r, '"') || at(r, '\'') || long_quote(r);
}

static int text(call_reader *r)
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

static size_t word(const call_reader *r)
{
    size_t n = 0;

    while (r->s + n < r->end && (is_word(r->s[n]) || r->s[n] == '/'))
        n++;
    return n;
}

/* Behind '(': KEY=VALUE, ... ')'. */
static int keywords(call_reader *r)
{
    for (int first = 1;; first = 0) {
        if (at(r, ')')) {
            r->s++;
            return 1;
        }
        if (!first) { /* a comma, as was seen below */
            r->s++;
            if (at(r, ')'))
                continue;
        }
        skip(r);
        const size_t n = word(r);
        if (!n)
            return 0;
        sbuf_printf(r->out, "%s\"%.*s\":", first ? "" : ",", n < 200 ? (int)n : 200, r->s);
        r->s += n;
        if (!at(r, '='))
            return 0;
        r->s++;
        if (!value(r))
            return 0;
        if (!at(r, ',') && !at(r, ')'))
            return 0;
    }
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

static int bare(call_reader *r)
{
    static const char *const words[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };
    const size_t n = word(r);
    const char *s = r->s;

    if (!n)
        return 0;
    r->s += n;
    if (at(r, '(') && dialect_name_char(*s)) {
        r->s++;
        sbuf_printf(r->out, "{\"name\":\"%.*s\",\"arguments\":{", n < 200 ? (int)n : 200, s);
        if (!keywords(r))
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

/* A key of an object, without quotes too. */
static int key(call_reader *r)
{
    if (at_text(r)) {
        if (!text(r))
            return 0;
    } else {
        const size_t n = word(r);
        sbuf_printf(r->out, "\"%.*s\"", n < 200 ? (int)n : 200, r->s);
        r->s += n;
        if (!n)
            return 0;
    }
    if (!at(r, ':'))
        return 0;
    r->s++;
    sbuf_put(r->out, ":", 1);
    return 1;
}

/* Behind '[' or '{' or '(', up to `close`. */
static int group(call_reader *r, char close)
{
    for (int first = 1;; first = 0) {
        if (at(r, close)) {
            r->s++;
            return 1;
        }
        if (!first && !at(r, ','))
            return 0;
        if (!first) {
            r->s++;
            if (at(r, close))
                continue;
            sbuf_put(r->out, ",", 1);
        }
        if (close == '}' && !key(r))
            return 0;
        if (!value(r))
            return 0;
    }
}

static int value(call_reader *r)
{
    int ok = 0;

    skip(r);
    if (r->s == r->end || ++r->depth > MOST_DEPTH || r->out->error)
        return 0;
    if (at_text(r)) {
        ok = text(r);
    } else if (*r->s == '{' || *r->s == '[' || *r->s == '(') {
        const char open = *r->s++;
        sbuf_put(r->out, open == '{' ? "{" : "[", 1);
        ok = group(r, open == '{' ? '}' : open == '[' ? ']' : ')');
        sbuf_put(r->out, open == '{' ? "}" : "]", 1);
    } else {
        ok = bare(r);
    }
    r->depth--;
    return ok;
}

int tool_json_normal(const char *s, size_t n, sbuf *out)
{
    call_reader r = { s, s + n, out, 0 };

    if (!value(&r))
        return 0;
    skip(&r);
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

/* ---- calls ---- */

enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_NOTHING, KEY_FUNCTION };
static const struct {
    const char *name;
    int kind;
} keys[] = {
    { "name", KEY_NAME },
    { "tool_name", KEY_NAME },
    { "tool", KEY_NAME },
    { "function_name", KEY_NAME },
    { "function", KEY_FUNCTION },
    { "arguments", KEY_ARGUMENTS },
    { "parameters", KEY_ARGUMENTS },
    { "args", KEY_ARGUMENTS },
    { "input", KEY_ARGUMENTS },
    { "params", KEY_ARGUMENTS },
    { "type", KEY_NOTHING },
    { "id", KEY_NOTHING },
    { "index", KEY_NOTHING },
    { "call_id", KEY_NOTHING },
    { "tool_call_id", KEY_NOTHING },
    { "recipient", KEY_NOTHING },
    { "function_call", KEY_FUNCTION },
    { "tool_call", KEY_FUNCTION },
    { "tool_calls", KEY_FUNCTION },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static int key_kind(const char *s, size_t n)
{
    for (int i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].name) == n && memcmp(keys[i].name, s, n) == 0)
            return keys[i].kind;
    return KEY_OTHER;
}

int tool_json_find(const tool_set *tools, const char *s, size_t n)
{
    const int i = tool_set_find(tools, s, n);

    return i < 0 && n > 10 && memcmp(s, "functions.", 10) == 0 ? tool_set_find(tools, s + 10, n - 10) : i;
}

/* "functions.NAME:0" too. */
static int find_tool(const tool_set *tools, const char *s)
{
    const int i = s ? tool_json_find(tools, s, strlen(s)) : -1;

    return i < 0 && s ? tool_json_find(tools, s, strcspn(s, ":")) : i;
}

static int put_call(int which, json_t *arguments, json_t *calls)
{
    json_t *call = json_pack("[i,o]", which, arguments);

    return call && json_array_append_new(calls, call) == 0;
}

/* Arguments: an object, a text that holds one, or none where the tool wants none.  Never without what it requires. */
static int read_arguments(const json_t *v, const tool *t, json_t **out)
{
    *out = NULL;
    if (json_is_object(v))
        *out = json_incref((json_t *)v);
    else if (json_is_string(v))
        *out = json_string_length(v) ? tool_json_read(json_string_value(v), json_string_length(v)) : json_object();
    else if (!v || json_is_null(v))
        *out = json_object();
    if (json_is_object(*out) && tool_has_required(t, *out))
        return 1;
    json_decref(*out);
    *out = NULL;
    return 0;
}

static int read_call(const json_t *v, const tool_set *tools, json_t *calls, int depth)
{
    const json_t *arguments = NULL, *x;
    const char *key, *name = NULL;
    json_t *inner = NULL, *read;

    json_object_foreach((json_t *)v, key, x)
    {
        const int kind = key_kind(key, strlen(key));
        if (kind == KEY_OTHER || (kind == KEY_ARGUMENTS && arguments) || (kind == KEY_NAME && name))
            return 0;
        if (kind == KEY_NAME || (kind == KEY_FUNCTION && json_is_string(x)))
            name = json_string_value(x);
        else if (kind == KEY_FUNCTION)
            inner = (json_t *)x;
        else if (kind == KEY_ARGUMENTS)
            arguments = x;
    }
    if (inner && !name && !arguments && depth < 3) {
        size_t i;
        json_array_foreach(inner, i, x) if (!read_call(x, tools, calls, depth + 1)) return 0;
        return json_array_size(inner) || (json_is_object(inner) && read_call(inner, tools, calls, depth + 1));
    }
    const int which = inner ? -1 : find_tool(tools, name);
    return which >= 0 && read_arguments(arguments, &tools->tools[which], &read) && put_call(which, read, calls);
}

/* {"NAME": {arguments}}, as some models write. */
static int read_keyed(const json_t *v, const tool_set *tools, json_t *calls)
{
    void *it = json_object_iter((json_t *)v);
    const int which = it ? find_tool(tools, json_object_iter_key(it)) : -1;

    if (which < 0 || json_object_size(v) != 1 || !json_is_object(json_object_iter_value(it)) ||
        !tool_has_required(&tools->tools[which], json_object_iter_value(it)))
        return 0;
    return put_call(which, json_incref(json_object_iter_value(it)), calls);
}

int tool_json_calls(const json_t *v, const tool_set *tools, json_t *calls)
{
    size_t i;
    json_t *x;

    if (json_is_object(v))
        return read_keyed(v, tools, calls) || read_call(v, tools, calls, 0);
    json_array_foreach((json_t *)v, i, x) if (!json_is_object(x) || !tool_json_calls(x, tools, calls)) return 0;
    return json_array_size(v) > 0;
}

/* ---- the beginning of calls ---- */

/* Returns 1 if s[n] is a tool's name (whole), or the beginning of one. */
static int may_name(const char *s, size_t n, int whole, const tool_set *tools)
{
    if (n > 10 && memcmp(s, "functions.", 10) == 0)
        return 1;
    for (int i = 0; i < tools->n; i++) {
        const size_t k = strlen(tools->tools[i].name);
        if ((whole ? k == n : k >= n) && memcmp(tools->tools[i].name, s, n) == 0)
            return 1;
    }
    return !whole && n <= 10 && memcmp(s, "functions.", n) == 0;
}

static int may_key(const char *s, size_t n, int whole, const tool_set *tools)
{
    for (int i = 0; i < N_KEYS && !whole; i++)
        if (strlen(keys[i].name) >= n && memcmp(keys[i].name, s, n) == 0)
            return 1;
    return whole ? key_kind(s, n) != KEY_OTHER || may_name(s, n, 1, tools) : may_name(s, n, 0, tools);
}

/* A text in quotes at r->s: 1 and its bytes, 0: it goes on beyond the end. */
static int quoted(call_reader *r, const char **s, size_t *n)
{
    const char quote = *r->s++;

    *s = r->s;
    while (r->s < r->end && *r->s != quote)
        r->s += *r->s == '\\' && r->s + 1 < r->end ? 2 : 1;
    *n = (size_t)(r->s - *s);
    if (r->s >= r->end)
        return 0;
    r->s++;
    return 1;
}

/* Behind the key of arguments, or a tool's name as a key: an object, or a text that holds one. */
static int may_arguments(call_reader *r)
{
    if (!at(r, ':'))
        return r->s == r->end;
    r->s++;
    skip(r);
    if (r->s == r->end || *r->s == '{' || *r->s == 'n')
        return 1;
    return (*r->s == '"' || *r->s == '\'') && (r->s + 1 == r->end || strchr("{ \\", r->s[1]) || r->s[1] == *r->s);
}

/* Behind '{': 1 it may be a call, 0 it cannot. */
static int may_object(call_reader *r, const tool_set *tools)
{
    const char *s;
    size_t n;

    for (;;) {
        skip(r);
        if (r->s == r->end)
            return 1;
        if (*r->s != '"' && *r->s != '\'')
            return 0;
        if (!quoted(r, &s, &n))
            return may_key(s, n, 0, tools);
        if (!may_key(s, n, 1, tools))
            return 0;
        const int kind = key_kind(s, n);
        if (kind == KEY_ARGUMENTS || kind == KEY_OTHER)
            return may_arguments(r);
        if (!at(r, ':'))
            return r->s == r->end;
        r->s++;
        skip(r);
        if (r->s == r->end)
            return 1;
        if (*r->s == '"' || *r->s == '\'') {
            const int whole = quoted(r, &s, &n);
            if (kind != KEY_NOTHING && !may_name(s, n, whole, tools))
                return 0;
            if (!whole)
                return 1;
        } else {
            if (kind == KEY_NAME || *r->s == '{' || *r->s == '[')
                return kind == KEY_FUNCTION;
            r->s += word(r);
        }
        if (!at(r, ','))
            return r->s == r->end || *r->s == '}';
        r->s++;
    }
}

int tool_json_may_call(const char *s, size_t n, const tool_set *tools)
{
    call_reader r = { s, s + n, NULL, 0 };

    while (at(&r, '['))
        r.s++;
    if (at(&r, '{')) {
        r.s++;
        return may_object(&r, tools);
    }
    if (r.s == r.end)
        return 1;
    const size_t k = word(&r);
    const int whole = r.s + k < r.end;
    if (!k || !may_name(r.s, k, whole, tools))
        return 0;
    r.s += k;
    return at(&r, '(') || r.s == r.end;
}
