/* request.c: see request.h.  Owns the reading of JSON bodies into structs; what a field may be is said once, here. */
#include "server/request.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "server/json_scan.h"

enum { BAD = API_INVALID };

#define API_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        int api_try_ = (expr);                                                                                         \
        if (api_try_ != API_OK)                                                                                        \
            return api_try_;                                                                                           \
    } while (0)

static int no_memory(api_error *e)
{
    return api_fail(e, API_UNAVAILABLE, "", "out of memory");
}

/* A field; NULL when it is missing or null. */
static const json_t *field(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

static int get_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *v, api_error *e)
{
    const json_t *x = field(o, key);

    if (!x)
        return API_OK;
    if (!json_is_integer(x) || json_integer_value(x) < lo || json_integer_value(x) > hi)
        return api_fail(e, BAD, key, "%s: wanted an integer from %lld to %lld", key, (long long)lo, (long long)hi);
    *v = json_integer_value(x);
    return API_OK;
}

static int get_count(const json_t *o, const char *key, int lo, int hi, int *v, api_error *e)
{
    int64_t x = *v;

    API_TRY(get_int(o, key, lo, hi, &x, e));
    *v = (int)x;
    return API_OK;
}

static int get_num(const json_t *o, const char *key, double lo, double hi, float *v, api_error *e)
{
    const json_t *x = field(o, key);

    if (!x)
        return API_OK;
    double d = json_number_value(x);
    if (!json_is_number(x) || !(d >= lo && d <= hi))
        return api_fail(e, BAD, key, "%s: wanted a number from %g to %g", key, lo, hi);
    *v = (float)d;
    return API_OK;
}

static int get_bool(const json_t *o, const char *key, int *v, api_error *e)
{
    const json_t *x = field(o, key);

    if (!x)
        return API_OK;
    if (!json_is_boolean(x))
        return api_fail(e, BAD, key, "%s: wanted true or false", key);
    *v = json_is_true(x);
    return API_OK;
}

static int get_string(const json_t *o, const char *key, size_t max, const char **v, size_t *n, api_error *e)
{
    const json_t *x = field(o, key);

    *v = NULL;
    if (!x)
        return API_OK;
    if (!json_is_string(x) || json_string_length(x) > max)
        return api_fail(e, BAD, key, "%s: wanted a string of at most %zu bytes", key, max);
    *v = json_string_value(x);
    *n = json_string_length(x);
    return API_OK;
}

static int read_body(const char *body, size_t len, json_t **out, api_error *e)
{
    kvant_diag diag = { "" };

    if (len == 0)
        return api_fail(e, BAD, "", "body: empty, wanted a JSON object");
    if (json_read(body, len, out, &diag) != KVANT_OK)
        return api_fail(e, BAD, "", "body: %s", diag.text);
    if (json_is_object(*out))
        return API_OK;
    json_decref(*out);
    *out = NULL;
    return api_fail(e, BAD, "", "body: wanted a JSON object");
}

/* ---- prompts ---- */

void prompt_free(prompt *p)
{
    kvant_free(p->ids);
    kvant_free(p->text);
    *p = (prompt){ 0 };
}

static int keep_text(prompt *p, const char *s, size_t n, api_error *e)
{
    p->text = kvant_strndup(s, n);
    return p->text ? API_OK : no_memory(e);
}

static int text_to_ids(const request_env *env, const char *s, size_t n, int flags, prompt *p, api_error *e)
{
    kvant_diag diag = { "" };
    int cap = n < (1u << 28) ? (int)n + 8 : 1 << 28, code;

    p->ids = kvant_alloc((size_t)cap * sizeof *p->ids);
    if (!p->ids)
        return no_memory(e);
    code = kvant_tokenize(env->model, s, n, flags, p->ids, cap, &p->n, &diag);
    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), "prompt", "prompt: %s", diag.text);
}

static int array_to_ids(const request_env *env, const json_t *a, const char *key, prompt *p, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;
    size_t i, n = json_array_size(a);
    json_t *x;

    p->ids = kvant_alloc((n + 1) * sizeof *p->ids);
    if (!p->ids)
        return no_memory(e);
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

/* One of: a string, an array of token ids. */
static int one_prompt(const request_env *env, const json_t *v, const char *key, int keep, prompt *p, api_error *e)
{
    if (json_is_string(v)) {
        API_TRY(text_to_ids(env, json_string_value(v), json_string_length(v), KVANT_TOK_SPECIAL | KVANT_TOK_BOS, p, e));
        if (keep)
            API_TRY(keep_text(p, json_string_value(v), json_string_length(v), e));
    } else if (json_is_array(v)) {
        API_TRY(array_to_ids(env, v, key, p, e));
    } else {
        return api_fail(e, BAD, key, "%s: wanted a string, token ids, or an array of those", key);
    }
    return check_length(env, p, key, e);
}

static int read_prompts(const request_env *env, const json_t *v, const char *key, int keep, int most, prompt *list,
                        int *n, api_error *e)
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

/* Text of a message's content: a string, or parts of type text joined.  *owned is set when it must be freed. */
static int content_text(const json_t *content, int i, const char **text, char **owned, api_error *e)
{
    size_t k, total = 0;
    json_t *part;
    char *out = NULL;

    *owned = NULL;
    *text = "";
    if (!content || json_is_string(content)) {
        *text = content ? json_string_value(content) : "";
        return API_OK;
    }
    if (!json_is_array(content))
        return api_fail(e, BAD, "messages", "messages: item %d: content: wanted a string or an array of parts", i);
    json_array_foreach((json_t *)content, k, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *s = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0)
            return api_fail(e, type ? API_UNSUPPORTED : BAD, "messages",
                            "messages: item %d: only parts of type text are supported", i);
        if (!json_is_string(s))
            return api_fail(e, BAD, "messages", "messages: item %d: part %zu: wanted text", i, k);
        char *more = kvant_realloc(out, total, total + json_string_length(s) + 1);
        if (!more) {
            kvant_free(out);
            return no_memory(e);
        }
        out = more;
        memcpy(out + total, json_string_value(s), json_string_length(s) + 1);
        total += json_string_length(s);
    }
    *owned = out;
    if (out)
        *text = out;
    return API_OK;
}

static int one_message(const json_t *m, int i, kvant_chat_msg *msg, char **owned, api_error *e)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *calls = field(m, "tool_calls");

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
    if (!field(m, "content") && msg->role != roles[2])
        return api_fail(e, BAD, "messages", "messages: item %d: content: missing", i);
    return content_text(field(m, "content"), i, &msg->content, owned, e);
}

typedef struct messages {
    kvant_chat_msg *list;
    char **owned;
    int n;
} messages;

static void messages_free(messages *m)
{
    for (int i = 0; i < m->n; i++)
        kvant_free(m->owned[i]);
    kvant_free(m->list);
    kvant_free(m->owned);
}

/* messages_free also after an error. */
static int read_messages(const json_t *o, messages *m, api_error *e)
{
    const json_t *v = field(o, "messages");
    size_t i;
    json_t *x;

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > REQUEST_MAX_MESSAGES)
        return api_fail(e, BAD, "messages", "messages: wanted an array of 1 to %d messages", REQUEST_MAX_MESSAGES);
    m->list = kvant_calloc(json_array_size(v), sizeof *m->list);
    m->owned = kvant_calloc(json_array_size(v), sizeof *m->owned);
    if (!m->list || !m->owned)
        return no_memory(e);
    m->n = (int)json_array_size(v);
    json_array_foreach((json_t *)v, i, x) API_TRY(one_message(x, (int)i, &m->list[i], &m->owned[i], e));
    return API_OK;
}

static int chat_ids(const request_env *env, const messages *m, int open, prompt *p, api_error *e)
{
    kvant_diag diag = { "" };
    int n = 0, code = kvant_chat_tokenize(env->model, m->list, m->n, open, NULL, 0, &n, &diag);

    if (code != KVANT_OK && code != KVANT_ENOSPC)
        return api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
    p->ids = kvant_alloc(((size_t)n + 1) * sizeof *p->ids);
    if (!p->ids)
        return no_memory(e);
    code = kvant_chat_tokenize(env->model, m->list, m->n, open, p->ids, n, &p->n, &diag);
    return code == KVANT_OK ? check_length(env, p, "messages", e)
                            : api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
}

static int read_chat(const request_env *env, const json_t *o, request *r, api_error *e)
{
    messages m = { 0 };
    int open = 1, kind = get_bool(o, "add_generation_prompt", &open, e);

    if (kind == API_OK)
        kind = read_messages(o, &m, e);
    if (kind == API_OK)
        kind = chat_ids(env, &m, open, &r->prompts[0], e);
    r->n_prompts = 1;
    messages_free(&m);
    return kind;
}

/* ---- sampling ---- */

static int read_sampler(const json_t *o, request *r, api_error *e)
{
    kvant_sampler_params *s = &r->sampler;
    int64_t seed = -1;

    API_TRY(get_num(o, "temperature", 0, 2, &s->temp, e));
    API_TRY(get_num(o, "top_p", 0, 1, &s->top_p, e));
    API_TRY(get_num(o, "min_p", 0, 1, &s->min_p, e));
    API_TRY(get_count(o, "top_k", -1, 1 << 30, &s->top_k, e));
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    API_TRY(get_num(o, "repeat_penalty", 0.01, 100, &s->repeat_penalty, e));
    API_TRY(get_num(o, "repetition_penalty", 0.01, 100, &s->repeat_penalty, e));
    API_TRY(get_num(o, "presence_penalty", -2, 2, &s->presence_penalty, e));
    API_TRY(get_num(o, "frequency_penalty", -2, 2, &s->frequency_penalty, e));
    API_TRY(get_int(o, "seed", INT64_MIN, INT64_MAX, &seed, e));
    r->has_seed = field(o, "seed") && seed != -1; /* -1 is llama.cpp's way to ask for a random one */
    if (r->has_seed)
        s->seed = (uint64_t)seed;
    return API_OK;
}

static int read_bias(const request_env *env, const json_t *o, request *r, api_error *e)
{
    const json_t *bias = field(o, "logit_bias");
    const int width = kvant_model_get_info(env->model)->n_vocab;
    const char *key;
    json_t *value;

    if (!bias)
        return API_OK;
    if (!json_is_object(bias) || json_object_size(bias) > REQUEST_MAX_BIAS)
        return api_fail(e, BAD, "logit_bias", "logit_bias: wanted an object of at most %d token ids", REQUEST_MAX_BIAS);
    json_object_foreach((json_t *)bias, key, value)
    {
        int id = -1, used = 0;
        double v = json_number_value(value);
        if (sscanf(key, "%9d%n", &id, &used) != 1 || key[used] || key[0] < '0' || key[0] > '9' || id >= width)
            return api_fail(e, BAD, "logit_bias", "logit_bias: wanted token ids from 0 to %d as keys", width - 1);
        if (!json_is_number(value) || !(v >= -100 && v <= 100))
            return api_fail(e, BAD, "logit_bias", "logit_bias: token %d: wanted a number from -100 to 100", id);
        r->bias_ids[r->sampler.n_bias] = id;
        r->bias[r->sampler.n_bias++] = v == -100 ? -INFINITY : (float)v; /* -100 bans, as OpenAI's documents say */
    }
    r->sampler.bias_ids = r->bias_ids;
    r->sampler.bias = r->bias;
    return API_OK;
}

static int one_stop(request *r, const json_t *v, api_error *e)
{
    size_t n = json_string_length(v);

    if (!json_is_string(v) || n == 0 || n > REQUEST_MAX_STOP_BYTES)
        return api_fail(e, BAD, "stop", "stop: wanted strings of 1 to %d bytes", REQUEST_MAX_STOP_BYTES);
    char *s = kvant_strndup(json_string_value(v), n);
    if (!s)
        return no_memory(e);
    r->stop_len[r->n_stops] = (int)n;
    r->stops[r->n_stops++] = s;
    return API_OK;
}

static int read_stops(const json_t *o, request *r, api_error *e)
{
    const json_t *v = field(o, "stop");
    size_t i;
    json_t *x;

    if (!v)
        return API_OK;
    if (json_is_string(v))
        return one_stop(r, v, e);
    if (!json_is_array(v) || json_array_size(v) > REQUEST_MAX_STOPS)
        return api_fail(e, BAD, "stop", "stop: wanted a string or an array of at most %d", REQUEST_MAX_STOPS);
    json_array_foreach((json_t *)v, i, x) API_TRY(one_stop(r, x, e));
    return API_OK;
}

static int read_logprobs(const json_t *o, request *r, api_error *e)
{
    const json_t *v = field(o, "logprobs");

    if (r->chat) {
        API_TRY(get_bool(o, "logprobs", &r->logprobs, e));
        API_TRY(get_count(o, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &r->top_logprobs, e));
        if (field(o, "top_logprobs") && r->top_logprobs && !r->logprobs)
            return api_fail(e, BAD, "top_logprobs", "top_logprobs: wanted together with logprobs: true");
        return API_OK;
    }
    API_TRY(get_count(o, "logprobs", 0, REQUEST_MAX_LOGPROBS, &r->top_logprobs, e));
    r->logprobs = v != NULL;
    return API_OK;
}

/* ---- grammar ---- */

static int compile(const request_env *env, const char *text, size_t n, const char *key, request *r, api_error *e)
{
    kvant_diag diag = { "" };
    int code = grammar_cache_get(env->grammars, text, n, &r->grammar, &diag);

    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), key, "%s", diag.text);
}

static int compile_schema(const request_env *env, const json_t *schema, const char *key, request *r, api_error *e)
{
    kvant_diag diag = { "" };
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY), *gbnf = NULL;

    if (!text)
        return no_memory(e);
    int code = grammar_from_schema(text, strlen(text), &gbnf, &diag);
    free(text);
    if (code != KVANT_OK)
        return api_fail(e, api_kind_of(code), key, "%s", diag.text);
    int kind = compile(env, gbnf, strlen(gbnf), key, r, e);
    kvant_free(gbnf);
    return kind;
}

static int read_format(const request_env *env, const json_t *format, request *r, api_error *e)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *wrapped = json_object_get(format, "json_schema"), *schema = json_object_get(wrapped, "schema");

    if (!type)
        return api_fail(e, BAD, "response_format", "response_format: type: wanted text, json_object or json_schema");
    if (strcmp(type, "text") == 0)
        return API_OK;
    if (!schema)
        schema = json_object_get(format, "schema"); /* llama.cpp's place for it */
    if (strcmp(type, "json_object") == 0 && !schema)
        return compile(env, grammar_json_object(), strlen(grammar_json_object()), "response_format", r, e);
    if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0)
        return api_fail(e, BAD, "response_format", "response_format: type: wanted text, json_object or json_schema");
    if (!schema)
        return api_fail(e, BAD, "response_format", "response_format: json_schema.schema: missing");
    return compile_schema(env, schema, "response_format", r, e);
}

static int read_grammar(const request_env *env, const json_t *o, request *r, api_error *e)
{
    const json_t *format = field(o, "response_format"), *schema = field(o, "json_schema");
    const char *text;
    size_t n = 0;

    API_TRY(get_string(o, "grammar", GRAMMAR_MAX_TEXT, &text, &n, e));
    if ((format != NULL) + (schema != NULL) + (text && n) > 1)
        return api_fail(e, BAD, "grammar", "grammar, json_schema and response_format: wanted one of them");
    if (text && n)
        return compile(env, text, n, "grammar", r, e);
    if (schema)
        return compile_schema(env, schema, "json_schema", r, e);
    if (format && !json_is_object(format))
        return api_fail(e, BAD, "response_format", "response_format: wanted an object");
    return format ? read_format(env, format, r, e) : API_OK;
}

/* ---- the whole ---- */

static int check_model(const request_env *env, const json_t *o, api_error *e)
{
    const char *name;
    size_t n = 0;

    API_TRY(get_string(o, "model", 1024, &name, &n, e));
    if (!name || !n || strcmp(name, env->alias) == 0 || strcmp(name, kvant_model_get_info(env->model)->name) == 0)
        return API_OK;
    return api_fail(e, API_NOT_FOUND, "model", "model: \"%.100s\" is not served here, want \"%.100s\"", name,
                    env->alias);
}

/* Fields that OpenAI's or llama.cpp's servers know and this one does not: silence would be a wrong answer. */
static int check_unsupported(const json_t *o, api_error *e)
{
    static const char *const arrays[] = { "tools", "functions", "lora", "images" };
    const char *choice = json_string_value(json_object_get(o, "tool_choice"));
    const json_t *suffix = field(o, "suffix"), *best_of = field(o, "best_of");

    for (int i = 0; i < 4; i++) {
        const json_t *v = field(o, arrays[i]);
        if (v && !json_is_array(v))
            return api_fail(e, BAD, arrays[i], "%s: wanted an array", arrays[i]);
        if (json_array_size(v) && !(i == 0 && choice && strcmp(choice, "none") == 0))
            return api_fail(e, API_UNSUPPORTED, arrays[i], "%s: not supported", arrays[i]);
    }
    if (suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        return api_fail(e, API_UNSUPPORTED, "suffix", "suffix: not supported");
    if (best_of &&
        !(json_is_integer(best_of) && (json_integer_value(best_of) == 1 || json_equal(best_of, field(o, "n")))))
        return api_fail(e, json_is_integer(best_of) ? API_UNSUPPORTED : BAD, "best_of",
                        "best_of: supported only when equal to n");
    return API_OK;
}

static int read_stream(const json_t *o, request *r, api_error *e)
{
    const json_t *options = field(o, "stream_options");

    API_TRY(get_bool(o, "stream", &r->stream, e));
    if (!options)
        return API_OK;
    if (!json_is_object(options))
        return api_fail(e, BAD, "stream_options", "stream_options: wanted an object");
    if (!r->stream)
        return api_fail(e, BAD, "stream_options", "stream_options: wanted together with stream: true");
    API_TRY(get_bool(options, "include_usage", &r->include_usage, e));
    return API_OK;
}

static int read_lengths(const json_t *o, request *r, api_error *e)
{
    int most = 1 << 30;

    API_TRY(get_count(o, "n_predict", -1, most, &r->max_tokens, e));
    API_TRY(get_count(o, "max_tokens", 1, most, &r->max_tokens, e));
    API_TRY(get_count(o, "max_completion_tokens", 1, most, &r->max_tokens, e));
    API_TRY(get_count(o, "min_tokens", 0, most, &r->min_tokens, e));
    API_TRY(get_bool(o, "ignore_eos", &r->ignore_eos, e));
    API_TRY(get_count(o, "n", 1, REQUEST_MAX_N, &r->n, e));
    if (r->max_tokens >= 0 && r->min_tokens > r->max_tokens)
        return api_fail(e, BAD, "min_tokens", "min_tokens: %d, want at most max_tokens, %d", r->min_tokens,
                        r->max_tokens);
    return API_OK;
}

static int read_request(const request_env *env, const json_t *o, request *r, api_error *e)
{
    const char *salt;
    size_t n = 0;

    API_TRY(check_model(env, o, e));
    API_TRY(check_unsupported(o, e));
    API_TRY(read_stream(o, r, e));
    API_TRY(read_lengths(o, r, e));
    API_TRY(read_sampler(o, r, e));
    API_TRY(read_bias(env, o, r, e));
    API_TRY(read_stops(o, r, e));
    API_TRY(read_logprobs(o, r, e));
    API_TRY(get_string(o, "cache_salt", 256, &salt, &n, e));
    if (salt && n && !(r->salt = kvant_strndup(salt, n)))
        return no_memory(e);
    if (!r->chat)
        API_TRY(get_bool(o, "echo", &r->echo, e));
    if (r->echo && r->logprobs)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: not supported together with logprobs");
    if (r->chat)
        API_TRY(read_chat(env, o, r, e));
    else
        API_TRY(read_prompts(env, field(o, "prompt"), "prompt", r->echo, REQUEST_MAX_PROMPTS, r->prompts, &r->n_prompts,
                             e));
    if (r->n_prompts * r->n > REQUEST_MAX_CHOICES)
        return api_fail(e, BAD, "n", "n: %d prompts times %d, want at most %d choices", r->n_prompts, r->n,
                        REQUEST_MAX_CHOICES);
    return read_grammar(env, o, r, e); /* last: it is the dearest */
}

int request_parse(const request_env *env, int chat, const char *body, size_t len, request **out, api_error *e)
{
    json_t *o = NULL;
    int kind = read_body(body, len, &o, e);
    request *r = kind == API_OK ? kvant_calloc(1, sizeof *r) : NULL;

    if (kind == API_OK && !r)
        kind = no_memory(e);
    if (kind == API_OK) {
        r->chat = chat;
        r->n = 1;
        r->max_tokens = env->default_max_tokens;
        r->sampler = env->sampler;
        kind = read_request(env, o, r, e);
    }
    json_decref(o);
    if (kind == API_OK)
        *out = r;
    else
        request_dispose(r);
    return kind;
}

void request_dispose(request *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_prompts; i++)
        prompt_free(&r->prompts[i]);
    for (int i = 0; i < r->n_stops; i++)
        kvant_free(r->stops[i]);
    kvant_free(r->salt);
    grammar_release(r->grammar);
    kvant_free(r);
}

/* ---- other routes ---- */

static int read_embed(const request_env *env, const json_t *o, embed_request *r, api_error *e)
{
    const json_t *format = field(o, "encoding_format"), *dims = field(o, "dimensions");
    const char *text = json_string_value(format);

    API_TRY(check_model(env, o, e));
    if (format && !(text && (strcmp(text, "float") == 0 || strcmp(text, "base64") == 0)))
        return api_fail(e, BAD, "encoding_format", "encoding_format: wanted float or base64");
    r->base64 = text && strcmp(text, "base64") == 0;
    if (dims && !json_is_integer(dims))
        return api_fail(e, BAD, "dimensions", "dimensions: wanted an integer");
    if (dims && json_integer_value(dims) != kvant_model_get_info(env->model)->n_embd)
        return api_fail(e, API_UNSUPPORTED, "dimensions", "dimensions: wanted the model's %d",
                        kvant_model_get_info(env->model)->n_embd);
    return read_prompts(env, field(o, "input"), "input", 0, REQUEST_MAX_CHOICES, r->prompts, &r->n, e);
}

int request_parse_embed(const request_env *env, const char *body, size_t len, embed_request **out, api_error *e)
{
    json_t *o = NULL;
    int kind = read_body(body, len, &o, e);
    embed_request *r = kind == API_OK ? kvant_calloc(1, sizeof *r) : NULL;

    if (kind == API_OK)
        kind = r ? read_embed(env, o, r, e) : no_memory(e);
    json_decref(o);
    if (kind == API_OK)
        *out = r;
    else
        embed_request_dispose(r);
    return kind;
}

void embed_request_dispose(embed_request *r)
{
    for (int i = 0; r && i < r->n; i++)
        prompt_free(&r->prompts[i]);
    kvant_free(r);
}

static int read_tokenize(const request_env *env, const json_t *o, prompt *out, int *with_pieces, api_error *e)
{
    int special = 1, bos = 0;
    const json_t *v = field(o, "content") ? field(o, "content") : field(o, "prompt");

    if (!json_is_string(v))
        return api_fail(e, BAD, "content", "content: wanted a string");
    API_TRY(get_bool(o, "add_special", &bos, e));
    API_TRY(get_bool(o, "parse_special", &special, e));
    API_TRY(get_bool(o, "with_pieces", with_pieces, e));
    return text_to_ids(env, json_string_value(v), json_string_length(v),
                       (special ? KVANT_TOK_SPECIAL : 0) | (bos ? KVANT_TOK_BOS : 0), out, e);
}

int request_parse_tokenize(const request_env *env, const char *body, size_t len, prompt *out, int *with_pieces,
                           api_error *e)
{
    json_t *o = NULL;
    int kind = read_body(body, len, &o, e);

    *with_pieces = 0;
    if (kind == API_OK)
        kind = read_tokenize(env, o, out, with_pieces, e);
    json_decref(o);
    if (kind != API_OK)
        prompt_free(out);
    return kind;
}

int request_parse_detokenize(const request_env *env, const char *body, size_t len, prompt *out, api_error *e)
{
    json_t *o = NULL;
    int kind = read_body(body, len, &o, e);
    const json_t *v = kind == API_OK ? field(o, "tokens") : NULL;

    if (kind == API_OK)
        kind = json_is_array(v) ? array_to_ids(env, v, "tokens", out, e)
                                : api_fail(e, BAD, "tokens", "tokens: wanted an array of token ids");
    json_decref(o);
    if (kind != API_OK)
        prompt_free(out);
    return kind;
}

int request_parse_template(const request_env *env, const char *body, size_t len, char **text, api_error *e)
{
    json_t *o = NULL;
    messages m = { 0 };
    kvant_diag diag = { "" };
    int open = 1, kind = read_body(body, len, &o, e);

    if (kind == API_OK)
        kind = get_bool(o, "add_generation_prompt", &open, e);
    if (kind == API_OK)
        kind = read_messages(o, &m, e);
    if (kind == API_OK) {
        int code = kvant_chat_format(env->model, m.list, m.n, open, text, &diag);
        if (code != KVANT_OK)
            kind = api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
    }
    messages_free(&m);
    json_decref(o);
    return kind;
}

static int name_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') ||
              s[i] == '_' || s[i] == '-'))
            return 0;
    return n >= 1 && n <= 64;
}

int request_parse_filename(const char *body, size_t len, char name[65], api_error *e)
{
    json_t *o = NULL;
    int kind = read_body(body, len, &o, e);
    const json_t *v = kind == API_OK ? field(o, "filename") : NULL;

    if (kind == API_OK && !(json_is_string(v) && name_ok(json_string_value(v), json_string_length(v))))
        kind = api_fail(e, BAD, "filename", "filename: wanted 1 to 64 letters, digits, _ or -");
    if (kind == API_OK)
        snprintf(name, 65, "%s", json_string_value(v));
    json_decref(o);
    return kind;
}
