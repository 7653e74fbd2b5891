/* tool_set.c: see tool_set.h. */
#include "server/tools/tool_set.h"

#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/tools/dialect.h"
#include "server/tools/tool_json.h"
#include "server/tools/tool_schema.h"

static int name_ok(const char *s)
{
    size_t n = 0;

    while (s[n] && dialect_name_char(s[n]))
        n++;
    return !s[n] && n >= 1 && n <= TOOL_NAME_MOST;
}

/* One that only additionalProperties describes is a parameter too. */
static void name_required(tool *t)
{
    const json_t *others = schema_others(t->parameters);
    size_t i;
    json_t *name;

    json_array_foreach(t->required, i, name)
        if (others && json_is_string(name) && !json_object_get(t->properties, json_string_value(name)))
            json_object_set(t->properties, json_string_value(name), (json_t *)others);
}

static int read_one(const json_t *v, size_t i, tool *t, kvant_diag *diag)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *f = json_object_get(v, "function"), *strict = json_object_get(f, "strict");

    if (!type || strcmp(type, "function") != 0)
        return kvant_fail(diag, KVANT_EINVAL, "item %zu: type: %.40s, want function", i, type ? type : "missing");
    t->name = json_string_value(json_object_get(f, "name"));
    t->parameters = json_object_get(f, "parameters");
    if (json_is_null(t->parameters))
        t->parameters = NULL;
    t->strict = json_is_true(strict);
    if (!t->name || !name_ok(t->name))
        return kvant_fail(diag, KVANT_EINVAL,
                          "item %zu: function.name: %.80s, want 1 to %d letters, digits, _ - . or /", i,
                          t->name ? t->name : "missing", TOOL_NAME_MOST);
    if (t->parameters && !json_is_object(t->parameters))
        return kvant_fail(diag, KVANT_EINVAL, "item %zu: function.parameters: want an object (a JSON schema)", i);
    if (strict && !json_is_boolean(strict) && !json_is_null(strict))
        return kvant_fail(diag, KVANT_EINVAL, "item %zu: function.strict: want true or false", i);
    t->properties = json_object();
    t->required = json_array();
    if (!t->properties || !t->required)
        return kvant_fail(diag, KVANT_ENOMEM, "out of memory");
    schema_properties(t->parameters, t->properties, t->required);
    name_required(t);
    return KVANT_OK;
}

int tool_set_read(const json_t *list, tool_set **out, kvant_diag *diag)
{
    const size_t n = json_array_size(list);
    tool_set *s;

    if (n < 1 || n > TOOLS_MOST)
        return kvant_fail(diag, KVANT_EINVAL, "%zu items, want 1 to %d", n, TOOLS_MOST);
    s = kvant_calloc(1, sizeof *s + n * sizeof s->tools[0]);
    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "out of memory");
    s->list = json_incref((json_t *)list);
    for (size_t i = 0; i < n; i++) {
        int code = read_one(json_array_get(list, i), i, &s->tools[i], diag);
        if (code == KVANT_OK && tool_set_find(s, s->tools[i].name, strlen(s->tools[i].name)) >= 0)
            code = kvant_fail(diag, KVANT_EINVAL, "item %zu: function.name: %.80s is there twice", i, s->tools[i].name);
        if (code != KVANT_OK) {
            s->n++;
            tool_set_free(s);
            return code;
        }
        s->n++;
    }
    *out = s;
    return KVANT_OK;
}

void tool_set_free(tool_set *s)
{
    for (int i = 0; s && i < s->n; i++) {
        json_decref(s->tools[i].properties);
        json_decref(s->tools[i].required);
    }
    if (s)
        json_decref(s->list);
    kvant_free(s);
}

int tool_set_find(const tool_set *s, const char *name, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (strlen(s->tools[i].name) == n && memcmp(s->tools[i].name, name, n) == 0)
            return i;
    return -1;
}

int tool_has_required(const tool *t, const json_t *arguments)
{
    size_t i;
    json_t *name;

    json_array_foreach(t->required, i, name)
        if (json_is_string(name) && !json_object_get(arguments, json_string_value(name)))
            return 0;
    return 1;
}

const json_t *tool_param(const tool *t, const char *name, size_t n)
{
    char key[PARAM_NAME_MOST + 1];

    if (n > PARAM_NAME_MOST)
        return NULL;
    memcpy(key, name, n);
    key[n] = 0;
    const json_t *schema = json_object_get(t->properties, key);
    return schema ? schema : schema_others(t->parameters);
}

int tool_param_is_text(const tool *t, const char *name, size_t n)
{
    const json_t *schema = tool_param(t, name, n);

    return schema && schema_accepts(schema, t->parameters) == ACCEPTS_TEXT;
}

int tool_param_value(const tool *t, const char *name, size_t name_n, const char *s, size_t n, sbuf *out)
{
    const json_t *schema = tool_param(t, name, name_n);
    const unsigned types = schema ? schema_accepts(schema, t->parameters) : ACCEPTS_ANY;
    json_t *v = NULL;

    if (!(types & ACCEPTS_TEXT))
        return tool_json_normal(s, n, out);
    if (types != ACCEPTS_TEXT)
        v = json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!v || json_is_string(v) || (schema && !schema_takes(schema, t->parameters, v))) {
        json_decref(v);
        v = json_stringn(s, n);
        if (v)
            tool_json_put(v, out);
    } else {
        tool_json_normal(s, n, out);
    }
    const int ok = v != NULL;
    json_decref(v);
    return ok;
}
