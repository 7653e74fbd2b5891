/* schema_merge.c: a sub-schema as one object without $ref and allOf: what all of them say together.  A deeper one
 * is merged when its turn comes ("allOf" of the two), so nothing recurses but over allOf and chains of references. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/text/hex.h"
#include "server/grammar/grammar_schema.h"
#include "server/request/json_scan.h"

enum { MOST_CHAIN = 48, MOST_PAIRS = 64 };
_Static_assert(MOST_CHAIN == 48, "the message of add_schema says it");

static int no_memory(schema_maker *m)
{
    return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
}

static int set(schema_maker *m, json_t *to, const char *key, json_t *v)
{
    return v && json_object_set_new(to, key, v) == 0 ? KVANT_OK : no_memory(m);
}

/* Both, later. */
static json_t *both(const json_t *a, const json_t *b)
{
    return json_equal((json_t *)a, (json_t *)b) ? json_incref((json_t *)a) : json_pack("{s:[O,O]}", "allOf", a, b);
}

enum { MOST_KEY = 256 };

/* The key behind the slash that s begins with; percent: %XX is a byte.  Returns what comes behind it. */
static const char *take_key(const char *s, int percent, char key[MOST_KEY])
{
    size_t n = 0;

    for (s++; *s && *s != '/' && n + 1 < MOST_KEY; s++) {
        const int byte = percent && *s == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0 && strncmp(s, "%00", 3);
        const int escaped = *s == '~' && (s[1] == '0' || s[1] == '1');
        key[n++] = byte ? (char)(hex_digit(s[1]) * 16 + hex_digit(s[2])) : escaped ? (s[1] == '0' ? '~' : '/') : *s;
        s += byte ? 2 : escaped;
    }
    key[n] = 0;
    return s;
}

static const json_t *member(const json_t *v, const char *key)
{
    int index = 0, used = 0;

    if (!json_is_array(v))
        return json_object_get(v, key);
    return sscanf(key, "%9d%n", &index, &used) == 1 && !key[used] ? json_array_get(v, (size_t)index) : NULL;
}

const json_t *schema_pointed(const json_t *root, const char *ref)
{
    char key[MOST_KEY], plain[MOST_KEY];

    if (ref[0] != '#' || (ref[1] && ref[1] != '/'))
        return NULL;
    for (const char *s = ref + 1; *s == '/' && root;) {
        take_key(s, 0, plain);
        s = take_key(s, 1, key);
        if (*s && *s != '/') /* longer than any name */
            return NULL;
        const json_t *next = member(root, key);
        root = next ? next : member(root, plain);
    }
    return json_is_object(root) || json_is_boolean(root) ? root : NULL;
}

int schema_reference(const schema_maker *m, int at, const json_t *ref, const json_t **schema)
{
    if (!json_is_string(ref))
        return schema_fail(m, at, "$ref", "wanted a string");
    const char *text = json_string_value(ref);
    if (text[0] != '#' || (text[1] && text[1] != '/'))
        return schema_fail(m, at, "$ref", "only references inside the schema (#/...) are supported");
    *schema = schema_pointed(m->jobs[at].root, text);
    return *schema ? KVANT_OK : schema_fail(m, at, "$ref", "points to no schema");
}

/* ---- two values of one keyword ---- */

static int has_text(const json_t *list, const char *s)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) if (json_is_string(v) && strcmp(json_string_value(v), s) == 0) return 1;
    return 0;
}

/* Types that are in both lists; integer is a number. */
static int merge_types(schema_maker *m, json_t *to, const json_t *a, const json_t *b)
{
    json_t *list = json_array(), *v;
    size_t i;

    json_array_foreach((json_t *)a, i, v)
    {
        const char *s = json_string_value(v);
        if (s && (has_text(b, s) || (strcmp(s, "integer") == 0 && has_text(b, "number"))))
            json_array_append(list, v);
        else if (s && strcmp(s, "number") == 0 && has_text(b, "integer"))
            json_array_append_new(list, json_string("integer"));
    }
    return set(m, to, "type", list);
}

static int merge_values(schema_maker *m, json_t *to, const json_t *a, const json_t *b)
{
    json_t *list = json_array(), *v;
    size_t i, k;

    json_array_foreach((json_t *)a, i, v) for (k = 0; k < json_array_size(b);
                                               k++) if (schema_same(v, json_array_get(b, k)))
    {
        json_array_append(list, v);
        break;
    }
    return set(m, to, "enum", list);
}

static int merge_objects(schema_maker *m, json_t *to, const char *key, const json_t *a, const json_t *b)
{
    json_t *all = json_copy((json_t *)a), *v;
    const char *name;

    json_object_foreach((json_t *)b, name, v)
    {
        const json_t *old = json_object_get(all, name);
        if (!all || json_object_set_new(all, name, old ? both(old, v) : json_incref(v)) != 0)
            return no_memory(m);
    }
    return set(m, to, key, all);
}

static int merge_lists(schema_maker *m, json_t *to, const char *key, const json_t *a, const json_t *b)
{
    json_t *all = json_copy((json_t *)a);

    return all && json_array_extend(all, (json_t *)b) == 0 ? set(m, to, key, all) : no_memory(m);
}

/* The tighter of two bounds: sign 1: the larger one. */
static int merge_bound(schema_maker *m, json_t *to, const char *key, const json_t *a, const json_t *b, int sign)
{
    const double x = json_is_wide(a) ? strtod(json_string_value(a) + 1, NULL) : json_number_value(a);
    const double y = json_is_wide(b) ? strtod(json_string_value(b) + 1, NULL) : json_number_value(b);

    return set(m, to, key, json_incref((json_t *)(sign * (y - x) > 0 ? b : a)));
}

/* anyOf beside anyOf: each with each. */
static int merge_choices(schema_maker *m, int at, json_t *to, const json_t *a, const json_t *b)
{
    json_t *all = json_array(), *v;
    size_t i, k;

    if (json_array_size(a) * json_array_size(b) > MOST_PAIRS)
        return schema_fail(m, at, "anyOf", "too many choices beside each other");
    json_array_foreach((json_t *)a, i, v) for (k = 0; k < json_array_size(b); k++)
        json_array_append_new(all, both(v, json_array_get(b, k)));
    return set(m, to, "anyOf", all);
}

/* Names that one of the two does not declare are of its additionalProperties. */
static int merge_closed(schema_maker *m, json_t *to, const json_t *closed, const json_t *other)
{
    const json_t *more = json_object_get(closed, "additionalProperties"), *own = json_object_get(closed, "properties");
    json_t *props = json_object_get(other, "properties"), *kept, *v;
    const char *name;

    if (!props || !more || json_is_true(more))
        return KVANT_OK;
    if (!(kept = json_object()))
        return no_memory(m);
    json_object_foreach(props, name, v) if (json_object_get(own, name)) json_object_set(kept, name, v);
    else if (json_is_false(more)) json_object_set_new(kept, name, json_false());
    else json_object_set_new(kept, name, both(v, more));
    return set(m, to, "properties", kept);
}

static int merge_two(schema_maker *m, int at, json_t *to, const char *key, const json_t *a, const json_t *b)
{
    static const char *const larger[] = {
        "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", NULL
    };
    static const char *const smaller[] = {
        "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", NULL
    };
    static const char *const schemas[] = { "items", "additionalProperties", "propertyNames", "contains", NULL };

    if (json_equal((json_t *)a, (json_t *)b))
        return KVANT_OK;
    if (strcmp(key, "type") == 0)
        return merge_types(m, to, a, b);
    if (strcmp(key, "enum") == 0)
        return merge_values(m, to, a, b);
    if (strcmp(key, "anyOf") == 0)
        return merge_choices(m, at, to, a, b);
    if (strcmp(key, "properties") == 0 || strcmp(key, "dependentRequired") == 0)
        return merge_objects(m, to, key, a, b);
    if (strcmp(key, "required") == 0)
        return merge_lists(m, to, key, a, b);
    if (strcmp(key, "uniqueItems") == 0)
        return set(m, to, key, json_boolean(json_is_true(a) || json_is_true(b)));
    if (schema_listed(key, larger) && !json_is_boolean(a) && !json_is_boolean(b))
        return merge_bound(m, to, key, a, b, 1);
    if (schema_listed(key, smaller) && !json_is_boolean(a) && !json_is_boolean(b))
        return merge_bound(m, to, key, a, b, -1);
    if (schema_listed(key, schemas))
        return json_is_false(a) || json_is_false(b) ? set(m, to, key, json_false()) : set(m, to, key, both(a, b));
    return schema_fail(m, at, key, "two of allOf say different things");
}

/* ---- one schema into another ---- */

static int add_schema(schema_maker *m, int at, json_t *to, const json_t *schema, int chain);

static int add_all(schema_maker *m, int at, json_t *to, const json_t *list, int chain)
{
    size_t i;
    json_t *v;

    if (json_array_size(list) < 1)
        return schema_fail(m, at, "allOf", "wanted an array of schemas");
    json_array_foreach((json_t *)list, i, v) KVANT_TRY(add_schema(m, at, to, v, chain + 1));
    return KVANT_OK;
}

/* "const" as a list of one, a type as a list; OpenAPI's and draft 4's names as today's. */
static int add_word(schema_maker *m, int at, json_t *to, const char *key, json_t *v, int nullable)
{
    json_t *own = json_incref(v);
    const char *as = key;

    if (strcmp(key, "const") == 0) {
        as = "enum";
        json_decref(own);
        own = json_pack("[O]", v);
    } else if (strcmp(key, "type") == 0) {
        json_decref(own);
        own = json_is_string(v) ? json_pack("[O]", v) : json_copy(v);
        if (own && nullable && !has_text(own, "null"))
            json_array_append_new(own, json_string("null"));
    } else if (strcmp(key, "oneOf") == 0) {
        as = "anyOf";
    }
    const json_t *old = json_object_get(to, as);
    if (!own)
        return no_memory(m);
    if (!old)
        return set(m, to, as, own);
    const int code = merge_two(m, at, to, as, old, own);
    json_decref(own);
    return code;
}

static int check_lists(schema_maker *m, int at, const json_t *schema)
{
    const json_t *v = json_object_get(schema, "oneOf");

    if ((v && json_array_size(v) < 1) ||
        (json_object_get(schema, "anyOf") && !json_array_size(json_object_get(schema, "anyOf"))))
        return schema_fail(m, at, v ? "oneOf" : "anyOf", "wanted an array of schemas");
    if (json_object_get(schema, "enum") && !json_array_size(json_object_get(schema, "enum")))
        return schema_fail(m, at, "enum", "no value is allowed");
    return v && !m->jobs[at].loose && !m->apart ? schema_check_apart(m, at, v) : KVANT_OK;
}

static int add_schema(schema_maker *m, int at, json_t *to, const json_t *schema, int chain)
{
    const json_t *target;
    const char *key;
    json_t *v;

    if (json_is_true(schema))
        return KVANT_OK;
    if (!json_is_object(schema))
        return schema_fail(m, at, "", json_is_false(schema) ? "false allows nothing" : "wanted a schema");
    if (chain > MOST_CHAIN)
        return schema_fail(m, at, "$ref", "leads to itself, or is more than 48 references and parts of allOf deep");
    if ((m->work += 1 + (int)json_object_size(schema) + (int)json_object_size(to)) > SCHEMA_WORK)
        return schema_fail(m, at, "", "too much to merge");
    KVANT_TRY(schema_known_words(m, at, schema));
    KVANT_TRY(check_lists(m, at, schema));
    json_t *was = json_copy(to);
    int code = was ? merge_closed(m, to, schema, was) : no_memory(m);
    json_t *mine = code == KVANT_OK ? json_copy((json_t *)schema) : NULL;
    if (mine && json_object_size(to))
        code = merge_closed(m, mine, was, schema);
    const int nullable = json_is_true(json_object_get(schema, "nullable"));
    json_object_foreach(mine, key, v) if (code == KVANT_OK && schema_constrains(key))
        code = add_word(m, at, to, key, v, nullable);
    json_decref(mine);
    json_decref(was);
    KVANT_TRY(code);
    if ((v = json_object_get(schema, "$ref"))) {
        KVANT_TRY(schema_reference(m, at, v, &target));
        KVANT_TRY(add_schema(m, at, to, target, chain + 1));
    }
    v = json_object_get(schema, "allOf");
    return v ? add_all(m, at, to, v, chain) : KVANT_OK;
}

int schema_flatten(schema_maker *m, int at, const json_t *schema, json_t **flat)
{
    static const char *const last[][2] = { { "unevaluatedProperties", "additionalProperties" },
                                           { "unevaluatedItems", "items" } };
    json_t *to = json_object();
    int code = to ? add_schema(m, at, to, schema, 0) : no_memory(m);

    for (int i = 0; i < 2 && code == KVANT_OK; i++) {
        json_t *v = json_object_get(to, last[i][0]);
        if (v && !json_object_get(to, last[i][1]))
            json_object_set(to, last[i][1], v);
        json_object_del(to, last[i][0]);
    }
    if (code == KVANT_OK && json_array_append(m->made, to) == 0)
        *flat = to;
    json_decref(to);
    return code;
}
