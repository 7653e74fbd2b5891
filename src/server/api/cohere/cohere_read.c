/* cohere_read.c: a body of Cohere's /v2/chat, or of Mistral's /v1/fim/completions, as one of /v1/chat/completions (of
 * /infill, or of /v1/completions), which is read like any other. */
#include "server/request/request_impl.h"

#include <stdlib.h>
#include <string.h>
#include "server/request/json_scan.h"

/* out.as = o.key, where that is there: pairs of names. */
static int copy_all(const json_t *o, const char *const (*names)[2], size_t n, json_t *out, api_error *e)
{
    for (size_t i = 0; i < n; i++)
        API_TRY(body_copy(o, names[i][0], out, names[i][1], e));
    return API_OK;
}

/* ---- messages ---- */

/* A document of a tool's result as a part of text: its data is a text, or any JSON. */
static json_t *text_of_document(const json_t *part)
{
    const json_t *data = body_field(json_object_get(part, "document"), "data");
    char *text = data && !body_is_text(data) ? json_text((json_t *)data, JSON_COMPACT) : NULL;
    json_t *made = NULL;

    if (data)
        made = json_pack("{s:s,s:s}", "type", "text", "text", text ? text : body_text(data));
    free(text); /* jansson's */
    return made;
}

/* One part of a content: a thought stands beside the message's text; what is neither text nor document the reader of
 * chats refuses. */
static int put_part(const json_t *part, json_t *parts, json_t *to, size_t i, api_error *e)
{
    const char *type = body_text(json_object_get(part, "type"));
    json_t *document;

    if (type && strcmp(type, "thinking") == 0) {
        json_t *thought = json_object_get(part, "thinking");
        return body_is_text(thought) ? body_put(to, "reasoning_content", json_incref(thought), e)
                                     : body_wrong(e, "messages", thought,
                                                  "messages: item %zu: content: thinking: wanted a text", i);
    }
    if (!type || strcmp(type, "document") != 0)
        return json_array_append(parts, (json_t *)part) == 0 ? API_OK : api_no_memory(e);
    document = text_of_document(part);
    if (!document)
        return body_wrong(e, "messages", json_object_get(part, "document"),
                          "messages: item %zu: content: document: wanted an object with data", i);
    return json_array_append_new(parts, document) == 0 ? API_OK : api_no_memory(e);
}

static int put_message(const json_t *m, size_t i, json_t *list, api_error *e)
{
    static const char *const names[][2] = {
        { "role", "role" }, { "content", "content" }, { "tool_calls", "tool_calls" }, { "tool_call_id", "tool_call_id" }
    };
    const json_t *content = body_field(m, "content"), *plan = body_field(m, "tool_plan");
    json_t *to = json_object(), *part;
    size_t k;

    if (!to || json_array_append_new(list, to) != 0)
        return api_no_memory(e);
    API_TRY(copy_all(m, names, 4, to, e));
    if (!content && plan) /* said before the calls */
        return body_put(to, "content", json_incref((json_t *)plan), e);
    if (!json_is_array(content))
        return API_OK;
    json_t *parts = json_array();
    API_TRY(body_put(to, "content", parts, e));
    json_array_foreach((json_t *)content, k, part) API_TRY(put_part(part, parts, to, i, e));
    return API_OK;
}

static int put_messages(const json_t *o, json_t *out, api_error *e)
{
    const json_t *sent = body_field(o, "messages"), *m;
    json_t *list = json_array();
    size_t i;

    API_TRY(body_put(out, "messages", list, e));
    if (!json_is_array(sent))
        return body_wrong(e, "messages", sent, "messages: wanted an array");
    json_array_foreach((json_t *)sent, i, m) API_TRY(put_message(m, i, list, e));
    return API_OK;
}

/* ---- the rest of a chat ---- */

static int put_choice(const json_t *o, json_t *out, api_error *e)
{
    const json_t *v = body_field(o, "tool_choice");
    const char *word = body_text(v);

    if (!v)
        return API_OK;
    if (!word || (strcmp(word, "REQUIRED") != 0 && strcmp(word, "NONE") != 0))
        return body_wrong(e, "tool_choice", v, "tool_choice: wanted REQUIRED or NONE");
    return body_put(out, "tool_choice", json_string(word[0] == 'R' ? "required" : "none"), e);
}

/* A schema may stand beside the type. */
static int put_format(const json_t *o, json_t *out, api_error *e)
{
    const json_t *v = body_field(o, "response_format"), *schema = body_field(v, "json_schema");

    if (!schema)
        return body_copy(o, "response_format", out, "response_format", e);
    return body_put(out, "response_format",
               json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", (json_t *)schema), e);
}

static int put_thinking(const json_t *o, json_t *out, api_error *e)
{
    const json_t *v = body_field(o, "thinking"), *budget = body_field(v, "token_budget");
    const char *type = body_text(json_object_get(v, "type"));

    if (!v)
        return API_OK;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0))
        return body_wrong(e, "thinking", json_object_get(v, "type"), "thinking: type: wanted enabled or disabled");
    if (budget)
        API_TRY(body_put(out, "thinking_budget_tokens", json_incref((json_t *)budget), e));
    return body_put(out, "enable_thinking", json_boolean(type[0] == 'e'), e);
}

int cohere_to_chat(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    static const char *const names[][2] = {
        { "model", "model" }, { "stream", "stream" }, { "max_tokens", "max_tokens" }, { "temperature", "temperature" },
        { "seed", "seed" },   { "k", "top_k" },       { "p", "top_p" },               { "stop_sequences", "stop" },
        { "tools", "tools" }, { "frequency_penalty", "frequency_penalty" }, { "presence_penalty", "presence_penalty" }
    };

    (void)env;
    (void)r;
    API_TRY(copy_all(o, names, sizeof names / sizeof *names, out, e));
    API_TRY(put_messages(o, out, e));
    API_TRY(put_choice(o, out, e));
    API_TRY(put_format(o, out, e));
    API_TRY(put_thinking(o, out, e));
    return thoughts_spell_out(out, e);
}

/* ---- Mistral's way to fill in ---- */

int fim_to_text(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    static const char *const names[][2] = { { "model", "model" },           { "stream", "stream" },
                                            { "max_tokens", "max_tokens" }, { "min_tokens", "min_tokens" },
                                            { "temperature", "temperature" }, { "top_p", "top_p" },
                                            { "random_seed", "seed" },      { "stop", "stop" } };
    const json_t *text = body_field(o, "prompt"), *suffix = body_field(o, "suffix");

    (void)env;
    if (!body_is_text(text))
        return body_wrong(e, "prompt", text, "prompt: wanted a text");
    if (suffix && !body_is_text(suffix))
        return body_wrong(e, "suffix", suffix, "suffix: wanted a text");
    r->infill = json_string_length(suffix) > 0;
    r->include_usage = 1; /* its streams end with it */
    API_TRY(copy_all(o, names, sizeof names / sizeof *names, out, e));
    API_TRY(body_put(out, r->infill ? "input_prefix" : "prompt", json_incref((json_t *)text), e));
    return r->infill ? body_put(out, "input_suffix", json_incref((json_t *)suffix), e) : API_OK;
}
