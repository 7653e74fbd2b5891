/* jinja_list_methods.c: methods of lists, dicts and loops, as Python's.  Those that change their object are refused, as
 * jinja2's sandbox does, but for append and pop of a list that the template made itself. */
#include "text/jinja/jinja_run.h"

#include <string.h>

static int m_refused(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    (void)out;
    return j_fail(r, "a method that changes a %s is not allowed", j_type_name(self));
}

static int m_append(jinja_run *r, jval self, const jargs *a, jval *out)
{
    if (self.type != J_LIST || self.u.l->fixed)
        return m_refused(r, self, a, out);
    *out = J_NONE_VALUE;
    return jlist_add(&r->mem, self.u.l, a->v[0]) ? KVANT_OK : j_nomem(r);
}

static int m_pop(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jlist *l = self.u.l;
    int64_t i;

    if (self.type != J_LIST || l->fixed)
        return m_refused(r, self, a, out);
    KVANT_TRY(jargs_int(r, a, 0, "pop", -1, &i));
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || i >= (int64_t)l->n)
        return j_fail(r, "pop: %lld of a list of %zu", (long long)i, l->n);
    KVANT_TRY(j_charge(r, l->n));
    *out = l->v[i];
    memmove(l->v + i, l->v + i + 1, (l->n - 1 - (size_t)i) * sizeof *l->v);
    l->n--;
    return KVANT_OK;
}

static int m_list_count(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int64_t n = 0;
    int same;

    for (size_t i = 0; i < self.u.l->n; i++) {
        KVANT_TRY(j_equal(r, self.u.l->v[i], a->v[0], &same));
        n += same;
    }
    *out = j_int(n);
    return KVANT_OK;
}

static int m_list_index(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int same = 0;

    for (size_t i = 0; i < self.u.l->n && !same; i++) {
        KVANT_TRY(j_equal(r, self.u.l->v[i], a->v[0], &same));
        *out = j_int((int64_t)i);
    }
    return same ? KVANT_OK : j_fail(r, "index: not found");
}

static int m_list_copy(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jval all[3] = { J_NONE_VALUE, J_NONE_VALUE, J_NONE_VALUE };

    (void)a;
    return j_slice_of(r, self, all, out);
}

static int m_get(jinja_run *r, jval self, const jargs *a, jval *out)
{
    KVANT_TRY(j_hashable(r, a->v[0]));
    const jval *v = jdict_get(self.u.d, a->v[0], &r->mem.steps);
    *out = v ? *v : a->given & 2 ? a->v[1] : J_NONE_VALUE;
    return KVANT_OK;
}

static int m_items(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jdict *d = self.u.d;

    (void)a;
    KVANT_TRY(j_charge(r, d->n));
    if (!j_list(&r->mem, d->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < d->n; i++) {
        jval pair;
        if (!j_list(&r->mem, 2, &pair))
            return j_nomem(r);
        pair.type = J_TUPLE;
        pair.u.l->v[0] = d->keys[i];
        pair.u.l->v[1] = d->vals[i];
        pair.u.l->n = 2;
        out->u.l->v[out->u.l->n++] = pair;
    }
    out->u.l->view = "dict_items";
    return KVANT_OK;
}

static int listed(jinja_run *r, const jval *v, size_t n, const char *view, jval *out)
{
    KVANT_TRY(j_charge(r, n));
    if (!j_list(&r->mem, n, out))
        return j_nomem(r);
    if (n)
        memcpy(out->u.l->v, v, n * sizeof *v);
    out->u.l->n = n;
    out->u.l->view = view;
    return KVANT_OK;
}

static int m_keys(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return listed(r, self.u.d->keys, self.u.d->n, "dict_keys", out);
}

static int m_values(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return listed(r, self.u.d->vals, self.u.d->n, "dict_values", out);
}

static int m_dict_copy(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    if (!j_dict(&r->mem, self.u.d->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < self.u.d->n; i++)
        if (!jdict_put(&r->mem, out->u.d, self.u.d->keys[i], self.u.d->vals[i], &r->mem.steps))
            return j_nomem(r);
    return KVANT_OK;
}

static int m_cycle(jinja_run *r, jval self, const jargs *a, jval *out)
{
    if (!a->n_rest)
        return j_fail(r, "cycle: no values");
    *out = a->rest[(self.u.loop->i - 1) % (size_t)a->n_rest];
    return KVANT_OK;
}

static int m_changed(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval now;
    int same = 0;

    KVANT_TRY(listed(r, a->rest, (size_t)a->n_rest, NULL, &now));
    if (self.u.loop->changed.type == J_LIST)
        KVANT_TRY(j_equal(r, self.u.loop->changed, now, &same));
    self.u.loop->changed = now;
    *out = j_bool(!same);
    return KVANT_OK;
}

/* clang-format off */
const jbuiltin jinja_list_methods[] = {
    { "append", m_append, "object!" }, { "count", m_list_count, "value!" }, { "index", m_list_index, "value!" },
    { "copy", m_list_copy, "" }, { "extend", m_refused, "*" }, { "insert", m_refused, "*" }, { "pop", m_pop, "index" },
    { "remove", m_refused, "*" }, { "clear", m_refused, "*" }, { "reverse", m_refused, "*" },
    { "sort", m_refused, "**" }, { NULL, NULL, NULL },
};
const jbuiltin jinja_dict_methods[] = {
    { "get", m_get, "key!,default" }, { "items", m_items, "" }, { "keys", m_keys, "" }, { "values", m_values, "" },
    { "copy", m_dict_copy, "" }, { "pop", m_refused, "*" }, { "update", m_refused, "**" },
    { "setdefault", m_refused, "*" }, { "clear", m_refused, "*" }, { "popitem", m_refused, "*" },
    { NULL, NULL, NULL },
};
const jbuiltin jinja_loop_methods[] = {
    { "cycle", m_cycle, "*" }, { "changed", m_changed, "*" }, { NULL, NULL, NULL },
};
/* clang-format on */
