/* schema_accept.c: values against schemas, where a schema lists them; and which schemas exclude each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_schema.h"
#include "server/request/json_scan.h"

enum { MOST_VALUES = 64, MOST_ONE_OF = 64 };

/* ---- values ---- */

static int is_number(const json_t *v)
{
    return json_is_number(v) || json_is_wide(v);
}

static double number(const json_t *v)
{
    return json_is_wide(v) ? strtod(json_string_value(v) + 1, NULL) : json_number_value(v);
}

int schema_same(const json_t *a, const json_t *b)
{
    return json_equal((json_t *)a, (json_t *)b) ||
           (json_is_number(a) && json_is_number(b) && json_typeof(a) != json_typeof(b) && number(a) == number(b));
}

static int is_whole(const json_t *v)
{
    return json_is_wide(v) ? !strpbrk(json_string_value(v) + 1, ".eE")
                           : json_is_integer(v) || json_real_value(v) == floor(json_real_value(v));
}

static int has_type(const json_t *v, const char *type)
{
    static const char *const names[] = {
        "object", "array", "string", "number", "number", "boolean", "boolean", "null"
    };

    if (is_number(v))
        return strcmp(type, "number") == 0 || (strcmp(type, "integer") == 0 && is_whole(v));
    return strcmp(names[json_typeof(v)], type) == 0;
}

static int bounded(const json_t *flat, const char *least, const char *most, size_t n)
{
    const json_t *lo = json_object_get(flat, least), *hi = json_object_get(flat, most);

    return (!lo || (double)n >= number(lo)) && (!hi || (double)n <= number(hi));
}

static int number_ok(const json_t *flat, const json_t *v)
{
    const json_t *lo = json_object_get(flat, "minimum"), *above = json_object_get(flat, "exclusiveMinimum");
    const json_t *hi = json_object_get(flat, "maximum"), *below = json_object_get(flat, "exclusiveMaximum");
    const json_t *step = json_object_get(flat, "multipleOf");
    const double x = number(v);

    if ((lo && x < number(lo)) || (hi && x > number(hi)))
        return 0;
    if ((json_is_true(above) && lo && x == number(lo)) || (json_is_true(below) && hi && x == number(hi)))
        return 0;
    if ((is_number(above) && x <= number(above)) || (is_number(below) && x >= number(below)))
        return 0;
    const double n = step && number(step) > 0 ? x / number(step) : 0;
    return fabs(n - round(n)) < 1e-9;
}

static size_t characters(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

/* A keyword that cannot be looked at here. */
static int unseen(const schema_maker *m, int at, const json_t *flat, const char *const *list)
{
    for (; *list; list++)
        if (json_object_get(flat, *list))
            return schema_fail(m, at, *list, "not supported beside enum or const");
    return 1;
}

int schema_allows(const schema_maker *m, int at, const json_t *flat, const json_t *v)
{
    static const char *const texts[] = { "pattern", NULL };
    static const char *const groups[] = { "items",         "prefixItems",       "contains",    "properties",
                                          "required",      "patternProperties", "uniqueItems", "additionalProperties",
                                          "propertyNames", "dependentRequired", NULL };
    const json_t *types = json_object_get(flat, "type");
    json_t *t;
    size_t i;
    int ok = !types;

    json_array_foreach((json_t *)types, i, t) ok |= json_is_string(t) && has_type(v, json_string_value(t));
    if (!ok) /* of no type */
        return 0;
    if (is_number(v))
        return number_ok(flat, v);
    if (json_is_string(v))
        return bounded(flat, "minLength", "maxLength", characters(v)) ? unseen(m, at, flat, texts) : 0;
    if (json_is_array(v) && !bounded(flat, "minItems", "maxItems", json_array_size(v)))
        return 0;
    if (json_is_object(v) && !bounded(flat, "minProperties", "maxProperties", json_object_size(v)))
        return 0;
    return json_is_array(v) || json_is_object(v) ? unseen(m, at, flat, groups) : 1;
}

/* ---- few values ---- */

static int add_integers(json_t *all, const json_t *flat)
{
    const json_t *lo = json_object_get(flat, "minimum"), *hi = json_object_get(flat, "maximum");
    json_t *v;

    if (!json_is_integer(lo) || !json_is_integer(hi) || number(hi) - number(lo) > MOST_VALUES * 4)
        return 0;
    for (json_int_t i = json_integer_value(lo); i <= json_integer_value(hi); i++) {
        v = json_integer(i);
        if (number_ok(flat, v))
            json_array_append(all, v);
        json_decref(v);
    }
    return 1;
}

json_t *schema_values(schema_maker *m, int at, const json_t *flat)
{
    const json_t *list = json_object_get(flat, "enum"), *types = json_object_get(flat, "type");
    json_t *all = json_array(), *v;
    size_t i;
    int few = !json_object_get(flat, "anyOf") && (list || json_array_size(types));

    json_array_foreach((json_t *)list, i, v) if (few && schema_allows(m, at, flat, v) == 1)
    {
        size_t k = 0;
        while (k < json_array_size(all) && !schema_same(v, json_array_get(all, k)))
            k++;
        if (k == json_array_size(all))
            json_array_append(all, v);
    }
    json_array_foreach(list ? NULL : (json_t *)types, i, v)
    {
        const char *s = json_string_value(v);
        if (s && strcmp(s, "boolean") == 0) {
            json_array_append_new(all, json_false());
            json_array_append_new(all, json_true());
        } else if (s && strcmp(s, "null") == 0) {
            json_array_append_new(all, json_null());
        } else {
            few &= s && strcmp(s, "integer") == 0 && add_integers(all, flat);
        }
    }
    if (few && json_array_size(all) <= MOST_VALUES * 4 + 1 && schema_made(m, all) == KVANT_OK)
        return all;
    if (!few || json_array_size(all) > MOST_VALUES * 4 + 1)
        json_decref(all);
    return NULL;
}

/* ---- schemas that exclude each other ---- */

static int in_list(const json_t *list, const char *s)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) if (json_is_string(v) && strcmp(json_string_value(v), s) == 0) return 1;
    return 0;
}

static int types_apart(const json_t *a, const json_t *b)
{
    const json_t *s = json_object_get(a, "type"), *t = json_object_get(b, "type");
    size_t i;
    json_t *v;

    if (!s || !t)
        return 0;
    json_array_foreach((json_t *)s, i, v)
    {
        const char *name = json_string_value(v);
        if (!name || in_list(t, name) || (strcmp(name, "integer") == 0 && in_list(t, "number")) ||
            (strcmp(name, "number") == 0 && in_list(t, "integer")))
            return 0;
    }
    return 1;
}

static int values_apart(const schema_maker *m, int at, const json_t *a, const json_t *b)
{
    const json_t *s = json_object_get(a, "enum"), *t = json_object_get(b, "enum");
    size_t i, k;
    json_t *v;

    (void)m;
    (void)at;
    if (!s || !t)
        return 0;
    json_array_foreach((json_t *)s, i, v) for (k = 0; k < json_array_size(t);
                                               k++) if (schema_same(v, json_array_get(t, k))) return 0;
    return 1;
}

static int ranges_apart(const json_t *a, const json_t *b)
{
    const json_t *hi = json_object_get(a, "maximum"), *lo = json_object_get(b, "minimum");
    const json_t *most = json_object_get(a, "maxLength"), *least = json_object_get(b, "minLength");
    const json_t *n = json_object_get(a, "maxItems"), *k = json_object_get(b, "minItems");

    return (is_number(hi) && is_number(lo) && number(hi) < number(lo)) ||
           (is_number(most) && is_number(least) && number(most) < number(least)) ||
           (is_number(n) && is_number(k) && number(n) < number(k));
}

/* A member that both have to have, and whose values differ. */
static int members_apart(schema_maker *m, int at, const json_t *a, const json_t *b)
{
    const json_t *p = json_object_get(a, "properties"), *q = json_object_get(b, "properties");
    const char *name;
    json_t *v, *x, *y;

    json_object_foreach((json_t *)p, name, v)
    {
        json_t *w = json_object_get(q, name);
        if (!w || !in_list(json_object_get(a, "required"), name) || !json_is_object(v) || !json_is_object(w))
            continue;
        if (schema_flatten(m, at, v, &x) != KVANT_OK || schema_flatten(m, at, w, &y) != KVANT_OK)
            continue;
        if (types_apart(x, y) || values_apart(m, at, x, y) || ranges_apart(x, y) || ranges_apart(y, x))
            return 1;
    }
    return 0;
}

/* Returns 1 if no text written for a, whose names are all declared, is valid against b. */
static int excludes(schema_maker *m, int at, const json_t *a, const json_t *b)
{
    const json_t *own = json_object_get(a, "properties"), *needed = json_object_get(b, "required");
    json_t *v;
    size_t i;

    if (types_apart(a, b) || values_apart(m, at, a, b) || ranges_apart(a, b) || ranges_apart(b, a))
        return 1;
    if (!own || !in_list(json_object_get(a, "type"), "object") || json_array_size(json_object_get(a, "type")) != 1)
        return 0;
    json_array_foreach((json_t *)needed, i,
                       v) if (json_is_string(v) && !json_object_get(own, json_string_value(v)) &&
                              !in_list(json_object_get(a, "required"), json_string_value(v))) return 1;
    needed = json_object_get(a, "required");
    json_array_foreach((json_t *)needed, i,
                       v) if (json_is_string(v) && json_is_false(json_object_get(b, "additionalProperties")) &&
                              !json_object_get(json_object_get(b, "properties"), json_string_value(v))) return 1;
    return members_apart(m, at, a, b);
}

static int check_apart(schema_maker *m, int at, const json_t *list)
{
    const size_t n = json_array_size(list);
    json_t *flat[MOST_ONE_OF] = { 0 };

    if (n > MOST_ONE_OF)
        return schema_fail(m, at, "oneOf", "more than 64 schemas: want anyOf");
    for (size_t i = 0; i < n; i++)
        if (json_is_object(json_array_get(list, i)))
            KVANT_TRY(schema_flatten(m, at, json_array_get(list, i), &flat[i]));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (i != k && flat[i] && flat[k] && !excludes(m, at, flat[i], flat[k]))
                return schema_fail(m, at, "oneOf",
                                   "a value may hold for two of its schemas: want anyOf, or a member "
                                   "whose constant tells them apart");
    return KVANT_OK;
}

/* oneOf within one of them is looked at when its turn comes. */
int schema_check_apart(schema_maker *m, int at, const json_t *list)
{
    m->apart = 1;
    const int code = check_apart(m, at, list);
    m->apart = 0;
    return code;
}
