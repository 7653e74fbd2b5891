/* anthropic_read.c: a body of /v1/messages (Anthropic's API) as one of /v1/chat/completions, which is read like any
 * other.  Fields that both APIs have pass as they are. */
#include "server/request/request_impl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/text/sbuf.h"

static int bad(api_error *e, const char *key, const char *what)
{
    return api_fail(e, BAD, key, "%s: %s", key, what);
}

static const char *text_of(const json_t *o, const char *key)
{
    return body_text(json_object_get(o, key));
}

/* Blocks of text as one text. */
static int join_blocks(const json_t *content, const char *key, sbuf *text, api_error *e)
{
    size_t i;
    json_t *b;

    json_array_foreach((json_t *)content, i, b)
    {
        const char *type = text_of(b, "type"), *more = text_of(b, "text");
        if (!type || strcmp(type, "text") != 0 || !more)
            return body_wrong(e, key, json_object_get(b, "type"), "%s: block %zu: type: wanted text with its text", key,
                              i);
        sbuf_puts(text, more);
    }
    return text->error ? api_no_memory(e) : API_OK;
}

/* Blocks of text, or a text, or nothing, as one text in *out (a string of jansson's). */
static int join(const json_t *content, const char *key, json_t **out, api_error *e)
{
    sbuf text = { 0 };

    *out = body_is_text(content) ? json_incref((json_t *)content) : NULL;
    if (*out)
        return API_OK;
    if (content && !json_is_array(content))
        return bad(e, key, "wanted a text or an array of blocks");
    int kind = join_blocks(content, key, &text, e);
    if (kind == API_OK && !(*out = json_stringn(sbuf_text(&text), text.n)))
        kind = api_no_memory(e);
    sbuf_free(&text);
    return kind;
}

/* ---- messages ---- */

/* {"type": "tool_use"} -> a tool call. */
static int put_call(const json_t *b, json_t *calls, api_error *e)
{
    const char *id = text_of(b, "id"), *name = text_of(b, "name");
    json_t *input = json_object_get(b, "input");

    if (!id || !name || (input && !json_is_object(input)))
        return bad(e, "messages", "tool_use: wanted id, name and input");
    return json_array_append_new(calls,
                                 json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id, "type", "function", "function", "name",
                                           name, "arguments", input ? json_incref(input) : json_object())) == 0
               ? API_OK
               : api_no_memory(e);
}

/* {"type": "tool_result"} -> a message of role tool. */
static int put_result(const json_t *b, json_t *list, api_error *e)
{
    const char *id = text_of(b, "tool_use_id");
    json_t *text = NULL;

    if (!id)
        return bad(e, "messages", "tool_result: tool_use_id: missing");
    const int kind = join(body_field(b, "content"), "messages", &text, e);
    if (kind == API_OK)
        json_array_append_new(list, json_pack("{s:s,s:s,s:O}", "role", "tool", "tool_call_id", id, "content", text));
    json_decref(text);
    return kind;
}

/* One block of a message: into its parts, its calls, its thought, or a message of its own before it. */
static int put_block(const json_t *b, json_t *parts, json_t *calls, json_t *to, json_t *list, api_error *e)
{
    const char *type = text_of(b, "type");

    if (type && strcmp(type, "text") == 0)
        return json_array_append(parts, (json_t *)b) == 0 ? API_OK : api_no_memory(e);
    if (type && strcmp(type, "tool_use") == 0)
        return put_call(b, calls, e);
    if (type && strcmp(type, "tool_result") == 0)
        return put_result(b, list, e);
    if (type && strcmp(type, "thinking") == 0)
        return json_object_set(to, "reasoning_content", json_object_get(b, "thinking")) == 0
                   ? API_OK
                   : bad(e, "messages", "thinking: wanted a text");
    if (type && strcmp(type, "redacted_thinking") == 0)
        return API_OK;
    return api_fail(e, API_UNSUPPORTED, "messages", "messages: blocks of type %.40s are not supported",
                    type ? type : "(none)");
}

static int put_message(const json_t *m, json_t *list, api_error *e)
{
    const json_t *content = json_object_get(m, "content");
    json_t *parts = json_array(), *calls = json_array(), *to = json_object(), *b;
    int kind = parts && calls && to ? API_OK : api_no_memory(e);
    size_t i;

    json_array_foreach(json_is_array(content) ? (json_t *)content : NULL, i, b) if (kind == API_OK)
        kind = put_block(b, parts, calls, to, list, e);
    json_object_set(to, "role", json_object_get(m, "role"));
    json_object_set(to, "content", json_is_array(content) ? parts : (json_t *)content);
    if (json_array_size(calls))
        json_object_set(to, "tool_calls", calls);
    /* a user's message that held only results is no message more */
    if (kind == API_OK &&
        (!json_is_array(content) || json_array_size(parts) || json_array_size(calls) || json_array_size(content) == 0))
        json_array_append(list, to);
    json_decref(parts);
    json_decref(calls);
    json_decref(to);
    return kind;
}

/* Claude Code's first line of the system text is for its provider's bill and differs from request to request: a prompt
 * that began with it would share no prefix with the one before. */
static size_t billing_line(const char *s)
{
    static const char name[] = "x-anthropic-billing-header:";
    static atomic_int told;
    const size_t n = strcspn(s, "\n");

    if (strncmp(s, name, sizeof name - 1) != 0)
        return 0;
    if (!atomic_exchange(&told, 1))
        log_msg(LOG_INFO, "prompts leave out the line %s (--keep-billing-header keeps it)", name);
    return n + (s[n] == '\n');
}

/* The system text without that line; the request's own value stays as it is. */
static json_t *without_billing(const json_t *system)
{
    const json_t *first = json_is_array(system) ? json_array_get(system, 0) : NULL;
    const char *text = first ? text_of(first, "text") : body_text(system);
    const size_t cut = text ? billing_line(text) : 0;

    if (!cut)
        return json_incref((json_t *)system);
    if (!first)
        return json_string(text + cut);
    json_t *list = json_copy((json_t *)system);
    json_array_set_new(list, 0, json_pack("{s:s,s:s}", "type", "text", "text", text + cut));
    return list;
}

static int put_system(const request_env *env, const json_t *sent, json_t *list, api_error *e)
{
    json_t *system = env->keep_billing ? json_incref((json_t *)sent) : without_billing(sent), *text = NULL;
    const int kind = system ? join(system, "system", &text, e) : api_no_memory(e);

    if (kind == API_OK && json_string_length(text)) /* an empty one is none */
        json_array_append_new(list, json_pack("{s:s,s:O}", "role", "system", "content", text));
    json_decref(text);
    json_decref(system);
    return kind;
}

static int put_messages(const request_env *env, const json_t *o, json_t *out, api_error *e)
{
    const json_t *sent = json_object_get(o, "messages"), *system = body_field(o, "system");
    json_t *list = json_array(), *m;
    int kind = json_object_set_new(out, "messages", list) == 0 ? API_OK : api_no_memory(e);
    size_t i;

    if (kind == API_OK && system)
        kind = put_system(env, system, list, e);
    if (kind == API_OK && !json_is_array(sent))
        return bad(e, "messages", "wanted an array");
    json_array_foreach((json_t *)sent, i, m) if (kind == API_OK) kind = put_message(m, list, e);
    return kind;
}

/* ---- tools and the rest ---- */

static int put_tools(const json_t *o, json_t *out, api_error *e)
{
    const json_t *tools = body_field(o, "tools");
    json_t *list = json_array(), *t;
    size_t i;

    if (!json_array_size(tools)) {
        json_decref(list);
        return API_OK;
    }
    json_object_set_new(out, "tools", list);
    json_array_foreach((json_t *)tools, i, t)
    {
        const char *type = text_of(t, "type");
        if (type && strcmp(type, "custom") != 0 && strcmp(type, "function") != 0)
            continue; /* its provider runs it, and the answer's header names it (fields.def) */
        json_t *schema = json_object_get(t, "input_schema"), *f = json_object();
        json_object_set(f, "name", json_object_get(t, "name"));
        json_object_set(f, "description", json_object_get(t, "description"));
        json_object_set(f, "strict", json_object_get(t, "strict"));
        json_object_set(f, "parameters", schema);
        json_array_append_new(list, json_pack("{s:s,s:o}", "type", "function", "function", f));
        if (type && strcmp(type, "custom") != 0)
            return api_fail(e, API_UNSUPPORTED, "tools", "tools: item %zu: type %.40s is not supported", i, type);
    }
    return API_OK;
}

static int put_choice(const json_t *o, json_t *out, api_error *e)
{
    static const char *const words[][2] = { { "auto", "auto" }, { "any", "required" }, { "none", "none" } };
    const json_t *choice = body_field(o, "tool_choice");
    const char *type = text_of(choice, "type"), *name = text_of(choice, "name");

    if (!choice)
        return API_OK;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        json_object_set_new(out, "parallel_tool_calls", json_false());
    for (int i = 0; i < 3 && type; i++)
        if (strcmp(type, words[i][0]) == 0)
            return json_object_set_new(out, "tool_choice", json_string(words[i][1])) == 0 ? API_OK : api_no_memory(e);
    if (!type || strcmp(type, "tool") != 0 || !name)
        return bad(e, "tool_choice", "wanted an object of type auto, any, none, or tool with a name");
    return json_object_set_new(out, "tool_choice",
                               json_pack("{s:s,s:{s:s}}", "type", "function", "function", "name", name)) == 0
               ? API_OK
               : api_no_memory(e);
}

static int put_thinking(const json_t *o, json_t *out, api_error *e)
{
    const json_t *v = body_field(o, "thinking"), *budget = json_object_get(v, "budget_tokens");
    const char *type = text_of(v, "type");

    if (!v)
        return API_OK;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 && strcmp(type, "adaptive") != 0))
        return bad(e, "thinking", "type: wanted enabled, adaptive or disabled");
    if (budget)
        API_TRY(body_say(out, "thinking", "thinking_budget_tokens", json_incref((json_t *)budget), e));
    return body_say(out, "thinking", "enable_thinking", json_boolean(type[0] != 'd'), e);
}

static int put_format(const json_t *format, const char *from, json_t *out, api_error *e)
{
    const char *type = text_of(format, "type");

    if (!format)
        return API_OK;
    if (!type || strcmp(type, "json_schema") != 0 || !body_field(format, "schema"))
        return bad(e, from, "format: wanted an object of type json_schema with a schema");
    return body_say(out, from, "response_format", json_incref((json_t *)format), e);
}

/* Structured outputs: output_config.format, before that output_format. */
static int put_output(const json_t *o, json_t *out, api_error *e)
{
    const json_t *config = body_field(o, "output_config");

    if (config && !json_is_object(config))
        return bad(e, "output_config", "wanted an object");
    if (body_field(config, "effort"))
        API_TRY(body_say(out, "output_config", "reasoning_effort", json_incref(json_object_get(config, "effort")), e));
    API_TRY(put_format(body_field(config, "format"), "output_config", out, e));
    return put_format(body_field(o, "output_format"), "output_format", out, e);
}

int messages_to_chat(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    static const char *const own[] = {
        "messages", "system", "tools", "tool_choice", "thinking", "stop_sequences", "n",
        "output_config", "output_format"
    };

    (void)r;
    API_TRY(body_copy_rest(o, own, sizeof own / sizeof *own, out, e));
    if (body_field(o, "stop_sequences"))
        API_TRY(body_say(out, "stop_sequences", "stop", json_incref(json_object_get(o, "stop_sequences")), e));
    API_TRY(put_messages(env, o, out, e));
    API_TRY(put_tools(o, out, e));
    API_TRY(put_choice(o, out, e));
    API_TRY(put_output(o, out, e));
    return put_thinking(o, out, e);
}
