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

/* What follows n items: more of `items`, so that least..most come out in all. */
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

int schema_put_array(schema_maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema, *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    int least, most, n = 0;

    KVANT_TRY(schema_count(m, at, "minItems", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxItems", -1, &most));
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        return schema_fail(m, at, "uniqueItems", "not supported");
    if (!prefix && json_is_array(items)) { /* draft 7's way to write prefixItems */
        prefix = items;
        items = NULL;
    }
    if (prefix && (!json_is_array(prefix) || json_array_size(prefix) > GRAMMAR_MAX_REPEAT))
        return schema_fail(m, at, "prefixItems", "wanted an array of at most 4096 schemas");
    if (most >= 0 && (most < least || most < (int)json_array_size(prefix)))
        return schema_fail(m, at, "maxItems", "below minItems or the number of prefixItems");
    sbuf_puts(&m->out, "\"[\" ws ");
    if (prefix)
        KVANT_TRY(put_prefix(m, at, prefix, &n));
    if (json_is_false(items) && least > n)
        return schema_fail(m, at, "minItems", "more than items allows");
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

static int collect_members(const schema_maker *m, int at, member *list, int *n)
{
    const json_t *schema = m->jobs[at].schema, *required = json_object_get(schema, "required"), *name;
    const json_t *more = json_object_get(schema, "additionalProperties"),
                 *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    size_t i;

    if (properties && !json_is_object(properties))
        return schema_fail(m, at, "properties", "wanted an object");
    if (required && !json_is_array(required))
        return schema_fail(m, at, "required", "wanted an array of names");
    if (json_object_size(properties) + json_array_size(required) > MAX_PROPERTIES)
        return schema_fail(m, at, "properties", "more than 1024");
    json_object_foreach((json_t *)properties, key, value) list[(*n)++] = (member){ key, value, 0 };
    json_array_foreach((json_t *)required, i, name)
    {
        int k = 0;
        if (!json_is_string(name))
            return schema_fail(m, at, "required", "wanted an array of names");
        while (k < *n && strcmp(list[k].name, json_string_value(name)) != 0)
            k++;
        if (k == *n) {
            if (json_is_false(more))
                return schema_fail(m, at, "required", "a name that additionalProperties forbids");
            list[(*n)++] = (member){ json_string_value(name), json_is_object(more) ? more : NULL, 0 };
        }
        list[k].required = 1;
    }
    return KVANT_OK;
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

static int put_map(schema_maker *m, int at)
{
    const json_t *more = json_object_get(m->jobs[at].schema, "additionalProperties");
    int rule;

    if (json_is_false(more)) {
        sbuf_puts(&m->out, "\"{\" ws \"}\"");
    } else if (json_is_object(more)) {
        KVANT_TRY(schema_rule(m, more, at, "additionalProperties", &rule));
        sbuf_printf(&m->out, "\"{\" ws (string ws \":\" ws s%d ws (\",\" ws string ws \":\" ws s%d ws)*)? \"}\"", rule,
                    rule);
    } else {
        sbuf_puts(&m->out, "object");
    }
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
