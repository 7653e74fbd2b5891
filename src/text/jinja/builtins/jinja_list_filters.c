/* jinja_list_filters.c: filters that work on a whole list or dict. */
#include "text/jinja/jinja_methods.h"

#include <string.h>

static int f_length(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    if (j_is_list(self) && self.u.l->lazy)
        return j_fail(r, "length: a generator (of map, select, ...) has none: | list makes it a list");
    switch (self.type) {
    case J_UNDEF: *out = j_int(0); return KVANT_OK;
    case J_STR:
        KVANT_TRY(j_charge_chars(r, self.u.s->n));
        *out = j_int((int64_t)jstr_length(self.u.s));
        return KVANT_OK;
    case J_LIST:
    case J_TUPLE: *out = j_int((int64_t)self.u.l->n); return KVANT_OK;
    case J_DICT: *out = j_int((int64_t)self.u.d->n); return KVANT_OK;
    default: return j_fail(r, "length of %s", j_type_name(self));
    }
}

static int f_first(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;

    (void)a;
    KVANT_TRY(j_iterate(r, self, &l));
    *out = l->n ? l->v[0] : J_UNDEF_VALUE;
    return KVANT_OK;
}

static int f_last(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;

    (void)a;
    if (j_is_list(self) && self.u.l->lazy)
        return j_fail(r, "last: a generator (of map, select, ...) has no end to begin at: | list makes it a list");
    KVANT_TRY(j_iterate(r, self, &l));
    *out = l->n ? l->v[l->n - 1] : J_UNDEF_VALUE;
    return KVANT_OK;
}

static int copy(jinja_run *r, jval self, jval *out)
{
    const jlist *l;

    KVANT_TRY(j_iterate(r, self, &l));
    KVANT_TRY(j_charge(r, l->n));
    if (!j_list(&r->mem, l->n, out))
        return j_nomem(r);
    if (l->n)
        memcpy(out->u.l->v, l->v, l->n * sizeof *l->v);
    out->u.l->n = l->n;
    return KVANT_OK;
}

static int f_list(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return copy(r, self, out);
}

static int f_items(jinja_run *r, jval self, const jargs *a, jval *out)
{
    if (self.type != J_DICT && self.type != J_UNDEF)
        return j_fail(r, "items of %s, want a dict", j_type_name(self));
    KVANT_TRY(self.type == J_UNDEF ? copy(r, self, out)
                                   : jbuiltin_find(jinja_dict_methods, "items", 5)->fn(r, self, a, out));
    out->u.l->view = NULL;
    out->u.l->lazy = 1;
    return KVANT_OK;
}

static int f_reverse(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jval back[3] = { J_NONE_VALUE, J_NONE_VALUE, j_int(-1) };
    const int used_up = j_is_list(self) && self.u.l->lazy; /* Python makes a list of it first */
    jval list = self;

    (void)a;
    if (self.type != J_STR)
        KVANT_TRY(copy(r, self, &list));
    KVANT_TRY(j_slice_of(r, list, back, out));
    if (self.type != J_STR)
        out->u.l->lazy = !used_up;
    return KVANT_OK;
}

static int f_join(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;
    jbuf b = { 0 };

    KVANT_TRY(j_iterate(r, self, &l));
    for (size_t i = 0; i < l->n; i++) {
        jval v = l->v[i];
        if (a->given & 2)
            KVANT_TRY(j_path(r, v, a->v[1], &v));
        if (i && (a->given & 1))
            KVANT_TRY(j_print(r, &b, a->v[0]));
        KVANT_TRY(j_charge(r, 1));
        KVANT_TRY(j_print(r, &b, v));
    }
    return jbuf_done(r, &b, out);
}

/* ---- sorting: stable, by merging ---- */

typedef struct order {
    jinja_run *r;
    jval *key, *v; /* sorted together */
    size_t n;
    int reverse;
} order;

/* v[from..to) and v[to..end) are sorted. */
static int merge(const order *o, jval *keys, jval *vals, size_t from, size_t to, size_t end)
{
    size_t a = from, b = to, n = 0;
    int c;

    while (a < to || b < end) {
        c = 0;
        if (a < to && b < end)
            KVANT_TRY(j_order(o->r, o->key[b], o->key[a], &c));
        int second = a == to || (b < end && (o->reverse ? c > 0 : c < 0));
        size_t i = second ? b++ : a++;
        keys[n] = o->key[i];
        vals[n++] = o->v[i];
    }
    memcpy(o->key + from, keys, n * sizeof *keys);
    memcpy(o->v + from, vals, n * sizeof *vals);
    return KVANT_OK;
}

static int sort(const order *o)
{
    jval *keys = jarena_alloc(&o->r->mem, (o->n + 1) * sizeof *keys);
    jval *vals = jarena_alloc(&o->r->mem, (o->n + 1) * sizeof *vals);

    if (!keys || !vals)
        return j_nomem(o->r);
    for (size_t width = 1; width < o->n; width *= 2)
        for (size_t at = 0; at + width < o->n; at += 2 * width) {
            size_t end = at + 2 * width < o->n ? at + 2 * width : o->n;
            KVANT_TRY(merge(o, keys, vals, at, at + width, end));
        }
    return KVANT_OK;
}

/* Makes the key by which two texts are compared: lower case unless case matters. */
static int key_of(jinja_run *r, jval v, int case_sensitive, jval *out)
{
    *out = v;
    return v.type == J_STR && !case_sensitive ? jstr_recase(r, v.u.s, JCASE_LOWER, out) : KVANT_OK;
}

static int sort_by(jinja_run *r, jval list, jval attribute, int cases, int reverse, jval *out)
{
    KVANT_TRY(copy(r, list, out));
    order o = { r, jarena_alloc(&r->mem, (out->u.l->n + 1) * sizeof(jval)), out->u.l->v, out->u.l->n, reverse };
    if (!o.key)
        return j_nomem(r);
    for (size_t i = 0; i < o.n; i++) {
        jval v = o.v[i];
        if (attribute.type == J_STR || attribute.type == J_INT)
            KVANT_TRY(j_path(r, v, attribute, &v));
        KVANT_TRY(key_of(r, v, cases, &o.key[i]));
    }
    return sort(&o);
}

static int f_sort(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return sort_by(r, self, a->v[2], j_true(a->v[1]), j_true(a->v[0]), out);
}

static int f_dictsort(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jargs none = { 0 };
    const jstr *by;
    jval pairs;

    KVANT_TRY(jargs_str(r, a, 1, "dictsort", &by));
    if (self.type != J_DICT)
        return j_fail(r, "dictsort of %s", j_type_name(self));
    if (by && !jstr_is(by, "key") && !jstr_is(by, "value"))
        return j_fail(r, "dictsort: by: want 'key' or 'value'");
    KVANT_TRY(f_items(r, self, &none, &pairs));
    return sort_by(r, pairs, j_int(by && jstr_is(by, "value")), j_true(a->v[0]), j_true(a->v[2]), out);
}

static int f_unique(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;
    jval seen, key;

    KVANT_TRY(j_iterate(r, self, &l));
    if (!j_list(&r->mem, 0, out) || !j_dict(&r->mem, 0, &seen))
        return j_nomem(r);
    for (size_t i = 0; i < l->n; i++) {
        jval v = l->v[i];
        if (a->given & 2)
            KVANT_TRY(j_path(r, v, a->v[1], &v));
        KVANT_TRY(key_of(r, v, j_true(a->v[0]), &key));
        KVANT_TRY(j_hashable(r, key));
        KVANT_TRY(j_charge(r, 1));
        if (jdict_get(seen.u.d, key, &r->mem.steps))
            continue;
        if (!jdict_put(&r->mem, seen.u.d, key, key, &r->mem.steps) || !jlist_add(&r->mem, out->u.l, l->v[i]))
            return j_nomem(r);
    }
    out->u.l->lazy = 1;
    return KVANT_OK;
}

/* ---- sum, min, max ---- */

static int f_sum(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;

    KVANT_TRY(j_iterate(r, self, &l));
    *out = a->given & 2 ? a->v[1] : j_int(0);
    for (size_t i = 0; i < l->n; i++) {
        jval v = l->v[i];
        if (a->given & 1 && a->v[0].type != J_NONE)
            KVANT_TRY(j_path(r, v, a->v[0], &v));
        KVANT_TRY(j_charge(r, 1));
        KVANT_TRY(j_binary(r, JB_ADD, *out, v, out));
    }
    return KVANT_OK;
}

static int extreme(jinja_run *r, jval self, const jargs *a, int greatest, jval *out)
{
    const jlist *l;
    jval best = J_NONE_VALUE, key;
    int c;

    KVANT_TRY(j_iterate(r, self, &l));
    *out = J_UNDEF_VALUE;
    for (size_t i = 0; i < l->n; i++) {
        jval v = l->v[i];
        if (a->given & 2)
            KVANT_TRY(j_path(r, v, a->v[1], &v));
        KVANT_TRY(key_of(r, v, j_true(a->v[0]), &key));
        c = -1;
        if (i)
            KVANT_TRY(j_order(r, greatest ? best : key, greatest ? key : best, &c));
        if (c >= 0)
            continue;
        best = key;
        *out = l->v[i];
    }
    return KVANT_OK;
}

static int f_min(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return extreme(r, self, a, 0, out);
}

static int f_max(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return extreme(r, self, a, 1, out);
}

/* batch(n): lists of n items, the last filled up where a value to fill with is given. */
static int f_batch(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;
    int64_t n;
    jval row = J_NONE_VALUE;

    KVANT_TRY(j_iterate(r, self, &l));
    KVANT_TRY(jargs_int(r, a, 0, "batch", 0, &n));
    if (n < 1)
        return j_fail(r, "batch: %lld, want at least 1", (long long)n);
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (size_t i = 0; i < l->n || (a->given & 2 && i % (size_t)n); i++) {
        if (i % (size_t)n == 0 && (!j_list(&r->mem, 0, &row) || !jlist_add(&r->mem, out->u.l, row)))
            return j_nomem(r);
        KVANT_TRY(j_charge(r, 1));
        if (!jlist_add(&r->mem, row.u.l, i < l->n ? l->v[i] : a->v[1]))
            return j_nomem(r);
    }
    out->u.l->lazy = 1;
    return KVANT_OK;
}

/* clang-format off */
const jbuiltin jinja_list_filters[] = {
    { "length", f_length, "" }, { "count", f_length, "" }, { "first", f_first, "" }, { "last", f_last, "" },
    { "list", f_list, "" }, { "items", f_items, "" }, { "reverse", f_reverse, "" }, { "join", f_join, "d,attribute" },
    { "sort", f_sort, "reverse,case_sensitive,attribute" }, { "dictsort", f_dictsort, "case_sensitive,by,reverse" },
    { "unique", f_unique, "case_sensitive,attribute" }, { "sum", f_sum, "attribute,start" },
    { "min", f_min, "case_sensitive,attribute" }, { "max", f_max, "case_sensitive,attribute" },
    { "batch", f_batch, "linecount!,fill_with" }, { NULL, NULL, NULL },
};
/* clang-format on */
