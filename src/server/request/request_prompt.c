/* request_prompt.c: prompts of a request: text or token ids. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "server/textout.h"

void prompt_free(prompt *p)
{
    kvant_free(p->ids);
    kvant_free(p->text);
    *p = (prompt){ 0 };
}

int prompt_keep_text(prompt *p, const char *s, size_t n, api_error *e)
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
    const int kind = code == KVANT_OK ? prompt_keep_text(p, sbuf_text(&text), text.n, e) : api_no_memory(e);
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
        return body_wrong(e, key, x, "%s: item %zu: wanted a token id from 0 to %d", key, i, width - 1);
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
    return keep ? prompt_keep_text(p, s, n, e) : API_OK;
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

    if (!body_is_text(x)) {
        API_TRY(read_id(env, x, i, key, &id, e));
        return prompt_append(p, &(prompt){ .ids = &id, .n = 1 }, e);
    }
    int kind = prompt_of_text(env, body_text(x), json_string_length(x),
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
        tokens += !body_is_text(x) || json_string_length(x) > 0;
    }
    API_TRY(check_count(env, tokens, key, e));
    API_TRY(prompt_check_bytes(env, bytes, key, e));
    json_array_foreach((json_t *)a, i, x) API_TRY(append_item(env, x, i, key, p, e));
    return API_OK;
}

/* {"prompt_string": TEXT} or {"content": [parts of type text]} */
static int object_prompt(const request_env *env, const json_t *o, const char *key, int keep, prompt *p, api_error *e)
{
    const json_t *s = body_field(o, "prompt_string"), *content = body_field(o, "content");
    const char *text;
    char *owned = NULL;

    if (json_array_size(body_field(o, "multimodal_data")) || body_is_text(body_field(o, "multimodal_data")))
        return api_fail(e, API_UNSUPPORTED, key, "%s: multimodal_data: not supported: models are text only", key);
    if (body_is_text(s))
        return text_prompt(env, body_text(s), json_string_length(s), key, keep, p, e);
    if (!json_is_array(content))
        return body_wrong(e, key, o, "%s: wanted prompt_string or an array of parts as content", key);
    int kind = content_text(content, "", key, 0, &text, &owned, e);
    if (kind == API_OK)
        kind = text_prompt(env, text, strlen(text), key, keep, p, e);
    kvant_free(owned);
    return kind;
}

static int has_text(const json_t *a)
{
    size_t i;
    json_t *x;

    json_array_foreach((json_t *)a, i, x) if (body_is_text(x)) return 1;
    return 0;
}

/* One of: a string, an array of token ids (with texts between them), an object with a text. */
static int one_prompt(const request_env *env, const json_t *v, const char *key, int keep, prompt *p, api_error *e)
{
    if (body_is_text(v))
        API_TRY(text_prompt(env, body_text(v), json_string_length(v), key, keep, p, e));
    else if (json_is_array(v))
        API_TRY(has_text(v) ? mixed_prompt(env, v, key, p, e) : prompt_of_ids(env, v, key, p, e));
    else if (json_is_object(v))
        API_TRY(object_prompt(env, v, key, keep, p, e));
    else
        return body_wrong(e, key, v, "%s: wanted a string, token ids, or an array of those", key);
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
