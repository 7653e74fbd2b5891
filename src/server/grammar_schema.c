/* grammar_schema.c: JSON schema -> GBNF text.  A queue of sub-schemas, one rule each; nothing recurses, and references
 * become references between rules.  Every keyword is either known here or an error that gives its path: what a schema
 * forbids can never come out.  What comes out may be narrower than the schema: properties come in the schema's order,
 * names beside `properties` are not made up, keys of maps may repeat, oneOf is read as anyOf (docs/server.md). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar.h"
#include "server/grammar_pattern.h"
#include "server/json_scan.h"

enum { MAX_SCHEMAS = 8192, MAX_PATH = 160, MAX_PROPERTIES = 1024 };
static const int64_t big_integer = 999999999999999; /* exact in a double, 15 digits */

typedef struct job {
    const json_t *schema;
    char path[MAX_PATH];
} job;

typedef struct maker {
    const json_t *root;
    job *jobs; /* [n]: sub-schema i is rule s<i> */
    int n, cap;
    sbuf out;
    kvant_diag *diag;
} maker;

static const char common_rules[] =
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CeEfF] hex | [dD] [0-7]) hex hex)\n"
    "hex ::= [0-9a-fA-F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "natural ::= \"0\" | [1-9] [0-9]{0,14}\n"
    "integer ::= \"-\"? natural\n"
    "fraction ::= (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "number ::= integer fraction\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "member ::= string ws \":\" ws value\n"
    "object ::= \"{\" ws (member ws (\",\" ws member ws)*)? \"}\"\n"
    "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "date ::= [0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? "
    "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])\n"
    "uuid ::= hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}\n"
    "octet ::= [0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]\n"
    "ipv4 ::= octet (\".\" octet){3}\n";

const char *grammar_json_object(void)
{
    return "root ::= object\n"
           "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
           "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CeEfF] hex | [dD] [0-7]) hex hex)\n"
           "hex ::= [0-9a-fA-F]\n"
           "string ::= \"\\\"\" char* \"\\\"\"\n"
           "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14}) (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
           "member ::= string ws \":\" ws value\n"
           "object ::= \"{\" ws (member ws (\",\" ws member ws)*)? \"}\"\n"
           "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n"
           "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n";
}

/* ---- the queue ---- */

static int fail_at(const maker *m, int at, const char *key, const char *what)
{
    return kvant_fail(m->diag, KVANT_EINVAL, "schema: %.150s/%.40s: %s", m->jobs[at].path, key, what);
}

/* The rule of a sub-schema: a new one, or the one it already has. */
static int rule_of(maker *m, const json_t *schema, int from, const char *key, int *rule)
{
    for (int i = 0; i < m->n && from >= 0 && !key; i++) /* only references can meet a schema twice */
        if (m->jobs[i].schema == schema) {
            *rule = i;
            return KVANT_OK;
        }
    if (m->n == MAX_SCHEMAS)
        return kvant_fail(m->diag, KVANT_EINVAL, "schema: more than %d sub-schemas", MAX_SCHEMAS);
    if (m->n == m->cap) {
        int cap = m->cap ? m->cap * 2 : 64;
        job *p = kvant_realloc(m->jobs, (size_t)m->cap * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
        m->jobs = p;
        m->cap = cap;
    }
    job j = { .schema = schema };
    if (from < 0)
        snprintf(j.path, MAX_PATH, "#");
    else
        snprintf(j.path, MAX_PATH, "%.110s/%.40s", m->jobs[from].path, key ? key : "$ref");
    m->jobs[m->n] = j;
    *rule = m->n++;
    return KVANT_OK;
}

static int put_child(maker *m, int at, const json_t *schema, const char *key)
{
    int rule;

    KVANT_TRY(rule_of(m, schema, at, key, &rule));
    sbuf_printf(&m->out, "s%d", rule);
    return KVANT_OK;
}

static void put_literal(sbuf *b, const char *s)
{
    sbuf_puts(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            sbuf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            sbuf_printf(b, "\\x%02X", c);
        else
            sbuf_put(b, s, 1);
    }
    sbuf_puts(b, "\"");
}

/* A JSON value, as its text without blanks. */
static int put_json_literal(maker *m, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text)
        return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
    put_literal(&m->out, text);
    free(text);
    return KVANT_OK;
}

/* ---- keywords ---- */

/* Keywords that say nothing about valid values. */
static const char *const annotations[] = { "title", "description", "default",    "examples", "$schema",
                                           "$id",   "$comment",    "deprecated", "readOnly", "writeOnly",
                                           "$defs", "definitions", NULL };
static const char *const object_words[] = { "properties", "required", "additionalProperties", NULL };
static const char *const array_words[] = { "items", "prefixItems", "minItems", "maxItems", "uniqueItems", NULL };
static const char *const string_words[] = { "minLength", "maxLength", "pattern", "format", NULL };
static const char *const number_words[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", NULL };
static const char *const choice_words[] = { "$ref", "const", "enum", "anyOf", "oneOf", "allOf", NULL };
static const char *const *const families[] = { object_words, array_words, string_words, number_words };
static const char *const family_type[] = { "object", "array", "string", "number" };

static int listed(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return 1;
    return 0;
}

static const char *first_of(const json_t *schema, const char *const *list)
{
    for (; *list; list++)
        if (json_object_get(schema, *list))
            return *list;
    return NULL;
}

/* Nothing but annotations, `a` and `b` may be there. */
static int only(const maker *m, int at, const char *const *a, const char *const *b)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)m->jobs[at].schema, key, value)
    {
        (void)value;
        if (!listed(key, annotations) && strcmp(key, "type") != 0 && !(a && listed(key, a)) && !(b && listed(key, b)))
            return fail_at(m, at, key, "keyword not supported here");
    }
    return KVANT_OK;
}

static int known_words(const maker *m, int at)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)m->jobs[at].schema, key, value)
    {
        int known = strcmp(key, "type") == 0 || listed(key, annotations) || listed(key, choice_words);
        (void)value;
        for (int i = 0; i < 4; i++)
            known |= listed(key, families[i]);
        if (!known)
            return fail_at(m, at, key, "keyword not supported");
    }
    return KVANT_OK;
}

/* A non-negative count of at most GRAMMAR_MAX_REPEAT; missing: `none`. */
static int count_of(const maker *m, int at, const char *key, int none, int *v)
{
    const json_t *x = json_object_get(m->jobs[at].schema, key);

    *v = none;
    if (!x)
        return KVANT_OK;
    if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > GRAMMAR_MAX_REPEAT)
        return fail_at(m, at, key, "wanted an integer from 0 to 4096");
    *v = (int)json_integer_value(x);
    return KVANT_OK;
}

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

static int bound_of(const maker *m, int at, const char *key, int64_t *v, int *given)
{
    const json_t *x = json_object_get(m->jobs[at].schema, key);

    *given = x != NULL;
    if (!x)
        return KVANT_OK;
    double d = json_number_value(x);
    if (!json_is_number(x) || !(fabs(d) <= (double)big_integer) || d != floor(d))
        return fail_at(m, at, key, "wanted an integer of at most 15 digits");
    *v = (int64_t)d;
    return KVANT_OK;
}

static int integer_bounds(const maker *m, int at, int64_t *lo, int64_t *hi, int *any)
{
    int64_t v;
    int given;

    *lo = -big_integer;
    *hi = big_integer;
    *any = first_of(m->jobs[at].schema, number_words) != NULL;
    KVANT_TRY(bound_of(m, at, "minimum", &v, &given));
    *lo = given && v > *lo ? v : *lo;
    KVANT_TRY(bound_of(m, at, "exclusiveMinimum", &v, &given));
    *lo = given && v + 1 > *lo ? v + 1 : *lo;
    KVANT_TRY(bound_of(m, at, "maximum", &v, &given));
    *hi = given && v < *hi ? v : *hi;
    KVANT_TRY(bound_of(m, at, "exclusiveMaximum", &v, &given));
    *hi = given && v - 1 < *hi ? v - 1 : *hi;
    return *lo <= *hi ? KVANT_OK : fail_at(m, at, "minimum", "no integer is in the range");
}

static int put_integer(maker *m, int at)
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

static int put_number(maker *m, int at)
{
    const json_t *low = json_object_get(m->jobs[at].schema, "minimum");
    const char *key = first_of(m->jobs[at].schema, number_words + 1);

    if (key)
        return fail_at(m, at, key, "supported for integers only");
    if (low && !(json_is_number(low) && json_number_value(low) == 0.0))
        return fail_at(m, at, "minimum", "of a number: only 0 is supported");
    sbuf_puts(&m->out, low ? "natural fraction" : "number");
    return KVANT_OK;
}

/* ---- strings ---- */

static int put_format(maker *m, int at, const char *name)
{
    static const char *const known[] = { "date", "time", "uuid", "ipv4", NULL };

    if (strcmp(name, "date-time") == 0)
        sbuf_puts(&m->out, "\"\\\"\" date \"T\" time \"\\\"\"");
    else if (listed(name, known))
        sbuf_printf(&m->out, "\"\\\"\" %s \"\\\"\"", name);
    else
        return fail_at(m, at, "format", "supported are date, time, date-time, uuid, ipv4");
    return KVANT_OK;
}

static int put_string(maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema;
    const char *format = json_string_value(json_object_get(schema, "format"));
    const json_t *pattern = json_object_get(schema, "pattern");
    int least, most;

    KVANT_TRY(count_of(m, at, "minLength", 0, &least));
    KVANT_TRY(count_of(m, at, "maxLength", -1, &most));
    if ((pattern || format) && (least || most >= 0 || (pattern && format)))
        return fail_at(m, at, pattern ? "pattern" : "format", "cannot be combined with other string keywords");
    if (json_object_get(schema, "format"))
        return format ? put_format(m, at, format) : fail_at(m, at, "format", "wanted a string");
    if (pattern) {
        kvant_diag why = { "" };
        if (!json_is_string(pattern))
            return fail_at(m, at, "pattern", "wanted a string");
        if (grammar_from_pattern(json_string_value(pattern), &m->out, &why) != KVANT_OK)
            return fail_at(m, at, "pattern", why.text);
        return KVANT_OK;
    }
    if (most >= 0 && most < least)
        return fail_at(m, at, "maxLength", "below minLength");
    if (most < 0 && !least)
        sbuf_puts(&m->out, "string");
    else if (most < 0)
        sbuf_printf(&m->out, "\"\\\"\" char{%d,} \"\\\"\"", least);
    else
        sbuf_printf(&m->out, "\"\\\"\" char{%d,%d} \"\\\"\"", least, most);
    return KVANT_OK;
}

/* ---- arrays ---- */

static int put_prefix(maker *m, int at, const json_t *prefix, int *n)
{
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)prefix, i, item)
    {
        char key[40];
        snprintf(key, sizeof key, "prefixItems/%zu", i);
        if (i)
            sbuf_puts(&m->out, "\",\" ws ");
        KVANT_TRY(put_child(m, at, item, key));
        sbuf_puts(&m->out, " ws ");
    }
    *n = (int)json_array_size(prefix);
    return KVANT_OK;
}

/* What follows n items: more of `items`, so that least..most come out in all. */
static int put_more(maker *m, int at, const json_t *items, int n, int least, int most)
{
    int rule = -1, low = least > n ? least - n : 0, high = most < 0 ? -1 : most - n;
    char bounds[48];

    if (items)
        KVANT_TRY(rule_of(m, items, at, "items", &rule));
    const char *open = low ? "" : "(", *close = low ? "" : ")?";
    char name[24] = "value";
    if (rule >= 0)
        snprintf(name, sizeof name, "s%d", rule);
    if (high == 0)
        return KVANT_OK;
    if (!n) { /* the first one has no comma before it */
        snprintf(bounds, sizeof bounds, high < 0 ? "{%d,}" : "{%d,%d}", low ? low - 1 : 0, high - 1);
        sbuf_printf(&m->out, "%s%s ws (\",\" ws %s ws)%s%s ", open, name, name, bounds, close);
        return KVANT_OK;
    }
    snprintf(bounds, sizeof bounds, high < 0 ? "{%d,}" : "{%d,%d}", low, high);
    sbuf_printf(&m->out, "(\",\" ws %s ws)%s ", name, bounds);
    return KVANT_OK;
}

static int put_array(maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema, *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    int least, most, n = 0;

    KVANT_TRY(count_of(m, at, "minItems", 0, &least));
    KVANT_TRY(count_of(m, at, "maxItems", -1, &most));
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        return fail_at(m, at, "uniqueItems", "not supported");
    if (!prefix && json_is_array(items)) { /* draft 7's way to write prefixItems */
        prefix = items;
        items = NULL;
    }
    if (prefix && (!json_is_array(prefix) || json_array_size(prefix) > GRAMMAR_MAX_REPEAT))
        return fail_at(m, at, "prefixItems", "wanted an array of at most 4096 schemas");
    if (most >= 0 && (most < least || most < (int)json_array_size(prefix)))
        return fail_at(m, at, "maxItems", "below minItems or the number of prefixItems");
    sbuf_puts(&m->out, "\"[\" ws ");
    if (prefix)
        KVANT_TRY(put_prefix(m, at, prefix, &n));
    if (json_is_false(items) && least > n)
        return fail_at(m, at, "minItems", "more than items allows");
    if (!json_is_false(items) && (items || !prefix || least > n))
        KVANT_TRY(put_more(m, at, items, n, least, most));
    sbuf_puts(&m->out, "\"]\"");
    return KVANT_OK;
}

/* ---- objects ---- */

typedef struct member {
    const char *name;
    const json_t *schema; /* NULL: anything */
    int required;
} member;

static int collect_members(const maker *m, int at, member *list, int *n)
{
    const json_t *schema = m->jobs[at].schema, *required = json_object_get(schema, "required"), *name;
    const json_t *more = json_object_get(schema, "additionalProperties"),
                 *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    size_t i;

    if (properties && !json_is_object(properties))
        return fail_at(m, at, "properties", "wanted an object");
    if (required && !json_is_array(required))
        return fail_at(m, at, "required", "wanted an array of names");
    if (json_object_size(properties) + json_array_size(required) > MAX_PROPERTIES)
        return fail_at(m, at, "properties", "more than 1024");
    json_object_foreach((json_t *)properties, key, value) list[(*n)++] = (member){ key, value, 0 };
    json_array_foreach((json_t *)required, i, name)
    {
        int k = 0;
        if (!json_is_string(name))
            return fail_at(m, at, "required", "wanted an array of names");
        while (k < *n && strcmp(list[k].name, json_string_value(name)) != 0)
            k++;
        if (k == *n) {
            if (json_is_false(more))
                return fail_at(m, at, "required", "a name that additionalProperties forbids");
            list[(*n)++] = (member){ json_string_value(name), json_is_object(more) ? more : NULL, 0 };
        }
        list[k].required = 1;
    }
    return KVANT_OK;
}

static int put_member_rule(maker *m, int at, int i, const member *x)
{
    json_t *name = json_string(x->name);
    char key[64];

    if (!name)
        return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
    sbuf_printf(&m->out, "s%d-k%d ::= ", at, i);
    int code = put_json_literal(m, name);
    json_decref(name);
    KVANT_TRY(code);
    sbuf_puts(&m->out, " ws \":\" ws ");
    snprintf(key, sizeof key, "properties/%.40s", x->name);
    if (x->schema)
        KVANT_TRY(put_child(m, at, x->schema, key));
    else
        sbuf_puts(&m->out, "value");
    sbuf_puts(&m->out, " ws\n");
    return KVANT_OK;
}

/* Rules a<i> (nothing written yet) and b<i> (a comma is due) choose what of members i.. comes out. */
static int put_members(maker *m, int at, const member *list, int n)
{
    for (int i = 0; i < n; i++) {
        sbuf_printf(&m->out, "s%d-a%d ::= s%d-k%d s%d-b%d", at, i, at, i, at, i + 1);
        if (!list[i].required)
            sbuf_printf(&m->out, " | s%d-a%d", at, i + 1);
        sbuf_printf(&m->out, "\ns%d-b%d ::= \",\" ws s%d-k%d s%d-b%d", at, i, at, i, at, i + 1);
        if (!list[i].required)
            sbuf_printf(&m->out, " | s%d-b%d", at, i + 1);
        sbuf_puts(&m->out, "\n");
        KVANT_TRY(put_member_rule(m, at, i, &list[i]));
    }
    sbuf_printf(&m->out, "s%d-a%d ::= \"\"\ns%d-b%d ::= \"\"\n", at, n, at, n);
    return KVANT_OK;
}

static int put_map(maker *m, int at)
{
    const json_t *more = json_object_get(m->jobs[at].schema, "additionalProperties");
    int rule;

    if (json_is_false(more)) {
        sbuf_puts(&m->out, "\"{\" ws \"}\"");
    } else if (json_is_object(more)) {
        KVANT_TRY(rule_of(m, more, at, "additionalProperties", &rule));
        sbuf_printf(&m->out, "\"{\" ws (string ws \":\" ws s%d ws (\",\" ws string ws \":\" ws s%d ws)*)? \"}\"", rule,
                    rule);
    } else {
        sbuf_puts(&m->out, "object");
    }
    return KVANT_OK;
}

/* The members' rules are written behind the rule that refers to them, into `later`. */
static int put_object(maker *m, int at, sbuf *later)
{
    member *list = kvant_calloc(MAX_PROPERTIES, sizeof *list);
    int n = 0, code = list ? KVANT_OK : kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");

    if (code == KVANT_OK)
        code = collect_members(m, at, list, &n);
    if (code == KVANT_OK && n == 0) {
        code = put_map(m, at);
    } else if (code == KVANT_OK) {
        sbuf_printf(&m->out, "\"{\" ws s%d-a0 \"}\"", at);
        sbuf line = m->out;
        m->out = *later;
        code = put_members(m, at, list, n);
        *later = m->out;
        m->out = line;
    }
    kvant_free(list);
    return code;
}

/* ---- one sub-schema ---- */

static int put_type(maker *m, int at, const char *type, sbuf *later)
{
    if (strcmp(type, "object") == 0)
        return put_object(m, at, later);
    if (strcmp(type, "array") == 0)
        return put_array(m, at);
    if (strcmp(type, "string") == 0)
        return put_string(m, at);
    if (strcmp(type, "integer") == 0)
        return put_integer(m, at);
    if (strcmp(type, "number") == 0)
        return put_number(m, at);
    if (strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0) {
        sbuf_puts(&m->out, type);
        return KVANT_OK;
    }
    return fail_at(m, at, "type", "wanted object, array, string, number, integer, boolean or null");
}

static int put_types(maker *m, int at, const json_t *types, sbuf *later)
{
    size_t i;
    json_t *type;
    int objects = 0;

    if (json_array_size(types) < 1 || json_array_size(types) > 7)
        return fail_at(m, at, "type", "wanted 1 to 7 types");
    json_array_foreach((json_t *)types, i, type)
    {
        if (!json_is_string(type))
            return fail_at(m, at, "type", "wanted names");
        objects += strcmp(json_string_value(type), "object") == 0;
        if (objects > 1)
            return fail_at(m, at, "type", "object twice");
        sbuf_puts(&m->out, i ? " | " : "");
        KVANT_TRY(put_type(m, at, json_string_value(type), later));
    }
    return KVANT_OK;
}

/* "#/$defs/Name" -> the schema it points to. */
static int resolve(const maker *m, int at, const char *ref, const json_t **schema)
{
    const json_t *v = m->root;
    char key[256];

    if (ref[0] != '#' || (ref[1] && ref[1] != '/'))
        return fail_at(m, at, "$ref", "only references inside the schema (#/...) are supported");
    for (const char *s = ref + 1; *s == '/' && v;) {
        size_t n = 0;
        for (s++; *s && *s != '/' && n + 1 < sizeof key; s++) {
            int escaped = *s == '~' && (s[1] == '0' || s[1] == '1');
            key[n++] = escaped ? (s[1] == '0' ? '~' : '/') : *s;
            s += escaped;
        }
        key[n] = 0;
        int index = 0, used = 0;
        if (json_is_array(v))
            v = sscanf(key, "%9d%n", &index, &used) == 1 && used == (int)n ? json_array_get(v, (size_t)index) : NULL;
        else
            v = json_object_get(v, key);
    }
    if (!json_is_object(v) && !json_is_boolean(v))
        return fail_at(m, at, "$ref", "points to no schema");
    *schema = v;
    return KVANT_OK;
}

/* The JSON type name that a value has, as `type` spells it. */
static int has_type(const json_t *v, const char *type)
{
    static const char *const names[] = {
        "object", "array", "string", "integer", "number", "boolean", "boolean", "null"
    };
    const char *own = names[json_typeof(v)];

    return strcmp(own, type) == 0 || (strcmp(own, "integer") == 0 && strcmp(type, "number") == 0);
}

static int put_enum(maker *m, int at, const json_t *values)
{
    const json_t *type = json_object_get(m->jobs[at].schema, "type");
    size_t i, n = 0;
    json_t *v;

    json_array_foreach((json_t *)values, i, v)
    {
        if (json_is_string(type) && !has_type(v, json_string_value(type)))
            continue;
        sbuf_puts(&m->out, n++ ? " | " : "");
        KVANT_TRY(put_json_literal(m, v));
    }
    return n ? KVANT_OK : fail_at(m, at, "enum", "no value is allowed");
}

static int put_choices(maker *m, int at, const char *word, const json_t *list)
{
    size_t i;
    json_t *v;

    if (json_array_size(list) < 1)
        return fail_at(m, at, word, "wanted an array of schemas");
    if (strcmp(word, "allOf") == 0 && json_array_size(list) != 1)
        return fail_at(m, at, word, "only one schema is supported");
    json_array_foreach((json_t *)list, i, v)
    {
        char key[48];
        snprintf(key, sizeof key, "%s/%zu", word, i);
        sbuf_puts(&m->out, i ? " | " : "");
        KVANT_TRY(put_child(m, at, v, key));
    }
    return KVANT_OK;
}

static int put_choice(maker *m, int at, const char *word)
{
    const json_t *v = json_object_get(m->jobs[at].schema, word), *target = NULL;
    const char *const alone[] = { word, NULL };

    KVANT_TRY(only(m, at, alone, NULL));
    if (strcmp(word, "$ref") == 0) {
        if (!json_is_string(v))
            return fail_at(m, at, word, "wanted a string");
        KVANT_TRY(resolve(m, at, json_string_value(v), &target));
        return put_child(m, at, target, NULL);
    }
    if (strcmp(word, "const") == 0)
        return put_json_literal(m, v);
    if (strcmp(word, "enum") == 0)
        return put_enum(m, at, v);
    return put_choices(m, at, word, v);
}

/* The type that a schema's keywords speak of when it has no `type`. */
static int put_untyped(maker *m, int at, sbuf *later)
{
    int family = -1;

    for (int i = 0; i < 4; i++)
        if (first_of(m->jobs[at].schema, families[i])) {
            if (family >= 0)
                return fail_at(m, at, "type", "missing, and the keywords speak of several types");
            family = i;
        }
    if (family >= 0)
        return put_type(m, at, family_type[family], later);
    sbuf_puts(&m->out, "value");
    return KVANT_OK;
}

static int put_schema(maker *m, int at, sbuf *later)
{
    const json_t *schema = m->jobs[at].schema, *type;
    const char *choice;

    if (json_is_true(schema)) {
        sbuf_puts(&m->out, "value");
        return KVANT_OK;
    }
    if (!json_is_object(schema))
        return fail_at(m, at, "", json_is_false(schema) ? "false allows nothing" : "wanted a schema");
    KVANT_TRY(known_words(m, at));
    choice = first_of(schema, choice_words);
    if (choice)
        return put_choice(m, at, choice);
    type = json_object_get(schema, "type");
    if (!type)
        return put_untyped(m, at, later);
    if (json_is_array(type))
        return put_types(m, at, type, later);
    if (!json_is_string(type))
        return fail_at(m, at, "type", "wanted a name or an array of names");
    const char *name = json_string_value(type);
    for (int i = 0; i < 4; i++) {
        const char *other = strcmp(name, family_type[i]) != 0 && !(i == 3 && strcmp(name, "integer") == 0)
                                ? first_of(schema, families[i])
                                : NULL;
        if (other)
            return fail_at(m, at, other, "does not apply to this type");
    }
    return put_type(m, at, name, later);
}

static int make(maker *m)
{
    int rule;

    KVANT_TRY(rule_of(m, m->root, -1, NULL, &rule));
    sbuf_puts(&m->out, "root ::= s0\n");
    for (int at = 0; at < m->n; at++) {
        sbuf later = { .max = GRAMMAR_MAX_SCHEMA };
        sbuf_printf(&m->out, "s%d ::= ", at);
        int code = put_schema(m, at, &later);
        sbuf_puts(&m->out, "\n");
        if (later.n)
            sbuf_put(&m->out, later.s, later.n);
        m->out.error |= later.error;
        sbuf_free(&later);
        KVANT_TRY(code);
        if (m->out.error)
            return kvant_fail(m->diag, KVANT_EINVAL, "schema: its grammar is larger than %d bytes", GRAMMAR_MAX_SCHEMA);
    }
    sbuf_puts(&m->out, common_rules);
    return m->out.error ? kvant_fail(m->diag, KVANT_EINVAL, "schema: too large") : KVANT_OK;
}

int grammar_from_schema(const char *schema, size_t len, char **gbnf, kvant_diag *diag)
{
    json_t *root = NULL;
    maker m = { .out = { .max = GRAMMAR_MAX_SCHEMA }, .diag = diag };
    int code = json_read(schema, len, &root, diag);

    m.root = root;
    if (code == KVANT_OK)
        code = make(&m);
    if (code == KVANT_OK)
        *gbnf = m.out.s;
    else
        sbuf_free(&m.out);
    kvant_free(m.jobs);
    json_decref(root);
    return code;
}
