/* jinja_vm.c: runs a template: a stack machine without recursion.  One small function for each instruction; its comment
 * says what it takes from the stack -- what it leaves.  Filters and the like: jinja_call.c. */
#include "text/jinja/jinja_vm.h"

#include <string.h>
#include "base/mem.h"

/* ---- scopes ---- */

static int op_scope(jinja_run *r, const jins *in) /* -- */
{
    (void)in;
    return jscope_push(r, r->scope);
}

static int op_unscope(jinja_run *r, const jins *in) /* -- */
{
    (void)in;
    r->scope = r->scope->parent;
    return KVANT_OK;
}

static int op_load(jinja_run *r, const jins *in) /* -- value */
{
    for (const jscope *s = r->scope; s; s = s->parent) {
        KVANT_TRY(j_charge(r, (size_t)s->n / 8));
        for (int i = 0; i < s->n; i++)
            if (s->vars[i].name == in->a)
                return jpush(r, s->vars[i].v);
    }
    const jname *name = &r->t->names[in->a];
    if (name->function)
        return jpush(r, (jval){ .type = J_FUNCTION, .u.fn = name->function });
    return jpush(r, (jval){ .type = J_UNDEF, .u.s = name->text.u.s });
}

static int op_store(jinja_run *r, const jins *in) /* value -- */
{
    return jscope_set(r, r->scope, in->a, jpop(r));
}

static int op_setattr(jinja_run *r, const jins *in) /* value, namespace -- */
{
    jval space = jpop(r), v = jpop(r);

    if (space.type != J_SPACE)
        return j_fail(r, "set of an attribute of %s, want a namespace", j_type_name(space));
    return jdict_put(&r->mem, space.u.d, r->t->names[in->a].text, v, &r->mem.steps) ? KVANT_OK : j_nomem(r);
}

static int op_unpack(jinja_run *r, const jins *in) /* list -- its items, the first on top */
{
    jval v = jpop(r);
    const jlist *l;

    KVANT_TRY(j_iterate(r, v, &l));
    if (l->n != in->n)
        return j_fail(r, "%zu values for %d names", l->n, in->n);
    for (size_t i = l->n; i-- > 0;)
        KVANT_TRY(jpush(r, l->v[i]));
    return KVANT_OK;
}

/* ---- output ---- */

static int op_text(jinja_run *r, const jins *in) /* -- */
{
    const jstr *s = r->t->consts[in->a].u.s;

    return jbuf_str(r, &r->out->buf, s, 0, s->n);
}

static int op_print(jinja_run *r, const jins *in) /* value -- */
{
    (void)in;
    return j_print(r, &r->out->buf, jpop(r));
}

static int op_capture(jinja_run *r, const jins *in) /* -- */
{
    (void)in;
    return jcapture_push(r);
}

static int op_captured(jinja_run *r, const jins *in) /* -- text */
{
    (void)in;
    return jcapture_pop(r);
}

/* ---- values ---- */

static int op_const(jinja_run *r, const jins *in) /* -- value */
{
    return jpush(r, r->t->consts[in->a]);
}

static int op_pop(jinja_run *r, const jins *in) /* value -- */
{
    (void)in;
    jpop(r);
    return KVANT_OK;
}

static int op_attr(jinja_run *r, const jins *in) /* object -- value */
{
    jval of = jpop(r), v;

    KVANT_TRY(j_attr(r, of, &r->t->names[in->a], &v));
    return jpush(r, v);
}

static int op_item(jinja_run *r, const jins *in) /* object, key -- value */
{
    jval key = jpop(r), of = jpop(r), v;

    (void)in;
    KVANT_TRY(j_item(r, of, key, &v));
    return jpush(r, v);
}

static int op_slice(jinja_run *r, const jins *in) /* object, from, to, step -- part */
{
    jval v;

    (void)in;
    r->sp -= 4;
    KVANT_TRY(j_slice_of(r, r->stack[r->sp], r->stack + r->sp + 1, &v));
    return jpush(r, v);
}

static int op_list(jinja_run *r, const jins *in) /* a values -- list */
{
    jval v;

    if (!j_list(&r->mem, (size_t)in->a, &v))
        return j_nomem(r);
    r->sp -= in->a;
    memcpy(v.u.l->v, r->stack + r->sp, (size_t)in->a * sizeof(jval));
    v.u.l->n = (size_t)in->a;
    v.type = in->op == JOP_TUPLE ? J_TUPLE : J_LIST;
    return jpush(r, v);
}

static int op_dict(jinja_run *r, const jins *in) /* a keys and values -- dict */
{
    jval v;

    if (!j_dict(&r->mem, (size_t)in->a, &v))
        return j_nomem(r);
    r->sp -= 2 * in->a;
    for (int i = 0; i < in->a; i++) {
        KVANT_TRY(j_hashable(r, r->stack[r->sp + 2 * i]));
        if (!jdict_put(&r->mem, v.u.d, r->stack[r->sp + 2 * i], r->stack[r->sp + 2 * i + 1], &r->mem.steps))
            return j_nomem(r);
    }
    return jpush(r, v);
}

/* ---- operators ---- */

static int op_binary(jinja_run *r, const jins *in) /* a, b -- a op b */
{
    jval b = jpop(r), a = jpop(r), v;

    KVANT_TRY(j_binary(r, (enum jbinary)in->n, a, b, &v));
    return jpush(r, v);
}

static int op_compare(jinja_run *r, const jins *in) /* a, b -- bool */
{
    jval b = jpop(r), a = jpop(r);
    int v;

    KVANT_TRY(j_compare(r, (enum jcompare)in->n, a, b, &v));
    return jpush(r, j_bool(v));
}

static int op_chain(jinja_run *r, const jins *in) /* a, b -- b, or jump with False */
{
    jval b = jpop(r), a = jpop(r);
    int v;

    KVANT_TRY(j_compare(r, (enum jcompare)in->n, a, b, &v));
    if (!v)
        r->pc += in->a;
    return jpush(r, v ? b : j_bool(0));
}

static int op_not(jinja_run *r, const jins *in) /* value -- bool */
{
    (void)in;
    return jpush(r, j_bool(!j_true(jpop(r))));
}

static int op_sign(jinja_run *r, const jins *in) /* number -- number */
{
    jval v;

    KVANT_TRY(j_negate(r, jpop(r), in->op == JOP_NEG, &v));
    return jpush(r, v);
}

/* ---- jumps ---- */

static int op_jump(jinja_run *r, const jins *in) /* -- */
{
    r->pc += in->a;
    return KVANT_OK;
}

static int op_jump_false(jinja_run *r, const jins *in) /* value -- */
{
    if (!j_true(jpop(r)))
        r->pc += in->a;
    return KVANT_OK;
}

static int op_and_or(jinja_run *r, const jins *in) /* value --, or jump with it */
{
    if (j_true(r->stack[r->sp - 1]) == (in->op == JOP_OR))
        r->pc += in->a;
    else
        r->sp--;
    return KVANT_OK;
}

static int op_unknown(jinja_run *r, const jins *in) /* message -- */
{
    jval v = jpop(r);

    (void)in;
    j_fail(r, "%s", v.u.s->s);
    return KVANT_EUNSUPPORTED;
}

static int op_end(jinja_run *r, const jins *in) /* -- */
{
    (void)in;
    r->done = 1;
    return KVANT_OK;
}

/* ---- loops ---- */

static int begin_loop(jinja_run *r, const jlist *items)
{
    jloop *l = jarena_alloc(&r->mem, sizeof *l);

    if (!l)
        return j_nomem(r);
    *l = (jloop){ .outer = r->loop, .items = items };
    r->loop = l;
    return jscope_push(r, r->scope);
}

static void end_loop(jinja_run *r)
{
    r->loop = r->loop->outer;
    r->scope = r->scope->parent;
}

static int op_for(jinja_run *r, const jins *in) /* iterable -- ; jump when it is empty */
{
    const jlist *items;

    KVANT_TRY(j_iterate(r, jpop(r), &items));
    if (items->n == 0) {
        r->pc += in->a;
        return KVANT_OK;
    }
    return begin_loop(r, items);
}

/* A round of a loop has a scope of its own; that of the last round is used again unless a macro was made in it. */
static int fresh_scope(jinja_run *r)
{
    if (r->scope->kept)
        return jscope_push(r, r->scope->parent);
    r->scope->n = 0;
    return KVANT_OK;
}

static int op_next(jinja_run *r, const jins *in) /* -- item, or jump at the end */
{
    jloop *l = r->loop;

    if (l->i >= l->items->n) {
        r->pc += in->a;
        return KVANT_OK;
    }
    KVANT_TRY(fresh_scope(r));
    if (!l->kept && r->t->loop_name >= 0)
        KVANT_TRY(jscope_set(r, r->scope, r->t->loop_name, (jval){ .type = J_LOOP, .u.loop = l }));
    return jpush(r, l->items->v[l->i++]);
}

static int op_endfor(jinja_run *r, const jins *in) /* -- */
{
    (void)in;
    end_loop(r);
    return KVANT_OK;
}

static int op_sift(jinja_run *r, const jins *in) /* iterable -- */
{
    const jlist *items;
    jval kept;

    (void)in;
    KVANT_TRY(j_iterate(r, jpop(r), &items));
    KVANT_TRY(begin_loop(r, items));
    if (!j_list(&r->mem, 0, &kept))
        return j_nomem(r);
    r->loop->kept = kept.u.l;
    return KVANT_OK;
}

static int op_keep(jinja_run *r, const jins *in) /* bool -- */
{
    const jloop *l = r->loop;

    (void)in;
    if (j_true(jpop(r)) && !jlist_add(&r->mem, l->kept, l->items->v[l->i - 1]))
        return j_nomem(r);
    return KVANT_OK;
}

static int op_sifted(jinja_run *r, const jins *in) /* -- list */
{
    jval v = { .type = J_LIST, .u.l = r->loop->kept };

    (void)in;
    end_loop(r);
    return jpush(r, v);
}

/* ---- running ---- */

typedef int handler(jinja_run *r, const jins *in);

static handler *const handlers[] = {
    [JOP_TEXT] = op_text,         [JOP_PRINT] = op_print,
    [JOP_CONST] = op_const,       [JOP_LOAD] = op_load,
    [JOP_STORE] = op_store,       [JOP_POP] = op_pop,
    [JOP_ATTR] = op_attr,         [JOP_ITEM] = op_item,
    [JOP_SLICE] = op_slice,       [JOP_LIST] = op_list,
    [JOP_TUPLE] = op_list,        [JOP_DICT] = op_dict,
    [JOP_BINARY] = op_binary,     [JOP_COMPARE] = op_compare,
    [JOP_CHAIN] = op_chain,       [JOP_NOT] = op_not,
    [JOP_NEG] = op_sign,          [JOP_POS] = op_sign,
    [JOP_JUMP] = op_jump,         [JOP_JUMP_FALSE] = op_jump_false,
    [JOP_AND] = op_and_or,        [JOP_OR] = op_and_or,
    [JOP_FILTER] = jop_filter,    [JOP_TEST] = jop_test,
    [JOP_CALL] = jop_call,        [JOP_SCOPE] = op_scope,
    [JOP_UNSCOPE] = op_unscope,   [JOP_FOR] = op_for,
    [JOP_NEXT] = op_next,         [JOP_ENDFOR] = op_endfor,
    [JOP_SIFT] = op_sift,         [JOP_KEEP] = op_keep,
    [JOP_SIFTED] = op_sifted,     [JOP_CAPTURE] = op_capture,
    [JOP_CAPTURED] = op_captured, [JOP_MACRO] = jop_macro,
    [JOP_BOUND] = jop_bound,      [JOP_RETURN] = jop_return,
    [JOP_SETATTR] = op_setattr,   [JOP_UNPACK] = op_unpack,
    [JOP_UNKNOWN] = op_unknown,   [JOP_END] = op_end,
};

int jinja_render(jinja_run *r, jinja_text *out, kvant_diag *diag)
{
    jval v;

    r->diag = diag;
    KVANT_TRY(jscope_push(r, &r->globals));
    while (!r->done) {
        const jins *in = &r->t->code[r->pc++];
        r->pos = in->pos;
        KVANT_TRY(j_charge(r, 1));
        KVANT_TRY(handlers[in->op](r, in));
        if (r->out->buf.n > JINJA_MAX_OUTPUT)
            return j_fail(r, "more than %d MiB of text", JINJA_MAX_OUTPUT >> 20);
    }
    const int origin = r->base.buf.origin;
    KVANT_TRY(jbuf_done(r, &r->base.buf, &v));
    *out = (jinja_text){ v.u.s->s, v.u.s->mask, v.u.s->n };
    if (!out->origin) {
        uint8_t *all = jarena_alloc(&r->mem, out->n);
        if (!all)
            return j_nomem(r);
        memset(all, origin, out->n);
        out->origin = all;
    }
    return KVANT_OK;
}

int jinja_run_open(const jinja *t, jinja_run **out, kvant_diag *diag)
{
    jinja_run *r = kvant_calloc(1, sizeof *r);

    if (r) {
        *r = (jinja_run){ .t = t, .out = &r->base };
        r->mem = (jarena){ .most = JINJA_MAX_MEMORY, .metered = 1, .steps = JINJA_MAX_STEPS };
        r->stack = jarena_alloc(&r->mem, JINJA_MAX_STACK * sizeof *r->stack);
    }
    if (!r || !r->stack) {
        jinja_run_close(r);
        return kvant_fail(diag, KVANT_ENOMEM, "chat template: out of memory");
    }
    *out = r;
    return KVANT_OK;
}

void jinja_run_close(jinja_run *r)
{
    if (!r)
        return;
    jarena_free(&r->mem);
    kvant_free(r);
}

void jinja_run_clock(jinja_run *r, time_t now)
{
    r->now = now;
    r->has_now = 1;
}
