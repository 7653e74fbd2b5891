/* grammar_schema.c: JSON schema -> GBNF text.  A queue of sub-schemas, one rule each; nothing recurses, and references
 * become references between rules.  Every keyword is either known here or an error that gives its path: what a schema
 * forbids can never come out.  The grammar may be narrower than the schema: properties come in the schema's order,
 * names beside `properties` are not made up, keys of maps may repeat, oneOf is read as anyOf (docs/server.md).
 * Values are in schema_values.c, arrays and objects in schema_groups.c. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_schema.h"
#include "server/request/json_scan.h"

enum { MAX_SCHEMAS = 8192 };

static const char common_rules[] =
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" (([0-9a-cA-CeEfF] hex | [dD] [0-7]) hex hex | pair))\n"
    "pair ::= [dD] [89abAB] hex hex \"\\\\u\" [dD] [c-fC-F] hex hex\n"
    "hex ::= [0-9a-fA-F]\n"
    "natural ::= \"0\" | [1-9] [0-9]{0,17}\n"
    "fraction ::= (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "number ::= \"-\"? natural fraction\n"
    "member ::= string ws \":\" ws value\n"
    "object ::= \"{\" ws (member ws (\",\" ws member ws)*)? \"}\"\n"
    "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n"
    "value ::= object | array | string | number | boolean | null\n";

/* ---- the queue ---- */

int schema_fail(const schema_maker *m, int at, const char *key, const char *what)
{
    return kvant_fail(m->diag, KVANT_EINVAL, "schema: %.150s/%.40s: %s", m->jobs[at].path, key, what);
}

/* The rule of a sub-schema: a new one, or the one it already has. */
int schema_rule(schema_maker *m, const json_t *schema, int from, const char *key, int *rule)
{
    for (int i = 0; i < m->n && from >= 0 && !key; i++) /* only references can meet a schema twice */
        if (m->jobs[i].origin == schema) {
            *rule = i;
            return KVANT_OK;
        }
    if (m->n == MAX_SCHEMAS)
        return kvant_fail(m->diag, KVANT_EINVAL, "schema: more than %d sub-schemas", MAX_SCHEMAS);
    if (m->n == m->cap) {
        int cap = m->cap ? m->cap * 2 : 64;
        schema_job *p = kvant_realloc(m->jobs, (size_t)m->cap * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
        m->jobs = p;
        m->cap = cap;
    }
    schema_job j = { .schema = schema, .origin = schema };
    if (from >= 0) {
        j.root = m->jobs[from].root;
        j.loose = m->jobs[from].loose ? SCHEMA_LOOSE : SCHEMA_STRICT;
        snprintf(j.path, MAX_PATH, "%.110s/%.40s", m->jobs[from].path, key ? key : "$ref");
    }
    m->jobs[m->n] = j;
    *rule = m->n++;
    return KVANT_OK;
}

int schema_add_root(schema_maker *m, const json_t *schema, const json_t *root, const char *path, int loose, int *rule)
{
    KVANT_TRY(schema_rule(m, schema, -1, NULL, rule));
    m->jobs[*rule].root = root;
    m->jobs[*rule].loose = loose;
    snprintf(m->jobs[*rule].path, MAX_PATH, "%s", path);
    return KVANT_OK;
}

int schema_put_child(schema_maker *m, int at, const json_t *schema, const char *key)
{
    int rule;

    KVANT_TRY(schema_rule(m, schema, at, key, &rule));
    sbuf_printf(&m->out, "s%d", rule);
    return KVANT_OK;
}

void schema_put_text(sbuf *b, const char *s, size_t n)
{
    sbuf_puts(b, "\"");
    for (; n > 0; s++, n--) {
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
int schema_put_json(schema_maker *m, const json_t *v)
{
    char *text = json_text(v, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text)
        return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
    schema_put_text(&m->out, text, strlen(text));
    free(text);
    return KVANT_OK;
}

int schema_made(schema_maker *m, json_t *v)
{
    if (!m->made)
        m->made = json_array();
    return v && json_array_append_new(m->made, v) == 0 ? KVANT_OK
                                                       : kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
}

/* ---- keywords ---- */

/* The inventory: ANNOTATION says nothing about valid values, REFUSED is an error. */
enum { ANNOTATION, OBJECT, ARRAY, STRING, NUMBER, CHOICE, REFUSED };
static const struct {
    const char *name;
    int what;
} words[] = {
#define WORD(name, what, why) { name, what },
#include "server/grammar/schema_words.def"
#undef WORD
};

/* A name outside the inventory is -1, but for those that tools make up for themselves (x-...). */
static int find_word(const char *key)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].name, key) == 0)
            return words[i].what;
    return strncmp(key, "x-", 2) == 0 ? ANNOTATION : -1;
}

int schema_constrains(const char *key)
{
    return find_word(key) > ANNOTATION && strcmp(key, "$ref") != 0 && strcmp(key, "allOf") != 0 &&
           strcmp(key, "nullable") != 0;
}

int schema_known_words(const schema_maker *m, int at, const json_t *schema)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)schema, key, v)
    {
        const int what = find_word(key);
        const int neutral = (strcmp(key, "not") == 0 && json_is_false(v)) ||
                            (strcmp(key, "patternProperties") == 0 && json_is_object(v) && !json_object_size(v));
        if (what < 0 || (what == REFUSED && !neutral))
            return schema_fail(m, at, key, "keyword not supported");
    }
    return KVANT_OK;
}

int schema_listed(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return 1;
    return 0;
}

/* A non-negative count of at most GRAMMAR_MAX_REPEAT; missing: `none`. */
int schema_count(const schema_maker *m, int at, const char *key, int none, int *v)
{
    const json_t *x = json_object_get(m->jobs[at].schema, key);

    *v = none;
    if (!x)
        return KVANT_OK;
    if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > GRAMMAR_MAX_REPEAT)
        return schema_fail(m, at, key, "wanted an integer from 0 to 4096");
    *v = (int)json_integer_value(x);
    return KVANT_OK;
}

/* ---- one sub-schema ---- */

static int put_type(schema_maker *m, int at, const char *type, sbuf *later)
{
    if (strcmp(type, "object") == 0)
        return schema_put_object(m, at, later);
    if (strcmp(type, "array") == 0)
        return schema_put_array(m, at, later);
    if (strcmp(type, "string") == 0)
        return schema_put_string(m, at);
    if (strcmp(type, "integer") == 0)
        return schema_put_integer(m, at);
    if (strcmp(type, "number") == 0)
        return schema_put_number(m, at);
    if (strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0) {
        sbuf_puts(&m->out, type);
        return KVANT_OK;
    }
    return schema_fail(m, at, "type", "wanted object, array, string, number, integer, boolean or null");
}

/* A list of types, of which number has integer within it. */
static int put_types(schema_maker *m, int at, const json_t *types, sbuf *later)
{
    size_t i, k;
    json_t *type;
    int n = 0;

    json_array_foreach((json_t *)types, i, type)
    {
        const char *name = json_string_value(type);
        int again = 0;
        if (!name)
            return schema_fail(m, at, "type", "wanted names");
        for (k = 0; k < json_array_size(types); k++) {
            const char *other = json_string_value(json_array_get(types, k));
            again |= other && ((k < i && strcmp(name, other) == 0) ||
                               (strcmp(name, "integer") == 0 && strcmp(other, "number") == 0));
        }
        if (again)
            continue;
        sbuf_puts(&m->out, n++ ? " | " : "");
        KVANT_TRY(put_type(m, at, name, later));
    }
    return n ? KVANT_OK : schema_fail(m, at, "type", "wanted 1 to 7 types, of which one is left");
}

static int put_enum(schema_maker *m, int at, const json_t *values)
{
    size_t i, n = 0;
    json_t *v;

    json_array_foreach((json_t *)values, i, v)
    {
        if (m->out.error)
            return KVANT_OK; /* too large: make() says so */
        const int ok = schema_allows(m, at, m->jobs[at].schema, v);
        if (ok < 0)
            return ok;
        if (!ok)
            continue;
        sbuf_puts(&m->out, n++ ? " | " : "");
        KVANT_TRY(schema_put_json(m, v));
    }
    return n ? KVANT_OK : schema_fail(m, at, "enum", "no value is allowed");
}

static int is_empty(const json_t *flat)
{
    const json_t *types = json_object_get(flat, "type"), *values = json_object_get(flat, "enum");

    return (types && !json_array_size(types)) || (values && !json_array_size(values));
}

/* anyOf, each with what stands beside it; one that can hold nothing then is left out. */
static int put_choices(schema_maker *m, int at)
{
    json_t *rest = json_copy((json_t *)m->jobs[at].schema), *v, *flat, *one;
    const json_t *list = json_object_get(m->jobs[at].schema, "anyOf");
    size_t i, n = 0;

    KVANT_TRY(schema_made(m, rest));
    json_object_del(rest, "anyOf");
    json_array_foreach((json_t *)list, i, v)
    {
        char key[48];
        if (m->out.error)
            return KVANT_OK;
        if (json_is_false(v))
            continue;
        snprintf(key, sizeof key, "anyOf/%zu", i);
        one = v;
        if (json_object_size(rest)) {
            one = json_pack("{s:[O,O]}", "allOf", rest, v);
            KVANT_TRY(schema_made(m, one));
            KVANT_TRY(schema_flatten(m, at, one, &flat));
            if (is_empty(flat))
                continue;
        }
        sbuf_puts(&m->out, n++ ? " | " : "");
        KVANT_TRY(schema_put_child(m, at, one, key));
    }
    return n ? KVANT_OK : schema_fail(m, at, "anyOf", "no schema of it can hold");
}

/* Without a type: those that the keywords speak of. */
static int put_untyped(schema_maker *m, int at, sbuf *later)
{
    static const char *const names[] = {
        [OBJECT] = "object", [ARRAY] = "array", [STRING] = "string", [NUMBER] = "number"
    };
    int seen[REFUSED + 1] = { 0 }, n = 0;
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)m->jobs[at].schema, key, v)
    {
        (void)v;
        seen[find_word(key)] = 1;
    }
    for (int i = OBJECT; i <= NUMBER; i++)
        if (seen[i]) {
            sbuf_puts(&m->out, n++ ? " | " : "");
            KVANT_TRY(put_type(m, at, names[i], later));
        }
    if (!n)
        sbuf_puts(&m->out, "value");
    return KVANT_OK;
}

/* A reference, beside which nothing stands that constrains: the rule of what it points to, which may be this one. */
static int only_refers(const json_t *schema)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)schema, key, v)
    {
        (void)v;
        if (strcmp(key, "$ref") != 0 && find_word(key) != ANNOTATION)
            return 0;
    }
    return json_object_get(schema, "$ref") != NULL;
}

static int put_schema(schema_maker *m, int at, sbuf *later)
{
    const json_t *schema = m->jobs[at].schema, *target, *types;
    json_t *flat;

    if (json_is_true(schema)) {
        sbuf_puts(&m->out, "value");
        return KVANT_OK;
    }
    if (!json_is_object(schema))
        return schema_fail(m, at, "", json_is_false(schema) ? "false allows nothing" : "wanted a schema");
    if (only_refers(schema)) {
        KVANT_TRY(schema_reference(m, at, json_object_get(schema, "$ref"), &target));
        return schema_put_child(m, at, target, NULL);
    }
    if (!m->made && !(m->made = json_array()))
        return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
    KVANT_TRY(schema_flatten(m, at, schema, &flat));
    m->jobs[at].schema = flat;
    types = json_object_get(flat, "type");
    if (types && !json_is_array(types))
        return schema_fail(m, at, "type", "wanted a name or an array of names");
    if (json_object_get(flat, "anyOf"))
        return put_choices(m, at);
    if (json_object_get(flat, "enum"))
        return put_enum(m, at, json_object_get(flat, "enum"));
    return types ? put_types(m, at, types, later) : put_untyped(m, at, later);
}

/* Any object, with the members that are needed first. */
static int put_any_object(schema_maker *m, const json_t *needs)
{
    size_t i;
    json_t *name;
    int n = 0;

    json_array_foreach((json_t *)needs, i, name)
    {
        if (!json_is_string(name))
            continue;
        sbuf_puts(&m->out, n++ ? "\",\" ws " : "\"{\" ws ");
        KVANT_TRY(schema_put_json(m, name));
        sbuf_puts(&m->out, " ws \":\" ws value ws ");
    }
    sbuf_puts(&m->out, n ? "(\",\" ws member ws)* \"}\"" : "object");
    return KVANT_OK;
}

/* One rule, and behind it those of its members. */
static int put_rule(schema_maker *m, int at)
{
    sbuf later = { .max = GRAMMAR_MAX_SCHEMA };
    const size_t from = m->out.n;
    int code;

    sbuf_printf(&m->out, "s%d ::= ", at);
    code = put_schema(m, at, &later);
    if (code == KVANT_EINVAL && m->jobs[at].loose) {
        m->out.n = from;
        later.n = 0;
        sbuf_printf(&m->out, "s%d ::= ", at);
        code = KVANT_OK;
        if (m->jobs[at].loose == SCHEMA_LOOSE_OBJECT)
            code = put_any_object(m, m->jobs[at].needs);
        else
            sbuf_puts(&m->out, "value");
    }
    sbuf_puts(&m->out, "\n");
    if (later.n)
        sbuf_put(&m->out, later.s, later.n);
    m->out.error |= later.error;
    sbuf_free(&later);
    return code;
}

/* Rules that have other spellings too. */
static void put_words(schema_maker *m)
{
    const char *s = m->more_strings, *b = m->more_booleans, *n = m->more_nulls;

    sbuf_printf(&m->out, "string ::= \"\\\"\" char* \"\\\"\"%s%s\n", s ? " | " : "", s ? s : "");
    sbuf_printf(&m->out, "boolean ::= \"true\" | \"false\"%s%s\n", b ? " | " : "", b ? b : "");
    sbuf_printf(&m->out, "null ::= \"null\"%s%s\n", n ? " | " : "", n ? n : "");
}

int schema_finish(schema_maker *m)
{
    for (int at = 0; at < m->n; at++) {
        KVANT_TRY(put_rule(m, at));
        if (m->out.error)
            return kvant_fail(m->diag, KVANT_EINVAL, "schema: its grammar is larger than %d bytes", GRAMMAR_MAX_SCHEMA);
    }
    if (m->shared.n)
        sbuf_put(&m->out, m->shared.s, m->shared.n);
    m->out.error |= m->shared.error;
    sbuf_puts(&m->out, common_rules);
    put_words(m);
    sbuf_puts(&m->out, schema_format_rules);
    schema_put_int64(&m->out);
    return m->out.error ? kvant_fail(m->diag, KVANT_EINVAL, "schema: too large") : KVANT_OK;
}

void schema_free(schema_maker *m)
{
    sbuf_free(&m->out);
    sbuf_free(&m->shared);
    json_decref(m->made);
    kvant_free(m->jobs);
}

int grammar_from_schema(const char *schema, size_t len, char **gbnf, kvant_diag *diag)
{
    json_t *root = NULL;
    schema_maker m = { .out = { .max = GRAMMAR_MAX_SCHEMA }, .diag = diag };
    int rule, code = json_read(schema, len, &root, diag);

    sbuf_puts(&m.out, "root ::= s0\n");
    if (code == KVANT_OK)
        code = schema_add_root(&m, root, root, "#", 0, &rule);
    if (code == KVANT_OK)
        code = schema_finish(&m);
    if (code == KVANT_OK) {
        *gbnf = m.out.s;
        m.out.s = NULL;
    }
    schema_free(&m);
    json_decref(root);
    return code;
}
