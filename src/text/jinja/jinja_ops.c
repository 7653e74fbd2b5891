/* jinja_ops.c: Python's operators on values: truth, equality, order, arithmetic.  jinja_items.c: what is in
 * them. */
#include "text/jinja/jinja_methods.h"

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

int j_undefined_error(jinja_run *r, jval v)
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
        const jval *v = jdict_get(b, a->keys[i], &r->mem.steps);
        *out = v != NULL;
        if (v)
            KVANT_TRY(equal_at(r, a->vals[i], *v, depth, out));
    }
    return KVANT_OK;
}

/* Ranges are equal where their numbers are; what else is no list equals itself alone, but dict_keys and dict_items are
 * sets in Python: refused. */
static int equal_views(jinja_run *r, const jlist *a, const jlist *b, int depth, int *out)
{
    const int ranges = a->view == b->view && a->view && a->view[0] == 'r';

    if (ranges && !a->lazy && !b->lazy)
        return equal_lists(r, a, b, depth, out);
    if (a != b && a->view && b->view)
        return j_fail(r, "%s and %s are not compared: | list makes them lists", a->view, b->view);
    *out = a == b;
    return KVANT_OK;
}

static int equal_at(jinja_run *r, jval a, jval b, int depth, int *out)
{
    if (depth > JINJA_MAX_DEPTH)
        return j_fail(r, "values nested deeper than %d are compared", JINJA_MAX_DEPTH);
    KVANT_TRY(j_charge(r, a.type == J_STR ? a.u.s->n / 64 + 1 : 1));
    if (j_is_list(a) && j_is_list(b) && !(j_is_plain(a) && j_is_plain(b)))
        return equal_views(r, a.u.l, b.u.l, depth + 1, out);
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
        return j_undefined_error(r, a.type == J_UNDEF ? a : b);
    if (a.type == J_STR && b.type == J_STR) {
        KVANT_TRY(j_charge_bytes(r, a.u.s->n));
        *out = order_strings(a.u.s, b.u.s);
    } else if (j_is_number(a) && j_is_number(b)) {
        double x = j_number(a), y = j_number(b);
        *out = a.type == J_FLOAT || b.type == J_FLOAT ? (x < y ? -1 : x > y) : sign(j_integer(a), j_integer(b));
    } else if (j_is_plain(a) && j_is_plain(b) && a.type == b.type && depth <= JINJA_MAX_DEPTH) {
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
            return what.type == J_UNDEF ? j_undefined_error(r, what)
                                        : j_fail(r, "'in' a text: want a text, not %s", j_type_name(what));
        *out = j_seek(r, in.u.s, what.u.s, 0, in.u.s->n, 0) != SIZE_MAX;
        return j_charge(r, 1);
    }
    if (in.type == J_DICT) {
        KVANT_TRY(j_hashable(r, what));
        *out = jdict_get(in.u.d, what, &r->mem.steps) != NULL;
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

static int float_power(jinja_run *r, double a, double b, jval *out)
{
    const double v = pow(a, b);

    if (isnan(v) && !isnan(a) && !isnan(b))
        return j_fail(r, "%g ** %g is a complex number", a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return j_fail(r, a == 0 ? "%g ** %g: division by zero" : "%g ** %g is beyond a float", a, b);
    *out = j_float(v);
    return KVANT_OK;
}

/* Python's: the rest has the sign of the divisor, a rest of zero too. */
static double float_rest(double a, double b)
{
    const double rest = fmod(a, b);

    return rest == 0 ? copysign(0, b) : rest + ((rest < 0) != (b < 0) ? b : 0);
}

/* Python's: from the exact rest, so 1.0 // 0.1 is 9. */
static double floor_divide(double a, double b)
{
    const double rest = fmod(a, b), q = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0)), low = floor(q);

    return q == 0 ? copysign(0, a / b) : low + (q - low > 0.5);
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
    case JB_FLOORDIV: a = floor_divide(a, b); break;
    case JB_MOD: a = float_rest(a, b); break;
    default: return float_power(r, a, b, out);
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
        return j_undefined_error(r, a.type == J_UNDEF ? a : b);
    if (j_is_number(a) && j_is_number(b))
        return numbers(r, op, a, b, out);
    if (op == JB_ADD && j_is_plain(a) && j_is_plain(b) && a.type == b.type)
        return join_lists(r, a, b, out);
    if (op == JB_MUL && (a.type == J_STR || j_is_plain(a)) && (b.type == J_INT || b.type == J_BOOL))
        return repeat(r, a, j_integer(b), out);
    if (op == JB_MUL && (b.type == J_STR || j_is_plain(b)) && (a.type == J_INT || a.type == J_BOOL))
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
        return j_undefined_error(r, v);
    if (!j_is_number(v) || (v.type == J_INT && v.u.i == INT64_MIN))
        return j_fail(r, "the sign of %s", j_type_name(v));
    if (v.type == J_FLOAT)
        *out = j_float(minus ? -v.u.f : v.u.f);
    else
        *out = j_int(minus ? -j_integer(v) : j_integer(v));
    return KVANT_OK;
}
