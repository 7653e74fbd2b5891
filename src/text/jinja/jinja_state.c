/* jinja_state.c: the state of a template that runs: errors and limits, the stack, scopes, captured output. */
#include "text/jinja/jinja_vm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/thread/guard.h"

/* ---- errors and limits ---- */

int j_fail(jinja_run *r, const char *format, ...)
{
    char text[180];
    int line, column;
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    jinja_place(r->t, r->pos, &line, &column);
    return kvant_fail(r->diag, KVANT_EINVAL, "chat template, line %d, column %d: %s", line, column, text);
}

int j_nomem(jinja_run *r)
{
    if (r->mem.full)
        return j_fail(r, "more than %d MiB of values", JINJA_MAX_MEMORY >> 20);
    if (r->mem.steps < 0)
        return j_fail(r, "more than %d steps", JINJA_MAX_STEPS);
    return kvant_fail(r->diag, KVANT_ENOMEM, "chat template: out of memory");
}

int j_charge(jinja_run *r, size_t steps)
{
    if (steps > INT32_MAX || (r->mem.steps -= (int64_t)steps) < 0)
        return j_fail(r, "more than %d steps", JINJA_MAX_STEPS);
    return guard_over() ? kvant_fail(r->diag, KVANT_ENOMEM, "chat template: given up") : KVANT_OK;
}

/* ---- the stack ---- */

int jpush(jinja_run *r, jval v)
{
    if (r->sp == JINJA_MAX_STACK)
        return j_fail(r, "more than %d values at once", JINJA_MAX_STACK);
    r->stack[r->sp++] = v;
    return KVANT_OK;
}

jval jpop(jinja_run *r)
{
    return r->stack[--r->sp];
}

/* ---- scopes ---- */

int jscope_push(jinja_run *r, jscope *parent)
{
    jscope *s = jarena_alloc(&r->mem, sizeof *s);

    if (!s)
        return j_nomem(r);
    *s = (jscope){ .parent = parent };
    r->scope = s;
    return KVANT_OK;
}

int jscope_set(jinja_run *r, jscope *s, int name, jval v)
{
    r->mem.steps -= s->n / 8;
    for (int i = 0; i < s->n; i++)
        if (s->vars[i].name == name) {
            s->vars[i].v = v;
            return KVANT_OK;
        }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 8;
        jvar *vars = jarena_alloc(&r->mem, (size_t)cap * sizeof *vars);
        if (!vars)
            return j_nomem(r);
        if (s->n)
            memcpy(vars, s->vars, (size_t)s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (jvar){ name, v };
    return KVANT_OK;
}

/* ---- output ---- */

int jcapture_push(jinja_run *r)
{
    jcapture *c = jarena_alloc(&r->mem, sizeof *c);

    if (!c)
        return j_nomem(r);
    *c = (jcapture){ .outer = r->out };
    r->out = c;
    return KVANT_OK;
}

int jcapture_pop(jinja_run *r)
{
    jval v;

    KVANT_TRY(jbuf_done(r, &r->out->buf, &v));
    r->out = r->out->outer;
    return jpush(r, v);
}
