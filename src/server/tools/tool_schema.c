/* tool_schema.c: see tool_schema.h.  Schemas are a client's: depth and the schemas that one question looks at are
 * bounded, and what lies beyond accepts anything. */
#include "server/tools/tool_schema.h"

#include <stdlib.h>
#include <string.h>
#include "server/grammar/grammar_schema.h"

enum { MOST_DEPTH = 24, MOST_SCHEMAS = 4096, MOST_LISTED = 256 };

typedef struct look {
    const json_t *root;
    int left, depth;
} look;

/* 0: it has been looked at enough, or too deep. */
static int deeper(look *l)
{
    if (l->depth >= MOST_DEPTH || l->left <= 0)
        return 0;
    l->left--;
    l->depth++;
    return 1;
}

static const json_t *target(const look *l, const json_t *schema)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));

    return ref ? schema_pointed(l->root, ref) : NULL;
}

/* ---- types ---- */

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING: return ACCEPTS_TEXT;
    case JSON_NULL: return ACCEPTS_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return ACCEPTS_BOOL;
    case JSON_ARRAY: return ACCEPTS_LIST;
    case JSON_OBJECT: return ACCEPTS_OBJECT;
    default: return ACCEPTS_NUMBER;
    }
}

static unsigned type_named(const char *s)
{
    static const struct {
        const char *name;
        unsigned bit;
    } types[] = { { "string", ACCEPTS_TEXT },    { "null", ACCEPTS_NULL },     { "boolean", ACCEPTS_BOOL },
                  { "integer", ACCEPTS_NUMBER }, { "number", ACCEPTS_NUMBER }, { "array", ACCEPTS_LIST },
                  { "object", ACCEPTS_OBJECT } };

    for (size_t i = 0; s && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, s) == 0)
            return types[i].bit;
    return ACCEPTS_ANY;
}

static unsigned types_said(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *v;
    unsigned said = 0;
    size_t i;

    if (json_is_string(type))
        said = type_named(json_string_value(type));
    json_array_foreach((json_t *)type, i, v) said |= type_named(json_string_value(v));
    said = said ? said : ACCEPTS_ANY;
    return json_is_true(json_object_get(schema, "nullable")) ? said | ACCEPTS_NULL : said;
}

static unsigned accepts(look *l, const json_t *schema);

static unsigned any_of(look *l, const json_t *list)
{
    unsigned sum = 0;
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) sum |= accepts(l, v);
    return json_array_size(list) ? sum : ACCEPTS_ANY;
}

static unsigned accepts(look *l, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum"), *fixed = json_object_get(schema, "const"), *v;
    const json_t *to = target(l, schema);
    unsigned types = ACCEPTS_ANY, listed = 0;
    size_t i;

    if (!json_is_object(schema) || !deeper(l))
        return ACCEPTS_ANY;
    types &= types_said(schema);
    json_array_foreach((json_t *)values, i, v) listed |= type_of(v);
    if (json_array_size(values))
        types &= listed;
    if (fixed)
        types &= type_of(fixed);
    if (to)
        types &= accepts(l, to);
    types &= any_of(l, json_object_get(schema, "anyOf")) & any_of(l, json_object_get(schema, "oneOf"));
    json_array_foreach(json_object_get(schema, "allOf"), i, v) types &= accepts(l, v);
    l->depth--;
    return types;
}

unsigned schema_accepts(const json_t *schema, const json_t *root)
{
    look l = { root, MOST_SCHEMAS, 0 };
    const unsigned types = accepts(&l, schema);

    return types ? types : ACCEPTS_ANY; /* a schema that accepts nothing: anything is as wrong */
}

/* ---- values ---- */

static int takes(look *l, const json_t *schema, const json_t *v);

static int takes_one(look *l, const json_t *list, const json_t *v)
{
    size_t i;
    json_t *x;

    json_array_foreach((json_t *)list, i, x) if (takes(l, x, v)) return 1;
    return json_array_size(list) == 0;
}

static int takes(look *l, const json_t *schema, const json_t *v)
{
    const json_t *values = json_object_get(schema, "enum"), *fixed = json_object_get(schema, "const"), *x;
    const json_t *to = target(l, schema);
    int listed = !json_array_size(values);
    size_t i;

    if (!json_is_object(schema) || !deeper(l))
        return 1;
    json_array_foreach((json_t *)values, i, x) listed |= json_equal(x, v);
    const json_t *type = json_object_get(schema, "type");
    const int whole = json_is_string(type) && strcmp(json_string_value(type), "integer") == 0;
    int ok = listed && (!fixed || json_equal(fixed, v)) && (types_said(schema) & type_of(v)) &&
             !(whole && json_is_real(v)) && (!to || takes(l, to, v)) &&
             takes_one(l, json_object_get(schema, "anyOf"), v) && takes_one(l, json_object_get(schema, "oneOf"), v);
    json_array_foreach(json_object_get(schema, "allOf"), i, x) ok = ok && takes(l, x, v);
    l->depth--;
    return ok;
}

int schema_takes(const json_t *schema, const json_t *root, const json_t *v)
{
    look l = { root, MOST_SCHEMAS, 0 };

    return takes(&l, schema, v);
}

static int lists(look *l, const json_t *schema, json_t *to);

static int lists_each(look *l, const json_t *list, json_t *to)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) if (!lists(l, v, to)) return 0;
    return 1;
}

static int lists(look *l, const json_t *schema, json_t *to)
{
    const json_t *values = json_object_get(schema, "enum"), *fixed = json_object_get(schema, "const");
    const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
    const json_t *to_ref = target(l, schema), *v;
    size_t i;
    int ok = 0;

    if (!json_is_object(schema) || !deeper(l) || json_array_size(to) > MOST_LISTED)
        return 0;
    if (fixed) {
        ok = json_array_append(to, (json_t *)fixed) == 0;
    } else if (json_array_size(values)) {
        json_array_foreach((json_t *)values, i, v) json_array_append(to, (json_t *)v);
        ok = json_array_size(values) <= MOST_LISTED;
    } else if (json_array_size(any) || json_array_size(one)) {
        ok = lists_each(l, json_array_size(any) ? any : one, to);
    } else if (to_ref) {
        ok = lists(l, to_ref, to);
    } else {
        const unsigned types = types_said(schema);
        ok = !(types & ~(unsigned)(ACCEPTS_NULL | ACCEPTS_BOOL));
        if (ok && (types & ACCEPTS_NULL))
            json_array_append_new(to, json_null());
        for (int b = 0; ok && (types & ACCEPTS_BOOL) && b < 2; b++)
            json_array_append_new(to, json_boolean(b));
    }
    l->depth--;
    return ok;
}

int schema_lists(const json_t *schema, const json_t *root, json_t *list)
{
    look l = { root, MOST_SCHEMAS, 0 };

    return lists(&l, schema, list) && json_array_size(list) > 0;
}

/* ---- properties ---- */

static void collect(look *l, const json_t *schema, int all, json_t *properties, json_t *required)
{
    static const char *const some[] = { "anyOf", "oneOf" };
    const json_t *to = target(l, schema), *v;
    size_t i;

    if (!json_is_object(schema) || !deeper(l))
        return;
    if (json_is_object(json_object_get(schema, "properties")))
        json_object_update_missing(properties, json_object_get(schema, "properties"));
    if (all)
        json_array_foreach(json_object_get(schema, "required"), i, v) json_array_append(required, (json_t *)v);
    collect(l, to, all, properties, required);
    json_array_foreach(json_object_get(schema, "allOf"), i, v) collect(l, v, all, properties, required);
    for (int k = 0; k < 2; k++)
        json_array_foreach(json_object_get(schema, some[k]), i, v) collect(l, v, 0, properties, required);
    l->depth--;
}

void schema_properties(const json_t *schema, json_t *properties, json_t *required)
{
    look l = { schema, MOST_SCHEMAS, 0 };
    json_t *seen = json_object(), *names = json_array(), *v;
    size_t i;

    collect(&l, schema, 1, properties, names);
    json_array_foreach(names, i, v) {
        if (json_is_string(v) && json_object_get(seen, json_string_value(v)))
            continue;
        json_array_append(required, v);
        json_object_set_new(seen, json_is_string(v) ? json_string_value(v) : "", json_true());
    }
    json_decref(names);
    json_decref(seen);
}

const json_t *schema_others(const json_t *schema)
{
    const json_t *v = json_object_get(schema, "additionalProperties");

    return json_is_object(v) || json_is_true(v) ? v : NULL;
}
