/* jinja_tests.c: the tests behind `is`, and the functions of templates. */
#include "text/jinja/jinja_run.h"

#include <string.h>
#include <time.h>

#define TEST(name, expression)                                                                                         \
    static int t_##name(jinja_run *r, jval v, const jargs *a, jval *out)                                               \
    {                                                                                                                  \
        (void)r;                                                                                                       \
        (void)a;                                                                                                       \
        *out = j_bool(expression);                                                                                     \
        return KVANT_OK;                                                                                               \
    }

TEST(defined, v.type != J_UNDEF)
TEST(undefined, v.type == J_UNDEF)
TEST(none, v.type == J_NONE)
TEST(boolean, v.type == J_BOOL)
TEST(true, v.type == J_BOOL && v.u.b)
TEST(false, v.type == J_BOOL && !v.u.b)
TEST(integer, v.type == J_INT)
TEST(float, v.type == J_FLOAT)
TEST(number, j_is_number(v))
TEST(string, v.type == J_STR)
TEST(mapping, v.type == J_DICT)
TEST(sequence, v.type == J_STR || j_has_places(v) || v.type == J_DICT || v.type == J_UNDEF)
TEST(iterable, v.type == J_STR || j_is_list(v) || v.type == J_DICT || v.type == J_UNDEF)
TEST(callable, v.type == J_MACRO || v.type == J_FUNCTION || v.type == J_BOUND || v.type == J_UNDEF)
TEST(filter, v.type == J_STR && jfilter_find(v.u.s->s, v.u.s->n) != NULL)
TEST(test, v.type == J_STR && jbuiltin_find(jinja_tests, v.u.s->s, v.u.s->n) != NULL)
TEST(sameas,
     v.type == a->v[0].type && (v.type == J_BOOL ? v.u.b == a->v[0].u.b : v.type <= J_NONE || v.u.i == a->v[0].u.i))

static int compare(jinja_run *r, enum jcompare op, jval v, const jargs *a, jval *out)
{
    int is;

    KVANT_TRY(j_compare(r, op, v, a->v[0], &is));
    *out = j_bool(is);
    return KVANT_OK;
}

#define COMPARE(name, op)                                                                                              \
    static int t_##name(jinja_run *r, jval v, const jargs *a, jval *out)                                               \
    {                                                                                                                  \
        return compare(r, op, v, a, out);                                                                              \
    }

COMPARE(eq, JC_EQ)
COMPARE(ne, JC_NE)
COMPARE(lt, JC_LT)
COMPARE(le, JC_LE)
COMPARE(gt, JC_GT)
COMPARE(ge, JC_GE)
COMPARE(in, JC_IN)

static int rest(jinja_run *r, jval v, jval by, int64_t *out)
{
    jval m;

    KVANT_TRY(j_binary(r, JB_MOD, v, by, &m));
    *out = j_number(m) != 0;
    return KVANT_OK;
}

static int t_divisibleby(jinja_run *r, jval v, const jargs *a, jval *out)
{
    int64_t m;

    KVANT_TRY(rest(r, v, a->v[0], &m));
    *out = j_bool(!m);
    return KVANT_OK;
}

static int t_odd(jinja_run *r, jval v, const jargs *a, jval *out)
{
    int64_t m;

    (void)a;
    KVANT_TRY(rest(r, v, j_int(2), &m));
    *out = j_bool(m != 0);
    return KVANT_OK;
}

static int t_even(jinja_run *r, jval v, const jargs *a, jval *out)
{
    KVANT_TRY(t_odd(r, v, a, out));
    *out = j_bool(!out->u.b);
    return KVANT_OK;
}

static int as_case(jinja_run *r, jval v, const char *method, jval *out)
{
    const jargs none = { 0 };
    jval text;

    KVANT_TRY(j_str(r, v, &text));
    return jbuiltin_find(jinja_str_methods, method, strlen(method))->fn(r, text, &none, out);
}

static int t_upper(jinja_run *r, jval v, const jargs *a, jval *out)
{
    (void)a;
    return as_case(r, v, "isupper", out);
}

static int t_lower(jinja_run *r, jval v, const jargs *a, jval *out)
{
    (void)a;
    return as_case(r, v, "islower", out);
}

/* clang-format off */
const jbuiltin jinja_tests[] = {
    { "defined", t_defined, "" }, { "undefined", t_undefined, "" }, { "none", t_none, "" },
    { "boolean", t_boolean, "" }, { "true", t_true, "" }, { "false", t_false, "" }, { "integer", t_integer, "" },
    { "float", t_float, "" }, { "number", t_number, "" }, { "string", t_string, "" }, { "mapping", t_mapping, "" },
    { "sequence", t_sequence, "" }, { "iterable", t_iterable, "" }, { "callable", t_callable, "" },
    { "filter", t_filter, "" }, { "test", t_test, "" }, { "sameas", t_sameas, "other!" },
    { "eq", t_eq, "other!" }, { "equalto", t_eq, "other!" }, { "==", t_eq, "other!" }, { "ne", t_ne, "other!" },
    { "!=", t_ne, "other!" }, { "lt", t_lt, "other!" }, { "lessthan", t_lt, "other!" }, { "<", t_lt, "other!" },
    { "le", t_le, "other!" }, { "<=", t_le, "other!" }, { "gt", t_gt, "other!" }, { "greaterthan", t_gt, "other!" },
    { ">", t_gt, "other!" }, { "ge", t_ge, "other!" }, { ">=", t_ge, "other!" }, { "in", t_in, "seq!" },
    { "divisibleby", t_divisibleby, "num!" }, { "odd", t_odd, "" }, { "even", t_even, "" },
    { "upper", t_upper, "" }, { "lower", t_lower, "" }, { NULL, NULL, NULL },
};
/* clang-format on */
