/* ollama_read.c: a body of Ollama's /api/chat or /api/generate as one of /v1/chat/completions (of /v1/completions where
 * it is `raw`, of /infill where it has a suffix), which is read like any other.  Sampling parameters come out of
 * `options`; a request without words loads the model, or lets it go. */
#include "server/request/request_impl.h"

#include <string.h>

/* ---- options ---- */

/* Options that are read; num_predict -2, "until the context is full", is -1 here. */
static int read_options(const json_t *o, json_t *out, api_error *e)
{
    static const char *const names[] = {
        "temperature",     "top_k",          "top_p",         "min_p",              "typical_p",
        "typ_p",           "seed",           "stop",          "repeat_last_n",      "repeat_penalty",
        "presence_penalty", "frequency_penalty", "mirostat",  "mirostat_tau",       "mirostat_eta",
        "top_n_sigma",     "xtc_probability", "xtc_threshold", "dynatemp_range",    "dynatemp_exponent",
        "dry_multiplier",  "dry_base",       "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
        "no_repeat_ngram_size", "samplers",  "logit_bias"
    };
    const json_t *options = body_field(o, "options"), *most = body_field(options, "num_predict");

    if (options && !json_is_object(options))
        return body_wrong(e, "options", options, "options: wanted an object");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        API_TRY(body_copy(options, names[i], out, names[i], e));
    if (json_is_integer(most) && json_integer_value(most) == -2)
        return body_put(out, "max_tokens", json_integer(-1), e);
    return body_copy(options, "num_predict", out, "max_tokens", e);
}

/* format: "json", or a schema. */
static int read_format(const json_t *o, json_t *out, api_error *e)
{
    const json_t *v = body_field(o, "format");
    const char *word = body_text(v);

    if (!v || (word && !word[0]))
        return API_OK;
    if (word && strcmp(word, "json") == 0)
        return body_put(out, "response_format", json_pack("{s:s}", "type", "json_object"), e);
    if (!json_is_object(v))
        return body_wrong(e, "format", v, "format: wanted json or a schema");
    return body_put(out, "response_format",
               json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", (json_t *)v), e);
}

/* ---- messages ---- */

/* A result names its tool, not its call. */
static int put_message(const json_t *m, json_t *list, api_error *e)
{
    json_t *to = json_object();

    if (!to || json_array_append_new(list, to) != 0)
        return api_no_memory(e);
    API_TRY(body_copy(m, "role", to, "role", e));
    API_TRY(body_copy(m, "content", to, "content", e));
    if (!body_field(m, "content"))
        API_TRY(body_put(to, "content", json_string(""), e));
    API_TRY(body_copy(m, "thinking", to, "reasoning_content", e));
    API_TRY(body_copy(m, "tool_calls", to, "tool_calls", e));
    API_TRY(body_copy(m, "tool_name", to, "name", e));
    if (!body_field(m, "tool_name"))
        API_TRY(body_copy(m, "name", to, "name", e));
    return body_copy(m, "tool_call_id", to, "tool_call_id", e);
}

static int read_messages(const json_t *o, json_t *out, api_error *e)
{
    const json_t *sent = body_field(o, "messages"), *m;
    json_t *list = json_array();
    size_t i;

    API_TRY(body_put(out, "messages", list, e));
    if (sent && !json_is_array(sent))
        return body_wrong(e, "messages", sent, "messages: wanted an array");
    json_array_foreach((json_t *)sent, i, m) API_TRY(put_message(m, list, e));
    API_TRY(body_copy(o, "tools", out, "tools", e));
    return body_copy(o, "tool_choice", out, "tool_choice", e);
}

/* prompt and system as a chat of one question. */
static int put_question(const json_t *o, json_t *out, api_error *e)
{
    const json_t *system = body_field(o, "system");
    json_t *list = json_array();

    API_TRY(body_put(out, "messages", list, e));
    if (json_string_length(system) &&
        json_array_append_new(list, json_pack("{s:s,s:O}", "role", "system", "content", (json_t *)system)) != 0)
        return api_no_memory(e);
    json_t *question = json_pack("{s:s,s:O}", "role", "user", "content", (json_t *)body_field(o, "prompt"));
    return json_array_append_new(list, question) == 0 ? API_OK : api_no_memory(e);
}

/* Fields that only a template could obey are refused where none is used. */
static int check_ready(const json_t *o, const char *why, api_error *e)
{
    const json_t *think = body_field(o, "think");
    const char *field = json_string_length(body_field(o, "system")) ? "system"
                        : think && !json_is_false(think)            ? "think"
                                                                    : NULL;

    if (!field)
        return API_OK;
    return api_fail(e, API_UNSUPPORTED, field, "%s: not together with %s: no template is used", field, why);
}

static int read_prompt(const json_t *o, api_request *r, json_t *out, api_error *e)
{
    static const char *const texts[] = { "system", "suffix" };
    int raw = 0;

    API_TRY(body_bool(o, "raw", &raw, e));
    if (!body_is_text(body_field(o, "prompt")))
        return body_wrong(e, "prompt", body_field(o, "prompt"), "prompt: wanted a text");
    for (int i = 0; i < 2; i++)
        if (body_field(o, texts[i]) && !body_is_text(body_field(o, texts[i])))
            return body_wrong(e, texts[i], body_field(o, texts[i]), "%s: wanted a text", texts[i]);
    r->infill = json_string_length(body_field(o, "suffix")) > 0;
    r->chat = !raw && !r->infill;
    if (r->chat)
        return put_question(o, out, e);
    API_TRY(check_ready(o, r->infill ? "suffix" : "raw", e));
    API_TRY(body_copy(o, "suffix", out, "input_suffix", e));
    return body_copy(o, "prompt", out, r->infill ? "input_prefix" : "prompt", e);
}

/* ---- the whole body ---- */

static int check_keep(const json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "keep_alive");

    return !v || body_is_text(v) || json_is_number(v)
               ? API_OK
               : body_wrong(e, "keep_alive", v, "keep_alive: wanted seconds, or a text such as 5m");
}

/* Ollama's way to load a model (nothing is asked), or to let it go: nothing, to be kept for no time. */
static int read_idle(const json_t *o, api_request *r)
{
    const json_t *asked = body_field(o, r->shape == BODY_OLLAMA_CHAT ? "messages" : "prompt");
    const json_t *keep = body_field(o, "keep_alive");
    const char *word = body_text(keep);

    if (r->shape == BODY_OLLAMA_CHAT ? json_array_size(asked) > 0 || (asked && !json_is_array(asked))
                                     : json_string_length(asked) > 0 || (asked && !body_is_text(asked)))
        return 0;
    const int zero = word ? strchr(word, '0') && !strpbrk(word, "123456789") : json_number_value(keep) == 0;
    r->idle = keep && zero ? IDLE_UNLOAD : IDLE_LOAD;
    return 1;
}

int ollama_to_chat(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    int stream = 1;

    (void)env;
    API_TRY(body_bool(o, "stream", &stream, e));
    API_TRY(body_put(out, "stream", json_boolean(stream), e));
    API_TRY(body_copy(o, "model", out, "model", e));
    API_TRY(check_keep(o, e));
    if (read_idle(o, r))
        return API_OK;
    if (r->shape == BODY_OLLAMA_CHAT)
        API_TRY(read_messages(o, out, e));
    else
        API_TRY(read_prompt(o, r, out, e));
    API_TRY(read_options(o, out, e));
    API_TRY(read_format(o, out, e));
    if (r->chat)
        API_TRY(body_copy(o, "think", out, "think", e));
    return thoughts_spell_out(out, e);
}
