/* tool_generic.c: see tool_generic.h. */
#include "server/tools/tool_generic.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "server/tools/tool_json.h"

static const char head[] =
    "You can call functions to answer the user. They are described here, each as a JSON schema:\n<tools>\n";
static const char foot[] =
    "</tools>\n\nTo call a function, write a JSON object with its name and its arguments between <tool_call> and "
    "</tool_call>, one for each call, and nothing behind them:\n<tool_call>\n"
    "{\"name\": \"FUNCTION\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n</tool_call>\n"
    "You get each result between <tool_response> and </tool_response>. Where no function helps, answer in words.";

static const char *text_of(const json_t *m, const char *key)
{
    const char *s = json_string_value(json_object_get(m, key));

    return s ? s : "";
}

static int is_role(const json_t *m, const char *role)
{
    return strcmp(text_of(m, "role"), role) == 0;
}

static void set_content(json_t *m, sbuf *text)
{
    if (text->error || json_object_set_new(m, "content", json_stringn(sbuf_text(text), text->n)) != 0)
        text->error = 1;
}

/* ---- calls and results ---- */

static void put_call(const json_t *call, sbuf *out)
{
    const json_t *f = json_object_get(call, "function"), *arguments = json_object_get(f, "arguments");
    json_t *name = json_string(text_of(f, "name"));

    sbuf_puts(out, out->n ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
    tool_json_put(name, out);
    sbuf_puts(out, ", \"arguments\": ");
    if (json_is_string(arguments))
        sbuf_puts(out, json_string_value(arguments));
    else if (arguments)
        tool_json_put(arguments, out);
    else
        sbuf_puts(out, "{}");
    sbuf_puts(out, "}\n</tool_call>");
    json_decref(name);
}

static int calls_as_text(json_t *m)
{
    sbuf text = { 0 };
    size_t i;
    json_t *call;

    sbuf_puts(&text, text_of(m, "content"));
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) put_call(call, &text);
    set_content(m, &text);
    json_object_del(m, "tool_calls");
    sbuf_free(&text);
    return text.error ? KVANT_ENOMEM : KVANT_OK;
}

/* A user's message of the results from item i on, and of what the user says next: templates want the user and the
 * assistant in turn. */
static int results_as_text(json_t *list, size_t i)
{
    json_t *m = json_array_get(list, i), *next;
    sbuf text = { 0 };

    for (next = m; next && is_role(next, "tool"); next = json_array_get(list, i + 1)) {
        sbuf_puts(&text, text.n ? "\n<tool_response>\n" : "<tool_response>\n");
        sbuf_puts(&text, text_of(next, "content"));
        sbuf_puts(&text, "\n</tool_response>");
        if (next != m)
            json_array_remove(list, i + 1);
    }
    if (next && is_role(next, "user")) {
        sbuf_puts(&text, "\n\n");
        sbuf_puts(&text, text_of(next, "content"));
        json_array_remove(list, i + 1);
    }
    set_content(m, &text);
    json_object_set_new(m, "role", json_string("user"));
    json_object_del(m, "tool_call_id");
    json_object_del(m, "name");
    sbuf_free(&text);
    return text.error ? KVANT_ENOMEM : KVANT_OK;
}

/* ---- the tools ---- */

static int tell_tools(const tool_traits *t, const tool_set *tools, json_t *list)
{
    json_t *first = json_array_get(list, 0), *item;
    const char *role = t->takes_system ? "system" : "user";
    sbuf text = { 0 };
    size_t i;

    if (!first || !is_role(first, role)) {
        first = json_pack("{s:s,s:s}", "role", role, "content", "");
        if (!first || json_array_insert_new(list, 0, first) != 0)
            return KVANT_ENOMEM;
    }
    if (t->takes_system && *text_of(first, "content")) {
        sbuf_puts(&text, text_of(first, "content"));
        sbuf_puts(&text, "\n\n");
    }
    sbuf_puts(&text, head);
    json_array_foreach(tools->list, i, item)
    {
        tool_json_put(item, &text);
        sbuf_puts(&text, "\n");
    }
    sbuf_puts(&text, foot);
    if (!t->takes_system && *text_of(first, "content")) {
        sbuf_puts(&text, "\n\n");
        sbuf_puts(&text, text_of(first, "content"));
    }
    set_content(first, &text);
    sbuf_free(&text);
    return text.error ? KVANT_ENOMEM : KVANT_OK;
}

static int change(const tool_traits *t, const tool_set *tools, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *m = json_array_get(list, i);
        if (!t->shows_calls && json_array_size(json_object_get(m, "tool_calls")))
            KVANT_TRY(calls_as_text(m));
        if (!t->shows_results && is_role(m, "tool"))
            KVANT_TRY(results_as_text(list, i));
    }
    return tools && !t->renders_tools ? tell_tools(t, tools, list) : KVANT_OK;
}

int tool_generic(const tool_traits *t, const tool_set *tools, char **messages)
{
    if (!t || (t->shows_calls && t->shows_results && (t->renders_tools || !tools)))
        return KVANT_OK;
    json_t *list = json_loads(*messages, JSON_ALLOW_NUL, NULL);
    int code = list ? change(t, tools, list) : KVANT_ENOMEM;
    char *text = code == KVANT_OK ? json_dumps(list, JSON_COMPACT) : NULL;

    json_decref(list);
    if (!text)
        return KVANT_ENOMEM;
    free(*messages); /* jansson's */
    *messages = text;
    return KVANT_OK;
}
