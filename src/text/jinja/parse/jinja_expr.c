/* jinja_expr.c: what operators stand between (jinja_operators.c): values with their signs, calls, subscripts, filters
 * and tests; tuples.  It recurses; jparse_deeper bounds that. */
#include "text/jinja/jinja_run.h"

#include <string.h>

/* ---- arguments, lists ---- */

static int is_keyword(const jparser *p)
{
    jlexer ahead = p->lex;

    if (p->lex.kind != JT_NAME)
        return 0;
    jlex_next(&ahead);
    return ahead.kind == JT_OP && ahead.op == '=';
}

/* One argument; *spread as jinja_code.h has it. */
static int argument(jparser *p, int *n, int *kw, int *spread)
{
    const size_t pos = p->lex.from;
    int id;

    if (*spread & JSPREAD_DICT)
        return jparse_unexpected(p, "')' (behind **)");
    if (jskip_op(p, '*' << 8 | '*')) {
        *spread |= JSPREAD_DICT;
    } else if (jskip_op(p, '*')) {
        if (*spread & JSPREAD_LIST)
            return jparse_unexpected(p, "one list of arguments (*)");
        *spread |= JSPREAD_LIST | *kw << JSPREAD_BEFORE;
    } else if (is_keyword(p)) {
        KVANT_TRY(jtake_name(p, &id));
        jlex_next(&p->lex);
        KVANT_TRY(jemit_const(p, p->t->names[id].text, pos));
        ++*kw;
    } else if (*kw || *spread) {
        return jparse_unexpected(p, "name=value (as the arguments before)");
    } else {
        ++*n;
    }
    return jparse_expr(p);
}

/* The arguments up to the closing bracket, which is taken too. */
static int arguments(jparser *p, int *n, int *kw, int *spread)
{
    *n = *kw = *spread = 0;
    while (!jis_op(p, ')')) {
        if (*n + *kw + *spread > 0)
            KVANT_TRY(jexpect_op(p, ',', "',' or ')'"));
        if (jis_op(p, ')'))
            break;
        KVANT_TRY(argument(p, n, kw, spread));
    }
    return jexpect_op(p, ')', "')'");
}

static int list(jparser *p, size_t pos)
{
    int n = 0;

    while (!jis_op(p, ']')) {
        if (n)
            KVANT_TRY(jexpect_op(p, ',', "',' or ']'"));
        if (jis_op(p, ']'))
            break;
        KVANT_TRY(jparse_expr(p));
        n++;
    }
    jlex_next(&p->lex);
    return jemit(p, JOP_LIST, 0, 0, n, pos);
}

static int dict(jparser *p, size_t pos)
{
    int n = 0;

    while (!jis_op(p, '}')) {
        if (n)
            KVANT_TRY(jexpect_op(p, ',', "',' or '}'"));
        if (jis_op(p, '}'))
            break;
        KVANT_TRY(jparse_expr(p));
        KVANT_TRY(jexpect_op(p, ':', "':'"));
        KVANT_TRY(jparse_expr(p));
        n++;
    }
    jlex_next(&p->lex);
    return jemit(p, JOP_DICT, 0, 0, n, pos);
}

/* Nothing of an expression can begin here: a tuple ends. */
static int tuple_ends(const jparser *p)
{
    return p->lex.kind == JT_END || p->lex.kind == JT_EOF || jis_op(p, ')') || jis_op(p, ']') || jis_op(p, '=');
}

static int one_of_tuple(jparser *p, int ternary)
{
    return ternary ? jparse_expr(p) : jparse_no_ternary(p);
}

int jparse_tuple(jparser *p, int ternary)
{
    const size_t pos = p->lex.from;
    int n = 1;

    KVANT_TRY(one_of_tuple(p, ternary));
    if (!jis_op(p, ','))
        return KVANT_OK;
    while (jskip_op(p, ',') && !tuple_ends(p)) {
        KVANT_TRY(one_of_tuple(p, ternary));
        n++;
    }
    return jemit(p, JOP_TUPLE, 0, 0, n, pos);
}

/* ---- primary ---- */

static int name(jparser *p)
{
    const size_t pos = p->lex.from;
    int id;

    if (jskip_name(p, "true") || jskip_name(p, "True"))
        return jemit_const(p, j_bool(1), pos);
    if (jskip_name(p, "false") || jskip_name(p, "False"))
        return jemit_const(p, j_bool(0), pos);
    if (jskip_name(p, "none") || jskip_name(p, "None"))
        return jemit_const(p, J_NONE_VALUE, pos);
    KVANT_TRY(jtake_name(p, &id));
    for (int i = p->n_open - 1; i >= 0; i--) {
        jmacro_def *def = p->open[i].kind == JOPEN_MACRO ? &p->t->macros[p->open[i].macro] : NULL;
        if (!def)
            continue;
        const jstr *s = p->t->names[id].text.u.s;
        if (jstr_is(s, "varargs"))
            def->varargs = id;
        else if (jstr_is(s, "kwargs"))
            def->kwargs = id;
        else if (jstr_is(s, "caller"))
            def->caller = id;
        break;
    }
    return jemit(p, JOP_LOAD, 0, 0, id, pos);
}

static int parenthesis(jparser *p, size_t pos)
{
    if (jskip_op(p, ')'))
        return jemit(p, JOP_TUPLE, 0, 0, 0, pos);
    KVANT_TRY(jparse_tuple(p, 1));
    return jexpect_op(p, ')', "')'");
}

static int primary(jparser *p)
{
    const size_t pos = p->lex.from;

    if (p->lex.kind == JT_NAME)
        return name(p);
    if (p->lex.kind == JT_STRING || p->lex.kind == JT_INT || p->lex.kind == JT_FLOAT)
        return jparse_literal(p);
    if (jskip_op(p, '('))
        return parenthesis(p, pos);
    if (jskip_op(p, '['))
        return list(p, pos);
    if (jskip_op(p, '{'))
        return dict(p, pos);
    return jparse_unexpected(p, "an expression");
}

/* One bound of a slice, None where it is left out. */
static int bound(jparser *p)
{
    if (jis_op(p, ':') || jis_op(p, ']'))
        return jemit_const(p, J_NONE_VALUE, p->lex.from);
    return jparse_expr(p);
}

/* Behind a '['. */
static int subscript(jparser *p, size_t pos)
{
    KVANT_TRY(bound(p));
    if (!jskip_op(p, ':')) {
        KVANT_TRY(jexpect_op(p, ']', "']'"));
        return jemit(p, JOP_ITEM, 0, 0, 0, pos);
    }
    KVANT_TRY(bound(p));
    if (!jskip_op(p, ':') || jis_op(p, ']'))
        KVANT_TRY(jemit_const(p, J_NONE_VALUE, pos));
    else
        KVANT_TRY(jparse_expr(p));
    KVANT_TRY(jexpect_op(p, ']', "']'"));
    return jemit(p, JOP_SLICE, 0, 0, 0, pos);
}

static int call(jparser *p, size_t pos)
{
    int n, kw, spread;

    KVANT_TRY(arguments(p, &n, &kw, &spread));
    return jemit(p, JOP_CALL, n, kw, spread, pos);
}

static int attribute(jparser *p)
{
    const size_t pos = p->lex.from;
    int id;

    if (p->lex.kind == JT_INT) {
        KVANT_TRY(jparse_literal(p));
        return jemit(p, JOP_ITEM, 0, 0, 0, pos);
    }
    KVANT_TRY(jtake_name(p, &id));
    return jemit(p, JOP_ATTR, 0, 0, id, pos);
}

static int postfix(jparser *p)
{
    for (;;) {
        const size_t pos = p->lex.from;
        if (jskip_op(p, '.'))
            KVANT_TRY(attribute(p));
        else if (jskip_op(p, '['))
            KVANT_TRY(subscript(p, pos));
        else if (jskip_op(p, '('))
            KVANT_TRY(call(p, pos));
        else
            return KVANT_OK;
    }
}

/* ---- filters and tests ---- */

/* A dotted name of the source: p->lex.s + *from, *n bytes. */
static int dotted(jparser *p, size_t *from, size_t *n)
{
    size_t to = p->lex.to;

    *from = p->lex.from;
    if (p->lex.kind != JT_NAME)
        return jparse_unexpected(p, "a name");
    jlex_next(&p->lex);
    while (jskip_op(p, '.')) {
        to = p->lex.to;
        if (p->lex.kind != JT_NAME)
            return jparse_unexpected(p, "a name");
        jlex_next(&p->lex);
    }
    *n = to - *from;
    return KVANT_OK;
}

int jparse_filters(jparser *p)
{
    do {
        size_t from, n;
        int args = 0, kw = 0, spread = 0;
        KVANT_TRY(dotted(p, &from, &n));
        const jbuiltin *f = jfilter_find(p->lex.s + from, n);
        if (!f)
            KVANT_TRY(jemit_unknown(p, from, "filter", p->lex.s + from, n));
        if (jskip_op(p, '('))
            KVANT_TRY(arguments(p, &args, &kw, &spread));
        if (f)
            KVANT_TRY(jemit_const(p, (jval){ .type = J_FUNCTION, .u.fn = f }, from));
        if (f)
            KVANT_TRY(jemit(p, JOP_FILTER, args, kw, spread, from));
    } while (jskip_op(p, '|'));
    return KVANT_OK;
}

/* Behind `is`: the one argument that needs no brackets. */
static int test_argument(jparser *p, int *args, int *kw, int *spread)
{
    *args = *kw = *spread = 0;
    if (jskip_op(p, '('))
        return arguments(p, args, kw, spread);
    int starts = p->lex.kind == JT_STRING || p->lex.kind == JT_INT || p->lex.kind == JT_FLOAT || jis_op(p, '[') ||
                 jis_op(p, '{') ||
                 (p->lex.kind == JT_NAME && !jis_name(p, "else") && !jis_name(p, "or") && !jis_name(p, "and") &&
                  !jis_name(p, "if") && !jis_name(p, "in"));
    if (!starts)
        return KVANT_OK;
    if (jis_name(p, "is"))
        return jparse_fail(p, p->lex.from, "tests cannot be chained with is");
    *args = 1;
    KVANT_TRY(primary(p));
    return postfix(p);
}

static int test(jparser *p)
{
    const int negated = jskip_name(p, "not");
    size_t from, n;
    int args, kw, spread;

    KVANT_TRY(dotted(p, &from, &n));
    const jbuiltin *f = jbuiltin_find(jinja_tests, p->lex.s + from, n);
    if (!f)
        KVANT_TRY(jemit_unknown(p, from, "test", p->lex.s + from, n));
    KVANT_TRY(test_argument(p, &args, &kw, &spread));
    if (!f)
        return KVANT_OK;
    KVANT_TRY(jemit_const(p, (jval){ .type = J_FUNCTION, .u.fn = f }, from));
    KVANT_TRY(jemit(p, JOP_TEST, args, kw, spread, from));
    return negated ? jemit(p, JOP_NOT, 0, 0, 0, from) : KVANT_OK;
}

static int filters_and_tests(jparser *p)
{
    for (;;) {
        const size_t pos = p->lex.from;
        if (jskip_op(p, '|'))
            KVANT_TRY(jparse_filters(p));
        else if (jskip_name(p, "is"))
            KVANT_TRY(test(p));
        else if (jskip_op(p, '('))
            KVANT_TRY(call(p, pos));
        else
            return KVANT_OK;
    }
}

/* Signs bind the value behind them, calls and subscripts included, but not its filters. */
int jparse_operand(jparser *p)
{
    const size_t pos = p->lex.from;
    int n = 0;
    unsigned char signs[16];

    while (jis_op(p, '-') || jis_op(p, '+')) {
        if (n == (int)sizeof signs)
            return jparse_fail(p, p->lex.from, "more than %d signs", n);
        signs[n++] = jis_op(p, '-') ? JOP_NEG : JOP_POS;
        jlex_next(&p->lex);
    }
    KVANT_TRY(primary(p));
    KVANT_TRY(postfix(p));
    while (n)
        KVANT_TRY(jemit(p, (enum jop)signs[--n], 0, 0, 0, pos));
    return filters_and_tests(p);
}
