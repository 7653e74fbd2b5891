/* request_fields.c: what a body holds beside what its reader reads.  A field that changes the text in a server of this
 * field (OpenAI's, llama.cpp's, vLLM's, SGLang's) and is not there is refused, unless its value is the one that changes
 * nothing; so is a field that looks like a misspelt one of ours.  All others are ignored, and the answer says so. */
#include "server/request/request_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/request/json_scan.h"

enum {
    CHAT = REQUEST_CHAT,
    TEXT = REQUEST_TEXT,
    TEMPLATE = REQUEST_TEMPLATE,
    EMBED = REQUEST_EMBED,
    NATIVE = REQUEST_NATIVE,
    RERANK = REQUEST_RERANK,
    BOTH = CHAT | TEXT | NATIVE,
};

typedef struct known_field {
    const char *name;
    int routes; /* that read it */
} known_field;

static const known_field known[] = { { "model", BOTH | EMBED | RERANK },
                                     { "prompt", TEXT | NATIVE },
                                     { "input_prefix", REQUEST_INFILL },
                                     { "input_suffix", REQUEST_INFILL },
                                     { "n_probs", NATIVE },
                                     { "post_sampling_probs", NATIVE },
                                     { "return_tokens", NATIVE },
                                     { "response_fields", NATIVE },
                                     { "verbose", CHAT },
                                     { "return_progress", BOTH },
                                     { "timings_per_token", BOTH },
                                     { "input", EMBED },
                                     { "content", EMBED },
                                     { "query", RERANK },
                                     { "documents", RERANK },
                                     { "texts", RERANK },
                                     { "top_n", RERANK },
                                     { "return_text", RERANK },
                                     { "return_documents", RERANK },
                                     { "encoding_format", EMBED },
                                     { "dimensions", EMBED },
                                     { "embd_normalize", EMBED },
                                     { "messages", CHAT | TEMPLATE },
                                     { "add_generation_prompt", CHAT | TEMPLATE },
                                     { "continue_final_message", CHAT | TEMPLATE },
                                     { "chat_template_kwargs", CHAT | TEMPLATE },
                                     { "stream", BOTH },
                                     { "stream_options", BOTH },
                                     { "n", BOTH },
                                     { "best_of", BOTH },
                                     { "max_tokens", BOTH },
                                     { "max_completion_tokens", BOTH },
                                     { "n_predict", BOTH },
                                     { "min_tokens", BOTH },
                                     { "ignore_eos", BOTH },
                                     { "temperature", BOTH },
                                     { "top_p", BOTH },
                                     { "top_k", BOTH },
                                     { "min_p", BOTH },
                                     { "seed", BOTH },
                                     { "repeat_penalty", BOTH },
                                     { "repetition_penalty", BOTH },
                                     { "presence_penalty", BOTH },
                                     { "frequency_penalty", BOTH },
                                     { "repeat_last_n", BOTH },
                                     { "typical_p", BOTH },
                                     { "typ_p", BOTH },
                                     { "top_n_sigma", BOTH },
                                     { "xtc_probability", BOTH },
                                     { "xtc_threshold", BOTH },
                                     { "dynatemp_range", BOTH },
                                     { "dynatemp_exponent", BOTH },
                                     { "mirostat", BOTH },
                                     { "mirostat_tau", BOTH },
                                     { "mirostat_eta", BOTH },
                                     { "dry_multiplier", BOTH },
                                     { "dry_base", BOTH },
                                     { "dry_allowed_length", BOTH },
                                     { "dry_penalty_last_n", BOTH },
                                     { "dry_sequence_breakers", BOTH },
                                     { "no_repeat_ngram_size", BOTH },
                                     { "samplers", BOTH },
                                     { "stop", BOTH },
                                     { "logit_bias", BOTH },
                                     { "logprobs", CHAT | TEXT },
                                     { "top_logprobs", CHAT },
                                     { "echo", BOTH },
                                     { "suffix", BOTH },
                                     { "response_format", BOTH },
                                     { "grammar", BOTH },
                                     { "json_schema", BOTH },
                                     { "enable_thinking", CHAT | TEMPLATE },
                                     { "reasoning_effort", CHAT | TEMPLATE },
                                     { "reasoning_format", CHAT },
                                     { "thinking_budget_tokens", CHAT },
                                     { "thinking_token_budget", CHAT },
                                     { "reasoning_budget", CHAT },
                                     { "tools", BOTH | TEMPLATE },
                                     { "tool_choice", BOTH | TEMPLATE },
                                     { "parallel_tool_calls", BOTH | TEMPLATE },
                                     { "functions", BOTH | TEMPLATE },
                                     { "lora", BOTH },
                                     { "images", BOTH },
                                     { "cache_salt", BOTH | EMBED | RERANK },
                                     { "id_slot", BOTH } };

/* Never change the text: names for the operator, hints about the cache, the shape of extras, or parts of a sampler
 * that stay off without the field that turns it on (that one is in `refused`). */
static const char *const harmless[] = { "user",
                                        "models",
                                        "metadata",
                                        "store",
                                        "service_tier",
                                        "safety_identifier",
                                        "prompt_cache_key",
                                        "prompt_cache_retention",
                                        "prediction",
                                        "request_id",
                                        "priority",
                                        "cache_prompt",
                                        "response_fields",
                                        "n_keep",
                                        "n_discard",
                                        "n_cache_reuse",
                                        "reasoning_in_content",
                                        "include_reasoning",
                                        "smoothing_curve" };

/* Values that change nothing; null never does. */
enum { ZERO = 1, ONE = 2, MINUS = 4 /* -1 */, OFF = 8 /* false */, ON = 16 /* true */, EMPTY = 32 };

typedef struct refused_field {
    const char *name;
    int neutral;
    const char *words;   /* strings that change nothing, "|a|b|", or NULL */
    const char *instead; /* what to use, or NULL */
} refused_field;

#define GRAMMARS "response_format, json_schema and grammar constrain an answer"

static const refused_field refused[] = {
    /* constraints */
    { "structured_outputs", EMPTY, NULL, GRAMMARS },
    { "guided_json", EMPTY, NULL, GRAMMARS },
    { "guided_regex", EMPTY, NULL, GRAMMARS },
    { "guided_choice", EMPTY, NULL, GRAMMARS },
    { "guided_grammar", EMPTY, NULL, GRAMMARS },
    { "guided_json_object", OFF, NULL, GRAMMARS },
    { "guided_whitespace_pattern", EMPTY, NULL, GRAMMARS },
    { "structural_tag", EMPTY, NULL, GRAMMARS },
    { "regex", EMPTY, NULL, GRAMMARS },
    { "ebnf", EMPTY, NULL, GRAMMARS },
    { "grammar_lazy", OFF, NULL, NULL },
    { "grammar_triggers", EMPTY, NULL, NULL },
    { "preserved_tokens", EMPTY, NULL, NULL },
    /* samplers */
    { "tfs_z", ONE, NULL, NULL },
    { "top_a", ZERO, NULL, NULL },
    { "min_keep", ZERO | ONE, NULL, NULL },
    { "mirostat_mode", ZERO, NULL, NULL },
    { "dynamic_temperature", OFF, NULL, NULL },
    { "smoothing_factor", ZERO, NULL, NULL },
    { "epsilon_cutoff", ZERO, NULL, NULL },
    { "eta_cutoff", ZERO, NULL, NULL },
    { "adaptive_target", MINUS, NULL, NULL },
    { "penalty_alpha", ZERO, NULL, NULL },
    { "encoder_repetition_penalty", ONE, NULL, NULL },
    { "guidance_scale", ONE, NULL, NULL },
    { "cfg_scale", ONE, NULL, NULL },
    { "negative_prompt", EMPTY, NULL, NULL },
    { "sampler_priority", EMPTY, NULL, NULL },
    { "sampler_order", EMPTY, NULL, NULL },
    { "do_sample", ON, NULL, "temperature 0 is greedy" },
    { "use_beam_search", OFF, NULL, NULL },
    { "num_beams", ONE, NULL, NULL },
    { "length_penalty", ONE, NULL, NULL },
    { "early_stopping", OFF, NULL, NULL },
    { "allowed_token_ids", EMPTY, NULL, "logit_bias of -100 bans a token" },
    { "bad_words", EMPTY, NULL, "logit_bias of -100 bans a token" },
    { "banned_tokens", EMPTY, NULL, "logit_bias of -100 bans a token" },
    { "banned_strings", EMPTY, NULL, NULL },
    { "custom_token_bans", EMPTY, NULL, "logit_bias of -100 bans a token" },
    { "ban_eos_token", OFF, NULL, "ignore_eos does this" },
    { "penalize_nl", OFF, NULL, NULL },
    { "logits_processors", EMPTY, NULL, NULL },
    { "custom_logit_processor", EMPTY, NULL, NULL },
    { "vllm_xargs", EMPTY, NULL, NULL },
    /* the end of the text */
    { "stop_token_ids", EMPTY, NULL, "stop takes strings" },
    { "stop_regex", EMPTY, NULL, "stop takes strings" },
    { "stop_sequences", EMPTY, NULL, "stop takes them" },
    { "stopping_strings", EMPTY, NULL, "stop takes them" },
    { "include_stop_str_in_output", OFF, NULL, NULL },
    { "no_stop_trim", OFF, NULL, NULL },
    { "max_new_tokens", 0, NULL, "max_tokens is the limit" },
    { "max_output_tokens", 0, NULL, "max_tokens is the limit" },
    { "max_length", 0, NULL, "max_tokens is the limit" },
    { "num_predict", 0, NULL, "max_tokens is the limit" },
    { "n_cmpl", ONE, NULL, "n counts the choices" },
    { "n_indent", ZERO, NULL, NULL },
    { "t_max_predict_ms", ZERO | MINUS, NULL, NULL },
    { "t_max_prompt_ms", ZERO | MINUS, NULL, NULL },
    { "thinking_token_budget", MINUS, NULL, NULL },
    { "thinking_budget_tokens", MINUS, NULL, NULL },
    { "reasoning_budget", MINUS, NULL, NULL },
    /* the prompt */
    { "chat_template", EMPTY, NULL, NULL },
    { "enable_thinking", 0, NULL, "chat_template_kwargs takes it" },
    { "thinking", EMPTY, NULL, NULL },
    { "reasoning", EMPTY, NULL, NULL },
    { "reasoning_effort", 0, NULL, NULL },
    { "reasoning_format", EMPTY, "|none|auto|", NULL },
    { "thinking_forced_open", OFF, NULL, NULL },
    { "verbosity", EMPTY, "|medium|", NULL },
    { "documents", EMPTY, NULL, NULL },
    { "system", EMPTY, NULL, "messages take a system message" },
    { "system_prompt", EMPTY, NULL, "messages take a system message" },
    { "instructions", EMPTY, NULL, "messages take a system message" },
    { "input_extra", EMPTY, NULL, NULL },
    { "image_data", EMPTY, NULL, NULL },
    { "multimodal_data", EMPTY, NULL, NULL },
    { "mm_processor_kwargs", EMPTY, NULL, NULL },
    { "audio", EMPTY, NULL, NULL },
    { "modalities", EMPTY, "|text|", NULL },
    { "web_search_options", 0, NULL, NULL },
    { "function_call", EMPTY, "|none|auto|", NULL },
    { "prompt_embeds", EMPTY, NULL, NULL },
    { "truncate_prompt_tokens", 0, NULL, NULL },
    { "lora_request", EMPTY, NULL, NULL },
    { "lora_path", EMPTY, NULL, NULL },
    { "adapter", EMPTY, NULL, NULL },
    { "adapter_id", EMPTY, NULL, NULL },
    { "options", EMPTY, NULL, "sampling parameters stand beside the prompt, not in options" },
    /* what comes back */
    { "n_probs", ZERO, NULL, "logprobs gives probabilities" },
    { "post_sampling_probs", OFF, NULL, "/completion takes it" },
    { "prompt_logprobs", OFF, NULL, NULL },
    { "skip_special_tokens", ON, NULL, NULL },
    { "return_tokens_as_token_ids", OFF, NULL, NULL },
    { "return_token_ids", OFF, NULL, NULL },
    { "return_tokens", OFF, NULL, NULL },
};

#undef GRAMMARS

static int is_neutral(const refused_field *f, const json_t *v)
{
    const char *s = json_is_array(v) && json_array_size(v) == 1 ? json_string_value(json_array_get(v, 0))
                                                                : json_string_value(v);
    char word[40];
    double d = json_number_value(v);

    if (json_is_null(v))
        return 1;
    if (json_is_number(v))
        return (f->neutral & ZERO && d == 0) || (f->neutral & ONE && d == 1) || (f->neutral & MINUS && d == -1);
    if (json_is_boolean(v))
        return f->neutral & (json_is_true(v) ? ON : OFF);
    if (s && s[0])
        return f->words && snprintf(word, sizeof word, "|%s|", s) < (int)sizeof word && strstr(f->words, word);
    return f->neutral & EMPTY && (s || json_array_size(v) + json_object_size(v) == 0);
}

static int refuse(const refused_field *f, const json_t *v, api_error *e)
{
    char *text = json_text(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    int long_one = text && strlen(text) > 40;

    api_fail(e, BAD, f->name, "%s: %.40s%s is not supported here and would change the answer; %s", f->name,
             text ? text : "this value", long_one ? "..." : "", f->instead ? f->instead : "leave the field out");
    free(text);
    return BAD;
}

static const known_field *find_known(const char *name, int route)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].routes & route && strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

static const refused_field *find_refused(const char *name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i].name, name) == 0)
            return &refused[i];
    return NULL;
}

static int is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], name) == 0)
            return 1;
    return 0;
}

/* ---- misspellings ---- */

enum { FOLDED = 40 };

/* Small letters and digits only: maxTokens and max-tokens are max_tokens.  0: longer than any name of ours. */
static int fold(const char *name, char out[FOLDED])
{
    int n = 0;

    for (; *name; name++) {
        if (!isalnum((unsigned char)*name))
            continue;
        if (n == FOLDED - 1)
            return 0;
        out[n++] = (char)tolower((unsigned char)*name);
    }
    out[n] = 0;
    return n;
}

/* Whether one letter inserted, removed, replaced or swapped with its neighbour (or nothing) makes b of a. */
static int one_off(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), i = 0;

    while (a[i] && a[i] == b[i])
        i++;
    if (n == m && a[i] && a[i + 1] && a[i] == b[i + 1] && a[i + 1] == b[i] && strcmp(a + i + 2, b + i + 2) == 0)
        return 1;
    if (n == m)
        return !a[i] || strcmp(a + i + 1, b + i + 1) == 0;
    return (n == m + 1 && strcmp(a + i + 1, b + i) == 0) || (m == n + 1 && strcmp(a + i, b + i + 1) == 0);
}

/* Our field that the name was meant to be, or NULL.  Short names must match but for case and underscores. */
static const char *meant(const char *name, int route)
{
    char given[FOLDED], ours[FOLDED];
    int n = fold(name, given);

    for (size_t i = 0; n && i < sizeof known / sizeof *known; i++)
        if (known[i].routes & route && fold(known[i].name, ours) && strcmp(given, ours) == 0)
            return known[i].name;
    for (size_t i = 0; n >= 4 && i < sizeof known / sizeof *known; i++)
        if (known[i].routes & route && fold(known[i].name, ours) >= 5 && one_off(given, ours))
            return known[i].name;
    return NULL;
}

/* ---- the check ---- */

/* Appends a name to a comma list that may stand in a response header; what does not fit is "...". */
static void note_ignored(const char *name, char ignored[REQUEST_IGNORED])
{
    size_t at = strlen(ignored), n = strlen(name);

    if (at >= 3 && strcmp(ignored + at - 3, "...") == 0)
        return;
    if (n > 64 || at + n + 8 > REQUEST_IGNORED) {
        snprintf(ignored + at, REQUEST_IGNORED - at, "%s...", at ? ", " : "");
        return;
    }
    at += (size_t)snprintf(ignored + at, REQUEST_IGNORED - at, "%s", at ? ", " : "");
    for (; *name; name++)
        ignored[at++] = isalnum((unsigned char)*name) || strchr("_-.", *name) ? *name : '?';
    ignored[at] = 0;
}

int request_check_fields(const request_env *env, const json_t *o, int route, char ignored[REQUEST_IGNORED],
                         api_error *e)
{
    const char *name, *ours;
    json_t *v;

    ignored[0] = 0;
    json_object_foreach((json_t *)o, name, v)
    {
        const refused_field *f = find_refused(name);
        if (find_known(name, route) || is_harmless(name) || (f && is_neutral(f, v)))
            continue;
        if (f)
            return refuse(f, v, e);
        if ((ours = meant(name, route)))
            return api_fail(e, BAD, ours, "%.64s: not a field of this route; did you mean %s?", name, ours);
        if (env->refuse_unknown)
            return api_fail(e, BAD, "", "%.64s: not a field of this route", name);
        note_ignored(name, ignored);
    }
    return API_OK;
}
