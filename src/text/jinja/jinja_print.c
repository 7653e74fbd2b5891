/* jinja_print.c: values as Python prints them, and as JSON.  Recursion is bounded by JINJA_MAX_DEPTH. */
#include "text/jinja/jinja_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/utf8.h"

const char *j_type_name(jval v)
{
    static const char *const names[] = { "Undefined", "NoneType", "bool",      "int",  "float", "str",    "list",
                                         "tuple",     "dict",     "Namespace", "loop", "Macro", "method", "function" };
    return names[v.type];
}

/* The shortest digits that read back as f, written as Python's repr does. */
void j_float_text(double f, char out[64])
{
    char sci[40], digits[24];
    int precision = 0, n = 0;

    if (!isfinite(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(sci, sizeof sci, "%.*e", precision, f);
    while (strtod(sci, NULL) != f && precision++ < 17);
    char *e = strchr(sci, 'e');
    int exponent = atoi(e + 1);
    for (char *c = sci; c < e; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    digits[n] = 0;
    const char *sign = sci[0] == '-' ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        snprintf(out, 64, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                 abs(exponent));
    else if (exponent < 0)
        snprintf(out, 64, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (exponent + 1 >= n)
        snprintf(out, 64, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    else
        snprintf(out, 64, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static int put_number(jinja_run *r, jbuf *b, jval v)
{
    char text[64];

    if (v.wide)
        return jbuf_text(r, b, r->wide[v.wide - 1], strlen(r->wide[v.wide - 1]));
    KVANT_TRY(j_charge(r, v.type == J_FLOAT ? 256 : 8)); /* up to 17 times to text and back */
    if (v.type == J_FLOAT)
        j_float_text(v.u.f, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
    return jbuf_text(r, b, text, strlen(text));
}

/* ---- repr ---- */

static int printable(uint32_t c)
{
    if (c < 0x80)
        return c >= 0x20 && c != 0x7F;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return 0;
    default: return 1;
    }
}

/* One character of a repr, escaped where Python does. */
static int repr_char(jinja_run *r, jbuf *b, const jstr *s, size_t i, int len, uint32_t c, char quote)
{
    const int origin = s->origin == J_MIXED ? s->mask[i] : s->origin;
    char text[16];

    if (c == (uint32_t)quote || c == '\\')
        snprintf(text, sizeof text, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (printable(c))
        return jbuf_str(r, b, s, i, (size_t)len);
    else
        snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    return jbuf_put(r, b, text, strlen(text), origin);
}

static int repr_str(jinja_run *r, jbuf *b, const jstr *s)
{
    const char quote = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n) ? '"' : '\'';
    const int origin = jstr_any_data(s) ? JINJA_DATA : JINJA_TEMPLATE;
    int len;

    KVANT_TRY(jbuf_put(r, b, &quote, 1, origin));
    for (size_t i = 0; i < s->n; i += (size_t)len) {
        uint32_t c = jstr_char(s, i, &len);
        KVANT_TRY(repr_char(r, b, s, i, len, c, quote));
    }
    return jbuf_put(r, b, &quote, 1, origin);
}

static int repr_list(jinja_run *r, jbuf *b, jval v, int depth)
{
    const jlist *l = v.u.l;

    if (l->lazy)
        return j_fail(r, "a generator (of map, select, ...) has no text: | list makes it a list");
    if (l->view && l->view[0] == 'r')
        return j_fail(r, "a range has no text: | list makes it a list");
    if (l->view)
        KVANT_TRY(jbuf_text(r, b, l->view, strlen(l->view)));
    KVANT_TRY(jbuf_text(r, b, l->view ? "([" : v.type == J_LIST ? "[" : "(", l->view ? 2 : 1));
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            KVANT_TRY(jbuf_text(r, b, ", ", 2));
        KVANT_TRY(j_repr(r, b, l->v[i], depth));
    }
    if (v.type == J_TUPLE && l->n == 1)
        KVANT_TRY(jbuf_text(r, b, ",", 1));
    return jbuf_text(r, b, l->view ? "])" : v.type == J_LIST ? "]" : ")", l->view ? 2 : 1);
}

static int repr_dict(jinja_run *r, jbuf *b, const jdict *d, int depth)
{
    KVANT_TRY(jbuf_text(r, b, "{", 1));
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            KVANT_TRY(jbuf_text(r, b, ", ", 2));
        KVANT_TRY(j_repr(r, b, d->keys[i], depth));
        KVANT_TRY(jbuf_text(r, b, ": ", 2));
        KVANT_TRY(j_repr(r, b, d->vals[i], depth));
    }
    return jbuf_text(r, b, "}", 1);
}

int j_repr(jinja_run *r, jbuf *b, jval v, int depth)
{
    if (depth > JINJA_MAX_DEPTH)
        return j_fail(r, "a value nested deeper than %d", JINJA_MAX_DEPTH);
    KVANT_TRY(j_charge(r, 1));
    switch (v.type) {
    case J_STR: return repr_str(r, b, v.u.s);
    case J_LIST:
    case J_TUPLE: return repr_list(r, b, v, depth + 1);
    case J_DICT: return repr_dict(r, b, v.u.d, depth + 1);
    case J_UNDEF: return jbuf_text(r, b, "Undefined", 9);
    default: return j_print(r, b, v);
    }
}

int j_print(jinja_run *r, jbuf *b, jval v)
{
    switch (v.type) {
    case J_UNDEF: return KVANT_OK;
    case J_NONE: return jbuf_text(r, b, "None", 4);
    case J_BOOL: return jbuf_text(r, b, v.u.b ? "True" : "False", v.u.b ? 4 : 5);
    case J_INT:
    case J_FLOAT: return put_number(r, b, v);
    case J_STR: return jbuf_str(r, b, v.u.s, 0, v.u.s->n);
    case J_LIST:
    case J_TUPLE:
    case J_DICT: return j_repr(r, b, v, 0);
    default: return j_fail(r, "a %s has no text", j_type_name(v));
    }
}

int j_str(jinja_run *r, jval v, jval *out)
{
    jbuf b = { 0 };

    if (v.type == J_STR) {
        *out = v;
        return KVANT_OK;
    }
    KVANT_TRY(j_print(r, &b, v));
    return jbuf_done(r, &b, out);
}

/* ---- JSON, as json.dumps writes it ---- */

/* JSON text is data when any of it is: it is not worth a mask. */
typedef struct json {
    jinja_run *r;
    const jjson *o;
    jbuf b;
    int data;
} json;

static int put(json *j, const char *s, size_t n)
{
    return jbuf_put(j->r, &j->b, s, n, JINJA_DATA);
}

static int json_char(json *j, const jstr *s, size_t i, int len, uint32_t c)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *simple = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    char text[16];

    if (simple)
        snprintf(text, sizeof text, "\\%c", to[simple - from]);
    else if (c >= 0x20 && (c < 0x80 || !j->o->ascii))
        return put(j, s->s + i, (size_t)len);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    return put(j, text, strlen(text));
}

static int json_str(json *j, const jstr *s)
{
    int len;

    j->data |= jstr_any_data(s);
    KVANT_TRY(put(j, "\"", 1));
    for (size_t i = 0, plain; i < s->n; i += (size_t)len) {
        for (plain = i; plain < s->n && s->s[plain] >= 0x20 && s->s[plain] != '"' && s->s[plain] != '\\';)
            plain++;
        KVANT_TRY(put(j, s->s + i, plain - i));
        len = 0;
        i = plain;
        if (i < s->n) {
            uint32_t c = jstr_char(s, i, &len);
            KVANT_TRY(json_char(j, s, i, len, c));
        }
    }
    return put(j, "\"", 1);
}

static int json_newline(json *j, int depth)
{
    if (j->o->indent < 0)
        return KVANT_OK;
    KVANT_TRY(put(j, "\n", 1));
    for (int i = 0; i < depth * j->o->indent; i++)
        KVANT_TRY(put(j, " ", 1));
    return KVANT_OK;
}

static int json_value(json *j, jval v, int depth);

static int json_list(json *j, const jlist *l, int depth)
{
    if (l->lazy)
        return j_fail(j->r, "tojson: a generator (of map, select, ...) is no JSON: | list makes it a list");
    if (l->view)
        return j_fail(j->r, "tojson: a %s is no JSON: | list makes it a list", l->view);
    if (l->n == 0)
        return put(j, "[]", 2);
    KVANT_TRY(put(j, "[", 1));
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            KVANT_TRY(put(j, j->o->comma, strlen(j->o->comma)));
        KVANT_TRY(json_newline(j, depth + 1));
        KVANT_TRY(json_value(j, l->v[i], depth + 1));
    }
    KVANT_TRY(json_newline(j, depth));
    return put(j, "]", 1);
}

static int json_number(json *j, jval v)
{
    char text[64];

    if (v.type == J_BOOL)
        return put(j, v.u.b ? "true" : "false", v.u.b ? 4 : 5);
    if (v.wide)
        return put(j, j->r->wide[v.wide - 1], strlen(j->r->wide[v.wide - 1]));
    if (v.type == J_INT)
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
    else if (isfinite(v.u.f))
        j_float_text(v.u.f, text);
    else
        strcpy(text, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity");
    return put(j, text, strlen(text));
}

static int json_key(json *j, jval k)
{
    if (k.type == J_STR)
        return json_str(j, k.u.s);
    if (k.type != J_NONE && !j_is_number(k))
        return j_fail(j->r, "tojson: keys are text or numbers, not %s", j_type_name(k));
    KVANT_TRY(put(j, "\"", 1));
    KVANT_TRY(json_value(j, k, 0));
    return put(j, "\"", 1);
}

/* Order of the keys: as they are, or sorted; `order` has d->n places. */
static int key_order(json *j, const jdict *d, uint32_t *order)
{
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t at = i;
        for (int less; j->o->sort && at > 0; at--) {
            KVANT_TRY(j_charge(j->r, 1));
            KVANT_TRY(j_order(j->r, d->keys[i], d->keys[order[at - 1]], &less));
            if (less >= 0)
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return KVANT_OK;
}

static int json_dict(json *j, const jdict *d, int depth)
{
    uint32_t *order = jarena_alloc(&j->r->mem, d->n * sizeof *order);

    if (d->n == 0)
        return put(j, "{}", 2);
    if (!order)
        return j_nomem(j->r);
    KVANT_TRY(key_order(j, d, order));
    KVANT_TRY(put(j, "{", 1));
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            KVANT_TRY(put(j, j->o->comma, strlen(j->o->comma)));
        KVANT_TRY(json_newline(j, depth + 1));
        KVANT_TRY(json_key(j, d->keys[order[i]]));
        KVANT_TRY(put(j, j->o->colon, strlen(j->o->colon)));
        KVANT_TRY(json_value(j, d->vals[order[i]], depth + 1));
    }
    KVANT_TRY(json_newline(j, depth));
    return put(j, "}", 1);
}

static int json_value(json *j, jval v, int depth)
{
    if (depth > JINJA_MAX_DEPTH)
        return j_fail(j->r, "tojson: nested deeper than %d", JINJA_MAX_DEPTH);
    KVANT_TRY(j_charge(j->r, 1));
    switch (v.type) {
    case J_NONE: return put(j, "null", 4);
    case J_STR: return json_str(j, v.u.s);
    case J_LIST:
    case J_TUPLE: return json_list(j, v.u.l, depth);
    case J_DICT: return json_dict(j, v.u.d, depth);
    case J_BOOL:
    case J_INT:
    case J_FLOAT: return json_number(j, v);
    case J_UNDEF: return j_fail(j->r, "tojson: the value is undefined");
    default: return j_fail(j->r, "tojson: a %s is no JSON", j_type_name(v));
    }
}

int j_tojson(jinja_run *r, jval v, const jjson *o, jval *out)
{
    json j = { .r = r, .o = o };

    KVANT_TRY(json_value(&j, v, 0));
    j.b.origin = j.data ? JINJA_DATA : JINJA_TEMPLATE;
    return jbuf_done(r, &j.b, out);
}
