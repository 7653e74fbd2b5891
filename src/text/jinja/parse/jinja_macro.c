/* jinja_macro.c: macros, and blocks that are called: {% macro %}, {% call %}. */
#include "text/jinja/jinja_run.h"

#include "base/mem.h"

static int new_macro(jparser *p, int name, int *index)
{
    jinja *t = p->t;

    if (t->n_macros == t->cap_macros) {
        int cap = t->cap_macros ? 2 * t->cap_macros : 8;
        void *v = kvant_realloc(t->macros, (size_t)t->n_macros * sizeof *t->macros, (size_t)cap * sizeof *t->macros);
        if (!v)
            return jparse_nomem(p);
        t->macros = v;
        t->cap_macros = cap;
    }
    t->macros[t->n_macros] = (jmacro_def){ .name = name, .varargs = -1, .kwargs = -1, .caller = -1 };
    *index = t->n_macros++;
    return KVANT_OK;
}

/* (a, b=1): code that gives a default to each parameter that is not bound. */
static int parameters(jparser *p, int macro)
{
    int id, bound;

    while (!jis_op(p, ')')) {
        jmacro_def *def = &p->t->macros[macro];
        const int i = def->n_params;
        const size_t pos = p->lex.from;
        if (i)
            KVANT_TRY(jexpect_op(p, ',', "',' or ')'"));
        if (jis_op(p, ')'))
            break;
        if (i == JMACRO_MAX_PARAMS)
            return jparse_fail(p, pos, "more than %d parameters", i);
        KVANT_TRY(jtake_name(p, &id));
        def->params[def->n_params++] = id;
        if (!jskip_op(p, '='))
            continue;
        KVANT_TRY(jemit_jump(p, JOP_BOUND, pos, &bound));
        p->t->code[bound].n = (uint8_t)i;
        KVANT_TRY(jparse_expr(p));
        KVANT_TRY(jemit(p, JOP_STORE, 0, 0, id, pos));
        jbind(p, bound);
    }
    jlex_next(&p->lex);
    return KVANT_OK;
}

/* The parameters' code goes to the head of the body, which begins behind the tag.  On the stack is the macro. */
static int macro_code(jparser *p, int macro, const jcut *head, const char *const *ends, size_t pos)
{
    int over;

    KVANT_TRY(jemit(p, JOP_MACRO, 0, 0, macro, pos));
    KVANT_TRY(jemit_jump(p, JOP_JUMP, pos, &over));
    KVANT_TRY(jopen_block(p, JOPEN_MACRO));
    p->open[p->n_open - 1].macro = macro;
    p->t->macros[macro].pc = p->t->n_code;
    KVANT_TRY(jpaste(p, head));
    KVANT_TRY(jend_of_tag(p));
    KVANT_TRY(jparse_statements(p, ends, pos));
    KVANT_TRY(jemit(p, JOP_RETURN, 0, 0, 0, pos));
    p->n_open--;
    jbind(p, over);
    jlex_next(&p->lex);
    return KVANT_OK;
}

int jparse_macro(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endmacro", NULL };
    const int start = p->t->n_code;
    int id, macro;
    jcut head;

    KVANT_TRY(jtake_name(p, &id));
    KVANT_TRY(new_macro(p, id, &macro));
    KVANT_TRY(jexpect_op(p, '(', "'('"));
    KVANT_TRY(parameters(p, macro));
    KVANT_TRY(jcut_from(p, start, &head));
    int code = macro_code(p, macro, &head, ends, pos);
    kvant_free(head.code);
    return code == KVANT_OK ? jemit(p, JOP_STORE, 0, 0, id, pos) : code;
}

/* The call of {% call %} without its last instruction, which gets the block as one more argument. */
static int call_head(jparser *p, jins *last, size_t pos)
{
    jinja *t = p->t;
    const int start = t->n_code;
    jval caller;

    KVANT_TRY(jparse_expr(p));
    if (t->n_code == start || t->code[t->n_code - 1].op != JOP_CALL)
        return jparse_fail(p, pos, "call: want a call of a macro");
    *last = t->code[--t->n_code];
    if (!j_string(&t->mem, "caller", 6, JINJA_TEMPLATE, &caller))
        return jparse_nomem(p);
    return jemit_const(p, caller, pos);
}

/* {% call(a, b) f(x) %}: f gets the block as its argument `caller`. */
int jparse_call(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endcall", NULL };
    const int start = p->t->n_code;
    int macro;
    jins last = { 0 };
    jcut head;

    KVANT_TRY(new_macro(p, -1, &macro));
    if (jskip_op(p, '('))
        KVANT_TRY(parameters(p, macro));
    KVANT_TRY(jcut_from(p, start, &head));
    int code = call_head(p, &last, pos);
    if (code == KVANT_OK)
        code = macro_code(p, macro, &head, ends, pos);
    kvant_free(head.code);
    KVANT_TRY(code);
    KVANT_TRY(jemit(p, JOP_CALL, last.n, last.kw + 1, last.a ? last.a | JSPREAD_BLOCK : 0, last.pos));
    return jemit(p, JOP_PRINT, 0, 0, 0, pos);
}
