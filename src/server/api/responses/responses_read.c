/* responses_read.c: a body of /v1/responses as one of /v1/chat/completions, which is read like any other, and what
 * its answer tells of it again.  Fields that both APIs have pass as they are. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/api/responses/responses_store.h"

const char *const responses_told[RESPONSES_TOLD] = {
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning",
    "temperature",  "text",              "tools",    "tool_choice",         "top_p",                "truncation",
    "user"
};

static const char *const otherwise[RESPONSES_TOLD] = { "null", "null",
                                                       "{}",   "true",
                                                       "null", "{\"effort\":null,\"summary\":null}",
                                                       NULL,   "{\"format\":{\"type\":\"text\"}}",
                                                       "[]",   "\"auto\"",
                                                       NULL,   "\"disabled\"",
                                                       "null" };

static int bad(api_error *e, const char *key, const char *what)
{
    return api_fail(e, BAD, key, "%s: %s", key, what);
}

static int is(const json_t *o, const char *key, const char *word)
{
    const char *s = body_text(json_object_get(o, key));

    return s && strcmp(s, word) == 0;
}

/* ---- items ---- */

/* Parts of text, or a text, as parts that a chat has. */
static int put_content(const json_t *content, const char *type, json_t *to, api_error *e)
{
    json_t *parts = NULL, *p;
    size_t i;

    if (body_is_text(content))
        return json_object_set(to, "content", (json_t *)content) == 0 ? API_OK : api_no_memory(e);
    if (!json_is_array(content))
        return body_wrong(e, "input", content, "input: %s: wanted a text or an array of parts", type);
    if (json_object_set_new(to, "content", parts = json_array()) != 0)
        return api_no_memory(e);
    json_array_foreach((json_t *)content, i, p)
    {
        const char *key = is(p, "type", "refusal") ? "refusal" : "text";
        json_t *text = json_object_get(p, key);
        if (!body_is_text(text))
            return body_wrong(e, "input", json_object_get(p, "type"),
                              "input: %s: part %zu: type: wanted input_text, output_text or refusal with its text",
                              type, i);
        if (json_array_append_new(parts, json_pack("{s:s,s:O}", "type", "text", "text", text)) != 0)
            return api_no_memory(e);
    }
    return API_OK;
}

/* The assistant's message that goes on with an item of this kind: a thought, then a text, then calls. */
static json_t *open_assistant(json_t *list, const char *missing, const char *missing_too)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);

    if (is(last, "role", "assistant") && !json_object_get(last, missing) && !json_object_get(last, missing_too))
        return last;
    last = json_pack("{s:s}", "role", "assistant");
    return json_array_append_new(list, last) == 0 ? last : NULL;
}

static int put_thought(const json_t *item, json_t *list, api_error *e)
{
    const json_t *parts = json_object_get(item, "content");
    sbuf text = { 0 };
    json_t *to, *p;
    size_t i;

    json_array_foreach((json_t *)parts, i, p)
    {
        const char *more = body_text(json_object_get(p, "text"));
        sbuf_puts(&text, more ? more : "");
    }
    int kind = text.error ? api_no_memory(e) : API_OK;
    if (kind == API_OK && text.n) { /* only a summary: the model never wrote it */
        to = json_pack("{s:s,s:s}", "role", "assistant", "reasoning_content", text.s);
        kind = json_array_append_new(list, to) == 0 ? API_OK : api_no_memory(e);
    }
    sbuf_free(&text);
    return kind;
}

static int put_call(const json_t *item, json_t *list, api_error *e)
{
    const int custom = is(item, "type", "custom_tool_call");
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"), *to, *calls;
    json_t *arguments = json_object_get(item, custom ? "input" : "arguments");

    if (!body_is_text(id) || !body_is_text(name) || !body_is_text(arguments))
        return bad(e, "input", custom ? "custom_tool_call: wanted call_id, name and input, three strings"
                                      : "function_call: wanted call_id, name and arguments, three strings");
    if (!(to = open_assistant(list, "", "")))
        return api_no_memory(e);
    calls = json_object_get(to, "tool_calls");
    if (!calls && json_object_set_new(to, "tool_calls", calls = json_array()) != 0)
        return api_no_memory(e);
    json_t *args = custom ? json_pack("{s:O}", "input", arguments) : json_incref(arguments);
    return json_array_append_new(calls, json_pack("{s:O,s:s,s:{s:o,s:o}}", "id", id, "type", "function", "function",
                                                  "name", agents_flat_name(item), "arguments", args)) == 0
               ? API_OK
               : api_no_memory(e);
}

static int put_result(const json_t *item, json_t *list, api_error *e)
{
    json_t *id = json_object_get(item, "call_id");

    if (!body_is_text(id))
        return bad(e, "input", "function_call_output: call_id: wanted a string");
    json_t *to = json_pack("{s:s,s:O}", "role", "tool", "tool_call_id", id);
    if (json_array_append_new(list, to) != 0)
        return api_no_memory(e);
    return put_content(json_object_get(item, "output"), "function_call_output", to, e);
}

static int put_message(const json_t *item, json_t *list, api_error *e)
{
    json_t *role = json_object_get(item, "role"), *to;

    if (!body_is_text(role))
        return bad(e, "input", "message: role: wanted a string");
    if (is(item, "role", "assistant"))
        to = open_assistant(list, "content", "tool_calls");
    else if (json_array_append_new(list, to = json_pack("{s:O}", "role", role)) != 0)
        to = NULL;
    return to ? put_content(json_object_get(item, "content"), "message", to, e) : api_no_memory(e);
}

static int put_item(const json_t *item, json_t *list, api_error *e)
{
    const json_t *type = json_object_get(item, "type");

    if (is(item, "type", "message") || (!type && json_object_get(item, "role")))
        return put_message(item, list, e);
    if (is(item, "type", "function_call") || is(item, "type", "custom_tool_call"))
        return put_call(item, list, e);
    if (is(item, "type", "function_call_output") || is(item, "type", "custom_tool_call_output"))
        return put_result(item, list, e);
    if (is(item, "type", "reasoning"))
        return put_thought(item, list, e);
    return api_fail(e, API_UNSUPPORTED, "input", "input: items of type %.40s are not supported",
                    body_is_text(type) ? body_text(type) : "(none)");
}

static int put_input(const json_t *o, json_t *list, api_error *e)
{
    const json_t *input = body_field(o, "input");
    json_t *item;
    size_t i;

    if (body_is_text(input))
        return json_array_append_new(list, json_pack("{s:s,s:O}", "role", "user", "content", input)) == 0
                   ? API_OK
                   : api_no_memory(e);
    if (!json_is_array(input) || json_array_size(input) > REQUEST_MAX_MESSAGES)
        return body_wrong(e, "input", input, "input: wanted a text or an array of at most %d items",
                          REQUEST_MAX_MESSAGES);
    json_array_foreach((json_t *)input, i, item) API_TRY(put_item(item, list, e));
    return API_OK;
}

/* ---- the input again, for who asks for it later ---- */

static int plain_name(const char *s)
{
    const size_t n = s ? strlen(s) : 0;

    return n >= 1 && n <= 64 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

/* A message whose content is a text has it as a part, as OpenAI tells it again. */
static void spell_out(json_t *item)
{
    json_t *content = json_object_get(item, "content");
    const char *type = is(item, "role", "assistant") ? "output_text" : "input_text";

    if (!json_object_get(item, "type"))
        json_object_set_new(item, "type", json_string("message"));
    if (body_is_text(content))
        json_object_set_new(item, "content", json_pack("[{s:s,s:O}]", "type", type, "text", content));
}

static int keep_item(const json_t *given, size_t i, sbuf *lines)
{
    json_t *item = body_is_text(given) ? json_pack("{s:s,s:O}", "role", "user", "content", given)
                                         : json_copy((json_t *)given);
    const char *id = body_text(json_object_get(item, "id"));
    char own[32];

    snprintf(own, sizeof own, "msg_in_%zu", i);
    if (!plain_name(id))
        json_object_set_new(item, "id", json_string(own));
    spell_out(item);
    char *text = item ? json_text(item, JSON_COMPACT) : NULL;
    sbuf_printf(lines, "%s\t", plain_name(id) ? id : own);
    sbuf_puts(lines, text ? text : "");
    sbuf_puts(lines, "\n");
    const int ok = text != NULL && !lines->error;
    free(text); /* jansson's */
    json_decref(item);
    return ok;
}

static int keep_input(const json_t *o, responses_body *b, api_error *e)
{
    const json_t *input = body_field(o, "input");
    json_t *item;
    size_t i;

    sbuf_puts(&b->items, "");
    if (body_is_text(input) && !keep_item(input, 0, &b->items))
        return api_no_memory(e);
    json_array_foreach((json_t *)input, i, item) if (!keep_item(item, i, &b->items)) return api_no_memory(e);
    return API_OK;
}

/* ---- messages: what was said before, then the input ---- */

static int earlier_messages(const request_env *env, const json_t *o, responses_body *b, json_t **list, api_error *e)
{
    const json_t *salt = body_field(o, "cache_salt");
    const store_owner own = store_owner_of(env->tenant, body_text(salt), json_string_length(salt));
    const char *id;
    size_t n = 0;

    memcpy(b->salt, own.salt, sizeof b->salt);
    API_TRY(body_string(o, "previous_response_id", RESPONSE_ID - 1, &id, &n, e));
    *list = NULL;
    if (!id) {
        *list = json_array();
        return *list ? API_OK : api_no_memory(e);
    }
    stored_text *text = env->responses ? response_store_get(env->responses, &own, id, STORED_MESSAGES) : NULL;
    if (!text)
        return api_fail(e, BAD, "previous_response_id",
                        "previous_response_id: no response %.47s is kept here (any more): send the whole conversation",
                        id);
    const int code = json_read(text->s, text->n, list, NULL);
    stored_text_release(text);
    return code == KVANT_OK ? API_OK : api_no_memory(e);
}

/* *list: without the instructions, which are of this turn alone. */
static int put_messages(const request_env *env, const json_t *o, json_t *out, responses_body *b, api_error *e)
{
    json_t *list = NULL, *all = NULL;
    const json_t *instructions = body_field(o, "instructions");
    int kind = earlier_messages(env, o, b, &list, e);

    if (kind == API_OK)
        kind = put_input(o, list, e);
    if (kind == API_OK && instructions && !body_is_text(instructions))
        kind = bad(e, "instructions", "wanted a text");
    if (kind == API_OK) {
        b->history = json_text(list, JSON_COMPACT);
        all = json_array();
        if (json_string_length(instructions)) /* an empty one is none */
            json_array_append_new(all, json_pack("{s:s,s:O}", "role", "system", "content", instructions));
        if (!b->history || json_array_extend(all, list) != 0 || json_object_set(out, "messages", all) != 0)
            kind = api_no_memory(e);
    }
    json_decref(all);
    json_decref(list);
    return kind;
}

/* ---- tools and the rest ---- */

/* text.format -> response_format, whose schema is one level deeper. */
static int put_format(const json_t *o, json_t *out, api_error *e)
{
    const json_t *text = body_field(o, "text"), *format = body_field(text, "format");

    if (text && !json_is_object(text))
        return bad(e, "text", "wanted an object");
    if (!format)
        return API_OK;
    json_t *made = is(format, "type", "json_schema")
                       ? json_pack("{s:s,s:O}", "type", "json_schema", "json_schema", format)
                       : json_incref((json_t *)format);
    return body_say(out, "text.format", "response_format", made, e);
}

static int put_settings(const json_t *o, json_t *out, api_error *e)
{
    const json_t *most = body_field(o, "max_output_tokens"), *reasoning = body_field(o, "reasoning");

    if (reasoning && !json_is_object(reasoning))
        return bad(e, "reasoning", "wanted an object");
    if (most && json_object_set(out, "max_tokens", (json_t *)most) != 0)
        return api_no_memory(e);
    json_t *effort = (json_t *)body_field(reasoning, "effort");
    return effort ? body_say(out, "reasoning", "reasoning_effort", json_incref(effort), e) : API_OK;
}

/* Refuses fields that would change the answer, or the time when it comes. */
static int check_unsupported(const json_t *o, api_error *e)
{
    static const char *const refused[] = { "conversation", "prompt", "max_tool_calls", "messages", "max_tokens" };
    const json_t *logprobs = body_field(o, "top_logprobs"), *n = body_field(o, "n");

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (body_field(o, refused[i]))
            return api_fail(e, API_UNSUPPORTED, refused[i], "%s: not supported on /v1/responses", refused[i]);
    if (json_is_true(body_field(o, "background")))
        return api_fail(e, API_UNSUPPORTED, "background", "background: true is not supported");
    if ((logprobs && json_integer_value(logprobs) != 0) || (n && json_integer_value(n) != 1))
        return api_fail(e, API_UNSUPPORTED, n ? "n" : "top_logprobs", "%s: not supported on /v1/responses",
                        n ? "n" : "top_logprobs");
    return API_OK;
}

/* ---- what the answer tells again ---- */

static int tell(const request_env *env, const json_t *o, responses_body *b, api_error *e)
{
    char number[32];

    for (int i = 0; i < RESPONSES_TOLD; i++) {
        const json_t *v = body_field(o, responses_told[i]);
        const float own = i == 6 ? env->sampler.temp : env->sampler.top_p; /* the two without a text */
        char *text = v ? json_text(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        snprintf(number, sizeof number, "%.6g", (double)own);
        b->told[i] = kvant_strdup(v ? (text ? text : "null") : otherwise[i] ? otherwise[i] : number);
        free(text); /* jansson's */
        if (!b->told[i])
            return api_no_memory(e);
    }
    b->store = 1;
    return body_bool(o, "store", &b->store, e);
}

void responses_body_free(responses_body *b)
{
    for (int i = 0; b && i < RESPONSES_TOLD; i++)
        kvant_free(b->told[i]);
    if (b)
        free(b->history); /* jansson's */
    if (b)
        json_decref(b->names);
    if (b)
        sbuf_free(&b->items);
    kvant_free(b);
}

int responses_to_chat(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    static const char *const own[] = { "input",        "instructions", "previous_response_id", "tools", "tool_choice",
                                       "text",         "reasoning",    "max_output_tokens",    "n",     "include",
                                       "background",   "truncation",   "top_logprobs",         "stream_options" };
    responses_body *b = r->responses = kvant_calloc(1, sizeof *b);

    if (!b || !(b->names = json_object()))
        return api_no_memory(e);
    API_TRY(check_unsupported(o, e));
    API_TRY(body_copy_rest(o, own, sizeof own / sizeof *own, out, e));
    API_TRY(put_messages(env, o, out, b, e));
    API_TRY(agents_tools(o, out, b->names, e));
    API_TRY(agents_choice(o, out, e));
    API_TRY(put_format(o, out, e));
    API_TRY(put_settings(o, out, e));
    API_TRY(tell(env, o, b, e));
    return b->store ? keep_input(o, b, e) : API_OK;
}
