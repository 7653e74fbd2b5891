/* request_prompt.c: prompts of a request: text, token ids, or messages through the model's template. */
#include "server/request/request_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "server/request/json_scan.h"
#include "server/textout.h"
#include "server/tools/tool_generic.h"

void prompt_free(prompt *p)
{
    kvant_free(p->ids);
    kvant_free(p->text);
    *p = (prompt){ 0 };
}

static int keep_text(prompt *p, const char *s, size_t n, api_error *e)
{
    p->text = kvant_strndup(s, n);
    return p->text ? API_OK : api_no_memory(e);
}

int prompt_make_text(const request_env *env, prompt *p, api_error *e)
{
    const text_stops none = { 0 };
    textout out = { 0 };
    sbuf text = { 0 };
    int code = KVANT_OK;

    for (int i = 0; i < p->n && code == KVANT_OK; i++)
        code = textout_token(&out, env->model, p->ids[i], &none, &text);
    if (code == KVANT_OK)
        code = textout_end(&out, &text);
    textout_free(&out);
    const int kind = code == KVANT_OK ? keep_text(p, sbuf_text(&text), text.n, e) : api_no_memory(e);
    sbuf_free(&text);
    return kind;
}

int prompt_of_text(const request_env *env, const char *s, size_t n, int flags, prompt *p, api_error *e)
{
    kvant_diag diag = { "" };
    int cap = n < (1u << 28) ? (int)n + 8 : 1 << 28, code;

    p->ids = kvant_alloc((size_t)cap * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    code = kvant_tokenize(env->model, s, n, flags, p->ids, cap, &p->n, &diag);
    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), "prompt", "prompt: %s", diag.text);
}

static int read_id(const request_env *env, const json_t *x, size_t i, const char *key, int32_t *id, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;

    if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) >= width)
        return api_fail(e, BAD, key, "%s: item %zu: wanted a token id from 0 to %d", key, i, width - 1);
    *id = (int32_t)json_integer_value(x);
    return API_OK;
}

int prompt_of_ids(const request_env *env, const json_t *a, const char *key, prompt *p, api_error *e)
{
    size_t i, n = json_array_size(a);
    json_t *x;

    p->ids = kvant_alloc((n + 1) * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    json_array_foreach((json_t *)a, i, x) API_TRY(read_id(env, x, i, key, &p->ids[i], e));
    p->n = (int)n;
    return API_OK;
}

static int too_long(const request_env *env, int64_t tokens, const char *at_least, const char *key, api_error *e)
{
    const int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    /* the words are llama.cpp's: clients look for them */
    api_fail(e, API_CONTEXT, key,
             "%s: too large: %s%lld tokens, want at most %lld; it exceeds the available context size (%d tokens)", key,
             at_least, (long long)tokens, (long long)most - 1, env->n_ctx);
    e->n_prompt = tokens < INT32_MAX ? (int)tokens : INT32_MAX;
    e->n_ctx = env->n_ctx;
    return API_CONTEXT;
}

static int check_count(const request_env *env, size_t tokens, const char *key, api_error *e)
{
    const int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    return (int64_t)tokens < most ? API_OK : too_long(env, (int64_t)tokens, "at least ", key, e);
}

int prompt_check_length(const request_env *env, const prompt *p, const char *key, api_error *e)
{
    const int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    if (p->n == 0)
        return api_fail(e, BAD, key, "%s: no tokens", key);
    return p->n < most ? API_OK : too_long(env, p->n, "", key, e);
}

/* A text of so many bytes that even the longest tokens would be too many is refused before it is made into tokens,
 * which takes longer than all that follows. */
int prompt_check_bytes(const request_env *env, size_t bytes, const char *key, api_error *e)
{
    int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    if (!env->longest_token || (int64_t)bytes / env->longest_token < most)
        return API_OK;
    return too_long(env, (int64_t)bytes / env->longest_token, "at least ", key, e);
}

static int text_prompt(const request_env *env, const char *s, size_t n, const char *key, int keep, prompt *p,
                       api_error *e)
{
    API_TRY(prompt_check_bytes(env, n, key, e));
    API_TRY(prompt_of_text(env, s, n, KVANT_TOK_SPECIAL | (env->no_bos ? 0 : KVANT_TOK_BOS), p, e));
    return keep ? keep_text(p, s, n, e) : API_OK;
}

int prompt_append(prompt *p, const prompt *more, api_error *e)
{
    const size_t need = (size_t)p->n + (size_t)more->n + 1, have = (size_t)(p->cap ? p->cap : p->n);

    if (need > INT32_MAX / 2)
        return api_no_memory(e);
    if (need > have) {
        int32_t *ids = kvant_realloc(p->ids, (size_t)p->n * sizeof *ids, 2 * need * sizeof *ids);
        if (!ids)
            return api_no_memory(e);
        p->ids = ids;
        p->cap = (int)(2 * need);
    }
    if (more->n)
        memcpy(p->ids + p->n, more->ids, (size_t)more->n * sizeof *p->ids);
    p->n += more->n;
    return API_OK;
}

/* One item of a mixed prompt: an id, or a text. */
static int append_item(const request_env *env, const json_t *x, size_t i, const char *key, prompt *p, api_error *e)
{
    prompt more = { 0 };
    int32_t id;

    if (!json_is_string(x)) {
        API_TRY(read_id(env, x, i, key, &id, e));
        return prompt_append(p, &(prompt){ .ids = &id, .n = 1 }, e);
    }
    int kind = prompt_of_text(env, json_string_value(x), json_string_length(x),
                              KVANT_TOK_SPECIAL | (i || env->no_bos ? 0 : KVANT_TOK_BOS), &more, e);
    if (kind == API_OK)
        kind = prompt_append(p, &more, e);
    prompt_free(&more);
    return kind;
}

/* Token ids with texts between them: llama.cpp's way to write a prompt whose control tokens the client chooses.  Too
 * many are refused before a text is made into tokens: an id, and a text that is not empty, is one at least. */
static int mixed_prompt(const request_env *env, const json_t *a, const char *key, prompt *p, api_error *e)
{
    size_t i, bytes = 0, tokens = 0;
    json_t *x;

    json_array_foreach((json_t *)a, i, x)
    {
        bytes += json_string_length(x);
        tokens += !json_is_string(x) || json_string_length(x) > 0;
    }
    API_TRY(check_count(env, tokens, key, e));
    API_TRY(prompt_check_bytes(env, bytes, key, e));
    json_array_foreach((json_t *)a, i, x) API_TRY(append_item(env, x, i, key, p, e));
    return API_OK;
}

static int content_text(const json_t *content, const char *key, int i, const char **text, char **owned, api_error *e);

/* {"prompt_string": TEXT} or {"content": [parts of type text]} */
static int object_prompt(const request_env *env, const json_t *o, const char *key, int keep, prompt *p, api_error *e)
{
    const json_t *s = body_field(o, "prompt_string"), *content = body_field(o, "content");
    const char *text;
    char *owned = NULL;

    if (json_array_size(body_field(o, "multimodal_data")) || json_is_string(body_field(o, "multimodal_data")))
        return api_fail(e, API_UNSUPPORTED, key, "%s: multimodal_data: not supported: models are text only", key);
    if (json_is_string(s))
        return text_prompt(env, json_string_value(s), json_string_length(s), key, keep, p, e);
    if (!json_is_array(content))
        return api_fail(e, BAD, key, "%s: wanted prompt_string or an array of parts as content", key);
    int kind = content_text(content, key, 0, &text, &owned, e);
    if (kind == API_OK)
        kind = text_prompt(env, text, strlen(text), key, keep, p, e);
    kvant_free(owned);
    return kind;
}

static int has_text(const json_t *a)
{
    size_t i;
    json_t *x;

    json_array_foreach((json_t *)a, i, x) if (json_is_string(x)) return 1;
    return 0;
}

/* One of: a string, an array of token ids (with texts between them), an object with a text. */
static int one_prompt(const request_env *env, const json_t *v, const char *key, int keep, prompt *p, api_error *e)
{
    if (json_is_string(v))
        API_TRY(text_prompt(env, json_string_value(v), json_string_length(v), key, keep, p, e));
    else if (json_is_array(v))
        API_TRY(has_text(v) ? mixed_prompt(env, v, key, p, e) : prompt_of_ids(env, v, key, p, e));
    else if (json_is_object(v))
        API_TRY(object_prompt(env, v, key, keep, p, e));
    else
        return api_fail(e, BAD, key, "%s: wanted a string, token ids, or an array of those", key);
    return prompt_check_length(env, p, key, e);
}

int prompts_read(const request_env *env, const json_t *v, const char *key, int keep, int most, prompt *list, int *n,
                 api_error *e)
{
    size_t i;
    json_t *x;

    if (!v)
        return api_fail(e, BAD, key, "%s: missing", key);
    if (json_is_array(v) && (json_array_size(v) == 0 || json_array_size(v) > 1u << 24))
        return api_fail(e, BAD, key, "%s: wanted 1 to %d items", key, most);
    if (!json_is_array(v) || json_is_integer(json_array_get(v, 0))) {
        *n = 1;
        return one_prompt(env, v, key, keep, list, e);
    }
    if (json_array_size(v) > (size_t)most)
        return api_fail(e, BAD, key, "%s: %zu items, want at most %d", key, json_array_size(v), most);
    json_array_foreach((json_t *)v, i, x)
    {
        *n = (int)i + 1;
        API_TRY(one_prompt(env, x, key, keep, &list[i], e));
    }
    return API_OK;
}

/* ---- messages ---- */

/* Appends a part of a message's content, which must be text. */
static int add_part(const json_t *part, const char *key, int i, size_t k, sbuf *out, api_error *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *s = json_object_get(part, "text");

    if (!type || strcmp(type, "text") != 0)
        return api_fail(e, type ? API_UNSUPPORTED : BAD, key,
                        "%s: item %d: only parts of type text are supported", key, i);
    if (!json_is_string(s) || json_is_wide(s))
        return api_fail(e, BAD, key, "%s: item %d: part %zu: wanted text", key, i, k);
    sbuf_put(out, json_string_value(s), json_string_length(s));
    return out->error ? api_no_memory(e) : API_OK;
}

/* Text of a message's content: a string, or parts of type text joined.  *owned is set when it must be freed, on error
 * too. */
static int content_text(const json_t *content, const char *key, int i, const char **text, char **owned, api_error *e)
{
    sbuf all = { 0 };
    int kind = API_OK;
    json_t *part;
    size_t k;

    *owned = NULL;
    *text = "";
    if (!content || (json_is_string(content) && !json_is_wide(content))) {
        *text = content ? json_string_value(content) : "";
        return API_OK;
    }
    if (!json_is_array(content))
        return api_fail(e, BAD, key, "%s: item %d: content: wanted a string or an array of parts", key, i);
    json_array_foreach((json_t *)content, k, part) if (kind == API_OK) kind = add_part(part, key, i, k, &all, e);
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
    if (!json_is_string(v))
        return api_fail(e, BAD, "messages", "messages: item %d: %s: wanted a string", i, key);
    return json_object_set(to, as, (json_t *)v) == 0 ? API_OK : api_no_memory(e);
}

static int one_call(const json_t *call, int i, size_t k, json_t *list, api_error *e)
{
    const json_t *f = json_object_get(call, "function"), *id = body_field(call, "id");
    const char *name = json_string_value(json_object_get(f, "name"));
    json_t *arguments = json_object_get(f, "arguments");

    if (!name)
        return api_fail(e, BAD, "messages", "messages: item %d: tool_calls: %zu: function.name: wanted a string", i, k);
    if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
        return api_fail(e, BAD, "messages",
                        "messages: item %d: tool_calls: %zu: function.arguments: wanted a string or an object", i, k);
    if (id && !json_is_string(id))
        return api_fail(e, BAD, "messages", "messages: item %d: tool_calls: %zu: id: wanted a string", i, k);
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
        return api_fail(e, BAD, "messages", "messages: item %d: tool_calls: wanted an array", i);
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
    const char *role = json_string_value(json_object_get(m, "role"));

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
        return api_fail(e, BAD, "messages",
                        "messages: item %d: role: wanted system, developer, user, assistant or tool", i);
    if (!body_field(m, "content") && !assistant)
        return api_fail(e, BAD, "messages", "messages: item %d: content: missing", i);
    int kind = content_text(body_field(m, "content"), "messages", i, &text, &owned, e);
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
int messages_read(const json_t *o, messages *m, api_error *e)
{
    const json_t *v = body_field(o, "messages");

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > REQUEST_MAX_MESSAGES)
        return api_fail(e, BAD, "messages", "messages: wanted an array of 1 to %d messages", REQUEST_MAX_MESSAGES);
    json_t *list = json_array();
    const int kind = read_list(v, list, m, e);
    json_decref(list);
    return kind;
}

/* Returns 1 if the chat ends with the assistant's words; an empty message, as some clients send, is a usual turn. */
static int ends_with_words(const json_t *list)
{
    const json_t *last = json_array_get(list, json_array_size(list) - 1), *content = body_field(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));

    return role && strcmp(role, "assistant") == 0 && !json_array_size(body_field(last, "tool_calls")) &&
           (json_is_string(content) ? json_string_length(content) > 0 : json_array_size(content) > 0);
}

/* How many messages of the assistant the chat ends with. */
static int assistants(const json_t *list)
{
    size_t n = json_array_size(list);
    int count = 0;

    for (; n > 0; n--, count++) {
        const char *role = json_string_value(json_object_get(json_array_get(list, n - 1), "role"));
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
            return api_fail(e, BAD, "messages", "messages: the last %d are the assistant's, wanted at most one that goes "
                            "on (--no-prefill-assistant: none does)", assistants(list));
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

static int merge_kwargs(const request_env *env, const json_t *o, json_t *kwargs, char **text, api_error *e)
{
    const json_t *on = body_field(o, "enable_thinking"), *effort = body_field(o, "reasoning_effort");

    if (!kwargs)
        return api_no_memory(e);
    if (on && !json_is_boolean(on))
        return api_fail(e, BAD, "enable_thinking", "enable_thinking: wanted true or false");
    if (effort && !json_is_string(effort))
        return api_fail(e, BAD, "reasoning_effort", "reasoning_effort: wanted a string (none, low, medium, high)");
    API_TRY(put_kwarg(kwargs, o, "enable_thinking", e));
    API_TRY(put_kwarg(kwargs, o, "reasoning_effort", e));
    if (effort && strcmp(json_string_value(effort), "none") == 0 && !json_object_get(kwargs, "enable_thinking"))
        json_object_set_new(kwargs, "enable_thinking", json_false());
    API_TRY(put_defaults(env, o, kwargs, e));
    *text = json_text(kwargs, JSON_COMPACT);
    return *text ? API_OK : api_no_memory(e);
}

int chat_kwargs_read(const request_env *env, const json_t *o, char **text, api_error *e)
{
    const json_t *v = body_field(o, "chat_template_kwargs");

    *text = NULL;
    if (v && !json_is_object(v))
        return api_fail(e, BAD, "chat_template_kwargs", "chat_template_kwargs: wanted an object");
    json_t *kwargs = v ? json_copy((json_t *)v) : json_object();
    const int kind = merge_kwargs(env, o, kwargs, text, e);
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
    const int kind = keep_text(p, text, strlen(text), e);
    kvant_text_free(text);
    return kind;
}

int prompt_of_chat(const request_env *env, const json_t *o, request *r, api_error *e)
{
    messages m = { 0 };
    char *kwargs = NULL, *tools = NULL;
    int end, kind = chat_end_read(env, o, &end, e);

    if (kind == API_OK)
        kind = chat_kwargs_read(env, o, &kwargs, e);
    if (kind == API_OK)
        kind = messages_read(o, &m, e);
    if (kind == API_OK)
        kind = prompt_check_bytes(env, m.bytes, "messages", e);
    if (kind == API_OK && tool_generic(env->traits, r->tools, &m.json) != KVANT_OK)
        kind = api_no_memory(e);
    if (kind == API_OK && r->tools && !(tools = json_text(r->tools->list, JSON_COMPACT)))
        kind = api_no_memory(e);
    const kvant_chat_input in = { .messages = m.json, .tools = tools, .kwargs = kwargs, .end = end };
    if (kind == API_OK)
        kind = chat_ids(env, &in, &r->prompts[0], e);
    if (kind == API_OK && r->verbose)
        kind = chat_text(env, &in, &r->prompts[0], e);
    if (kind == API_OK && env->traits)
        r->in_thought = tool_traits_opened(env->traits, env->model, r->prompts[0].ids, r->prompts[0].n);
    r->n_prompts = 1;
    free(kwargs); /* jansson's */
    free(tools);
    messages_free(&m);
    return kind;
}
