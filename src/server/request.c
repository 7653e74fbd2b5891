/* request.c: see request.h.  The body of a request that generates; what a field may be is said once, here and in the
 * files of request_impl.h. */
#include "server/request_impl.h"

#include <string.h>
#include "base/mem.h"

int request_check_model(const request_env *env, const json_t *o, api_error *e)
{
    const char *name;
    size_t n = 0;

    API_TRY(body_string(o, "model", 1024, &name, &n, e));
    if (!env->strict_model || !name || !n || strcmp(name, env->alias) == 0 ||
        strcmp(name, kvant_model_get_info(env->model)->name) == 0)
        return API_OK;
    return api_fail(e, API_NOT_FOUND, "model",
                    "model: \"%.100s\" is not served here (--strict-model-name), want \"%.100s\"", name, env->alias);
}

int request_read_salt(const json_t *o, char **salt, api_error *e)
{
    const char *given;
    size_t n = 0;

    API_TRY(body_string(o, "cache_salt", 256, &given, &n, e));
    if (given && n && !(*salt = kvant_strndup(given, n)))
        return api_no_memory(e);
    return API_OK;
}

/* Fields that OpenAI's or llama.cpp's servers know and this one does not: silence would be a wrong answer. */
int request_check_unsupported(const json_t *o, api_error *e)
{
    static const char *const arrays[] = { "tools", "functions", "lora", "images" };
    const char *choice = json_string_value(json_object_get(o, "tool_choice"));
    const json_t *suffix = body_field(o, "suffix"), *best_of = body_field(o, "best_of");

    for (int i = 0; i < 4; i++) {
        const json_t *v = body_field(o, arrays[i]);
        if (v && !json_is_array(v))
            return api_fail(e, BAD, arrays[i], "%s: wanted an array", arrays[i]);
        if (json_array_size(v) && !(i == 0 && choice && strcmp(choice, "none") == 0))
            return api_fail(e, API_UNSUPPORTED, arrays[i], "%s: not supported", arrays[i]);
    }
    if (choice && !json_array_size(body_field(o, "tools")) && strcmp(choice, "none") && strcmp(choice, "auto"))
        return api_fail(e, BAD, "tool_choice", "tool_choice: %.40s, but there are no tools", choice);
    if (suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        return api_fail(e, API_UNSUPPORTED, "suffix", "suffix: not supported: nothing fills in the middle here");
    if (best_of &&
        !(json_is_integer(best_of) && (json_integer_value(best_of) == 1 || json_equal(best_of, body_field(o, "n")))))
        return api_fail(e, json_is_integer(best_of) ? API_UNSUPPORTED : BAD, "best_of",
                        "best_of: supported only when equal to n");
    return API_OK;
}

static int read_stream(const json_t *o, request *r, api_error *e)
{
    const json_t *options = body_field(o, "stream_options");

    API_TRY(body_bool(o, "stream", &r->stream, e));
    if (!options)
        return API_OK;
    if (!json_is_object(options))
        return api_fail(e, BAD, "stream_options", "stream_options: wanted an object");
    if (!r->stream)
        return api_fail(e, BAD, "stream_options", "stream_options: wanted together with stream: true");
    API_TRY(body_bool(options, "include_usage", &r->include_usage, e));
    return API_OK;
}

static int read_lengths(const json_t *o, request *r, api_error *e)
{
    int most = 1 << 30;

    API_TRY(body_count(o, "n_predict", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "max_tokens", 1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "max_completion_tokens", 1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "min_tokens", 0, most, &r->min_tokens, e));
    API_TRY(body_bool(o, "ignore_eos", &r->ignore_eos, e));
    API_TRY(body_count(o, "n", 1, REQUEST_MAX_N, &r->n, e));
    if (r->max_tokens >= 0 && r->min_tokens > r->max_tokens)
        return api_fail(e, BAD, "min_tokens", "min_tokens: %d, want at most max_tokens, %d", r->min_tokens,
                        r->max_tokens);
    return API_OK;
}

/* The place whose sequence stays for the next turn and for /slots.  Files and quotas are per key: there is no salt. */
static int read_slot(const request_env *env, const json_t *o, request *r, api_error *e)
{
    API_TRY(body_count(o, "id_slot", -1, env->n_slots - 1, &r->slot, e));
    if (r->slot >= 0 && r->n_prompts * r->n > 1)
        return api_fail(e, BAD, "id_slot", "id_slot: %d prompts times n %d, want one choice", r->n_prompts, r->n);
    if (r->slot >= 0 && r->salt)
        return api_fail(e, BAD, "id_slot", "id_slot: not together with cache_salt");
    return API_OK;
}

static int read_request(const request_env *env, const json_t *o, request *r, api_error *e)
{
    API_TRY(request_check_model(env, o, e));
    API_TRY(request_check_unsupported(o, e));
    API_TRY(request_check_fields(env, o, r->chat ? REQUEST_CHAT : REQUEST_TEXT, r->ignored, e));
    API_TRY(read_stream(o, r, e));
    API_TRY(read_lengths(o, r, e));
    API_TRY(request_read_sampling(env, o, r, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(body_bool(o, "echo", &r->echo, e));
    if (r->chat && r->echo)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: true is for /v1/completions only");
    if (r->echo && r->logprobs)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: not supported together with logprobs");
    if (r->chat)
        API_TRY(prompt_of_chat(env, o, r, e));
    else
        API_TRY(prompts_read(env, body_field(o, "prompt"), "prompt", r->echo, REQUEST_MAX_PROMPTS, r->prompts,
                             &r->n_prompts, e));
    if (r->n_prompts * r->n > REQUEST_MAX_CHOICES)
        return api_fail(e, BAD, "n", "n: %d prompts times %d, want at most %d choices", r->n_prompts, r->n,
                        REQUEST_MAX_CHOICES);
    API_TRY(read_slot(env, o, r, e));
    return request_read_grammar(env, o, r, e); /* last: it is the dearest */
}

int request_parse(const request_env *env, int chat, const char *body, size_t len, request **out, api_error *e)
{
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);
    request *r = kind == API_OK ? kvant_calloc(1, sizeof *r) : NULL;

    if (kind == API_OK && !r)
        kind = api_no_memory(e);
    if (kind == API_OK) {
        r->chat = chat;
        r->n = 1;
        r->slot = -1;
        r->max_tokens = env->default_max_tokens;
        r->sampler = env->sampler;
        r->ignore_eos = env->ignore_eos;
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
