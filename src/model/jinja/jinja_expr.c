/* jinja_expr.c: expressions of the language, by precedence: ternary, or, and, not, comparisons, + -, ~, * / // %, **,
 * unary signs, then calls, subscripts, filters and tests.  It recurses; jparse_deeper bounds that. */
#include "model/jinja/jinja_run.h"

#include <string.h>

enum { P_OR = 1, P_AND, P_NOT, P_COMPARE, P_ADD, P_CONCAT, P_MUL, P_POW, P_UNARY };

/* ---- tokens ---- */

int jis_op(const jparser *p, int op)
{
    return p->lex.kind == JT_OP && p->lex.op == op;
}

int jis_name(const jparser *p, const char *name)
{
    return p->lex.kind == JT_NAME && p->lex.to - p->lex.from == strlen(name) &&
           memcmp(p->lex.s + p->lex.from, name, strlen(name)) == 0;
}

int jskip_op(jparser *p, int op)
{
    if (!jis_op(p, op))
        return 0;
    jlex_next(&p->lex);
    return 1;
}

int jskip_name(jparser *p, const char *name)
{
    if (!jis_name(p, name))
        return 0;
    jlex_next(&p->lex);
    return 1;
}

static int unexpected(const jparser *p, const char *want)
{
    if (p->lex.why)
        return jparse_fail(p, p->lex.from, "%s", p->lex.why);
    size_t n = p->lex.to - p->lex.from;
    return jparse_fail(p, p->lex.from, "found '%.*s', want %s", n < 40 ? (int)n : 40, p->lex.s + p->lex.from, want);
}

int jexpect_op(jparser *p, int op, const char *text)
{
    return jskip_op(p, op) ? KVANT_OK : unexpected(p, text);
}

static int name_here(jparser *p, int *id)
{
    if (p->lex.kind != JT_NAME)
        return unexpected(p, "a name");
    KVANT_TRY(jname_id(p, p->lex.s + p->lex.from, p->lex.to - p->lex.from, id));
    jlex_next(&p->lex);
    return KVANT_OK;
}

/* ---- arguments, lists ---- */

static int is_keyword(const jparser *p)
{
    jlexer ahead = p->lex;

    if (p->lex.kind != JT_NAME)
        return 0;
    jlex_next(&ahead);
    return ahead.kind == JT_OP && ahead.op == '=';
}

/* The arguments up to the closing bracket, which is taken too. */
static int arguments(jparser *p, int *n, int *kw)
{
    int id;

    *n = *kw = 0;
    while (!jis_op(p, ')')) {
        size_t pos = p->lex.from;
        if (*n + *kw > 0)
            KVANT_TRY(jexpect_op(p, ',', "',' or ')'"));
        if (jis_op(p, ')'))
            break;
        if (jis_op(p, '*') || jis_op(p, '*' << 8 | '*'))
            return unexpected(p, "an argument (* and ** are not supported)");
        if (is_keyword(p)) {
            KVANT_TRY(name_here(p, &id));
            jlex_next(&p->lex);
            KVANT_TRY(jemit_const(p, p->t->names[id].text, pos));
            ++*kw;
        } else if (*kw) {
            return unexpected(p, "name=value (as the arguments before)");
        } else {
            ++*n;
        }
        KVANT_TRY(jparse_expr(p));
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

static int ternary_from(jparser *p, int from);
static int binary(jparser *p, int least);

static int one_of_tuple(jparser *p, int ternary)
{
    return ternary ? jparse_expr(p) : binary(p, P_OR);
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
    KVANT_TRY(name_here(p, &id));
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
    return unexpected(p, "an expression");
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
    int n, kw;

    KVANT_TRY(arguments(p, &n, &kw));
    return jemit(p, JOP_CALL, n, kw, 0, pos);
}

static int attribute(jparser *p)
{
    const size_t pos = p->lex.from;
    int id;

    if (p->lex.kind == JT_INT) {
        KVANT_TRY(jparse_literal(p));
        return jemit(p, JOP_ITEM, 0, 0, 0, pos);
    }
    KVANT_TRY(name_here(p, &id));
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
        return unexpected(p, "a name");
    jlex_next(&p->lex);
    while (jskip_op(p, '.')) {
        to = p->lex.to;
        if (p->lex.kind != JT_NAME)
            return unexpected(p, "a name");
        jlex_next(&p->lex);
    }
    *n = to - *from;
    return KVANT_OK;
}

int jparse_filters(jparser *p)
{
    do {
        size_t from, n;
        int args = 0, kw = 0;
        KVANT_TRY(dotted(p, &from, &n));
        const jbuiltin *f = jfilter_find(p->lex.s + from, n);
        if (!f)
            KVANT_TRY(jemit_unknown(p, from, "filter", p->lex.s + from, n));
        if (jskip_op(p, '('))
            KVANT_TRY(arguments(p, &args, &kw));
        if (f)
            KVANT_TRY(jemit_const(p, (jval){ .type = J_FUNCTION, .u.fn = f }, from));
        if (f)
            KVANT_TRY(jemit(p, JOP_FILTER, args, kw, 0, from));
    } while (jskip_op(p, '|'));
    return KVANT_OK;
}

/* Behind `is`: the one argument that needs no brackets. */
static int test_argument(jparser *p, int *args, int *kw)
{
    *args = *kw = 0;
    if (jskip_op(p, '('))
        return arguments(p, args, kw);
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
    int args, kw;

    KVANT_TRY(dotted(p, &from, &n));
    const jbuiltin *f = jbuiltin_find(jinja_tests, p->lex.s + from, n);
    if (!f)
        KVANT_TRY(jemit_unknown(p, from, "test", p->lex.s + from, n));
    KVANT_TRY(test_argument(p, &args, &kw));
    if (!f)
        return KVANT_OK;
    KVANT_TRY(jemit_const(p, (jval){ .type = J_FUNCTION, .u.fn = f }, from));
    KVANT_TRY(jemit(p, JOP_TEST, args, kw, 0, from));
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

/* ---- operators ---- */

/* Signs bind the value behind them, calls and subscripts included, but not its filters. */
static int unary(jparser *p)
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

typedef struct infix {
    int op, level;
    uint8_t ins, n;
} infix;

static const infix infixes[] = {
    { '=' << 8 | '=', P_COMPARE, JOP_COMPARE, JC_EQ },
    { '!' << 8 | '=', P_COMPARE, JOP_COMPARE, JC_NE },
    { '<', P_COMPARE, JOP_COMPARE, JC_LT },
    { '<' << 8 | '=', P_COMPARE, JOP_COMPARE, JC_LE },
    { '>', P_COMPARE, JOP_COMPARE, JC_GT },
    { '>' << 8 | '=', P_COMPARE, JOP_COMPARE, JC_GE },
    { '+', P_ADD, JOP_BINARY, JB_ADD },
    { '-', P_ADD, JOP_BINARY, JB_SUB },
    { '~', P_CONCAT, JOP_BINARY, JB_CONCAT },
    { '*', P_MUL, JOP_BINARY, JB_MUL },
    { '/', P_MUL, JOP_BINARY, JB_DIV },
    { '/' << 8 | '/', P_MUL, JOP_BINARY, JB_FLOORDIV },
    { '%', P_MUL, JOP_BINARY, JB_MOD },
    { '*' << 8 | '*', P_POW, JOP_BINARY, JB_POW },
};
static const infix words[] = { { 0, P_OR, JOP_OR, 0 },
                               { 0, P_AND, JOP_AND, 0 },
                               { 0, P_COMPARE, JOP_COMPARE, JC_IN },
                               { 0, P_COMPARE, JOP_COMPARE, JC_NOT_IN } };

/* The operator here, taken when it binds at least as `least`; NULL: none. */
static const infix *operator_here(jparser *p, int least)
{
    if (p->lex.kind == JT_OP)
        for (size_t i = 0; i < sizeof infixes / sizeof infixes[0]; i++)
            if (infixes[i].op == p->lex.op && infixes[i].level >= least) {
                jlex_next(&p->lex);
                return &infixes[i];
            }
    if (least <= P_OR && jskip_name(p, "or"))
        return &words[0];
    if (least <= P_AND && jskip_name(p, "and"))
        return &words[1];
    if (least <= P_COMPARE && jskip_name(p, "in"))
        return &words[2];
    if (least <= P_COMPARE && jis_name(p, "not")) {
        jlexer ahead = p->lex;
        jlex_next(&ahead);
        if (ahead.kind == JT_NAME && ahead.to - ahead.from == 2 && memcmp(ahead.s + ahead.from, "in", 2) == 0) {
            p->lex = ahead;
            jlex_next(&p->lex);
            return &words[3];
        }
    }
    return NULL;
}

/* a < b < c: every comparison but the last leaves b for the next one, or jumps out with False. */
static int comparisons(jparser *p, const infix *op, size_t pos)
{
    int jumps[16], n = 0;

    for (;;) {
        KVANT_TRY(binary(p, P_ADD));
        const infix *next = operator_here(p, P_COMPARE);
        if (!next || next->level != P_COMPARE)
            break;
        if (n == 16)
            return jparse_fail(p, pos, "more than 16 comparisons in a chain");
        KVANT_TRY(jemit_jump(p, JOP_CHAIN, pos, &jumps[n]));
        p->t->code[jumps[n++]].n = op->n;
        op = next;
    }
    KVANT_TRY(jemit(p, JOP_COMPARE, op->n, 0, 0, pos));
    while (n)
        jbind(p, jumps[--n]);
    return KVANT_OK;
}

static int right_side(jparser *p, const infix *op, size_t pos)
{
    int jump;

    if (op->level == P_COMPARE)
        return comparisons(p, op, pos);
    if (op->ins == JOP_BINARY) {
        KVANT_TRY(binary(p, op->level + 1));
        return jemit(p, JOP_BINARY, op->n, 0, 0, pos);
    }
    KVANT_TRY(jemit_jump(p, (enum jop)op->ins, pos, &jump));
    KVANT_TRY(binary(p, op->level + 1));
    jbind(p, jump);
    return KVANT_OK;
}

/* Operators that bind at least as `least`, all left to right. */
static int binary(jparser *p, int least)
{
    const size_t pos = p->lex.from;
    const infix *op;
    int nots = 0;

    KVANT_TRY(jparse_deeper(p));
    while (least <= P_NOT && jskip_name(p, "not"))
        nots++;
    if (nots) {
        KVANT_TRY(binary(p, P_COMPARE));
        for (; nots; nots--)
            KVANT_TRY(jemit(p, JOP_NOT, 0, 0, 0, pos));
    } else {
        KVANT_TRY(unary(p));
    }
    for (;;) {
        const size_t at = p->lex.from;
        op = operator_here(p, least);
        if (!op)
            break;
        KVANT_TRY(right_side(p, op, at));
    }
    p->depth--;
    return KVANT_OK;
}

/* The value at code[from..) was parsed; `if` is taken: the condition goes before it. */
static int ternary_from(jparser *p, int from)
{
    const size_t pos = p->lex.from;
    const int value = p->t->n_code;
    int no, end;

    KVANT_TRY(binary(p, P_OR));
    KVANT_TRY(jemit_jump(p, JOP_JUMP_FALSE, pos, &no));
    const int tested = p->t->n_code - value;
    jrotate(p, from, value);
    no = from + tested - 1;
    KVANT_TRY(jemit_jump(p, JOP_JUMP, pos, &end));
    jbind(p, no);
    if (jskip_name(p, "else"))
        KVANT_TRY(jparse_expr(p));
    else
        KVANT_TRY(jemit_const(p, J_UNDEF_VALUE, pos));
    jbind(p, end);
    return KVANT_OK;
}

int jparse_expr(jparser *p)
{
    const int from = p->t->n_code;

    KVANT_TRY(jparse_deeper(p));
    KVANT_TRY(binary(p, P_OR));
    while (jskip_name(p, "if"))
        KVANT_TRY(ternary_from(p, from));
    p->depth--;
    return KVANT_OK;
}
