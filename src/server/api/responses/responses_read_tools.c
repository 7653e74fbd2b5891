/* responses_read_tools.c: the tools of /v1/responses as those of a chat.  Functions pass; those of a namespace get
 * its name before theirs; a custom tool, whose input is a text, becomes a function with that text as its only
 * argument; those that their provider runs are left out (the table of fields names them in the answer).  The names
 * that the model sees are kept with what they stand for, so that the answer tells calls in the client's words. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <string.h>
#include "base/sha256.h"

static const char *text_of(const json_t *o, const char *key)
{
    return body_text(json_object_get(o, key));
}

static int is(const json_t *o, const char *key, const char *word)
{
    const char *s = text_of(o, key);

    return s && strcmp(s, word) == 0;
}

/* "SPACE__NAME"; the end of what is too long gives way to digits of its hash. */
static void flat_name(const char *space, const char *name, char out[TOOL_NAME_MOST + 1])
{
    const size_t n = space ? strlen(space) : 0;
    const int joined = n == 0 || space[n - 1] == '.' || (n > 1 && strcmp(space + n - 2, "__") == 0);
    char all[512];
    unsigned char hash[32];

    const int k = snprintf(all, sizeof all, "%.240s%s%.240s", space ? space : "", joined ? "" : "__", name);
    if (k <= TOOL_NAME_MOST) {
        snprintf(out, TOOL_NAME_MOST + 1, "%.64s", all);
        return;
    }
    sha256(all, (size_t)k, hash);
    snprintf(out, TOOL_NAME_MOST + 1, "%.55s_%02x%02x%02x%02x", all, hash[0], hash[1], hash[2], hash[3]);
}

json_t *agents_flat_name(const json_t *item)
{
    char flat[TOOL_NAME_MOST + 1];
    const char *space = text_of(item, "namespace"), *name = text_of(item, "name");

    if (!space || !space[0])
        return json_incref(json_object_get(item, "name"));
    flat_name(space, name, flat);
    return json_string(flat);
}

/* {"type": "custom"} -> the function that the model sees. */
static json_t *function_of_custom(const json_t *t)
{
    const json_t *format = body_field(t, "format");
    const char *about = text_of(t, "description"), *definition = text_of(format, "definition");
    json_t *text = json_sprintf("%s%s%s", about ? about : "", definition ? "\nThe input follows this grammar:\n" : "",
                                definition ? definition : "");

    return json_pack("{s:O,s:o,s:{s:s,s:{s:{s:s}},s:[s],s:b}}", "name", json_object_get(t, "name"), "description", text,
                     "parameters", "type", "object", "properties", "input", "type", "string", "required", "input",
                     "additionalProperties", 0);
}

static json_t *function_of(const json_t *t)
{
    json_t *f = is(t, "type", "custom") ? function_of_custom(t) : json_copy((json_t *)t);

    json_object_del(f, "type");
    return f;
}

/* One function or custom tool, of a namespace or of none, into the list and the names. */
static int put_tool(const json_t *t, size_t i, const char *space, json_t *list, json_t *names, api_error *e)
{
    const char *name = text_of(t, "name");
    char flat[TOOL_NAME_MOST + 1];
    const int custom = is(t, "type", "custom");

    if (!name || !name[0])
        return api_fail(e, BAD, "tools", "tools: item %zu: name: missing", i);
    if (!space && !custom)
        return json_array_append_new(list, json_pack("{s:s,s:o}", "type", "function", "function", function_of(t))) == 0
                   ? API_OK
                   : api_no_memory(e);
    flat_name(space, name, flat);
    json_t *f = function_of(t), *told = json_pack("{s:s,s:b}", "name", name, "custom", custom);
    if (space)
        json_object_set_new(told, "namespace", json_string(space));
    json_object_set_new(f, "name", json_string(flat));
    const int failed = json_object_set_new(names, flat, told) != 0;
    return json_array_append_new(list, json_pack("{s:s,s:o}", "type", "function", "function", f)) == 0 && !failed
               ? API_OK
               : api_no_memory(e);
}

static int put_space(const json_t *t, size_t i, json_t *list, json_t *names, api_error *e)
{
    const char *space = text_of(t, "name");
    const json_t *tools = json_object_get(t, "tools");
    json_t *inner;
    size_t k;

    if (!space || !space[0] || !json_is_array(tools))
        return api_fail(e, BAD, "tools", "tools: item %zu: namespace: wanted a name and a list of tools", i);
    json_array_foreach((json_t *)tools, k, inner)
    {
        if (!is(inner, "type", "function") && !is(inner, "type", "custom"))
            return api_fail(e, API_UNSUPPORTED, "tools",
                            "tools: item %zu: namespace: tool %zu: type %.40s is not supported, want function or custom",
                            i, k, text_of(inner, "type") ? text_of(inner, "type") : "(none)");
        API_TRY(put_tool(inner, i, space, list, names, e));
    }
    return API_OK;
}

int agents_tools(const json_t *o, json_t *out, json_t *names, api_error *e)
{
    const json_t *tools = body_field(o, "tools");
    json_t *list, *t;
    size_t i;

    if (tools && !json_is_array(tools))
        return body_wrong(e, "tools", tools, "tools: wanted an array");
    if (!json_array_size(tools))
        return API_OK;
    if (json_object_set_new(out, "tools", list = json_array()) != 0)
        return api_no_memory(e);
    json_array_foreach((json_t *)tools, i, t)
    {
        if (!text_of(t, "type"))
            return api_fail(e, BAD, "tools", "tools: item %zu: type: missing", i);
        if (is(t, "type", "function") || is(t, "type", "custom"))
            API_TRY(put_tool(t, i, NULL, list, names, e));
        else if (is(t, "type", "namespace"))
            API_TRY(put_space(t, i, list, names, e));
    }
    return API_OK;
}

/* ---- which of them may be called ---- */

static json_t *named(const json_t *item)
{
    return json_pack("{s:s,s:{s:o}}", "type", "function", "function", "name", agents_flat_name(item));
}

/* {"type": "allowed_tools", "mode", "tools"}: of the tools those that a client has here. */
static int put_allowed(const json_t *choice, json_t *out, api_error *e)
{
    const json_t *tools = json_object_get(choice, "tools");
    json_t *list = json_array(), *t;
    size_t i;

    json_array_foreach((json_t *)tools, i, t)
    {
        if (!text_of(t, "name") || (!is(t, "type", "function") && !is(t, "type", "custom")))
            continue;
        if (json_array_append_new(list, named(t)) != 0)
            break;
    }
    json_t *mode = json_object_get(choice, "mode");
    return json_object_set_new(out, "tool_choice",
                               json_pack("{s:s,s:{s:O?,s:o}}", "type", "allowed_tools", "allowed_tools", "mode", mode,
                                         "tools", list)) == 0
               ? API_OK
               : api_no_memory(e);
}

int agents_choice(const json_t *o, json_t *out, api_error *e)
{
    json_t *choice = (json_t *)body_field(o, "tool_choice");

    if (!json_is_object(choice))
        return !choice || json_object_set(out, "tool_choice", choice) == 0 ? API_OK : api_no_memory(e);
    if (is(choice, "type", "allowed_tools"))
        return put_allowed(choice, out, e);
    if (!is(choice, "type", "function") && !is(choice, "type", "custom"))
        return api_fail(e, BAD, "tool_choice",
                        "tool_choice: wanted none, auto, required, or an object of type function, custom or "
                        "allowed_tools");
    if (!text_of(choice, "name"))
        return api_fail(e, BAD, "tool_choice", "tool_choice: name: missing");
    return json_object_set_new(out, "tool_choice", named(choice)) == 0 ? API_OK : api_no_memory(e);
}
