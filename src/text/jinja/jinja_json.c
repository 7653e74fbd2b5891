/* jinja_json.c: JSON -> values of a run, and the variables of a template. */
#include "text/jinja/jinja_vm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "text/utf8.h"

typedef struct json_text {
    jinja_run *r;
    const char *name, *s;
    size_t n, at;
} json_text;

static int fail(const json_text *j, const char *what)
{
    return kvant_fail(j->r->diag, KVANT_EINVAL, "%s: %s at byte %zu of its JSON", j->name, what, j->at);
}

static int no_memory(const json_text *j)
{
    if (j->r->mem.steps < 0)
        return kvant_fail(j->r->diag, KVANT_EINVAL, "%s: more than %d steps", j->name, JINJA_MAX_STEPS);
    if (j->r->mem.full)
        return kvant_fail(j->r->diag, KVANT_EINVAL, "%s: more than %d MiB of values", j->name, JINJA_MAX_MEMORY >> 20);
    return kvant_fail(j->r->diag, KVANT_ENOMEM, "%s: out of memory", j->name);
}

static char peek(json_text *j)
{
    while (j->at < j->n && strchr(" \t\r\n", j->s[j->at]) && j->s[j->at])
        j->at++;
    return j->at < j->n ? j->s[j->at] : 0;
}

static int hex4(const json_text *j, size_t at, uint32_t *out)
{
    char text[5] = { 0 }, *end;

    if (at + 4 > j->n)
        return 0;
    memcpy(text, j->s + at, 4);
    *out = (uint32_t)strtoul(text, &end, 16);
    return end == text + 4 && text[0] != '-' && text[0] != '+' && text[0] != ' ';
}

/* The escape behind a backslash; its bytes -> out. Lone surrogates become U+FFFD. */
static int escape(json_text *j, uint8_t *out, size_t *len)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = j->at < j->n ? j->s[j->at] : 0, *simple = c ? strchr(from, c) : NULL;
    uint32_t u, low;

    if (simple) {
        out[0] = (uint8_t)to[simple - from];
        *len = 1;
        j->at++;
        return KVANT_OK;
    }
    if (c != 'u' || !hex4(j, j->at + 1, &u))
        return fail(j, "not an escape");
    j->at += 5;
    if (u >= 0xD800 && u < 0xDC00 && j->at + 1 < j->n && j->s[j->at] == '\\' && j->s[j->at + 1] == 'u' &&
        hex4(j, j->at + 2, &low) && low >= 0xDC00 && low < 0xE000) {
        u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
        j->at += 6;
    }
    *len = (size_t)utf8_encode(u >= 0xD800 && u < 0xE000 ? 0xFFFD : u, out);
    return KVANT_OK;
}

static size_t string_end(const json_text *j)
{
    size_t at = j->at;

    while (at < j->n && j->s[at] != '"')
        at += j->s[at] == '\\' ? 2 : 1;
    return at;
}

static int string(json_text *j, jval *out)
{
    j->at++;
    const size_t end = string_end(j);
    size_t n = 0, len = 0;

    if (end >= j->n)
        return fail(j, "a string without end");
    jstr *s = jarena_alloc(&j->r->mem, sizeof *s + end - j->at + 1);
    if (!s)
        return no_memory(j);
    char *text = (char *)(s + 1);
    while (j->at < end) {
        size_t plain = j->at;
        while (plain < end && j->s[plain] != '\\')
            plain++;
        memcpy(text + n, j->s + j->at, plain - j->at);
        n += plain - j->at;
        j->at = plain;
        if (plain == end)
            break;
        j->at++;
        uint8_t c[4];
        KVANT_TRY(escape(j, c, &len));
        memcpy(text + n, c, len);
        n += len;
    }
    text[n] = 0;
    *s = (jstr){ text, NULL, (uint32_t)n, JINJA_DATA, 0 };
    *out = (jval){ .type = J_STR, .u.s = s };
    j->at = end + 1;
    return KVANT_OK;
}

/* Python's integers have no end: a number that no 64 bits hold is printed as it came. */
static int wide_number(json_text *j, const char *text, double f, jval *out)
{
    jinja_run *r = j->r;

    if ((r->n_wide & (r->n_wide + 1)) == 0) { /* full at 0, 1, 3, 7, ... */
        const char **more = jarena_alloc(&r->mem, (2 * (size_t)r->n_wide + 1) * sizeof *more);
        if (!more)
            return no_memory(j);
        if (r->n_wide)
            memcpy(more, r->wide, r->n_wide * sizeof *more);
        r->wide = more;
    }
    r->wide[r->n_wide++] = text;
    *out = j_float(f);
    out->wide = r->n_wide;
    return KVANT_OK;
}

static int number(json_text *j, jval *out)
{
    const char *s = j->s + j->at;
    char *end, *text;
    size_t n = 0;
    int whole = 1;

    for (; j->at + n < j->n && s[n] && strchr("+-.eE0123456789", s[n]); n++)
        whole &= strchr(".eE", s[n]) == NULL;
    if (!(text = jarena_alloc(&j->r->mem, n + 1)))
        return no_memory(j);
    memcpy(text, s, n);
    text[n] = 0;
    errno = 0;
    *out = whole ? j_int(strtoll(text, &end, 10)) : j_float(strtod(text, &end));
    if (n == 0 || *end || end == text)
        return fail(j, "not a value");
    j->at += n;
    if (!(whole && errno) && (whole || isfinite(out->u.f)))
        return KVANT_OK;
    return wide_number(j, text, strtod(text, NULL), out);
}

static int value(json_text *j, int depth, jval *out);

static int list(json_text *j, int depth, jval *out)
{
    jval v;

    if (depth > JINJA_MAX_DEPTH)
        return fail(j, "nested too deeply");
    if (!j_list(&j->r->mem, 0, out))
        return no_memory(j);
    out->u.l->fixed = 1;
    j->at++;
    for (int first = 1; peek(j) != ']'; first = 0) {
        if (!first && peek(j) != ',')
            return fail(j, "no ',' or ']'");
        j->at += !first;
        KVANT_TRY(value(j, depth, &v));
        if (!jlist_add(&j->r->mem, out->u.l, v))
            return no_memory(j);
    }
    j->at++;
    return KVANT_OK;
}

static int dict(json_text *j, int depth, jval *out)
{
    jval key, v;

    if (depth > JINJA_MAX_DEPTH)
        return fail(j, "nested too deeply");
    if (!j_dict(&j->r->mem, 0, out))
        return no_memory(j);
    j->at++;
    for (int first = 1; peek(j) != '}'; first = 0) {
        if (!first && peek(j) != ',')
            return fail(j, "no ',' or '}'");
        j->at += !first;
        if (peek(j) != '"')
            return fail(j, "no key");
        KVANT_TRY(string(j, &key));
        if (peek(j) != ':')
            return fail(j, "no ':'");
        j->at++;
        KVANT_TRY(value(j, depth, &v));
        if (!jdict_put(&j->r->mem, out->u.d, key, v, &j->r->mem.steps))
            return no_memory(j);
        KVANT_TRY(j_charge(j->r, 1));
    }
    j->at++;
    return KVANT_OK;
}

static int word(json_text *j, const char *text, jval v, jval *out)
{
    const size_t n = strlen(text);

    if (j->n - j->at < n || memcmp(j->s + j->at, text, n) != 0)
        return fail(j, "not a value");
    j->at += n;
    *out = v;
    return KVANT_OK;
}

static int value(json_text *j, int depth, jval *out)
{
    switch (peek(j)) {
    case '"': return string(j, out);
    case '[': return list(j, depth + 1, out);
    case '{': return dict(j, depth + 1, out);
    case 't': return word(j, "true", j_bool(1), out);
    case 'f': return word(j, "false", j_bool(0), out);
    case 'n': return word(j, "null", J_NONE_VALUE, out);
    default: return number(j, out);
    }
}

int jinja_json(jinja_run *r, const char *name, const char *json, size_t n, jval *out, kvant_diag *diag)
{
    json_text j = { r, name, json, n, 0 };

    r->diag = diag;
    KVANT_TRY(value(&j, 0, out));
    return peek(&j) == 0 && j.at == n ? KVANT_OK : fail(&j, "more text");
}

/* ---- variables ---- */

int jinja_set(jinja_run *r, const char *name, jval v, kvant_diag *diag)
{
    r->diag = diag;
    KVANT_TRY(j_charge(r, (size_t)r->t->n_names / 4));
    for (int i = 0; i < r->t->n_names; i++)
        if (jstr_is(r->t->names[i].text.u.s, name))
            return jscope_set(r, &r->globals, i, v);
    return KVANT_OK; /* the template does not read it */
}

int jinja_set_json(jinja_run *r, const char *name, const char *json, size_t n, kvant_diag *diag)
{
    jval v;

    KVANT_TRY(jinja_json(r, name, json, n, &v, diag));
    return jinja_set(r, name, v, diag);
}

int jinja_set_string(jinja_run *r, const char *name, const char *s, size_t n, enum jinja_origin origin,
                     kvant_diag *diag)
{
    jval v;

    r->diag = diag;
    if (!j_string(&r->mem, s, n, (int)origin, &v))
        return j_nomem(r);
    return jinja_set(r, name, v, diag);
}

int jinja_set_bool(jinja_run *r, const char *name, int v, kvant_diag *diag)
{
    return jinja_set(r, name, j_bool(v), diag);
}

int jinja_set_none(jinja_run *r, const char *name, kvant_diag *diag)
{
    return jinja_set(r, name, J_NONE_VALUE, diag);
}
