/* request.c: see request.h.  The body of a request that generates; what a field may be is said once, here and in the
 * files of request_impl.h. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"
#include "base/text/names.h"

int request_name_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    const char *p;
    size_t k = 0;

    while (names_next(&list, &p, &k))
        if (k == n && strncmp(p, name, n) == 0)
            return 1;
    return 0;
}

int request_check_model(const request_env *env, const json_t *o, api_error *e)
{
    const char *name;
    size_t n = 0;

    API_TRY(body_string(o, "model", 1024, &name, &n, e));
    if (!env->strict_model || !name || !n || strcmp(name, env->alias) == 0 ||
        (env->aliases && request_name_listed(env->aliases, name)) ||
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
int request_check_unsupported(const json_t *o, int chat, api_error *e)
{
    static const char *const arrays[] = { "functions", "images", "tools" };
    const char *choice = body_text(json_object_get(o, "tool_choice"));
    const json_t *suffix = body_field(o, "suffix"), *best_of = body_field(o, "best_of");

    for (int i = 0; i < 3; i++) {
        const json_t *v = body_field(o, arrays[i]);
        if (v && !json_is_array(v))
            return api_fail(e, BAD, arrays[i], "%s: wanted an array", arrays[i]);
        if (json_array_size(v) && !(i == 2 && (chat || (choice && strcmp(choice, "none") == 0))))
            return api_fail(e, API_UNSUPPORTED, arrays[i], "%s: not supported", arrays[i]);
    }
    if (choice && !json_array_size(body_field(o, "tools")) && strcmp(choice, "none") && strcmp(choice, "auto"))
        return api_fail(e, BAD, "tool_choice", "tool_choice: %.40s, but there are no tools", choice);
    if (suffix && !(body_is_text(suffix) && json_string_length(suffix) == 0))
        return api_fail(e, API_UNSUPPORTED, "suffix", "suffix: not supported: nothing fills in the middle here");
    if (best_of &&
        !(json_is_integer(best_of) && (json_integer_value(best_of) == 1 || json_equal(best_of, body_field(o, "n")))))
        return api_fail(e, json_is_integer(best_of) ? API_UNSUPPORTED : BAD, "best_of",
                        "best_of: supported only when equal to n");
    return API_OK;
}

static int read_stream(const json_t *o, api_request *r, api_error *e)
{
    const json_t *options = body_field(o, "stream_options");

    API_TRY(body_bool(o, "stream", &r->stream, e));
    API_TRY(body_bool(o, "return_progress", &r->progress, e));
    API_TRY(body_bool(o, "timings_per_token", &r->timings_each, e));
    if (r->shape == BODY_MESSAGES && (r->progress || r->timings_each))
        return api_fail(e, API_UNSUPPORTED, r->progress ? "return_progress" : "timings_per_token",
                        "%s: not supported on /v1/messages", r->progress ? "return_progress" : "timings_per_token");
    if (!options)
        return API_OK;
    if (!json_is_object(options))
        return body_wrong(e, "stream_options", options, "stream_options: wanted an object");
    if (!r->stream)
        return api_fail(e, BAD, "stream_options", "stream_options: wanted together with stream: true");
    API_TRY(body_bool(options, "include_usage", &r->include_usage, e));
    return API_OK;
}

static int read_lengths(const json_t *o, api_request *r, api_error *e)
{
    int most = 1 << 30;

    API_TRY(body_count(o, "n_predict", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "num_predict", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "max_new_tokens", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "max_tokens", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "max_completion_tokens", -1, most, &r->max_tokens, e));
    API_TRY(body_count(o, "min_new_tokens", 0, most, &r->min_tokens, e));
    API_TRY(body_count(o, "min_tokens", 0, most, &r->min_tokens, e));
    API_TRY(body_bool(o, "ignore_eos", &r->ignore_eos, e));
    API_TRY(body_count(o, "n", 1, REQUEST_MAX_N, &r->n, e));
    if (r->max_tokens >= 0 && r->min_tokens > r->max_tokens)
        return api_fail(e, BAD, "min_tokens", "min_tokens: %d, want at most max_tokens, %d", r->min_tokens,
                        r->max_tokens);
    return API_OK;
}

/* Guesses in a step, at most and at least; more than the server has places for are as many as it has. */
static int read_drafts(const json_t *o, api_request *r, api_error *e)
{
    API_TRY(body_count(o, "speculative.n_max", 0, 1 << 30, &r->drafts.max, e));
    API_TRY(body_count(o, "speculative.n_min", 0, 1 << 30, &r->drafts.min, e));
    API_TRY(body_num(o, "speculative.p_min", 0, 1, &r->drafts.p_min, e));
    r->drafts.max = r->drafts.max < KVANT_MOST_DRAFTS ? r->drafts.max : KVANT_MOST_DRAFTS;
    r->drafts.min = r->drafts.min < KVANT_MOST_DRAFTS ? r->drafts.min : KVANT_MOST_DRAFTS;
    return API_OK;
}

/* The place whose sequence stays for the next turn and for /slots.  Files and quotas are per key: there is no salt. */
static int read_slot(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    API_TRY(body_count(o, "id_slot", -1, env->n_slots - 1, &r->slot, e));
    if (r->slot >= 0 && r->n_prompts > 1)
        return api_fail(e, BAD, "id_slot", "id_slot: %d prompts, want one", r->n_prompts);
    if (r->slot >= 0 && r->salt)
        return api_fail(e, BAD, "id_slot", "id_slot: not together with cache_salt");
    return API_OK;
}

int request_read_specials(const json_t *o, request_env *env, api_error *e)
{
    int specials = 1;

    API_TRY(body_bool(o, "add_special_tokens", &specials, e));
    env->no_bos = !specials;
    return API_OK;
}

static int read_texts(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    const int keep = r->echo || r->shape == BODY_NATIVE || r->tgi.full_text;
    request_env own = *env;

    API_TRY(request_read_specials(o, &own, e));
    if (r->tgi.truncate)
        tgi_widen(&own);
    API_TRY(prompts_read(&own, body_field(o, "prompt"), request_is_tgi(r) ? "inputs" : "prompt", keep,
                         REQUEST_MAX_PROMPTS, r->prompts, &r->n_prompts, e));
    if (r->tgi.truncate)
        API_TRY(tgi_truncate(env, r, e));
    for (int i = 0; r->echo && i < r->n_prompts; i++)
        if (!r->prompts[i].text)
            API_TRY(prompt_make_text(env, &r->prompts[i], e));
    return API_OK;
}

static int read_prompts(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    if (r->infill) {
        r->n_prompts = 1;
        return prompt_of_infill(env, o, r->max_tokens, &r->prompts[0], e);
    }
    if (!r->chat)
        return read_texts(env, o, r, e);
    API_TRY(tools_read(env, o, r, e));
    API_TRY(thoughts_read(env, o, r, e));
    return prompt_of_chat(env, o, r, e);
}

/* Log-probabilities of all prompts are kept until the answer goes out. */
static int check_echo(const api_request *r, api_error *e)
{
    const char *field = r->echo ? "echo" : "parameters.decoder_input_details";
    int64_t kept = 0;

    if (!(r->echo || r->tgi.prefill) || !r->probs.wanted)
        return API_OK;
    if (r->slot >= 0)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: with logprobs not together with id_slot");
    for (int i = 0; i < r->n_prompts; i++)
        kept += (int64_t)r->prompts[i].n * r->n * (1 + r->probs.top);
    if (kept <= REQUEST_MAX_ECHO)
        return API_OK;
    return api_fail(e, BAD, field,
                    "%s: with logprobs %d: %lld values (prompt tokens times n times 1 + logprobs), want at most %d", field,
                    r->probs.top, (long long)kept, REQUEST_MAX_ECHO);
}

/* BODY_*: the routes of request_fields.c that it is one of, whether it has messages, and what makes it one of
 * /v1/chat/completions, /v1/completions or /infill; NULL: it is one. */
static const struct body_kind {
    int fields, chat;
    translate_fn *translate;
} kinds[] = { [BODY_TEXT] = { REQUEST_TEXT, 0, NULL },
              [BODY_NATIVE] = { REQUEST_NATIVE, 0, NULL },
              [BODY_INFILL] = { REQUEST_NATIVE | REQUEST_INFILL, 0, NULL },
              [BODY_CHAT] = { REQUEST_CHAT, 1, NULL },
              [BODY_MESSAGES] = { REQUEST_MESSAGES, 1, messages_to_chat },
              [BODY_RESPONSES] = { REQUEST_RESPONSES, 1, responses_to_chat },
              [BODY_OLLAMA_CHAT] = { REQUEST_OLLAMA_CHAT, 1, ollama_to_chat },
              [BODY_OLLAMA_GENERATE] = { REQUEST_OLLAMA_GENERATE, 1, ollama_to_chat },
              [BODY_TGI] = { REQUEST_TGI, 0, tgi_to_text },
              [BODY_TGI_STREAM] = { REQUEST_TGI, 0, tgi_to_text },
              [BODY_TGI_ROOT] = { REQUEST_TGI, 0, tgi_to_text },
              [BODY_COHERE] = { REQUEST_COHERE_CHAT, 1, cohere_to_chat },
              [BODY_FIM] = { REQUEST_FIM, 0, fim_to_text } };

int request_fields_of(int shape)
{
    return kinds[shape].fields;
}

int request_is_tgi(const api_request *r)
{
    return kinds[r->shape].translate == tgi_to_text;
}

/* Servers have different names for one field.  max_completion_tokens comes before max_tokens, its older name. */
static int check_names(const json_t *o, api_error *e)
{
    static const char *const names[][6] = {
        { "max_tokens", "max_new_tokens", "n_predict", "num_predict" },
        { "max_completion_tokens", "max_new_tokens", "n_predict", "num_predict" },
        { "min_tokens", "min_new_tokens" },
        { "repeat_penalty", "repetition_penalty" },
        { "typical_p", "typ_p" },
        { "thinking_budget_tokens", "thinking_token_budget", "reasoning_budget" },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        API_TRY(body_check_names(o, names[i], e));
    return API_OK;
}

static int read_request(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    API_TRY(check_names(o, e));
    API_TRY(request_check_model(env, o, e));
    API_TRY(request_check_unsupported(o, r->chat, e));
    API_TRY(read_stream(o, r, e));
    API_TRY(read_lengths(o, r, e));
    API_TRY(read_drafts(o, r, e));
    API_TRY(request_read_shift(env, o, r, e));
    API_TRY(request_read_sampling(env, o, r, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(request_read_lora(env, o, r, e));
    API_TRY(body_bool(o, "echo", &r->echo, e));
    if (r->chat && r->echo)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: true is for /v1/completions only");
    if (r->shape == BODY_NATIVE || r->shape == BODY_INFILL)
        API_TRY(native_fields(o, r, e));
    if (r->shape == BODY_CHAT || r->shape == BODY_TEXT)
        API_TRY(body_bool(o, "verbose", &r->verbose, e));
    if (r->echo && r->probs.wanted && r->shape != BODY_TEXT)
        return api_fail(e, API_UNSUPPORTED, "echo", "echo: with n_probs not supported; /v1/completions has logprobs");
    API_TRY(read_prompts(env, o, r, e));
    if (r->n_prompts * r->n > REQUEST_MAX_CHOICES)
        return api_fail(e, BAD, "n", "n: %d prompts times %d, want at most %d choices", r->n_prompts, r->n,
                        REQUEST_MAX_CHOICES);
    API_TRY(read_slot(env, o, r, e));
    API_TRY(check_echo(r, e));
    return request_read_grammar(env, o, r, e); /* last: it is the dearest */
}

/* The body as an object; one of another API as that of a chat, or of a completion. */
static int read_body(const request_env *env, const char *body, size_t len, api_request *r, json_t **out, api_error *e)
{
    json_t *o = NULL;
    int kind;

    API_TRY(body_read(body, len, &o, e));
    *out = o;
    API_TRY(request_check_fields(env, o, request_fields_of(r->shape), r->ignored, e));
    if (r->shape == BODY_CHAT)
        return thoughts_spell_out(o, e);
    if (!kinds[r->shape].translate)
        return API_OK;
    *out = json_object();
    kind = *out ? kinds[r->shape].translate(env, o, r, *out, e) : api_no_memory(e);
    json_decref(o);
    return kind;
}

int request_parse(const request_env *env, int shape, const char *body, size_t len, api_request **out, api_error *e)
{
    json_t *o = NULL;
    api_request *r = kvant_calloc(1, sizeof *r);

    if (!r)
        return api_no_memory(e);
    r->shape = shape;
    r->infill = shape == BODY_INFILL;
    r->chat = kinds[shape].chat;
    r->n = 1;
    r->slot = -1;
    r->max_tokens = env->default_max_tokens;
    r->drafts.max = r->drafts.min = -1;
    r->drafts.p_min = -1;
    r->sampler = env->sampler;
    r->ignore_eos = env->ignore_eos;
    r->verbose = env->verbose;
    const uint64_t failures = mem_failures();
    int kind = read_body(env, body, len, r, &o, e);
    if (kind == API_OK && !r->idle)
        kind = read_request(env, o, r, e);
    json_decref(o);
    if (mem_failures() != failures) /* something may be missing, whatever the readers say */
        kind = api_no_memory(e);
    if (kind == API_OK)
        *out = r;
    else
        request_dispose(r);
    return kind;
}

void request_dispose(api_request *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_prompts; i++)
        prompt_free(&r->prompts[i]);
    for (int i = 0; i < r->n_stops; i++)
        kvant_free(r->stops[i]);
    kvant_free(r->salt);
    grammar_release(r->grammar);
    tool_set_free(r->tools);
    responses_body_free(r->responses);
    kvant_free(r->dry_breakers);
    for (int i = 0; i < r->native.n_fields; i++)
        kvant_free(r->native.fields[i]);
    kvant_free(r->native.fields);
    kvant_free(r);
}
