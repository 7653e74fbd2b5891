/* schema_groups.c: arrays and objects of a JSON schema as rules of a grammar. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_schema.h"

enum { MAX_PROPERTIES = 1024 };

/* ---- arrays ---- */

static int put_prefix(schema_maker *m, int at, const json_t *prefix, int *n)
{
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)prefix, i, item)
    {
        char key[40];
        snprintf(key, sizeof key, "prefixItems/%zu", i);
        if (i)
            sbuf_puts(&m->out, "\",\" ws ");
        KVANT_TRY(schema_put_child(m, at, item, key));
        sbuf_puts(&m->out, " ws ");
    }
    *n = (int)json_array_size(prefix);
    return KVANT_OK;
}

/* Puts more of `items` behind the first n, so that least..most come out in all. */
static int put_more(schema_maker *m, int at, const json_t *items, int n, int least, int most)
{
    int rule = -1, low = least > n ? least - n : 0, high = most < 0 ? -1 : most - n;
    char bounds[48];

    if (items)
        KVANT_TRY(schema_rule(m, items, at, "items", &rule));
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

/* Puts few values each at most once, in the schema's order: rule u<i>-<n> stands before value i when n have come. */
static int put_set(schema_maker *m, int at, const json_t *values, int least, int most, sbuf *later)
{
    const int n = (int)json_array_size(values);
    sbuf line = m->out;

    most = most < 0 || most > n ? n : most;
    if (least > n)
        return schema_fail(m, at, "minItems", "more than there are different items");
    sbuf_printf(&m->out, "\"[\" ws s%d-u0-0 \"]\"", at);
    line = m->out;
    m->out = *later;
    for (int i = 0; i <= n; i++)
        for (int c = 0; c <= i && c <= most && !m->out.error; c++) {
            if (c + (n - i) < least)
                continue;
            sbuf_printf(&m->out, "s%d-u%d-%d ::= ", at, i, c);
            if (i == n || c == most) {
                sbuf_puts(&m->out, "\"\"\n");
                continue;
            }
            sbuf_puts(&m->out, c ? "\",\" ws " : "");
            KVANT_TRY(schema_put_json(m, json_array_get(values, (size_t)i)));
            sbuf_printf(&m->out, " ws s%d-u%d-%d", at, i + 1, c + 1);
            if (c + (n - i - 1) >= least)
                sbuf_printf(&m->out, " | s%d-u%d-%d", at, i + 1, c);
            sbuf_puts(&m->out, "\n");
        }
    *later = m->out;
    m->out = line;
    return KVANT_OK;
}

/* items that come first because `contains` wants so many. */
static int contained(schema_maker *m, int at, json_t **prefix, const json_t *items)
{
    const json_t *schema = m->jobs[at].schema, *what = json_object_get(schema, "contains");
    json_t *list = json_array();
    int least;

    KVANT_TRY(schema_made(m, list));
    KVANT_TRY(schema_count(m, at, "minContains", 1, &least));
    for (int i = 0; i < least; i++) {
        const json_t *own = (size_t)i < json_array_size(*prefix) ? json_array_get(*prefix, (size_t)i) : items;
        json_array_append_new(list, own ? json_pack("{s:[O,O]}", "allOf", what, own) : json_incref((json_t *)what));
    }
    for (size_t i = (size_t)least; i < json_array_size(*prefix); i++)
        json_array_append(list, json_array_get(*prefix, i));
    *prefix = list;
    return KVANT_OK;
}

static int put_unique(schema_maker *m, int at, const json_t *items, int least, int most, sbuf *later, int *done)
{
    json_t *flat;

    *done = 0;
    if (!json_is_object(items))
        return KVANT_OK;
    KVANT_TRY(schema_flatten(m, at, items, &flat));
    const json_t *values = schema_values(m, at, flat);
    if (!values)
        return KVANT_OK;
    *done = 1;
    return put_set(m, at, values, least, most, later);
}

int schema_put_array(schema_maker *m, int at, sbuf *later)
{
    const json_t *schema = m->jobs[at].schema, *items = json_object_get(schema, "items");
    json_t *prefix = json_object_get(schema, "prefixItems");
    int least, most, n = 0, done;

    KVANT_TRY(schema_count(m, at, "minItems", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxItems", -1, &most));
    if (!prefix && json_is_array(items)) { /* draft 7's way to write prefixItems */
        prefix = (json_t *)items;
        items = json_object_get(schema, "additionalItems");
    }
    if (prefix && (!json_is_array(prefix) || json_array_size(prefix) > GRAMMAR_MAX_REPEAT))
        return schema_fail(m, at, "prefixItems", "wanted an array of at most 4096 schemas");
    if (json_is_true(json_object_get(schema, "uniqueItems")) && !prefix) {
        KVANT_TRY(put_unique(m, at, items, least, most, later, &done));
        if (done)
            return KVANT_OK;
    }
    if (json_object_get(schema, "contains"))
        KVANT_TRY(contained(m, at, &prefix, items));
    /* maxItems below the list of prefixItems cuts it; items are not needed where they do not come */
    if (most >= 0 && most < least)
        return schema_fail(m, at, "maxItems", "below minItems");
    if (prefix && most >= 0 && most < (int)json_array_size(prefix))
        return schema_fail(m, at, "maxItems", "below the number of prefixItems");
    sbuf_puts(&m->out, "\"[\" ws ");
    if (prefix)
        KVANT_TRY(put_prefix(m, at, prefix, &n));
    if (json_is_false(items) && least > n)
        return schema_fail(m, at, "minItems", "more than items allows");
    if (!json_is_false(items) && (items || !prefix || least > n || json_object_get(schema, "contains")))
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

static int find_member(const member *list, int n, const char *name)
{
    int k = 0;

    while (k < n && strcmp(list[k].name, name) != 0)
        k++;
    return k;
}

static int add_required(const schema_maker *m, int at, const json_t *required, member *list, int *n)
{
    const json_t *more = json_object_get(m->jobs[at].schema, "additionalProperties"), *name;
    size_t i;

    json_array_foreach((json_t *)required, i, name)
    {
        if (!json_is_string(name))
            return schema_fail(m, at, "required", "wanted an array of names");
        const int k = find_member(list, *n, json_string_value(name));
        if (k == *n) {
            if (json_is_false(more))
                return schema_fail(m, at, "required", "a name that additionalProperties forbids");
            if (*n == MAX_PROPERTIES)
                return schema_fail(m, at, "required", "more than 1024");
            list[(*n)++] = (member){ json_string_value(name), json_is_object(more) ? more : NULL, 0 };
        }
        list[k].required = 1;
    }
    return KVANT_OK;
}

/* Narrower than the standard: a member's dependents are always there. */
static int add_dependents(const schema_maker *m, int at, member *list, int *n)
{
    const json_t *all = json_object_get(m->jobs[at].schema, "dependentRequired");
    const char *name;
    json_t *names;

    json_object_foreach((json_t *)all, name, names) if (find_member(list, *n, name) < *n)
        KVANT_TRY(add_required(m, at, names, list, n));
    return KVANT_OK;
}

/* Those that may not be there go: false as a schema, a name that propertyNames forbids. */
static int drop_forbidden(schema_maker *m, int at, member *list, int *n)
{
    const json_t *names = json_object_get(m->jobs[at].schema, "propertyNames");
    json_t *flat = NULL;
    int kept = 0;

    if (json_is_object(names))
        KVANT_TRY(schema_flatten(m, at, names, &flat));
    for (int i = 0; i < *n; i++) {
        json_t *name = json_string(list[i].name);
        int ok = !(list[i].schema && json_is_false(list[i].schema)) && !json_is_false(names);
        if (ok && flat && json_object_get(flat, "anyOf"))
            ok = schema_fail(m, at, "propertyNames", "not supported beside properties");
        else if (ok && flat && json_object_get(flat, "enum"))
            for (size_t k = ok = 0; k < json_array_size(json_object_get(flat, "enum")); k++)
                ok |= schema_same(json_array_get(json_object_get(flat, "enum"), k), name);
        else if (ok && flat)
            ok = schema_allows(m, at, flat, name);
        json_decref(name);
        if (ok < 0)
            return ok;
        if (!ok && list[i].required)
            return schema_fail(m, at, "required", "a name that may not be there");
        if (ok)
            list[kept++] = list[i];
    }
    *n = kept;
    return KVANT_OK;
}

/* So many members: the first ones are required, or the last ones left out. */
static int limit_members(const schema_maker *m, int at, member *list, int *n)
{
    int least, most, needed = 0;

    KVANT_TRY(schema_count(m, at, "minProperties", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxProperties", -1, &most));
    for (int i = 0; i < *n; i++)
        needed += list[i].required;
    if (least > *n || (most >= 0 && (most < needed || most < least)))
        return schema_fail(m, at, least > *n ? "minProperties" : "maxProperties", "not with these properties");
    for (int i = 0; i < *n && needed < least; i++) {
        needed += !list[i].required;
        list[i].required = 1;
    }
    for (int i = *n - 1; i >= 0 && most >= 0 && *n > most; i--)
        if (!list[i].required)
            memmove(list + i, list + i + 1, (size_t)(--*n - i) * sizeof *list);
    return KVANT_OK;
}

static int collect_members(schema_maker *m, int at, member *list, int *n)
{
    const json_t *schema = m->jobs[at].schema, *required = json_object_get(schema, "required");
    const json_t *properties = json_object_get(schema, "properties"),
                 *patterns = json_object_get(schema, "patternProperties");
    const char *key;
    json_t *value;

    if (properties && !json_is_object(properties))
        return schema_fail(m, at, "properties", "wanted an object");
    if (required && !json_is_array(required))
        return schema_fail(m, at, "required", "wanted an array of names");
    if (json_object_size(properties) + json_array_size(required) > MAX_PROPERTIES)
        return schema_fail(m, at, "properties", "more than 1024");
    json_object_foreach((json_t *)properties, key, value) list[(*n)++] = (member){ key, value, 0 };
    KVANT_TRY(add_required(m, at, required, list, n));
    KVANT_TRY(add_dependents(m, at, list, n));
    KVANT_TRY(drop_forbidden(m, at, list, n));
    if (*n && json_object_size(patterns))
        return schema_fail(m, at, "patternProperties", "not supported beside properties");
    return *n ? limit_members(m, at, list, n) : KVANT_OK;
}

static int put_member_rule(schema_maker *m, int at, int i, const member *x)
{
    json_t *name = json_string(x->name);
    char key[64];

    if (!name)
        return kvant_fail(m->diag, KVANT_ENOMEM, "schema: out of memory");
    sbuf_printf(&m->out, "s%d-k%d ::= ", at, i);
    int code = schema_put_json(m, name);
    json_decref(name);
    KVANT_TRY(code);
    sbuf_puts(&m->out, " ws \":\" ws ");
    snprintf(key, sizeof key, "properties/%.40s", x->name);
    if (x->schema)
        KVANT_TRY(schema_put_child(m, at, x->schema, key));
    else
        sbuf_puts(&m->out, "value");
    sbuf_puts(&m->out, " ws\n");
    return KVANT_OK;
}

/* Rules a<i> (nothing written yet) and b<i> (a comma is due) choose what of members i.. comes out. */
static int put_members(schema_maker *m, int at, const member *list, int n)
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

/* How a map's keys are written: any text, what propertyNames says, or the one pattern. */
static int put_key(schema_maker *m, int at, const char *pattern)
{
    const json_t *names = json_object_get(m->jobs[at].schema, "propertyNames");
    json_t *key = NULL;
    const json_t *text = json_is_object(names) ? names : NULL;

    if (text && pattern)
        key = json_pack("{s:s,s:s,s:[O]}", "type", "string", "pattern", pattern, "allOf", text);
    else if (text)
        key = json_pack("{s:s,s:[O]}", "type", "string", "allOf", text);
    else if (pattern)
        key = json_pack("{s:s,s:s}", "type", "string", "pattern", pattern);
    if (!key) {
        sbuf_puts(&m->out, "string");
        return KVANT_OK;
    }
    KVANT_TRY(schema_made(m, key));
    return schema_put_child(m, at, key, "propertyNames");
}

/* An object whose names are not told. */
static int put_map(schema_maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema, *more = json_object_get(schema, "additionalProperties");
    const json_t *patterns = json_object_get(schema, "patternProperties"),
                 *names = json_object_get(schema, "propertyNames");
    const char *pattern = json_object_iter_key(json_object_iter((json_t *)patterns));
    int least, most, rule = -1;

    KVANT_TRY(schema_count(m, at, "minProperties", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxProperties", -1, &most));
    if (json_object_size(patterns) > 1)
        return schema_fail(m, at, "patternProperties", "more than one pattern");
    if (pattern)
        more = json_object_get(patterns, pattern);
    const int none = json_is_false(more) || json_is_false(names) || most == 0 ||
                     (!pattern && !more && json_object_get(schema, "properties"));
    if (none) {
        sbuf_puts(&m->out, "\"{\" ws \"}\"");
        return least ? schema_fail(m, at, "minProperties", "no name is allowed") : KVANT_OK;
    }
    if (most >= 0 && most < least)
        return schema_fail(m, at, "maxProperties", "below minProperties");
    if (!json_is_object(more) && !json_is_object(names) && !pattern && !least && most < 0) {
        sbuf_puts(&m->out, "object");
        return KVANT_OK;
    }
    if (json_is_object(more))
        KVANT_TRY(schema_rule(m, more, at, "additionalProperties", &rule));
    sbuf_puts(&m->out, least ? "\"{\" ws " : "\"{\" ws (");
    for (int again = 0; again < 2; again++) {
        sbuf_puts(&m->out, again ? "(\",\" ws " : "");
        KVANT_TRY(put_key(m, at, pattern));
        sbuf_puts(&m->out, " ws \":\" ws ");
        if (rule < 0)
            sbuf_puts(&m->out, "value ws ");
        else
            sbuf_printf(&m->out, "s%d ws ", rule);
    }
    sbuf_printf(&m->out, most < 0 ? "){%d,}" : "){%d,%d}", least ? least - 1 : 0, most - 1);
    sbuf_puts(&m->out, least ? " \"}\"" : ")? \"}\"");
    return KVANT_OK;
}

/* The members' rules are written behind the rule that refers to them, into `later`. */
int schema_put_object(schema_maker *m, int at, sbuf *later)
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
