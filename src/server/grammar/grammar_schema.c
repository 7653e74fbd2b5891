/* grammar_schema.c: JSON schema -> GBNF text.  A queue of sub-schemas, one rule each; nothing recurses, and references
 * become references between rules.  Every keyword is either known here or an error that gives its path: what a schema
 * forbids can never come out.  What comes out may be narrower than the schema: properties come in the schema's order,
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

int schema_fail(const schema_maker *m, int at, const char *key, const char *what)
{
    return kvant_fail(m->diag, KVANT_EINVAL, "schema: %.150s/%.40s: %s", m->jobs[at].path, key, what);
}

/* The rule of a sub-schema: a new one, or the one it already has. */
int schema_rule(schema_maker *m, const json_t *schema, int from, const char *key, int *rule)
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
        schema_job *p = kvant_realloc(m->jobs, (size_t)m->cap * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
        m->jobs = p;
        m->cap = cap;
    }
    schema_job j = { .schema = schema };
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

/* ---- keywords ---- */

/* Keywords that say nothing about valid values. */
static const char *const annotations[] = { "title", "description", "default",    "examples", "$schema",
                                           "$id",   "$comment",    "deprecated", "readOnly", "writeOnly",
                                           "$defs", "definitions", NULL };
static const char *const object_words[] = { "properties", "required", "additionalProperties", NULL };
static const char *const array_words[] = { "items", "prefixItems", "minItems", "maxItems", "uniqueItems", NULL };
static const char *const string_words[] = { "minLength", "maxLength", "pattern", "format", NULL };
const char *const schema_number_words[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", NULL };
static const char *const choice_words[] = { "$ref", "const", "enum", "anyOf", "oneOf", "allOf", NULL };
static const char *const *const families[] = { object_words, array_words, string_words, schema_number_words };
static const char *const family_type[] = { "object", "array", "string", "number" };

int schema_listed(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return 1;
    return 0;
}

const char *schema_first_of(const json_t *schema, const char *const *list)
{
    for (; *list; list++)
        if (json_object_get(schema, *list))
            return *list;
    return NULL;
}

/* Nothing but annotations, `a` and `b` may be there. */
static int only(const schema_maker *m, int at, const char *const *a, const char *const *b)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)m->jobs[at].schema, key, value)
    {
        (void)value;
        if (!schema_listed(key, annotations) && strcmp(key, "type") != 0 && !(a && schema_listed(key, a)) &&
            !(b && schema_listed(key, b)))
            return schema_fail(m, at, key, "keyword not supported here");
    }
    return KVANT_OK;
}

static int known_words(const schema_maker *m, int at)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)m->jobs[at].schema, key, value)
    {
        int known = strcmp(key, "type") == 0 || schema_listed(key, annotations) || schema_listed(key, choice_words);
        (void)value;
        for (int i = 0; i < 4; i++)
            known |= schema_listed(key, families[i]);
        if (!known)
            return schema_fail(m, at, key, "keyword not supported");
    }
    return KVANT_OK;
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
        return schema_put_array(m, at);
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

static int put_types(schema_maker *m, int at, const json_t *types, sbuf *later)
{
    size_t i;
    json_t *type;
    int objects = 0;

    if (json_array_size(types) < 1 || json_array_size(types) > 7)
        return schema_fail(m, at, "type", "wanted 1 to 7 types");
    json_array_foreach((json_t *)types, i, type)
    {
        if (!json_is_string(type))
            return schema_fail(m, at, "type", "wanted names");
        objects += strcmp(json_string_value(type), "object") == 0;
        if (objects > 1)
            return schema_fail(m, at, "type", "object twice");
        sbuf_puts(&m->out, i ? " | " : "");
        KVANT_TRY(put_type(m, at, json_string_value(type), later));
    }
    return KVANT_OK;
}

/* "#/$defs/Name" -> the schema it points to. */
static int resolve(const schema_maker *m, int at, const char *ref, const json_t **schema)
{
    const json_t *v = m->jobs[at].root;
    char key[256];

    if (ref[0] != '#' || (ref[1] && ref[1] != '/'))
        return schema_fail(m, at, "$ref", "only references inside the schema (#/...) are supported");
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
        return schema_fail(m, at, "$ref", "points to no schema");
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

static int put_enum(schema_maker *m, int at, const json_t *values)
{
    const json_t *type = json_object_get(m->jobs[at].schema, "type");
    size_t i, n = 0;
    json_t *v;

    json_array_foreach((json_t *)values, i, v)
    {
        if (m->out.error)
            return KVANT_OK; /* too large: make() says so */
        if (json_is_string(type) && !has_type(v, json_string_value(type)))
            continue;
        sbuf_puts(&m->out, n++ ? " | " : "");
        KVANT_TRY(schema_put_json(m, v));
    }
    return n ? KVANT_OK : schema_fail(m, at, "enum", "no value is allowed");
}

static int put_choices(schema_maker *m, int at, const char *word, const json_t *list)
{
    size_t i;
    json_t *v;

    if (json_array_size(list) < 1)
        return schema_fail(m, at, word, "wanted an array of schemas");
    if (strcmp(word, "allOf") == 0 && json_array_size(list) != 1)
        return schema_fail(m, at, word, "only one schema is supported");
    json_array_foreach((json_t *)list, i, v)
    {
        char key[48];
        if (m->out.error)
            return KVANT_OK;
        snprintf(key, sizeof key, "%s/%zu", word, i);
        sbuf_puts(&m->out, i ? " | " : "");
        KVANT_TRY(schema_put_child(m, at, v, key));
    }
    return KVANT_OK;
}

static int put_choice(schema_maker *m, int at, const char *word)
{
    const json_t *v = json_object_get(m->jobs[at].schema, word), *target = NULL;
    const char *const alone[] = { word, NULL };

    KVANT_TRY(only(m, at, alone, NULL));
    if (strcmp(word, "$ref") == 0) {
        if (!json_is_string(v))
            return schema_fail(m, at, word, "wanted a string");
        KVANT_TRY(resolve(m, at, json_string_value(v), &target));
        return schema_put_child(m, at, target, NULL);
    }
    if (strcmp(word, "const") == 0)
        return schema_put_json(m, v);
    if (strcmp(word, "enum") == 0)
        return put_enum(m, at, v);
    return put_choices(m, at, word, v);
}

/* The type that a schema's keywords speak of when it has no `type`. */
static int put_untyped(schema_maker *m, int at, sbuf *later)
{
    int family = -1;

    for (int i = 0; i < 4; i++)
        if (schema_first_of(m->jobs[at].schema, families[i])) {
            if (family >= 0)
                return schema_fail(m, at, "type", "missing, and the keywords speak of several types");
            family = i;
        }
    if (family >= 0)
        return put_type(m, at, family_type[family], later);
    sbuf_puts(&m->out, "value");
    return KVANT_OK;
}

static int put_schema(schema_maker *m, int at, sbuf *later)
{
    const json_t *schema = m->jobs[at].schema, *type;
    const char *choice;

    if (json_is_true(schema)) {
        sbuf_puts(&m->out, "value");
        return KVANT_OK;
    }
    if (!json_is_object(schema))
        return schema_fail(m, at, "", json_is_false(schema) ? "false allows nothing" : "wanted a schema");
    KVANT_TRY(known_words(m, at));
    choice = schema_first_of(schema, choice_words);
    if (choice)
        return put_choice(m, at, choice);
    type = json_object_get(schema, "type");
    if (!type)
        return put_untyped(m, at, later);
    if (json_is_array(type))
        return put_types(m, at, type, later);
    if (!json_is_string(type))
        return schema_fail(m, at, "type", "wanted a name or an array of names");
    const char *name = json_string_value(type);
    for (int i = 0; i < 4; i++) {
        const char *other = strcmp(name, family_type[i]) != 0 && !(i == 3 && strcmp(name, "integer") == 0)
                                ? schema_first_of(schema, families[i])
                                : NULL;
        if (other)
            return schema_fail(m, at, other, "does not apply to this type");
    }
    return put_type(m, at, name, later);
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
        sbuf_printf(&m->out, "s%d ::= %s", at, m->jobs[at].loose == SCHEMA_LOOSE_OBJECT ? "object" : "value");
        code = KVANT_OK;
    }
    sbuf_puts(&m->out, "\n");
    if (later.n)
        sbuf_put(&m->out, later.s, later.n);
    m->out.error |= later.error;
    sbuf_free(&later);
    return code;
}

int schema_finish(schema_maker *m)
{
    for (int at = 0; at < m->n; at++) {
        KVANT_TRY(put_rule(m, at));
        if (m->out.error)
            return kvant_fail(m->diag, KVANT_EINVAL, "schema: its grammar is larger than %d bytes", GRAMMAR_MAX_SCHEMA);
    }
    sbuf_puts(&m->out, common_rules);
    return m->out.error ? kvant_fail(m->diag, KVANT_EINVAL, "schema: too large") : KVANT_OK;
}

void schema_free(schema_maker *m)
{
    sbuf_free(&m->out);
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
