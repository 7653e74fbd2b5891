/* jinja_call.c: calls: macros (frames of the machine), and builtins, whose arguments are bound to their names. */
#include "text/jinja/jinja_vm.h"

#include <string.h>

/* ---- builtins ---- */

const jbuiltin *jbuiltin_find(const jbuiltin *list, const char *s, size_t n)
{
    for (; list->name; list++)
        if (strlen(list->name) == n && memcmp(list->name, s, n) == 0)
            return list;
    return NULL;
}

const jbuiltin *jfilter_find(const char *s, size_t n)
{
    const jbuiltin *const lists[] = { jinja_text_filters, jinja_list_filters, jinja_pick_filters };
    const jbuiltin *f = NULL;

    for (int i = 0; i < 3 && !f; i++)
        f = jbuiltin_find(lists[i], s, n);
    return f;
}

/* Parameter i of "a!,b,*": its name's length; 0 when there is none. */
static size_t param(const char *params, int i, const char **name)
{
    for (; i > 0 && params; i--) {
        params = strchr(params, ',');
        params = params ? params + 1 : NULL;
    }
    *name = params;
    return params ? strcspn(params, ",!") : 0;
}

static int bind_keyword(jinja_run *r, const jbuiltin *f, jval key, jval v, jargs *a)
{
    const char *name;
    size_t n;

    for (int i = 0; (n = param(f->params, i, &name)) > 0 && *name != '*'; i++)
        if (n == key.u.s->n && memcmp(name, key.u.s->s, n) == 0) {
            if (a->given & 1u << i)
                return j_fail(r, "%s: '%.*s' is given twice", f->name, (int)n, name);
            a->v[i] = v;
            a->given |= 1u << i;
            return KVANT_OK;
        }
    return j_fail(r, "%s: no argument '%.40s'", f->name, key.u.s->s);
}

static int bind_args(jinja_run *r, const jbuiltin *f, const jval *args, int n, int n_kw, jargs *a)
{
    const char *name;
    size_t len;
    int i = 0;

    *a = (jargs){ 0 };
    for (; (len = param(f->params, i, &name)) > 0 && *name != '*' && i < n; i++) {
        a->v[i] = args[i];
        a->given |= 1u << i;
    }
    a->rest = args + i;
    a->n_rest = n - i;
    const char *star = strchr(f->params, '*');
    if (a->n_rest && !star)
        return j_fail(r, "%s: %d arguments, want at most %d", f->name, n, i);
    a->kw = args + n;
    a->n_kw = n_kw;
    for (int k = 0; k < n_kw && !(star && star[1] == '*'); k++)
        KVANT_TRY(bind_keyword(r, f, args[n + 2 * k], args[n + 2 * k + 1], a));
    for (i = 0; (len = param(f->params, i, &name)) > 0 && *name != '*'; i++)
        if (name[len] == '!' && !(a->given & 1u << i))
            return j_fail(r, "%s: no argument '%.*s'", f->name, (int)len, name);
    return KVANT_OK;
}

int jbuiltin_call(jinja_run *r, const jbuiltin *f, jval self, const jval *args, int n, int n_kw, jval *out)
{
    jargs a;

    KVANT_TRY(bind_args(r, f, args, n, n_kw, &a));
    return f->fn(r, self, &a, out);
}

int jargs_int(jinja_run *r, const jargs *a, int i, const char *name, int64_t none, int64_t *out)
{
    const jval v = a->v[i];

    *out = none;
    if (!(a->given & 1u << i) || v.type == J_NONE)
        return KVANT_OK;
    if (v.type != J_INT && v.type != J_BOOL)
        return j_fail(r, "%s: %s, want an integer", name, j_type_name(v));
    *out = j_integer(v);
    return KVANT_OK;
}

/* The arguments of a call: n values, then n_kw names and values. */
typedef struct given {
    const jval *v;
    int n, n_kw;
} given;

static int put_dict(jinja_run *r, jval from, jlist *to, given *g)
{
    if (from.type != J_DICT)
        return j_fail(r, "** of %s, want a dict", j_type_name(from));
    KVANT_TRY(j_charge(r, from.u.d->n));
    for (size_t i = 0; i < from.u.d->n; i++, g->n_kw++) {
        if (from.u.d->keys[i].type != J_STR)
            return j_fail(r, "** of a dict with a key of type %s, want names", j_type_name(from.u.d->keys[i]));
        if (!jlist_add(&r->mem, to, from.u.d->keys[i]) || !jlist_add(&r->mem, to, from.u.d->vals[i]))
            return j_nomem(r);
    }
    return KVANT_OK;
}

static int put_all(jinja_run *r, const jval *v, size_t n, jlist *to)
{
    for (size_t i = 0; i < n; i++)
        if (!jlist_add(&r->mem, to, v[i]))
            return j_nomem(r);
    return KVANT_OK;
}

/* Puts the values of * and ** in their places among the arguments at `at`. */
static int spread(jinja_run *r, const jins *in, const jval *at, given *g)
{
    const int before = in->a >> JSPREAD_BEFORE, block = (in->a & JSPREAD_BLOCK) != 0;
    const int pairs = in->kw - before - block; /* behind the list */
    const jlist *items = NULL;
    jval all;

    if (!j_list(&r->mem, 0, &all))
        return j_nomem(r);
    KVANT_TRY(put_all(r, at, in->n, all.u.l));
    g->n = in->n;
    at += in->n;
    const jval *named = at;
    at += 2 * before;
    if (in->a & JSPREAD_LIST) {
        KVANT_TRY(j_iterate(r, *at++, &items));
        KVANT_TRY(j_charge(r, items->n));
        KVANT_TRY(put_all(r, items->v, items->n, all.u.l));
        if (items->n > 255 - (size_t)g->n)
            return j_fail(r, "* of %zu values, want at most %d", items->n, 255 - g->n);
        g->n += (int)items->n;
    }
    KVANT_TRY(put_all(r, named, 2 * (size_t)before, all.u.l));
    KVANT_TRY(put_all(r, at, 2 * (size_t)pairs, all.u.l));
    at += 2 * pairs;
    g->n_kw = in->kw;
    KVANT_TRY(put_all(r, at + ((in->a & JSPREAD_DICT) != 0), 2 * (size_t)block, all.u.l));
    if (in->a & JSPREAD_DICT)
        KVANT_TRY(put_dict(r, *at, all.u.l, g));
    g->v = all.u.l->v;
    return KVANT_OK;
}

/* Takes the arguments from the stack, and what stands before them stays its top. */
static int take_arguments(jinja_run *r, const jins *in, given *g)
{
    r->sp -= in->n + 2 * in->kw + ((in->a & JSPREAD_LIST) != 0) + ((in->a & JSPREAD_DICT) != 0);
    *g = (given){ r->stack + r->sp, in->n, in->kw };
    return in->a ? spread(r, in, r->stack + r->sp, g) : KVANT_OK;
}

int jop_filter(jinja_run *r, const jins *in) /* value, arguments, filter -- result */
{
    const jbuiltin *f = jpop(r).u.fn;
    given g;
    jval out;

    KVANT_TRY(take_arguments(r, in, &g));
    r->sp--;
    KVANT_TRY(jbuiltin_call(r, f, r->stack[r->sp], g.v, g.n, g.n_kw, &out));
    return jpush(r, out);
}

int jop_test(jinja_run *r, const jins *in) /* value, arguments, test -- bool */
{
    return jop_filter(r, in);
}

/* ---- macros ---- */

int jop_macro(jinja_run *r, const jins *in) /* -- macro */
{
    jmacro *m = jarena_alloc(&r->mem, sizeof *m);

    if (!m)
        return j_nomem(r);
    *m = (jmacro){ &r->t->macros[in->a], r->scope };
    for (jscope *s = r->scope; s; s = s->parent)
        s->kept = 1;
    return jpush(r, (jval){ .type = J_MACRO, .u.macro = m });
}

int jop_bound(jinja_run *r, const jins *in) /* -- ; jump when the caller gave parameter n */
{
    if (r->frame->bound & 1u << in->n)
        r->pc += in->a;
    return KVANT_OK;
}

static const char *macro_name(const jinja_run *r, const jmacro_def *def)
{
    return def->name < 0 ? "caller" : r->t->names[def->name].text.u.s->s;
}

static int bind_positional(jinja_run *r, const jmacro_def *def, const jval *args, int n)
{
    jval rest;

    for (int i = 0; i < n && i < def->n_params; i++) {
        KVANT_TRY(jscope_set(r, r->scope, def->params[i], args[i]));
        r->frame->bound |= 1u << i;
    }
    if (n > def->n_params && def->varargs < 0)
        return j_fail(r, "%s: %d arguments, want at most %d", macro_name(r, def), n, def->n_params);
    if (def->varargs < 0)
        return KVANT_OK;
    if (!j_list(&r->mem, 0, &rest))
        return j_nomem(r);
    for (int i = def->n_params; i < n; i++)
        if (!jlist_add(&r->mem, rest.u.l, args[i]))
            return j_nomem(r);
    rest.type = J_TUPLE;
    return jscope_set(r, r->scope, def->varargs, rest);
}

static int bind_name(jinja_run *r, const jmacro_def *def, jval key, jval v, jdict *others)
{
    for (int i = 0; i < def->n_params; i++)
        if (jkey_equal(r->t->names[def->params[i]].text, key)) {
            if (r->frame->bound & 1u << i)
                return j_fail(r, "%s: '%.40s' is given twice", macro_name(r, def), key.u.s->s);
            r->frame->bound |= 1u << i;
            return jscope_set(r, r->scope, def->params[i], v);
        }
    if (def->caller >= 0 && jstr_is(key.u.s, "caller"))
        return jscope_set(r, r->scope, def->caller, v);
    if (!others)
        return j_fail(r, "%s: no argument '%.40s'", macro_name(r, def), key.u.s->s);
    return jdict_put(&r->mem, others, key, v, &r->mem.steps) ? KVANT_OK : j_nomem(r);
}

static int bind_named(jinja_run *r, const jmacro_def *def, const jval *kw, int n)
{
    jval others = J_NONE_VALUE;

    if (def->kwargs >= 0 && !j_dict(&r->mem, 0, &others))
        return j_nomem(r);
    for (int i = 0; i < n; i++)
        KVANT_TRY(bind_name(r, def, kw[2 * i], kw[2 * i + 1], def->kwargs >= 0 ? others.u.d : NULL));
    for (int i = 0; i < def->n_params; i++)
        if (!(r->frame->bound & 1u << i))
            KVANT_TRY(jscope_set(r, r->scope, def->params[i],
                                 (jval){ .type = J_UNDEF, .u.s = r->t->names[def->params[i]].text.u.s }));
    return def->kwargs >= 0 ? jscope_set(r, r->scope, def->kwargs, others) : KVANT_OK;
}

static int enter(jinja_run *r, const jmacro *m)
{
    jframe *f = jarena_alloc(&r->mem, sizeof *f);

    if (!f)
        return j_nomem(r);
    if (++r->calls > JINJA_MAX_CALLS)
        return j_fail(r, "%s: more than %d macros in macros", macro_name(r, m->def), JINJA_MAX_CALLS);
    *f = (jframe){ .outer = r->frame, .pc = r->pc, .scope = r->scope, .loop = r->loop };
    r->frame = f;
    r->loop = NULL;
    r->pc = m->def->pc;
    KVANT_TRY(jscope_push(r, m->scope));
    return jcapture_push(r);
}

int jop_return(jinja_run *r, const jins *in) /* -- text */
{
    const jframe *f = r->frame;

    (void)in;
    KVANT_TRY(jcapture_pop(r));
    r->pc = f->pc;
    r->scope = f->scope;
    r->loop = f->loop;
    r->frame = f->outer;
    r->calls--;
    return KVANT_OK;
}

static int call_macro(jinja_run *r, const jmacro *m, const given *g)
{
    KVANT_TRY(enter(r, m));
    KVANT_TRY(bind_positional(r, m->def, g->v, g->n));
    return bind_named(r, m->def, g->v + g->n, g->n_kw);
}

int jop_call(jinja_run *r, const jins *in) /* callee, arguments -- result (of a macro: when it returns) */
{
    given g;
    jval out;

    KVANT_TRY(take_arguments(r, in, &g));
    const jval f = r->stack[--r->sp];
    if (f.type == J_MACRO)
        return call_macro(r, f.u.macro, &g);
    if (f.type == J_FUNCTION)
        KVANT_TRY(jbuiltin_call(r, f.u.fn, J_NONE_VALUE, g.v, g.n, g.n_kw, &out));
    else if (f.type == J_BOUND)
        KVANT_TRY(jbuiltin_call(r, f.u.bound->fn, f.u.bound->self, g.v, g.n, g.n_kw, &out));
    else if (f.type == J_UNDEF && f.u.s)
        return j_fail(r, "'%.*s' is no function", f.u.s->n < 60 ? (int)f.u.s->n : 60, f.u.s->s);
    else
        return j_fail(r, "%s is no function", j_type_name(f));
    return jpush(r, out);
}
