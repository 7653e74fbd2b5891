/* openai_read.c: a chat of OpenAI's API: messages through the model's template, how the chat ends, the template's
 * variables.  Bodies of other APIs become one of these first. */
#include "server/request/request_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "server/request/json_scan.h"
#include "server/tools/tool_generic.h"

/* The field that has a part's text, as chats, responses and their histories call the part; NULL: it is no text. */
static const char *part_key(const char *type)
{
    static const char *const types[] = { "text", "input_text", "output_text", "refusal" };

    for (int i = 0; i < 4 && type; i++)
        if (strcmp(type, types[i]) == 0)
            return i < 3 ? "text" : "refusal";
    return NULL;
}

/* Appends a part of a message's content, which must be text; `between` stands where there is text on both sides. */
static int add_part(const json_t *part, const char *between, const char *key, int i, size_t k, sbuf *out, api_error *e)
{
    const json_t *type = json_object_get(part, "type");
    const char *at = part_key(body_text(type));

    if (!at) {
        body_wrong(e, key, type, "%s: item %d: part %zu: type: wanted text; models see texts only", key, i, k);
        return e->kind = body_text(type) ? API_UNSUPPORTED : BAD;
    }
    const json_t *s = json_object_get(part, at);
    if (!body_is_text(s))
        return body_wrong(e, key, s, "%s: item %d: part %zu: %s: wanted a text", key, i, k, at);
    if (out->n && json_string_length(s))
        sbuf_puts(out, between);
    sbuf_put(out, body_text(s), json_string_length(s));
    return out->error ? api_no_memory(e) : API_OK;
}

int content_text(const json_t *content, const char *between, const char *key, int i, const char **text, char **owned,
                 api_error *e)
{
    sbuf all = { 0 };
    int kind = API_OK;
    json_t *part;
    size_t k;

    *owned = NULL;
    *text = "";
    if (!content || (body_is_text(content))) {
        *text = content ? body_text(content) : "";
        return API_OK;
    }
    if (!json_is_array(content))
        return body_wrong(e, key, content, "%s: item %d: content: wanted a string or an array of parts", key, i);
    json_array_foreach((json_t *)content, k, part) if (kind == API_OK)
        kind = add_part(part, between, key, i, k, &all, e);
    *owned = all.s;
    if (all.s)
        *text = all.s;
    return kind;
}

static int put_text_field(json_t *to, const char *as, const json_t *m, int i, const char *key, api_error *e)
{
    const json_t *v = body_field(m, key);

    if (!v)
        return API_OK;
    if (!body_is_text(v))
        return body_wrong(e, "messages", v, "messages: item %d: %s: wanted a string", i, key);
    return json_object_set(to, as, (json_t *)v) == 0 ? API_OK : api_no_memory(e);
}

static int one_call(const json_t *call, int i, size_t k, json_t *list, api_error *e)
{
    const json_t *f = json_object_get(call, "function"), *id = body_field(call, "id");
    const char *name = body_text(json_object_get(f, "name"));
    json_t *arguments = json_object_get(f, "arguments");

    if (!name)
        return body_wrong(e, "messages", json_object_get(f, "name"),
                          "messages: item %d: tool_calls: %zu: function.name: wanted a string", i, k);
    if (arguments && !body_is_text(arguments) && !json_is_object(arguments))
        return body_wrong(e, "messages", arguments,
                          "messages: item %d: tool_calls: %zu: function.arguments: wanted a string or an object", i, k);
    if (id && !body_is_text(id))
        return body_wrong(e, "messages", id, "messages: item %d: tool_calls: %zu: id: wanted a string", i, k);
    json_t *c = json_pack("{s:s,s:{s:s,s:o}}", "type", "function", "function", "name", name, "arguments",
                          arguments ? json_incref(arguments) : json_string("{}"));
    if (!c || (id && json_object_set(c, "id", (json_t *)id) != 0) || json_array_append_new(list, c) != 0)
        return api_no_memory(e);
    return API_OK;
}

/* Calls and thoughts of an assistant's message. */
static int put_assistant(json_t *to, const json_t *m, int i, api_error *e)
{
    const json_t *calls = body_field(m, "tool_calls");
    json_t *call;
    size_t k;

    API_TRY(put_text_field(to, "reasoning_content", m, i, "reasoning_content", e));
    if (!json_object_get(to, "reasoning_content"))
        API_TRY(put_text_field(to, "reasoning_content", m, i, "reasoning", e));
    if (json_object_get(to, "reasoning_content")) /* gpt-oss's name for it */
        API_TRY(put_text_field(to, "thinking", to, i, "reasoning_content", e));
    if (calls && !json_is_array(calls))
        return body_wrong(e, "messages", calls, "messages: item %d: tool_calls: wanted an array", i);
    if (json_array_size(calls) == 0)
        return API_OK;
    json_t *list = json_array();
    if (json_object_set_new(to, "tool_calls", list) != 0)
        return api_no_memory(e);
    json_array_foreach((json_t *)calls, k, call) API_TRY(one_call(call, i, k, list, e));
    return API_OK;
}

static const char *const roles[] = { "system", "user", "assistant", "tool" };

static const char *role_of(const json_t *m)
{
    const char *role = body_text(json_object_get(m, "role"));

    if (role && strcmp(role, "developer") == 0)
        role = "system";
    for (int k = 0; k < 4 && role; k++)
        if (strcmp(role, roles[k]) == 0)
            return roles[k];
    return NULL;
}

static int one_message(const json_t *m, int i, json_t *list, messages *all, api_error *e)
{
    const char *role = role_of(m), *text;
    const int assistant = role == roles[2];
    char *owned = NULL;

    if (!role)
        return body_wrong(e, "messages", json_object_get(m, "role"),
                          "messages: item %d: role: wanted system, developer, user, assistant or tool", i);
    if (!body_field(m, "content") && !assistant)
        return api_fail(e, BAD, "messages", "messages: item %d: content: missing", i);
    int kind = content_text(body_field(m, "content"), all->between, "messages", i, &text, &owned, e);
    json_t *to = kind == API_OK ? json_pack("{s:s,s:s}", "role", role, "content", text) : NULL;
    if (kind == API_OK && (!to || json_array_append_new(list, to) != 0))
        kind = api_no_memory(e);
    if (kind == API_OK && !assistant) /* templates may leave out what an assistant said (its thoughts) */
        all->bytes += strlen(text);
    kvant_free(owned);
    API_TRY(kind);
    API_TRY(put_text_field(to, "name", m, i, "name", e));
    API_TRY(put_text_field(to, "tool_call_id", m, i, "tool_call_id", e));
    return assistant ? put_assistant(to, m, i, e) : API_OK;
}

void messages_free(messages *m)
{
    free(m->json); /* jansson's */
}

static int read_list(const json_t *v, json_t *list, messages *m, api_error *e)
{
    size_t i;
    json_t *x;

    if (!list)
        return api_no_memory(e);
    json_array_foreach((json_t *)v, i, x) API_TRY(one_message(x, (int)i, list, m, e));
    m->json = json_text(list, JSON_COMPACT);
    return m->json ? API_OK : api_no_memory(e);
}

/* messages_free also after an error. */
int messages_read(const request_env *env, const json_t *o, messages *m, api_error *e)
{
    const json_t *v = body_field(o, "messages");

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > REQUEST_MAX_MESSAGES)
        return body_wrong(e, "messages", v, "messages: wanted an array of 1 to %d messages", REQUEST_MAX_MESSAGES);
    m->between = env->parts_joined ? "" : "\n";
    json_t *list = json_array();
    const int kind = read_list(v, list, m, e);
    json_decref(list);
    return kind;
}

/* Returns 1 if the chat ends with the assistant's words; an empty message, as some clients send, is a usual turn. */
static int ends_with_words(const json_t *list)
{
    const json_t *last = json_array_get(list, json_array_size(list) - 1), *content = body_field(last, "content");
    const char *role = body_text(json_object_get(last, "role"));

    return role && strcmp(role, "assistant") == 0 && !json_array_size(body_field(last, "tool_calls")) &&
           (body_is_text(content) ? json_string_length(content) > 0 : json_array_size(content) > 0);
}

/* How many messages of the assistant the chat ends with. */
static int assistants(const json_t *list)
{
    size_t n = json_array_size(list);
    int count = 0;

    for (; n > 0; n--, count++) {
        const char *role = body_text(json_object_get(json_array_get(list, n - 1), "role"));
        if (!role || strcmp(role, "assistant") != 0)
            break;
    }
    return count;
}

int chat_end_read(const request_env *env, const json_t *o, int *end, api_error *e)
{
    const json_t *list = body_field(o, "messages");
    int open = 1, go_on = 0;

    API_TRY(body_bool(o, "add_generation_prompt", &open, e));
    API_TRY(body_bool(o, "continue_final_message", &go_on, e));
    if (go_on && open && body_field(o, "add_generation_prompt"))
        return api_fail(e, BAD, "continue_final_message",
                        "continue_final_message and add_generation_prompt: both true, want one of them");
    if (env->prefill && !body_field(o, "continue_final_message") && open && ends_with_words(list)) {
        if (assistants(list) > 1)
            return api_fail(e, BAD, "messages",
                            "messages: the last %d are the assistant's, wanted at most one that goes "
                            "on (--no-prefill-assistant: none does)",
                            assistants(list));
        go_on = 1;
    }
    if (go_on && json_array_size(body_field(json_array_get(list, json_array_size(list) - 1), "tool_calls")))
        return api_fail(e, BAD, "continue_final_message",
                        "continue_final_message: the last message has tool_calls: it cannot be continued");
    *end = go_on ? KVANT_CHAT_CONTINUE : open ? KVANT_CHAT_OPEN : KVANT_CHAT_CLOSED;
    return API_OK;
}

/* A variable of the template that has a field of its own; the client's own kwargs come first. */
static int put_kwarg(json_t *kwargs, const json_t *o, const char *key, api_error *e)
{
    const json_t *v = body_field(o, key);

    if (v && !json_object_get(kwargs, key) && json_object_set(kwargs, key, (json_t *)v) != 0)
        return api_no_memory(e);
    return API_OK;
}

/* Adds the values of the server's options and the day, if the client sends none; the names are those of published
 * templates (date_string: Llama 3; datetime, functions: Firefunction). */
static int put_defaults(const request_env *env, const json_t *o, json_t *kwargs, api_error *e)
{
    const json_t *tools = body_field(o, "tools");
    char day[32], date[32], *functions = json_array_size(tools) ? json_text(tools, JSON_INDENT(2)) : NULL;
    const time_t now = time(NULL);
    struct tm tm;

    localtime_r(&now, &tm);
    strftime(day, sizeof day, "%d %b %Y", &tm);
    strftime(date, sizeof date, "%b %d %Y", &tm);
    json_t *defaults = json_pack("{s:s,s:s,s:s}", "date_string", day, "datetime", date, "functions",
                                 functions ? functions : "");
    free(functions); /* jansson's */
    if (env->tell_thinking)
        json_object_set_new(defaults, "enable_thinking", json_boolean(env->thinking));
    const int failed = !defaults || json_object_update_missing(kwargs, defaults) != 0;
    json_decref(defaults);
    return failed ? api_no_memory(e) : API_OK;
}

static int put_switch(const json_t *o, json_t *kwargs, api_error *e)
{
    const json_t *on = body_field(o, "enable_thinking"), *effort = body_field(o, "reasoning_effort");
    const int none = effort && strcmp(body_text(effort), "none") == 0;

    if (none && json_is_true(on))
        return api_fail(e, BAD, "reasoning_effort",
                        "reasoning_effort: found \"none\", wanted an effort, as another field "
                        "says enable_thinking true");
    API_TRY(put_kwarg(kwargs, o, "enable_thinking", e));
    if (none && !json_object_get(kwargs, "enable_thinking"))
        json_object_set_new(kwargs, "enable_thinking", json_false());
    return API_OK;
}

static int merge_kwargs(const request_env *env, const json_t *o, json_t *kwargs, char **text, int *off, api_error *e)
{
    const json_t *on = body_field(o, "enable_thinking"), *effort = body_field(o, "reasoning_effort");

    if (!kwargs)
        return api_no_memory(e);
    if (on && !json_is_boolean(on))
        return body_wrong(e, "enable_thinking", on, "enable_thinking: wanted true or false");
    if (effort && !body_is_text(effort))
        return body_wrong(e, "reasoning_effort", effort, "reasoning_effort: wanted a string (none, low, medium, high)");
    API_TRY(put_switch(o, kwargs, e));
    API_TRY(put_kwarg(kwargs, o, "reasoning_effort", e));
    API_TRY(put_defaults(env, o, kwargs, e));
    /* Templates know the switch by one of two names: DeepSeek V3.1's, Granite's and Kimi's is thinking. */
    const json_t *asked = json_object_get(kwargs, "enable_thinking");
    *off = json_is_false(asked);
    if (json_is_boolean(asked) && !json_object_get(kwargs, "thinking"))
        json_object_set(kwargs, "thinking", (json_t *)asked);
    *text = json_text(kwargs, JSON_COMPACT);
    return *text ? API_OK : api_no_memory(e);
}

int chat_kwargs_read(const request_env *env, const json_t *o, char **text, int *off, api_error *e)
{
    const json_t *v = body_field(o, "chat_template_kwargs");

    *text = NULL;
    *off = 0;
    if (v && !json_is_object(v))
        return body_wrong(e, "chat_template_kwargs", v, "chat_template_kwargs: wanted an object");
    json_t *kwargs = v ? json_copy((json_t *)v) : json_object();
    const int kind = merge_kwargs(env, o, kwargs, text, off, e);
    json_decref(kwargs);
    return kind;
}

static int chat_ids(const request_env *env, const kvant_chat_input *in, prompt *p, api_error *e)
{
    kvant_diag diag = { "" };
    int n = 0, code = kvant_chat_encode(env->model, in, NULL, 0, &n, &diag);

    if (code != KVANT_OK && code != KVANT_ENOSPC)
        return api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
    p->ids = kvant_alloc(((size_t)n + 1) * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    code = kvant_chat_encode(env->model, in, p->ids, n, &p->n, &diag);
    return code == KVANT_OK ? prompt_check_length(env, p, "messages", e)
                            : api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
}

/* Keeps the text that was made into tokens, for an answer that tells it. */
static int chat_text(const request_env *env, const kvant_chat_input *in, prompt *p, api_error *e)
{
    kvant_diag diag = { "" };
    char *text = NULL;
    const int code = kvant_chat_render(env->model, in, &text, &diag);

    if (code != KVANT_OK)
        return api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
    const int kind = prompt_keep_text(p, text, strlen(text), e);
    kvant_text_free(text);
    return kind;
}

int prompt_of_chat(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    messages m = { 0 };
    char *kwargs = NULL, *tools = NULL;
    int end, off = 0, kind = chat_end_read(env, o, &end, e);

    if (kind == API_OK)
        kind = chat_kwargs_read(env, o, &kwargs, &off, e);
    if (kind == API_OK)
        kind = messages_read(env, o, &m, e);
    if (kind == API_OK)
        kind = prompt_check_bytes(env, m.bytes, "messages", e);
    if (kind == API_OK && tool_generic(env->traits, r->tools, &m.json) != KVANT_OK)
        kind = api_no_memory(e);
    if (kind == API_OK && r->tools && !(tools = json_text(r->tools->list, JSON_COMPACT)))
        kind = api_no_memory(e);
    const kvant_chat_input in = { .messages = m.json, .tools = tools, .kwargs = kwargs, .end = end };
    if (kind == API_OK)
        kind = chat_ids(env, &in, &r->prompts[0], e);
    if (kind == API_OK)
        kind = prompt_find_system(env, &in, &r->prompts[0], e);
    if (kind == API_OK && r->verbose)
        kind = chat_text(env, &in, &r->prompts[0], e);
    if (kind == API_OK && env->traits)
        r->thoughts.begun = tool_traits_opened(env->traits, env->model, r->prompts[0].ids, r->prompts[0].n);
    if (off && r->thoughts.begun) /* a template that does not know the switch has begun a thought: it ends there */
        r->thoughts.budget = 0;
    r->n_prompts = 1;
    free(kwargs); /* jansson's */
    free(tools);
    messages_free(&m);
    return kind;
}
