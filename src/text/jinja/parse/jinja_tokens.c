/* jinja_tokens.c: how the parser looks at the current token, and takes it. */
#include "text/jinja/jinja_run.h"

#include <string.h>

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

int jparse_unexpected(const jparser *p, const char *want)
{
    if (p->lex.why)
        return jparse_fail(p, p->lex.from, "%s", p->lex.why);
    size_t n = p->lex.to - p->lex.from;
    return jparse_fail(p, p->lex.from, "found '%.*s', want %s", n < 40 ? (int)n : 40, p->lex.s + p->lex.from, want);
}

int jexpect_op(jparser *p, int op, const char *text)
{
    return jskip_op(p, op) ? KVANT_OK : jparse_unexpected(p, text);
}

int jtake_name(jparser *p, int *id)
{
    if (p->lex.kind != JT_NAME)
        return jparse_unexpected(p, "a name");
    KVANT_TRY(jname_id(p, p->lex.s + p->lex.from, p->lex.to - p->lex.from, id));
    jlex_next(&p->lex);
    return KVANT_OK;
}
