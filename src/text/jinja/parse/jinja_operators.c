/* jinja_operators.c: operators of the language, by precedence: ternary, or, and, not, comparisons, + -, ~, * / // %,
 * **.  jinja_expr.c reads the operands.  The parser recurses; jparse_deeper bounds that. */
#include "text/jinja/jinja_run.h"

#include <string.h>

enum { P_OR = 1, P_AND, P_NOT, P_COMPARE, P_ADD, P_CONCAT, P_MUL, P_POW };

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

static int binary(jparser *p, int least);

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
        KVANT_TRY(jparse_operand(p));
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

int jparse_no_ternary(jparser *p)
{
    return binary(p, P_OR);
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
