/* schema_values.c: numbers and strings of a JSON schema as alternatives of a grammar. */
#include <math.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_pattern.h"
#include "server/grammar/grammar_schema.h"

static const int64_t big_integer = 999999999999999; /* exact in a double, 15 digits */

/* ---- numbers ---- */

static int64_t power10(int k)
{
    int64_t p = 1;

    while (k-- > 0)
        p *= 10;
    return p;
}

/* Alternatives for lo..hi, 0 <= lo <= hi: blocks of a fixed prefix and k free digits. */
static void put_natural_range(sbuf *b, int64_t lo, int64_t hi)
{
    const char *bar = "";

    if (lo == 0) {
        sbuf_printf(b, "[0-%d]", (int)(hi < 9 ? hi : 9));
        bar = " | ";
        lo = 10;
    }
    while (lo <= hi) {
        int k = 0;
        while (lo % power10(k + 1) == 0 && lo >= power10(k + 1) && power10(k + 1) - 1 <= hi - lo)
            k++;
        sbuf_printf(b, "%s\"%lld\"", bar, (long long)(lo / power10(k)));
        if (k)
            sbuf_printf(b, " [0-9]{%d}", k);
        bar = " | ";
        lo += power10(k);
    }
}

static int bound_of(const schema_maker *m, int at, const char *key, int64_t *v, int *given)
{
    const json_t *x = json_object_get(m->jobs[at].schema, key);

    *given = x != NULL;
    if (!x)
        return KVANT_OK;
    double d = json_number_value(x);
    if (!json_is_number(x) || !(fabs(d) <= (double)big_integer) || d != floor(d))
        return schema_fail(m, at, key, "wanted an integer of at most 15 digits");
    *v = (int64_t)d;
    return KVANT_OK;
}

static int integer_bounds(const schema_maker *m, int at, int64_t *lo, int64_t *hi, int *any)
{
    int64_t v;
    int given;

    *lo = -big_integer;
    *hi = big_integer;
    *any = schema_first_of(m->jobs[at].schema, schema_number_words) != NULL;
    KVANT_TRY(bound_of(m, at, "minimum", &v, &given));
    *lo = given && v > *lo ? v : *lo;
    KVANT_TRY(bound_of(m, at, "exclusiveMinimum", &v, &given));
    *lo = given && v + 1 > *lo ? v + 1 : *lo;
    KVANT_TRY(bound_of(m, at, "maximum", &v, &given));
    *hi = given && v < *hi ? v : *hi;
    KVANT_TRY(bound_of(m, at, "exclusiveMaximum", &v, &given));
    *hi = given && v - 1 < *hi ? v - 1 : *hi;
    return *lo <= *hi ? KVANT_OK : schema_fail(m, at, "minimum", "no integer is in the range");
}

int schema_put_integer(schema_maker *m, int at)
{
    int64_t lo, hi;
    int any;

    KVANT_TRY(integer_bounds(m, at, &lo, &hi, &any));
    if (!any) {
        sbuf_puts(&m->out, "integer");
        return KVANT_OK;
    }
    sbuf_puts(&m->out, "(");
    if (lo < 0) {
        sbuf_puts(&m->out, "\"-\" (");
        put_natural_range(&m->out, hi < 0 ? -hi : 1, -lo);
        sbuf_puts(&m->out, hi >= 0 ? ") | " : ")");
    }
    if (hi >= 0)
        put_natural_range(&m->out, lo > 0 ? lo : 0, hi);
    sbuf_puts(&m->out, ")");
    return KVANT_OK;
}

int schema_put_number(schema_maker *m, int at)
{
    const json_t *low = json_object_get(m->jobs[at].schema, "minimum");
    const char *key = schema_first_of(m->jobs[at].schema, schema_number_words + 1);

    if (key)
        return schema_fail(m, at, key, "supported for integers only");
    if (low && !(json_is_number(low) && json_number_value(low) == 0.0))
        return schema_fail(m, at, "minimum", "of a number: only 0 is supported");
    sbuf_puts(&m->out, low ? "natural fraction" : "number");
    return KVANT_OK;
}

/* ---- strings ---- */

static int put_format(schema_maker *m, int at, const char *name)
{
    static const char *const known[] = { "date", "time", "uuid", "ipv4", NULL };

    if (strcmp(name, "date-time") == 0)
        sbuf_puts(&m->out, "\"\\\"\" date \"T\" time \"\\\"\"");
    else if (schema_listed(name, known))
        sbuf_printf(&m->out, "\"\\\"\" %s \"\\\"\"", name);
    else
        return schema_fail(m, at, "format", "supported are date, time, date-time, uuid, ipv4");
    return KVANT_OK;
}

int schema_put_string(schema_maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema;
    const char *format = json_string_value(json_object_get(schema, "format"));
    const json_t *pattern = json_object_get(schema, "pattern");
    int least, most;

    KVANT_TRY(schema_count(m, at, "minLength", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxLength", -1, &most));
    if ((pattern || format) && (least || most >= 0 || (pattern && format)))
        return schema_fail(m, at, pattern ? "pattern" : "format", "cannot be combined with other string keywords");
    if (json_object_get(schema, "format"))
        return format ? put_format(m, at, format) : schema_fail(m, at, "format", "wanted a string");
    if (pattern) {
        kvant_diag why = { "" };
        if (!json_is_string(pattern))
            return schema_fail(m, at, "pattern", "wanted a string");
        if (grammar_from_pattern(json_string_value(pattern), &m->out, &why) != KVANT_OK)
            return schema_fail(m, at, "pattern", why.text);
        return KVANT_OK;
    }
    if (most >= 0 && most < least)
        return schema_fail(m, at, "maxLength", "below minLength");
    if (most < 0 && !least)
        sbuf_puts(&m->out, "string");
    else if (most < 0)
        sbuf_printf(&m->out, "\"\\\"\" char{%d,} \"\\\"\"", least);
    else
        sbuf_printf(&m->out, "\"\\\"\" char{%d,%d} \"\\\"\"", least, most);
    return KVANT_OK;
}
