/* jinja_functions.c: the functions that templates may call. */
#include "text/jinja/jinja_run.h"

#include <string.h>
#include <time.h>

/* The numbers of range(stop) or range(start, stop, step). */
static int g_range(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int64_t v[3] = { 0, 0, 1 };

    (void)self;
    if (a->n_rest < 1 || a->n_rest > 3)
        return j_fail(r, "range: %d arguments, want 1 to 3", a->n_rest);
    for (int i = 0; i < a->n_rest; i++) {
        if (a->rest[i].type != J_INT && a->rest[i].type != J_BOOL)
            return j_fail(r, "range: %s, want integers", j_type_name(a->rest[i]));
        v[a->n_rest == 1 ? 1 : i] = j_integer(a->rest[i]);
    }
    if (v[2] == 0)
        return j_fail(r, "range: step 0");
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        KVANT_TRY(j_charge(r, 1));
        if (out->u.l->n == JINJA_MAX_RANGE)
            return j_fail(r, "range: more than %d numbers", JINJA_MAX_RANGE);
        if (!jlist_add(&r->mem, out->u.l, j_int(i)))
            return j_nomem(r);
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    out->u.l->view = "range";
    return KVANT_OK;
}

/* dict(...) and namespace(...): of a dict, and of keywords. */
static int g_dict(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)self;
    if (a->n_rest > 1 || (a->n_rest && a->rest[0].type != J_DICT))
        return j_fail(r, "dict and namespace: want a dict or name=value");
    if (!j_dict(&r->mem, (size_t)a->n_kw, out))
        return j_nomem(r);
    const jdict *from = a->n_rest ? a->rest[0].u.d : NULL;
    for (size_t i = 0; from && i < from->n; i++) {
        KVANT_TRY(j_charge(r, 1));
        if (!jdict_put(&r->mem, out->u.d, from->keys[i], from->vals[i], &r->mem.steps))
            return j_nomem(r);
    }
    for (int i = 0; i < a->n_kw; i++)
        if (!jdict_put(&r->mem, out->u.d, a->kw[2 * i], a->kw[2 * i + 1], &r->mem.steps))
            return j_nomem(r);
    return KVANT_OK;
}

static int g_namespace(jinja_run *r, jval self, const jargs *a, jval *out)
{
    KVANT_TRY(g_dict(r, self, a, out));
    out->type = J_SPACE;
    return KVANT_OK;
}

static int g_raise(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval text;

    (void)self;
    (void)out;
    KVANT_TRY(j_str(r, a->v[0], &text));
    const jstr *s = text.u.s;
    return kvant_fail(r->diag, KVANT_EINVAL, "the model's chat template refuses: %.*s", s->n < 200 ? (int)s->n : 200,
                      s->s);
}

static int g_strftime_now(jinja_run *r, jval self, const jargs *a, jval *out)
{
    char format[128], text[512];
    struct tm tm;
    time_t now = r->has_now ? r->now : time(NULL);

    (void)self;
    if (a->v[0].type != J_STR || a->v[0].u.s->n >= sizeof format)
        return j_fail(r, "strftime_now: want a format of at most %zu bytes", sizeof format - 1);
    memcpy(format, a->v[0].u.s->s, a->v[0].u.s->n);
    format[a->v[0].u.s->n] = 0;
    KVANT_TRY(j_charge(r, 256)); /* a zone, 128 bytes of format */
    localtime_r(&now, &tm);
    text[0] = 0;
    size_t n = strftime(text, sizeof text, format, &tm);
    if (n == 0 && format[0])
        return j_fail(r, "strftime_now: '%s' gives no text", format);
    return j_string(&r->mem, text, n, a->v[0].u.s->origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_DATA, out)
               ? KVANT_OK
               : j_nomem(r);
}

const jbuiltin jinja_functions[] = {
    { "range", g_range, "*" },
    { "dict", g_dict, "**" },
    { "namespace", g_namespace, "**" },
    { "raise_exception", g_raise, "message!" },
    { "strftime_now", g_strftime_now, "format!" },
    { NULL, NULL, NULL },
};
