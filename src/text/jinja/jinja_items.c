/* jinja_items.c: what is in values: items, attributes, slices, iteration. */
#include "text/jinja/jinja_methods.h"

#include <string.h>

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
    case J_TUPLE: return j_is_plain(of) ? name->of_list : NULL;
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
        return j_undefined_error(r, of);
    if (f)
        return bind(r, of, f, out);
    if (of.type == J_LOOP && loop_value(of.u.loop, s, out))
        return KVANT_OK;
    if (of.type == J_MACRO)
        return j_fail(r, "'%.*s' of a macro", (int)s->n, s->s);
    if (of.type == J_DICT || of.type == J_SPACE)
        v = jdict_get(of.u.d, name->text, &r->mem.steps);
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

    KVANT_TRY(j_charge_chars(r, s->n));
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
                           : j_is_plain(of)    ? jinja_list_methods
                           : of.type == J_DICT ? jinja_dict_methods
                           : of.type == J_LOOP ? jinja_loop_methods
                                               : NULL;
    r->mem.steps -= 4;
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
        return j_undefined_error(r, of);
    if (of.type == J_DICT || (of.type == J_SPACE && key.type == J_STR)) {
        const jval *v = NULL;
        if (key.type == J_STR || key.type == J_NONE || j_is_number(key) || key.type == J_TUPLE)
            v = jdict_get(of.u.d, key, &r->mem.steps);
        if (v) {
            *out = *v;
            return KVANT_OK;
        }
    }
    if (j_has_places(of) && whole) {
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

typedef struct item_span {
    int64_t from, to, step;
} item_span;

/* Python's slice.indices(n). */
static int indices(jinja_run *r, const jval bounds[3], int64_t n, item_span *out)
{
    for (int i = 0; i < 3; i++)
        if (bounds[i].type != J_NONE && bounds[i].type != J_INT && bounds[i].type != J_BOOL)
            return j_fail(r, "a slice with %s, want integers", j_type_name(bounds[i]));
    item_span s = { 0, n, bounds[2].type == J_NONE ? 1 : j_integer(bounds[2]) };
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
    item_span at;
    int len;

    KVANT_TRY(j_charge_chars(r, 2 * (size_t)s->n));
    KVANT_TRY(indices(r, bounds, (int64_t)jstr_length(s), &at));
    if (at.step == 1) {
        size_t from = jstr_byte(s, (size_t)at.from);
        return j_slice(r, s, from, at.to > at.from ? jstr_byte(s, (size_t)at.to) : from, out);
    }
    const int plain = jstr_length(s) == s->n;
    if (!plain && s->n > 1 << 16)
        return j_fail(r, "a slice with a step of a text of %u bytes", s->n);
    for (int64_t i = at.from; at.step > 0 ? i < at.to : i > at.to; i += at.step) {
        size_t from = plain ? (size_t)i : jstr_byte(s, (size_t)i);
        KVANT_TRY(j_charge_chars(r, plain ? 1 : s->n));
        jstr_char(s, from, &len);
        KVANT_TRY(jbuf_str(r, &b, s, from, (size_t)len));
    }
    return jbuf_done(r, &b, out);
}

int j_slice_of(jinja_run *r, jval of, const jval bounds[3], jval *out)
{
    item_span at;

    if (of.type == J_UNDEF)
        return j_undefined_error(r, of);
    if (of.type == J_STR)
        return slice_text(r, of.u.s, bounds, out);
    if (!j_has_places(of))
        return j_fail(r, "a slice of %s", j_is_list(of) && of.u.l->view ? of.u.l->view : j_type_name(of));
    KVANT_TRY(indices(r, bounds, (int64_t)of.u.l->n, &at));
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (int64_t i = at.from; at.step > 0 ? i < at.to : i > at.to; i += at.step) {
        KVANT_TRY(j_charge(r, 1));
        if (!jlist_add(&r->mem, out->u.l, of.u.l->v[i]))
            return j_nomem(r);
    }
    out->type = of.type;
    out->u.l->view = of.u.l->view;
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
