/* jinja_pick_filters.c: filters that apply a filter or a test to each item: map, select, reject, selectattr,
 * rejectattr. */
#include "text/jinja/jinja_run.h"

#include <string.h>

enum { PICK_NESTING = 4 }; /* map('map', 'map', ...): each one recurses */

static int deeper(jinja_run *r)
{
    return ++r->nesting > PICK_NESTING ? j_fail(r, "map and select within each other, deeper than %d", PICK_NESTING)
                                       : KVANT_OK;
}

static const jval *keyword(const jargs *a, const char *name)
{
    for (int i = 0; i < a->n_kw; i++)
        if (jstr_is(a->kw[2 * i].u.s, name))
            return &a->kw[2 * i + 1];
    return NULL;
}

/* The builtin that argument i names; NULL after an error. */
static const jbuiltin *named(jinja_run *r, const jargs *a, int i, int filter)
{
    const jstr *s = a->rest[i].type == J_STR ? a->rest[i].u.s : NULL;
    r->mem.steps -= 8; /* some 60 names are compared */
    const jbuiltin *f = !s ? NULL : filter ? jfilter_find(s->s, s->n) : jbuiltin_find(jinja_tests, s->s, s->n);

    if (!f)
        j_fail(r, "no %s '%.*s'", filter ? "filter" : "test", s && s->n < 40 ? (int)s->n : 0, s ? s->s : "");
    return f;
}

static int map_attribute(jinja_run *r, jval v, jval path, const jval *none, jval *out)
{
    KVANT_TRY(j_path(r, v, path, out));
    if (none && out->type == J_UNDEF)
        *out = *none;
    return KVANT_OK;
}

static int f_map(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jval *attribute = keyword(a, "attribute"), *none = keyword(a, "default");
    const jlist *l;
    const jbuiltin *f = NULL;

    KVANT_TRY(deeper(r));
    KVANT_TRY(j_iterate(r, j_true(self) ? self : J_UNDEF_VALUE, &l)); /* None has no items here, as in jinja2 */
    if (!attribute && !a->n_rest)
        return j_fail(r, "map: want a filter or attribute=");
    if (!attribute) {
        f = named(r, a, 0, 1);
        if (!f)
            return KVANT_EINVAL;
    }
    if (!j_list(&r->mem, l->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < l->n; i++) {
        KVANT_TRY(j_charge(r, 1));
        jval *v = &out->u.l->v[i];
        KVANT_TRY(f ? jbuiltin_call(r, f, l->v[i], a->rest + 1, a->n_rest - 1, a->n_kw, v)
                    : map_attribute(r, l->v[i], *attribute, none, v));
        out->u.l->n = i + 1;
    }
    r->nesting--;
    out->u.l->lazy = 1;
    return KVANT_OK;
}

/* Keeps the items whose test gives `want`.  by_path: the first argument names what of the item is tested. */
static int pick(jinja_run *r, jval self, const jargs *a, int by_path, int want, jval *out)
{
    const jlist *l;
    const jbuiltin *test = NULL;

    KVANT_TRY(deeper(r));
    KVANT_TRY(j_iterate(r, j_true(self) ? self : J_UNDEF_VALUE, &l)); /* None has no items here, as in jinja2 */
    if (by_path && !a->n_rest)
        return j_fail(r, "selectattr and rejectattr: no attribute");
    if (a->n_rest > by_path) {
        test = named(r, a, by_path, 0);
        if (!test)
            return KVANT_EINVAL;
    }
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (size_t i = 0; i < l->n; i++) {
        jval v = l->v[i];
        KVANT_TRY(j_charge(r, 1));
        if (by_path)
            KVANT_TRY(j_path(r, v, a->rest[0], &v));
        if (test)
            KVANT_TRY(jbuiltin_call(r, test, v, a->rest + by_path + 1, a->n_rest - by_path - 1, a->n_kw, &v));
        if (j_true(v) == want && !jlist_add(&r->mem, out->u.l, l->v[i]))
            return j_nomem(r);
    }
    r->nesting--;
    out->u.l->lazy = 1;
    return KVANT_OK;
}

static int f_select(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return pick(r, self, a, 0, 1, out);
}

static int f_reject(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return pick(r, self, a, 0, 0, out);
}

static int f_selectattr(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return pick(r, self, a, 1, 1, out);
}

static int f_rejectattr(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return pick(r, self, a, 1, 0, out);
}

const jbuiltin jinja_pick_filters[] = {
    { "map", f_map, "**" },
    { "select", f_select, "**" },
    { "reject", f_reject, "**" },
    { "selectattr", f_selectattr, "**" },
    { "rejectattr", f_rejectattr, "**" },
    { NULL, NULL, NULL },
};
