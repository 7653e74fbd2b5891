/* tool_json_calls.c: the calls that a JSON value tells of, and whether the beginning of one may still become calls. */
#include "server/tools/tool_json.h"

#include <string.h>
#include "server/tools/json_steps.h"
#include "server/tools/tool_schema.h"

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
static int quoted(json_steps *r, const char **s, size_t *n)
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
static int may_arguments(json_steps *r)
{
    if (!json_at(r, ':'))
        return r->s == r->end;
    r->s++;
    json_skip(r);
    if (r->s == r->end || *r->s == '{' || *r->s == 'n')
        return 1;
    return (*r->s == '"' || *r->s == '\'') && (r->s + 1 == r->end || strchr("{ \\", r->s[1]) || r->s[1] == *r->s);
}

/* Behind '{': 1 it may be a call, 0 it cannot. */
static int may_object(json_steps *r, const tool_set *tools)
{
    const char *s;
    size_t n;

    for (;;) {
        json_skip(r);
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
        if (!json_at(r, ':'))
            return r->s == r->end;
        r->s++;
        json_skip(r);
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
            r->s += json_word(r);
        }
        if (!json_at(r, ','))
            return r->s == r->end || *r->s == '}';
        r->s++;
    }
}

int tool_json_may_call(const char *s, size_t n, const tool_set *tools)
{
    json_steps r = { .s = s, .end = s + n };

    while (json_at(&r, '['))
        r.s++;
    if (json_at(&r, '{')) {
        r.s++;
        return may_object(&r, tools);
    }
    if (r.s == r.end)
        return 1;
    const size_t k = json_word(&r);
    const int whole = r.s + k < r.end;
    if (!k || !may_name(r.s, k, whole, tools))
        return 0;
    r.s += k;
    return json_at(&r, '(') || r.s == r.end;
}
