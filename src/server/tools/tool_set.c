/* tool_set.c: see tool_set.h. */
#include "server/tools/tool_set.h"

#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/tools/dialect.h"

static int name_ok(const char *s)
{
    size_t n = 0;

    while (s[n] && dialect_name_char(s[n]))
        n++;
    return !s[n] && n >= 1 && n <= TOOL_NAME_MOST;
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

const json_t *tool_param_values(const json_t *schema)
{
    return json_object_get(schema, "enum");
}

int tool_schema_is_text(const json_t *schema)
{
    static const char *const words[] = { "const", "pattern", "format", "minLength", "maxLength", "$ref",
                                         "anyOf", "oneOf",   "allOf",  "not",       "if" };
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *values = tool_param_values(schema);
    size_t i;
    json_t *v;

    if (!type || strcmp(type, "string") != 0 || (values && json_array_size(values) == 0))
        return 0;
    for (i = 0; i < sizeof words / sizeof words[0]; i++)
        if (json_object_get(schema, words[i]))
            return 0;
    json_array_foreach((json_t *)values, i, v)
    {
        const char *s = json_string_value(v);
        if (!s || strpbrk(s, "<>|\n\r\t"))
            return 0;
    }
    return 1;
}

int tool_param_is_text(const tool *t, const char *name, size_t n)
{
    char key[TOOL_NAME_MOST + 1];

    if (n > TOOL_NAME_MOST)
        return 0;
    memcpy(key, name, n);
    key[n] = 0;
    return tool_schema_is_text(json_object_get(json_object_get(t->parameters, "properties"), key));
}
