/* request_prompt.c: prompts of a request: text, token ids, or messages through the model's template. */
#include "server/request_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

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

int prompt_of_ids(const request_env *env, const json_t *a, const char *key, prompt *p, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;
    size_t i, n = json_array_size(a);
    json_t *x;

    p->ids = kvant_alloc((n + 1) * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    json_array_foreach((json_t *)a, i, x)
    {
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) >= width)
            return api_fail(e, BAD, key, "%s: item %zu: wanted a token id from 0 to %d", key, i, width - 1);
        p->ids[i] = (int32_t)json_integer_value(x);
    }
    p->n = (int)n;
    return API_OK;
}

static int check_length(const request_env *env, const prompt *p, const char *key, api_error *e)
{
    int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    if (p->n == 0)
        return api_fail(e, BAD, key, "%s: no tokens", key);
    if (p->n < most)
        return API_OK;
    return api_fail(e, API_CONTEXT, key, "%s: %d tokens, want at most %lld (the context is %d tokens)", key, p->n,
                    (long long)most - 1, env->n_ctx);
}

/* A text of so many bytes that even the longest tokens would be too many is refused before it is made into tokens,
 * which takes longer than all that follows. */
static int check_bytes(const request_env *env, size_t bytes, const char *key, api_error *e)
{
    int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;

    if (!env->longest_token || (int64_t)bytes / env->longest_token < most)
        return API_OK;
    return api_fail(e, API_CONTEXT, key, "%s: %zu bytes, at least %lld tokens, want at most %lld (the context is %d tokens)",
                    key, bytes, (long long)bytes / env->longest_token, (long long)most - 1, env->n_ctx);
}

/* One of: a string, an array of token ids. */
static int one_prompt(const request_env *env, const json_t *v, const char *key, int keep, prompt *p, api_error *e)
{
    if (json_is_string(v)) {
        API_TRY(check_bytes(env, json_string_length(v), key, e));
        API_TRY(
            prompt_of_text(env, json_string_value(v), json_string_length(v), KVANT_TOK_SPECIAL | KVANT_TOK_BOS, p, e));
        if (keep)
            API_TRY(keep_text(p, json_string_value(v), json_string_length(v), e));
    } else if (json_is_array(v)) {
        API_TRY(prompt_of_ids(env, v, key, p, e));
    } else {
        return api_fail(e, BAD, key, "%s: wanted a string, token ids, or an array of those", key);
    }
    return check_length(env, p, key, e);
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

/* Appends a part of a message's content, which must be text; *out (kvant_free) is NULL before the first one. */
static int add_part(const json_t *part, int i, size_t k, char **out, size_t *total, api_error *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *s = json_object_get(part, "text");

    if (!type || strcmp(type, "text") != 0)
        return api_fail(e, type ? API_UNSUPPORTED : BAD, "messages",
                        "messages: item %d: only parts of type text are supported", i);
    if (!json_is_string(s))
        return api_fail(e, BAD, "messages", "messages: item %d: part %zu: wanted text", i, k);
    char *more = kvant_realloc(*out, *total, *total + json_string_length(s) + 1);
    if (!more)
        return api_no_memory(e);
    memcpy(more + *total, json_string_value(s), json_string_length(s) + 1);
    *out = more;
    *total += json_string_length(s);
    return API_OK;
}

/* Text of a message's content: a string, or parts of type text joined.  *owned is set when it must be freed, on error
 * too. */
static int content_text(const json_t *content, int i, const char **text, char **owned, api_error *e)
{
    size_t k, total = 0;
    json_t *part;

    *owned = NULL;
    *text = "";
    if (!content || json_is_string(content)) {
        *text = content ? json_string_value(content) : "";
        return API_OK;
    }
    if (!json_is_array(content))
        return api_fail(e, BAD, "messages", "messages: item %d: content: wanted a string or an array of parts", i);
    json_array_foreach((json_t *)content, k, part) API_TRY(add_part(part, i, k, owned, &total, e));
    if (*owned)
        *text = *owned;
    return API_OK;
}

static int one_message(const json_t *m, int i, kvant_chat_msg *msg, char **owned, api_error *e)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *calls = body_field(m, "tool_calls");

    msg->role = NULL;
    if (role && strcmp(role, "developer") == 0)
        role = "system";
    for (int k = 0; k < 4 && role; k++)
        if (strcmp(role, roles[k]) == 0)
            msg->role = roles[k];
    if (!msg->role)
        return api_fail(e, BAD, "messages",
                        "messages: item %d: role: wanted system, developer, user, assistant or tool", i);
    if (calls && json_array_size(calls))
        return api_fail(e, API_UNSUPPORTED, "messages", "messages: item %d: tool calls are not supported", i);
    if (!body_field(m, "content") && msg->role != roles[2])
        return api_fail(e, BAD, "messages", "messages: item %d: content: missing", i);
    return content_text(body_field(m, "content"), i, &msg->content, owned, e);
}

void messages_free(messages *m)
{
    for (int i = 0; i < m->n; i++)
        kvant_free(m->owned[i]);
    kvant_free(m->list);
    kvant_free(m->owned);
}

/* messages_free also after an error. */
int messages_read(const json_t *o, messages *m, api_error *e)
{
    const json_t *v = body_field(o, "messages");
    size_t i;
    json_t *x;

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > REQUEST_MAX_MESSAGES)
        return api_fail(e, BAD, "messages", "messages: wanted an array of 1 to %d messages", REQUEST_MAX_MESSAGES);
    m->list = kvant_calloc(json_array_size(v), sizeof *m->list);
    m->owned = kvant_calloc(json_array_size(v), sizeof *m->owned);
    if (!m->list || !m->owned)
        return api_no_memory(e);
    m->n = (int)json_array_size(v);
    json_array_foreach((json_t *)v, i, x) API_TRY(one_message(x, (int)i, &m->list[i], &m->owned[i], e));
    return API_OK;
}

int chat_end_read(const json_t *o, int *end, api_error *e)
{
    int open = 1, go_on = 0;

    API_TRY(body_bool(o, "add_generation_prompt", &open, e));
    API_TRY(body_bool(o, "continue_final_message", &go_on, e));
    if (go_on && open && body_field(o, "add_generation_prompt"))
        return api_fail(e, BAD, "continue_final_message",
                        "continue_final_message and add_generation_prompt: both true, want one of them");
    *end = go_on ? KVANT_CHAT_CONTINUE : open ? KVANT_CHAT_OPEN : KVANT_CHAT_CLOSED;
    return API_OK;
}

int chat_kwargs_read(const json_t *o, char **kwargs, api_error *e)
{
    const json_t *v = body_field(o, "chat_template_kwargs");

    *kwargs = NULL;
    if (!v)
        return API_OK;
    if (!json_is_object(v))
        return api_fail(e, BAD, "chat_template_kwargs", "chat_template_kwargs: wanted an object");
    *kwargs = json_dumps(v, JSON_COMPACT);
    return *kwargs ? API_OK : api_no_memory(e);
}

static int chat_ids(const request_env *env, const messages *m, const char *kwargs, int end, prompt *p, api_error *e)
{
    const kvant_chat_input in = { .msgs = m->list, .n = m->n, .kwargs = kwargs, .end = end };
    kvant_diag diag = { "" };
    size_t bytes = 0;
    int n = 0, code;

    for (int i = 0; i < m->n; i++) /* templates may leave out what an assistant said (its thoughts) */
        bytes += strcmp(m->list[i].role, "assistant") ? strlen(m->list[i].content) : 0;
    API_TRY(check_bytes(env, bytes, "messages", e));
    code = kvant_chat_encode(env->model, &in, NULL, 0, &n, &diag);
    if (code != KVANT_OK && code != KVANT_ENOSPC)
        return api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
    p->ids = kvant_alloc(((size_t)n + 1) * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    code = kvant_chat_encode(env->model, &in, p->ids, n, &p->n, &diag);
    return code == KVANT_OK ? check_length(env, p, "messages", e)
                            : api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
}

int prompt_of_chat(const request_env *env, const json_t *o, request *r, api_error *e)
{
    messages m = { 0 };
    char *kwargs = NULL;
    int end, kind = chat_end_read(o, &end, e);

    if (kind == API_OK)
        kind = chat_kwargs_read(o, &kwargs, e);
    if (kind == API_OK)
        kind = messages_read(o, &m, e);
    if (kind == API_OK)
        kind = chat_ids(env, &m, kwargs, end, &r->prompts[0], e);
    r->n_prompts = 1;
    free(kwargs); /* jansson's */
    messages_free(&m);
    return kind;
}
