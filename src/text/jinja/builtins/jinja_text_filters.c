/* jinja_text_filters.c: filters that work on one value as text or number. */
#include "text/jinja/jinja_methods.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* soft_str: what a filter for texts sees of any value. */
static int as_text(jinja_run *r, jval v, const jstr **s)
{
    jval text;

    KVANT_TRY(j_str(r, v, &text));
    *s = text.u.s;
    return KVANT_OK;
}

static int f_trim(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s, *chars;
    size_t from, to;

    KVANT_TRY(as_text(r, self, &s));
    KVANT_TRY(jargs_str(r, a, 0, "trim", &chars));
    KVANT_TRY(j_strip(r, s, chars, 1, 1, &from, &to));
    return j_slice(r, s, from, to, out);
}

static int recase(jinja_run *r, jval self, enum jcase how, jval *out)
{
    const jstr *s;

    KVANT_TRY(as_text(r, self, &s));
    return jstr_recase(r, s, how, out);
}

static int f_upper(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return recase(r, self, JCASE_UPPER, out);
}

static int f_lower(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return recase(r, self, JCASE_LOWER, out);
}

static int f_title(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return recase(r, self, JCASE_WORDS, out);
}

static int f_capitalize(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return recase(r, self, JCASE_CAPITALIZE, out);
}

static int f_string(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return j_str(r, self, out);
}

static int f_replace(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s, *old, *by;
    int64_t most;

    KVANT_TRY(as_text(r, self, &s));
    KVANT_TRY(as_text(r, a->v[0], &old));
    KVANT_TRY(as_text(r, a->v[1], &by));
    KVANT_TRY(jargs_int(r, a, 2, "replace", -1, &most));
    return jstr_replace(r, s, old, by, most, out);
}

/* A line's end from `at` on -> *end, and the bytes of its break; 0: none, or a \r at the text's end, which jinja2 joins
 * with the \n that it appends. */
static size_t next_break(const jstr *s, size_t at, size_t *end)
{
    size_t k = 0;
    int len = 0;

    for (*end = at; *end < s->n; *end += (size_t)len) {
        k = jstr_line_end(s, *end, &len);
        if (k)
            break;
    }
    return k && *end + 1 == s->n && s->s[*end] == '\r' ? 0 : k;
}

/* Lines behind the first get `width` spaces, or that text; empty lines only with `blank`.  Breaks of all kinds become
 * \n, as str.splitlines takes them away. */
static int f_indent(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s;
    const int first = j_true(a->v[1]), blank = j_true(a->v[2]);
    int64_t width = 4;
    jbuf b = { 0 }, pad = { 0 };
    jval by = a->v[0];

    KVANT_TRY(as_text(r, self, &s));
    if (by.type != J_STR) {
        KVANT_TRY(jargs_int(r, a, 0, "indent", 4, &width));
        for (int64_t i = 0; i < width; i++)
            KVANT_TRY(jbuf_text(r, &pad, " ", 1));
        KVANT_TRY(jbuf_done(r, &pad, &by));
    }
    for (size_t at = 0, line = 0, k = 1; k; line++) {
        size_t end;
        k = next_break(s, at, &end);
        if (line == 0 ? first : blank || end > at)
            KVANT_TRY(jbuf_str(r, &b, by.u.s, 0, by.u.s->n));
        KVANT_TRY(jbuf_str(r, &b, s, at, end - at));
        if (k && s->s[end] == '\n')
            KVANT_TRY(jbuf_str(r, &b, s, end, 1));
        else if (k)
            KVANT_TRY(jbuf_text(r, &b, "\n", 1));
        at = end + k;
    }
    return jbuf_done(r, &b, out);
}

static int f_escape(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s;

    (void)a;
    KVANT_TRY(as_text(r, self, &s));
    return s->markup ? jstr_mark(r, s, out) : jstr_escape(r, s, out);
}

static int f_safe(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s;

    (void)a;
    KVANT_TRY(as_text(r, self, &s));
    return jstr_mark(r, s, out);
}

/* ---- format: % of Python, with s d i f x r and a precision for f ---- */

enum { FORMAT_ROOM = 1024 }; /* a width is below 1000; %f has up to 310 digits, a point and 299 more */

typedef struct directive {
    char kind;
    int precision, width, zero, left;
} directive;

static size_t read_directive(const jstr *s, size_t i, directive *d)
{
    *d = (directive){ .precision = -1 };
    for (; i < s->n && (s->s[i] == '-' || s->s[i] == '0'); i++)
        *(s->s[i] == '-' ? &d->left : &d->zero) = 1;
    for (; i < s->n && s->s[i] >= '0' && s->s[i] <= '9' && d->width < 100; i++)
        d->width = d->width * 10 + (s->s[i] - '0');
    if (i < s->n && s->s[i] == '.')
        for (d->precision = 0, i++; i < s->n && s->s[i] >= '0' && s->s[i] <= '9' && d->precision < 30; i++)
            d->precision = d->precision * 10 + (s->s[i] - '0');
    d->kind = i < s->n ? s->s[i] : 0;
    return i;
}

/* %x as Python writes it: a sign, then the magnitude. */
static void put_hex(const directive *d, int64_t v, char *out, size_t size)
{
    const unsigned long long magnitude = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%llx", magnitude);
    const int rest = d->width - (v < 0) - n, zeros = d->zero && !d->left && rest > 0 ? rest : 0;
    char padded[FORMAT_ROOM];
    char *p = padded;

    if (v < 0)
        *p++ = '-';
    memset(p, '0', (size_t)zeros);
    memcpy(p + zeros, digits, (size_t)n + 1);
    snprintf(out, size, "%*s", d->left ? -d->width : d->width, padded);
}

static void put_float(const directive *d, double v, char *out, size_t size)
{
    snprintf(out, size, d->left ? "%-*.*f" : d->zero ? "%0*.*f" : "%*.*f", d->width,
             d->precision < 0 ? 6 : d->precision, v);
}

static int formatted(jinja_run *r, const directive *d, jval v, jbuf *b)
{
    char text[FORMAT_ROOM];

    if (strchr("sr", d->kind) && !d->width && d->precision < 0)
        return d->kind == 's' ? j_print(r, b, v) : j_repr(r, b, v, 0);
    if (!j_is_number(v) || !strchr("difx", d->kind) || (d->kind != 'f' && d->precision >= 0) ||
        (d->kind == 'x' && v.type == J_FLOAT))
        return j_fail(r, "format: %%%c of %s", d->kind, j_type_name(v));
    if (d->kind != 'f' && v.type == J_FLOAT && !(fabs(v.u.f) < 9e18))
        return j_fail(r, "format: %%%c of %g, which is beyond 64 bits", d->kind, v.u.f);
    KVANT_TRY(j_charge(r, 32 + (size_t)d->width));
    const int64_t whole = v.type == J_FLOAT ? (d->kind == 'f' ? 0 : (int64_t)v.u.f) : j_integer(v);
    if (d->kind == 'f')
        put_float(d, j_number(v), text, sizeof text);
    else if (d->kind == 'x')
        put_hex(d, whole, text, sizeof text);
    else
        snprintf(text, sizeof text, d->left ? "%-*lld" : d->zero ? "%0*lld" : "%*lld", d->width, (long long)whole);
    return jbuf_text(r, b, text, strlen(text));
}

static int f_format(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s;
    jbuf b = { 0 };
    directive d;
    int next = 0;

    KVANT_TRY(as_text(r, self, &s));
    for (size_t i = 0; i < s->n; i++) {
        if (s->s[i] != '%') {
            KVANT_TRY(jbuf_str(r, &b, s, i, 1));
            continue;
        }
        i = read_directive(s, i + 1, &d);
        if (d.kind == '%') {
            KVANT_TRY(jbuf_str(r, &b, s, i, 1));
            continue;
        }
        if (!d.kind || !strchr("sdifxr", d.kind) || next >= a->n_rest)
            return j_fail(r, "format: '%%%c' with %d values", d.kind ? d.kind : ' ', a->n_rest);
        KVANT_TRY(formatted(r, &d, a->rest[next++], &b));
    }
    return next == a->n_rest ? jbuf_done(r, &b, out) : j_fail(r, "format: %d values for %d places", a->n_rest, next);
}

/* ---- numbers ---- */

/* Python takes 0b and 0o before numbers of their bases, as C does 0x. */
static char *after_prefix(char *text, int base)
{
    char *digits = text + (*text == '+' || *text == '-');
    const char letter = base == 2 ? 'b' : base == 8 ? 'o' : 0;

    if (!letter || digits[0] != '0' || (digits[1] | 0x20) != letter)
        return text;
    digits[1] = *text == '-' ? '-' : '+';
    return digits + 1;
}

/* A number at the whole of s; 0: it is none. */
static int read_number(jinja_run *r, const jstr *s, int base, jval *out)
{
    char text[64], *end;
    size_t from, to, n = 0;

    if (j_strip(r, s, NULL, 1, 1, &from, &to) != KVANT_OK || j_charge(r, 8) != KVANT_OK)
        return 0; /* the next charge fails again */
    if (to - from >= sizeof text || to == from)
        return 0;
    for (size_t i = from; i < to; i++)
        if (s->s[i] != '_')
            text[n++] = s->s[i];
        else if (i == from || i + 1 == to || !isalnum((unsigned char)s->s[i - 1]) ||
                 !isalnum((unsigned char)s->s[i + 1]))
            return 0; /* between digits alone */
    text[n] = 0;
    errno = 0;
    *out = j_int(strtoll(after_prefix(text, base), &end, base));
    if (!errno && !*end)
        return 1;
    if (strpbrk(text, "xX(")) /* C reads hexadecimal floats, Python does not */
        return 0;
    *out = j_float(strtod(text, &end));
    return !*end;
}

static int f_int(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int64_t none, base;
    jval v = self;

    KVANT_TRY(jargs_int(r, a, 0, "int", 0, &none));
    KVANT_TRY(jargs_int(r, a, 1, "int", 10, &base));
    if (base < 2 || base > 36)
        return j_fail(r, "int: base %lld", (long long)base);
    if (self.type == J_UNDEF)
        return j_undefined_error(r, self);
    *out = j_int(none);
    if (self.type == J_STR && !read_number(r, self.u.s, (int)base, &v))
        return KVANT_OK;
    if (v.type == J_INT || v.type == J_BOOL)
        *out = j_int(j_integer(v));
    else if (v.type == J_FLOAT && fabs(v.u.f) < 9e18)
        *out = j_int((int64_t)v.u.f);
    else if (v.type == J_FLOAT && isfinite(v.u.f))
        return j_fail(r, "int: %g is beyond 64 bits", v.u.f);
    return KVANT_OK;
}

static int f_float(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval v = self;

    if (self.type == J_UNDEF)
        return j_undefined_error(r, self);
    *out = a->given ? a->v[0] : j_float(0);
    if (self.type == J_STR && !read_number(r, self.u.s, 10, &v))
        return KVANT_OK;
    if (j_is_number(v))
        *out = j_float(j_number(v));
    return KVANT_OK;
}

static int f_abs(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    if (!j_is_number(self))
        return j_fail(r, "abs of %s", j_type_name(self));
    if (j_number(self) < 0)
        return j_negate(r, self, 1, out);
    *out = self.type == J_BOOL ? j_int(self.u.b) : self;
    return KVANT_OK;
}

static int f_round(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int64_t places;
    const jstr *method;
    char text[400];

    KVANT_TRY(jargs_int(r, a, 0, "round", 0, &places));
    KVANT_TRY(jargs_str(r, a, 1, "round", &method));
    if (!j_is_number(self) || places < 0 || places > 15)
        return j_fail(r, "round of %s to %lld places", j_type_name(self), (long long)places);
    KVANT_TRY(j_charge(r, 64));
    const double f = j_number(self), scale = pow(10, (double)places);
    if (method && jstr_is(method, "ceil"))
        *out = j_float(ceil(f * scale) / scale);
    else if (method && jstr_is(method, "floor"))
        *out = j_float(floor(f * scale) / scale);
    else if (self.type != J_FLOAT) /* common: Python's round() */
        *out = j_int(j_integer(self));
    else {
        snprintf(text, sizeof text, "%.*f", (int)places, f);
        *out = j_float(strtod(text, NULL));
    }
    return KVANT_OK;
}

/* ---- JSON ---- */

static int f_tojson(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jjson o = { .indent = -1, .ascii = j_true(a->v[0]), .sort = j_true(a->v[3]) };
    int64_t indent;

    KVANT_TRY(jargs_int(r, a, 1, "tojson", -1, &indent));
    if (indent > 32)
        return j_fail(r, "tojson: indent %lld, want at most 32", (long long)indent);
    o.indent = indent < 0 ? -1 : (int)indent;
    o.comma = o.indent < 0 ? ", " : ",";
    o.colon = ": ";
    if (j_is_list(a->v[2])) {
        const jlist *l = a->v[2].u.l;
        if (l->n != 2 || l->v[0].type != J_STR || l->v[1].type != J_STR)
            return j_fail(r, "tojson: separators: want two texts");
        jval comma, colon; /* their text must end: a slice may not */
        if (!j_string(&r->mem, l->v[0].u.s->s, l->v[0].u.s->n, 0, &comma) ||
            !j_string(&r->mem, l->v[1].u.s->s, l->v[1].u.s->n, 0, &colon))
            return j_nomem(r);
        o.comma = comma.u.s->s;
        o.colon = colon.u.s->s;
    }
    return j_tojson(r, self, &o, out);
}

static int f_default(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)r;
    *out = self;
    if (self.type == J_UNDEF || (j_true(a->v[1]) && !j_true(self))) {
        *out = a->v[0];
        if (!(a->given & 1))
            return j_text(r, "", out);
    }
    return KVANT_OK;
}

static int f_wordcount(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s;
    int64_t n = 0;
    int inside = 0, len;

    (void)a;
    KVANT_TRY(as_text(r, self, &s));
    KVANT_TRY(j_charge_chars(r, s->n));
    for (size_t at = 0; at < s->n; at += (size_t)len) {
        int space = j_is_space(jstr_char(s, at, &len));
        n += !space && !inside;
        inside = !space;
    }
    *out = j_int(n);
    return KVANT_OK;
}

/* clang-format off */
const jbuiltin jinja_text_filters[] = {
    { "trim", f_trim, "chars" }, { "upper", f_upper, "" }, { "lower", f_lower, "" }, { "title", f_title, "" },
    { "capitalize", f_capitalize, "" }, { "string", f_string, "" }, { "replace", f_replace, "old!,new!,count" },
    { "indent", f_indent, "width,first,blank" }, { "escape", f_escape, "" }, { "e", f_escape, "" },
    { "safe", f_safe, "" }, { "format", f_format, "*" }, { "int", f_int, "default,base" },
    { "float", f_float, "default" }, { "abs", f_abs, "" }, { "round", f_round, "precision,method" },
    { "tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys" },
    { "default", f_default, "default_value,boolean" }, { "d", f_default, "default_value,boolean" },
    { "wordcount", f_wordcount, "" }, { NULL, NULL, NULL },
};
/* clang-format on */
