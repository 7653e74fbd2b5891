/* jinja_ops.c: Python's operators on values: truth, equality, order, arithmetic, items, attributes, slices. */
#include "model/jinja/jinja_methods.h"

#include <math.h>
#include <string.h>

int j_true(jval v)
{
    switch (v.type) {
    case J_UNDEF:
    case J_NONE: return 0;
    case J_BOOL: return v.u.b;
    case J_INT: return v.u.i != 0;
    case J_FLOAT: return v.u.f != 0;
    case J_STR: return v.u.s->n > 0;
    case J_LIST:
    case J_TUPLE: return v.u.l->n > 0 || v.u.l->lazy;
    case J_DICT: return v.u.d->n > 0;
    default: return 1;
    }
}

int j_undefined(jinja_run *r, const jstr *name, jval *out)
{
    (void)r;
    *out = (jval){ .type = J_UNDEF, .u.s = name };
    return KVANT_OK;
}

/* The error of working with an undefined value. */
static int undefined_error(jinja_run *r, jval v)
{
    if (!v.u.s)
        return j_fail(r, "the value is undefined");
    return j_fail(r, "'%.*s' is undefined", v.u.s->n < 60 ? (int)v.u.s->n : 60, v.u.s->s);
}

/* ---- equality and order ---- */

static int equal_at(jinja_run *r, jval a, jval b, int depth, int *out);

static int equal_lists(jinja_run *r, const jlist *a, const jlist *b, int depth, int *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        KVANT_TRY(equal_at(r, a->v[i], b->v[i], depth, out));
    return KVANT_OK;
}

static int equal_dicts(jinja_run *r, const jdict *a, const jdict *b, int depth, int *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const jval *v = jdict_get(b, a->keys[i], &r->steps);
        *out = v != NULL;
        if (v)
            KVANT_TRY(equal_at(r, a->vals[i], *v, depth, out));
    }
    return KVANT_OK;
}

static int equal_at(jinja_run *r, jval a, jval b, int depth, int *out)
{
    if (depth > JINJA_MAX_DEPTH)
        return j_fail(r, "values nested deeper than %d are compared", JINJA_MAX_DEPTH);
    KVANT_TRY(j_charge(r, a.type == J_STR ? a.u.s->n / 64 + 1 : 1));
    if (j_is_list(a) && a.type == b.type)
        return equal_lists(r, a.u.l, b.u.l, depth + 1, out);
    if (a.type == J_DICT && b.type == J_DICT)
        return equal_dicts(r, a.u.d, b.u.d, depth + 1, out);
    if (a.type == J_UNDEF || a.type >= J_SPACE)
        *out = a.type == b.type && (a.type == J_UNDEF || a.u.d == b.u.d);
    else
        *out = jkey_equal(a, b);
    return KVANT_OK;
}

int j_equal(jinja_run *r, jval a, jval b, int *out)
{
    return equal_at(r, a, b, 0, out);
}

static int sign(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* UTF-8 orders as its characters do. */
static int order_strings(const jstr *a, const jstr *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0;

    return c ? c : sign(a->n, b->n);
}

static int order_at(jinja_run *r, jval a, jval b, int depth, int *out)
{
    KVANT_TRY(j_charge(r, 1));
    if (a.type == J_UNDEF || b.type == J_UNDEF)
        return undefined_error(r, a.type == J_UNDEF ? a : b);
    if (a.type == J_STR && b.type == J_STR) {
        KVANT_TRY(j_charge_bytes(r, a.u.s->n));
        *out = order_strings(a.u.s, b.u.s);
    } else if (j_is_number(a) && j_is_number(b)) {
        double x = j_number(a), y = j_number(b);
        *out = a.type == J_FLOAT || b.type == J_FLOAT ? (x < y ? -1 : x > y) : sign(j_integer(a), j_integer(b));
    } else if (j_is_list(a) && a.type == b.type && depth <= JINJA_MAX_DEPTH) {
        *out = 0;
        for (size_t i = 0; i < a.u.l->n && i < b.u.l->n && *out == 0; i++)
            KVANT_TRY(order_at(r, a.u.l->v[i], b.u.l->v[i], depth + 1, out));
        if (*out == 0)
            *out = sign((int64_t)a.u.l->n, (int64_t)b.u.l->n);
    } else {
        return j_fail(r, "%s and %s have no order", j_type_name(a), j_type_name(b));
    }
    return KVANT_OK;
}

int j_order(jinja_run *r, jval a, jval b, int *out)
{
    return order_at(r, a, b, 0, out);
}

int j_contains(jinja_run *r, jval in, jval what, int *out)
{
    const jlist *l;

    if (in.type == J_STR) {
        if (what.type != J_STR)
            return what.type == J_UNDEF ? undefined_error(r, what)
                                        : j_fail(r, "'in' a text: want a text, not %s", j_type_name(what));
        KVANT_TRY(j_charge_bytes(r, in.u.s->n));
        *out = jstr_find(in.u.s, what.u.s, 0, in.u.s->n, 0) != SIZE_MAX;
        return KVANT_OK;
    }
    if (in.type == J_DICT) {
        KVANT_TRY(j_hashable(r, what));
        *out = jdict_get(in.u.d, what, &r->steps) != NULL;
        return KVANT_OK;
    }
    KVANT_TRY(j_iterate(r, in, &l));
    *out = 0;
    for (size_t i = 0; i < l->n && !*out; i++)
        KVANT_TRY(j_equal(r, l->v[i], what, out));
    return KVANT_OK;
}

int j_compare(jinja_run *r, enum jcompare op, jval a, jval b, int *out)
{
    int c = 0;

    switch (op) {
    case JC_EQ:
    case JC_NE:
        KVANT_TRY(j_equal(r, a, b, &c));
        *out = c == (op == JC_EQ);
        return KVANT_OK;
    case JC_IN:
    case JC_NOT_IN:
        KVANT_TRY(j_contains(r, b, a, &c));
        *out = c == (op == JC_IN);
        return KVANT_OK;
    default: KVANT_TRY(j_order(r, a, b, &c));
    }
    int nan = (a.type == J_FLOAT && isnan(a.u.f)) || (b.type == J_FLOAT && isnan(b.u.f));
    *out = !nan && (op == JC_LT ? c < 0 : op == JC_LE ? c <= 0 : op == JC_GT ? c > 0 : c >= 0);
    return KVANT_OK;
}

/* ---- arithmetic ---- */

static int join_lists(jinja_run *r, jval a, jval b, jval *out)
{
    KVANT_TRY(j_charge(r, a.u.l->n + b.u.l->n));
    if (!j_list(&r->mem, a.u.l->n + b.u.l->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < a.u.l->n; i++)
        out->u.l->v[out->u.l->n++] = a.u.l->v[i];
    for (size_t i = 0; i < b.u.l->n; i++)
        out->u.l->v[out->u.l->n++] = b.u.l->v[i];
    out->type = a.type;
    return KVANT_OK;
}

static int repeat(jinja_run *r, jval v, int64_t times, jval *out)
{
    jbuf b = { 0 };

    if (v.type == J_STR) {
        for (int64_t i = 0; v.u.s->n && i < times; i++)
            KVANT_TRY(jbuf_str(r, &b, v.u.s, 0, v.u.s->n));
        return jbuf_done(r, &b, out);
    }
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (int64_t i = 0; v.u.l->n && i < times; i++)
        for (size_t k = 0; k < v.u.l->n; k++) {
            KVANT_TRY(j_charge(r, 1));
            if (!jlist_add(&r->mem, out->u.l, v.u.l->v[k]))
                return j_nomem(r);
        }
    out->type = v.type;
    return KVANT_OK;
}

/* Markup + text: the text is escaped; the sum is markup. */
static int add_markup(jinja_run *r, jval a, jval b, jval *out)
{
    jbuf text = { 0 };

    if (!a.u.s->markup)
        KVANT_TRY(jstr_escape(r, a.u.s, &a));
    if (!b.u.s->markup)
        KVANT_TRY(jstr_escape(r, b.u.s, &b));
    KVANT_TRY(jbuf_str(r, &text, a.u.s, 0, a.u.s->n));
    KVANT_TRY(jbuf_str(r, &text, b.u.s, 0, b.u.s->n));
    KVANT_TRY(jbuf_done(r, &text, out));
    return jstr_mark(r, out->u.s, out);
}

static int concat(jinja_run *r, jval a, jval b, jval *out)
{
    jbuf text = { 0 };

    KVANT_TRY(j_print(r, &text, a));
    KVANT_TRY(j_print(r, &text, b));
    return jbuf_done(r, &text, out);
}

static int power(jinja_run *r, int64_t a, int64_t b, int64_t *out)
{
    int64_t v = 1;

    for (int64_t i = 0; i < b; i++) {
        if (__builtin_mul_overflow(v, a, &v))
            return j_fail(r, "a number beyond 64 bits");
        if (v == 0 || v == 1)
            break;
        KVANT_TRY(j_charge(r, 1));
    }
    *out = v;
    return KVANT_OK;
}

static int integers(jinja_run *r, enum jbinary op, int64_t a, int64_t b, jval *out)
{
    int64_t v = 0;
    int over = 0;

    if ((op == JB_FLOORDIV || op == JB_MOD) && (b == 0 || (a == INT64_MIN && b == -1)))
        return j_fail(r, b ? "a number beyond 64 bits" : "division by zero");
    switch (op) {
    case JB_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case JB_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case JB_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case JB_FLOORDIV: v = a / b - (a % b != 0 && (a < 0) != (b < 0)); break;
    case JB_MOD: v = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); break;
    default: KVANT_TRY(power(r, a, a == -1 ? b & 1 : b, &v)); break;
    }
    *out = j_int(v);
    return over ? j_fail(r, "a number beyond 64 bits") : KVANT_OK;
}

static int floats(jinja_run *r, enum jbinary op, double a, double b, jval *out)
{
    if (b == 0 && (op == JB_DIV || op == JB_FLOORDIV || op == JB_MOD))
        return j_fail(r, "division by zero");
    switch (op) {
    case JB_ADD: a += b; break;
    case JB_SUB: a -= b; break;
    case JB_MUL: a *= b; break;
    case JB_DIV: a /= b; break;
    case JB_FLOORDIV: a = floor(a / b); break;
    case JB_MOD: a = fmod(a, b) + (fmod(a, b) != 0 && (a < 0) != (b < 0) ? b : 0); break;
    default: a = pow(a, b); break;
    }
    *out = j_float(a);
    return KVANT_OK;
}

static int numbers(jinja_run *r, enum jbinary op, jval a, jval b, jval *out)
{
    if (a.type == J_FLOAT || b.type == J_FLOAT || op == JB_DIV || (op == JB_POW && j_integer(b) < 0))
        return floats(r, op, j_number(a), j_number(b), out);
    return integers(r, op, j_integer(a), j_integer(b), out);
}

int j_binary(jinja_run *r, enum jbinary op, jval a, jval b, jval *out)
{
    static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**", "~" };

    if (op == JB_ADD && a.type == J_STR && b.type == J_STR && (a.u.s->markup || b.u.s->markup))
        return add_markup(r, a, b, out);
    if (op == JB_CONCAT || (op == JB_ADD && a.type == J_STR && b.type == J_STR))
        return concat(r, a, b, out);
    if (a.type == J_UNDEF || b.type == J_UNDEF)
        return undefined_error(r, a.type == J_UNDEF ? a : b);
    if (j_is_number(a) && j_is_number(b))
        return numbers(r, op, a, b, out);
    if (op == JB_ADD && j_is_list(a) && a.type == b.type && !a.u.l->lazy && !b.u.l->lazy)
        return join_lists(r, a, b, out);
    if (op == JB_MUL && (a.type == J_STR || j_is_list(a)) && (b.type == J_INT || b.type == J_BOOL))
        return repeat(r, a, j_integer(b), out);
    if (op == JB_MUL && (b.type == J_STR || j_is_list(b)) && (a.type == J_INT || a.type == J_BOOL))
        return repeat(r, b, j_integer(a), out);
    if (op == JB_MOD && a.type == J_STR) {
        jargs args = { .rest = b.type == J_TUPLE ? b.u.l->v : &b, .n_rest = b.type == J_TUPLE ? (int)b.u.l->n : 1 };
        return jfilter_find("format", 6)->fn(r, a, &args, out);
    }
    return j_fail(r, "%s %s %s is not possible", j_type_name(a), names[op], j_type_name(b));
}

int j_negate(jinja_run *r, jval v, int minus, jval *out)
{
    if (v.type == J_UNDEF)
        return undefined_error(r, v);
    if (!j_is_number(v) || (v.type == J_INT && v.u.i == INT64_MIN))
        return j_fail(r, "the sign of %s", j_type_name(v));
    if (v.type == J_FLOAT)
        *out = j_float(minus ? -v.u.f : v.u.f);
    else
        *out = j_int(minus ? -j_integer(v) : j_integer(v));
    return KVANT_OK;
}

/* ---- items and attributes ---- */

int j_hashable(jinja_run *r, jval key)
{
    if (key.type == J_STR || key.type == J_NONE || j_is_number(key))
        return KVANT_OK;
    for (size_t i = 0; key.type == J_TUPLE && i < key.u.l->n; i++)
        if (key.u.l->v[i].type == J_TUPLE || (key.u.l->v[i].type != J_STR && !j_is_number(key.u.l->v[i])))
            return j_fail(r, "a tuple of %s as a key", j_type_name(key.u.l->v[i]));
    return key.type == J_TUPLE ? KVANT_OK : j_fail(r, "a key of type %s", j_type_name(key));
}

static int bind(jinja_run *r, jval self, const jbuiltin *f, jval *out)
{
    jbound *b = jarena_alloc(&r->mem, sizeof *b);

    if (!b)
        return j_nomem(r);
    *b = (jbound){ self, f };
    *out = (jval){ .type = J_BOUND, .u.bound = b };
    return KVANT_OK;
}

static int loop_value(const jloop *l, const jstr *name, jval *out)
{
    const int64_t n = (int64_t)l->items->n, i = (int64_t)l->i - 1;

    if (jstr_is(name, "index"))
        *out = j_int(i + 1);
    else if (jstr_is(name, "index0"))
        *out = j_int(i);
    else if (jstr_is(name, "revindex"))
        *out = j_int(n - i);
    else if (jstr_is(name, "revindex0"))
        *out = j_int(n - i - 1);
    else if (jstr_is(name, "first"))
        *out = j_bool(i == 0);
    else if (jstr_is(name, "last"))
        *out = j_bool(i == n - 1);
    else if (jstr_is(name, "length"))
        *out = j_int(n);
    else if (jstr_is(name, "previtem") && i > 0)
        *out = l->items->v[i - 1];
    else if (jstr_is(name, "nextitem") && i + 1 < n)
        *out = l->items->v[i + 1];
    else if (jstr_is(name, "depth") || jstr_is(name, "depth0"))
        *out = j_int(name->s[name->n - 1] == 'h');
    else
        return 0;
    return 1;
}

static const jbuiltin *method(jval of, const jname *name)
{
    switch (of.type) {
    case J_STR: return name->of_str;
    case J_LIST:
    case J_TUPLE: return name->of_list;
    case J_DICT: return name->of_dict;
    case J_LOOP: return name->of_loop;
    default: return NULL;
    }
}

/* Methods come before items, as in jinja2: `schema.items` is the method of a dict. */
int j_attr(jinja_run *r, jval of, const jname *name, jval *out)
{
    const jstr *s = name->text.u.s;
    const jbuiltin *f = method(of, name);
    const jval *v = NULL;

    if (of.type == J_UNDEF)
        return undefined_error(r, of);
    if (f)
        return bind(r, of, f, out);
    if (of.type == J_LOOP && loop_value(of.u.loop, s, out))
        return KVANT_OK;
    if (of.type == J_DICT || of.type == J_SPACE)
        v = jdict_get(of.u.d, name->text, &r->steps);
    if (!v)
        return j_undefined(r, s, out);
    *out = *v;
    return KVANT_OK;
}

/* An index of Python: negative ones count from the end. -1: out of range. */
static int64_t place(jval key, size_t n)
{
    int64_t i = j_integer(key);

    if (i < 0)
        i += (int64_t)n;
    return i >= 0 && i < (int64_t)n ? i : -1;
}

static int char_at(jinja_run *r, const jstr *s, jval key, jval *out)
{
    int len;

    KVANT_TRY(j_charge_bytes(r, s->n));
    int64_t i = place(key, jstr_length(s));
    if (i < 0)
        return j_undefined(r, NULL, out);
    size_t at = jstr_byte(s, (size_t)i);
    jstr_char(s, at, &len);
    return j_slice(r, s, at, at + (size_t)len, out);
}

/* A text that is no key: the attribute of that name, as in jinja2. */
static int item_or_method(jinja_run *r, jval of, const jstr *key, jval *out)
{
    const jbuiltin *list = of.type == J_STR    ? jinja_str_methods
                           : j_is_list(of)     ? jinja_list_methods
                           : of.type == J_DICT ? jinja_dict_methods
                           : of.type == J_LOOP ? jinja_loop_methods
                                               : NULL;
    const jbuiltin *f = list ? jbuiltin_find(list, key->s, key->n) : NULL;

    if (f)
        return bind(r, of, f, out);
    if (of.type == J_LOOP && loop_value(of.u.loop, key, out))
        return KVANT_OK;
    return j_undefined(r, key, out);
}

int j_item(jinja_run *r, jval of, jval key, jval *out)
{
    const int whole = key.type == J_INT || key.type == J_BOOL;

    if (of.type == J_UNDEF)
        return undefined_error(r, of);
    if (of.type == J_DICT || (of.type == J_SPACE && key.type == J_STR)) {
        const jval *v = NULL;
        if (key.type == J_STR || key.type == J_NONE || j_is_number(key) || key.type == J_TUPLE)
            v = jdict_get(of.u.d, key, &r->steps);
        if (v) {
            *out = *v;
            return KVANT_OK;
        }
    }
    if (j_is_list(of) && whole && !of.u.l->lazy) {
        int64_t i = place(key, of.u.l->n);
        if (i < 0)
            return j_undefined(r, NULL, out);
        *out = of.u.l->v[i];
        return KVANT_OK;
    }
    if (of.type == J_STR && whole)
        return char_at(r, of.u.s, key, out);
    return key.type == J_STR ? item_or_method(r, of, key.u.s, out) : j_undefined(r, NULL, out);
}

int j_path(jinja_run *r, jval of, jval path, jval *out)
{
    *out = of;
    if (path.type != J_STR)
        return j_item(r, of, path, out);
    const jstr *s = path.u.s;
    for (size_t at = 0; at <= s->n;) {
        const char *dot = memchr(s->s + at, '.', s->n - at);
        size_t end = dot ? (size_t)(dot - s->s) : s->n;
        int64_t number = 0;
        jval key;
        size_t i = at;
        while (i < end && end - at < 10 && s->s[i] >= '0' && s->s[i] <= '9')
            number = number * 10 + (s->s[i++] - '0');
        if (i == end && end > at)
            key = j_int(number);
        else
            KVANT_TRY(j_slice(r, s, at, end, &key));
        KVANT_TRY(j_item(r, *out, key, out));
        at = end + 1;
    }
    return KVANT_OK;
}

/* ---- slices ---- */

typedef struct span {
    int64_t from, to, step;
} span;

/* Python's slice.indices(n). */
static int indices(jinja_run *r, const jval bounds[3], int64_t n, span *out)
{
    for (int i = 0; i < 3; i++)
        if (bounds[i].type != J_NONE && bounds[i].type != J_INT && bounds[i].type != J_BOOL)
            return j_fail(r, "a slice with %s, want integers", j_type_name(bounds[i]));
    span s = { 0, n, bounds[2].type == J_NONE ? 1 : j_integer(bounds[2]) };
    if (s.step == 0)
        return j_fail(r, "a slice with step 0");
    s.step = s.step > n ? n + 1 : s.step < -n ? -n - 1 : s.step; /* one step leaves the list already */
    const int64_t low = s.step < 0 ? -1 : 0, high = s.step < 0 ? n - 1 : n;
    int64_t *ends[2] = { &s.from, &s.to };
    for (int i = 0; i < 2; i++) {
        int64_t v = i == (s.step > 0) ? high : low;
        if (bounds[i].type != J_NONE) {
            v = j_integer(bounds[i]);
            if (v < 0)
                v = v < -n ? low : v + n;
            else if (v > high)
                v = high;
        }
        *ends[i] = v;
    }
    *out = s;
    return KVANT_OK;
}

static int slice_text(jinja_run *r, const jstr *s, const jval bounds[3], jval *out)
{
    jbuf b = { 0 };
    span at;
    int len;

    KVANT_TRY(j_charge_bytes(r, s->n));
    KVANT_TRY(indices(r, bounds, (int64_t)jstr_length(s), &at));
    if (at.step == 1) {
        size_t from = jstr_byte(s, (size_t)at.from);
        return j_slice(r, s, from, at.to > at.from ? jstr_byte(s, (size_t)at.to) : from, out);
    }
    if (jstr_length(s) != s->n && s->n > 1 << 16)
        return j_fail(r, "a slice with a step of a text of %u bytes", s->n);
    for (int64_t i = at.from; at.step > 0 ? i < at.to : i > at.to; i += at.step) {
        size_t from = jstr_length(s) == s->n ? (size_t)i : jstr_byte(s, (size_t)i);
        KVANT_TRY(j_charge_bytes(r, s->n));
        jstr_char(s, from, &len);
        KVANT_TRY(jbuf_str(r, &b, s, from, (size_t)len));
    }
    return jbuf_done(r, &b, out);
}

int j_slice_of(jinja_run *r, jval of, const jval bounds[3], jval *out)
{
    span at;

    if (of.type == J_UNDEF)
        return undefined_error(r, of);
    if (of.type == J_STR)
        return slice_text(r, of.u.s, bounds, out);
    if (!j_is_list(of))
        return j_undefined(r, NULL, out);
    KVANT_TRY(indices(r, bounds, (int64_t)of.u.l->n, &at));
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (int64_t i = at.from; at.step > 0 ? i < at.to : i > at.to; i += at.step) {
        KVANT_TRY(j_charge(r, 1));
        if (!jlist_add(&r->mem, out->u.l, of.u.l->v[i]))
            return j_nomem(r);
    }
    out->type = of.type;
    return KVANT_OK;
}

/* ---- iteration ---- */

static int characters(jinja_run *r, const jstr *s, jval *list)
{
    int len;

    for (size_t i = 0; i < s->n; i += (size_t)len) {
        jval c;
        KVANT_TRY(j_charge(r, 1));
        jstr_char(s, i, &len);
        KVANT_TRY(j_slice(r, s, i, i + (size_t)len, &c));
        if (!jlist_add(&r->mem, list->u.l, c))
            return j_nomem(r);
    }
    return KVANT_OK;
}

/* A generator gives its items once. */
static int use_up(jinja_run *r, jlist *lazy, const jlist **out)
{
    jlist *items = jarena_alloc(&r->mem, sizeof *items);

    if (!items)
        return j_nomem(r);
    *items = *lazy;
    items->lazy = 0;
    lazy->n = 0;
    *out = items;
    return KVANT_OK;
}

int j_iterate(jinja_run *r, jval v, const jlist **out)
{
    jval list;

    if (j_is_list(v) && v.u.l->lazy)
        return use_up(r, v.u.l, out);
    if (j_is_list(v)) {
        *out = v.u.l;
        return KVANT_OK;
    }
    if (v.type != J_STR && v.type != J_DICT && v.type != J_UNDEF)
        return j_fail(r, "%s is no list to go through", j_type_name(v));
    if (!j_list(&r->mem, v.type == J_DICT ? v.u.d->n : 0, &list))
        return j_nomem(r);
    if (v.type == J_STR)
        KVANT_TRY(characters(r, v.u.s, &list));
    for (size_t i = 0; v.type == J_DICT && i < v.u.d->n; i++)
        list.u.l->v[list.u.l->n++] = v.u.d->keys[i];
    KVANT_TRY(j_charge(r, list.u.l->n));
    *out = list.u.l;
    return KVANT_OK;
}
