/* request_body.c: a request body as a JSON object, and its fields by type; an error names the field and its limits. */
#include "server/request/request_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "server/request/json_scan.h"

int api_no_memory(api_error *e)
{
    return api_fail(e, API_UNAVAILABLE, "", "out of memory");
}

/* A field; NULL when it is missing or null. */
const json_t *body_field(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

/* 100.0 and 1e2 are whole numbers too. */
static int whole_number(const json_t *x, int64_t *v)
{
    const double d = json_number_value(x);

    if (json_is_integer(x))
        *v = json_integer_value(x);
    else if (json_is_real(x) && fabs(d) < 9e15 && d == floor(d))
        *v = (int64_t)d;
    else
        return 0;
    return 1;
}

int body_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *v, api_error *e)
{
    const json_t *x = body_field(o, key);

    if (!x)
        return API_OK;
    int64_t n;
    if (!whole_number(x, &n) || n < lo || n > hi)
        return body_wrong(e, key, x, "%s: wanted an integer from %lld to %lld", key, (long long)lo, (long long)hi);
    *v = n;
    return API_OK;
}

int body_count(const json_t *o, const char *key, int lo, int hi, int *v, api_error *e)
{
    int64_t x = *v;

    API_TRY(body_int(o, key, lo, hi, &x, e));
    *v = (int)x;
    return API_OK;
}

int body_num(const json_t *o, const char *key, double lo, double hi, float *v, api_error *e)
{
    const json_t *x = body_field(o, key);

    if (!x)
        return API_OK;
    double d = json_number_value(x);
    if (!json_is_number(x) || !(d >= lo && d <= hi))
        return body_wrong(e, key, x, "%s: wanted a number from %g to %g", key, lo, hi);
    *v = (float)d;
    return API_OK;
}

int body_bool(const json_t *o, const char *key, int *v, api_error *e)
{
    const json_t *x = body_field(o, key);

    if (!x)
        return API_OK;
    if (!json_is_boolean(x))
        return body_wrong(e, key, x, "%s: wanted true or false", key);
    *v = json_is_true(x);
    return API_OK;
}

int body_string(const json_t *o, const char *key, size_t max, const char **v, size_t *n, api_error *e)
{
    const json_t *x = body_field(o, key);

    *v = NULL;
    if (!x)
        return API_OK;
    if (!body_is_text(x) || json_string_length(x) > max)
        return body_wrong(e, key, x, "%s: wanted a string of at most %zu bytes", key, max);
    *v = json_string_value(x);
    *n = json_string_length(x);
    return API_OK;
}

int body_is_text(const json_t *v)
{
    return json_is_string(v) && !json_is_wide(v);
}

const char *body_text(const json_t *v)
{
    return body_is_text(v) ? json_string_value(v) : NULL;
}

enum { BODY_FOUND = 48 };

/* Appends to a text of BODY_FOUND as long as there is room; then the dump ends. */
static int add_found(const char *piece, size_t n, void *text)
{
    static const char more[] = "...";
    const size_t at = strlen(text), room = BODY_FOUND - sizeof more - at;

    memcpy((char *)text + at, piece, n < room ? n : room);
    if (n <= room)
        return 0;
    memcpy((char *)text + at + room, more, sizeof more);
    return -1;
}

static const char *found_text(const json_t *v, char text[BODY_FOUND])
{
    memset(text, 0, BODY_FOUND);
    if (!v || json_is_wide(v))
        snprintf(text, BODY_FOUND, "%.40s", v ? json_string_value(v) + 1 : "nothing");
    else
        json_dump_callback(v, add_found, text,
                           JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    json_unmark(text);
    return text;
}

int body_wrong(api_error *e, const char *key, const json_t *v, const char *fmt, ...)
{
    static const char mark[] = ": wanted ";
    char found[BODY_FOUND], text[sizeof e->message];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *at = strstr(text, mark);
    const int n = (int)(at ? at - text : (long)strlen(text));
    return api_fail(e, BAD, key, "%.*s: found %s, %s", n, text, found_text(v, found), at ? at + 2 : "");
}

int body_put(json_t *out, const char *key, json_t *v, api_error *e)
{
    return json_object_set_new(out, key, v) == 0 ? API_OK : api_no_memory(e);
}

int body_copy(const json_t *o, const char *key, json_t *out, const char *as, api_error *e)
{
    const json_t *v = body_field(o, key);

    return !v || json_object_set(out, as, (json_t *)v) == 0 ? API_OK : api_no_memory(e);
}

int body_copy_rest(const json_t *o, const char *const *own, size_t n, json_t *out, api_error *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        size_t i = 0;
        while (i < n && strcmp(key, own[i]) != 0)
            i++;
        if (i == n && json_object_set(out, key, v) != 0)
            return api_no_memory(e);
    }
    return API_OK;
}

static int same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

static int disagree(const char *from, const char *key, const json_t *v, const json_t *said, api_error *e)
{
    char found[BODY_FOUND], wanted[BODY_FOUND];

    return api_fail(e, BAD, from, "%s: says %s %s, wanted %s, as another field says", from, key, found_text(v, found),
                    found_text(said, wanted));
}

int body_say(json_t *o, const char *from, const char *key, json_t *v, api_error *e)
{
    const json_t *said = body_field(o, key);
    int kind = API_OK;

    if (!v || (!said && json_object_set(o, key, v) != 0))
        kind = api_no_memory(e);
    else if (said && !same(said, v))
        kind = disagree(from, key, v, said, e);
    json_decref(v);
    return kind;
}

int body_check_names(const json_t *o, const char *const *names, api_error *e)
{
    const json_t *said = NULL;
    const char *by = NULL;

    for (; *names; names++) {
        const json_t *v = body_field(o, *names);
        if (v && said && !same(said, v))
            return disagree(*names, by, v, said, e);
        by = v ? *names : by;
        said = v ? v : said;
    }
    return API_OK;
}

int body_read(const char *body, size_t len, json_t **out, api_error *e)
{
    kvant_diag diag = { "" };

    if (len == 0)
        return api_fail(e, BAD, "", "body: empty, wanted a JSON object");
    const int code = json_read(body, len, out, &diag);
    if (code != KVANT_OK)
        return code == KVANT_ENOMEM ? api_no_memory(e) : api_fail(e, BAD, "", "body: %s", diag.text);
    if (json_is_object(*out))
        return API_OK;
    json_decref(*out);
    *out = NULL;
    return api_fail(e, BAD, "", "body: wanted a JSON object");
}
