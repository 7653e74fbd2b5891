/* request_thoughts.c: whether a model shall think, how much, and what becomes of it, in the words of each server: they
 * become the fields that the rest reads (enable_thinking, reasoning_effort, ...).  Two fields that say different things
 * are refused: one of them would be dropped. */
#include "server/request/request_impl.h"

#include <string.h>

/* Ollama's: true, false, or a word of effort. */
static int read_think(json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "think");
    const char *word = body_text(v);

    if (!v)
        return API_OK;
    if (!json_is_boolean(v) && !(word && (!strcmp(word, "low") || !strcmp(word, "medium") || !strcmp(word, "high"))))
        return body_wrong(e, "think", v, "think: wanted true, false, low, medium or high");
    if (word)
        API_TRY(body_say(o, "think", "reasoning_effort", json_string(word), e));
    return body_say(o, "think", "enable_thinking", json_boolean(!json_is_false(v)), e);
}

/* Anthropic's, which other providers took over for chats: {"type": "enabled"}; some take true and false. */
static int read_thinking(json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "thinking"), *budget = body_field(v, "budget_tokens");
    const char *type = body_text(json_object_get(v, "type"));

    if (!v)
        return API_OK;
    if (!json_is_boolean(v) && !(type && (!strcmp(type, "enabled") || !strcmp(type, "disabled") ||
                                          !strcmp(type, "adaptive"))))
        return body_wrong(e, "thinking", v, "thinking: wanted true, false, or a type of enabled, adaptive or disabled");
    if (budget)
        API_TRY(body_say(o, "thinking", "thinking_budget_tokens", json_incref((json_t *)budget), e));
    return body_say(o, "thinking", "enable_thinking", json_boolean(type ? type[0] != 'd' : json_is_true(v)), e);
}

/* OpenRouter's: {"effort", "enabled", "exclude", "max_tokens"}. */
static int read_reasoning(json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "reasoning");
    int on = -1, hidden = 0;

    if (!v)
        return API_OK;
    if (!json_is_object(v))
        return body_wrong(e, "reasoning", v, "reasoning: wanted an object");
    API_TRY(body_bool(v, "enabled", &on, e));
    API_TRY(body_bool(v, "exclude", &hidden, e));
    if (on >= 0)
        API_TRY(body_say(o, "reasoning", "enable_thinking", json_boolean(on), e));
    if (hidden)
        API_TRY(body_say(o, "reasoning", "include_reasoning", json_false(), e));
    if (body_field(v, "max_tokens"))
        API_TRY(
            body_say(o, "reasoning", "thinking_budget_tokens", json_incref((json_t *)body_field(v, "max_tokens")), e));
    if (body_field(v, "effort"))
        API_TRY(body_say(o, "reasoning", "reasoning_effort", json_incref((json_t *)body_field(v, "effort")), e));
    return API_OK;
}

int thoughts_spell_out(json_t *o, api_error *e)
{
    API_TRY(read_think(o, e));
    API_TRY(read_thinking(o, e));
    return read_reasoning(o, e);
}

/* ---- what becomes of them ---- */

/* llama.cpp's word for the shape of the answer. */
static int read_format(const json_t *o, int known, api_request *r, api_error *e)
{
    const char *format;
    size_t n = 0;

    API_TRY(body_string(o, "reasoning_format", 40, &format, &n, e));
    if (!format || strcmp(format, "auto") == 0)
        return API_OK;
    if (strcmp(format, "none") != 0 && strcmp(format, "deepseek") != 0)
        return api_fail(e, BAD, "reasoning_format", "reasoning_format: %.40s, want none, auto or deepseek", format);
    r->thoughts.apart = format[0] == 'd' && known;
    return API_OK;
}

/* Anthropic's context_management: thoughts that all stay are no change. */
static int read_edits(const json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "context_management"), *list = json_object_get(v, "edits"), *x;
    size_t i;

    if (v && (!json_is_object(v) || (list && !json_is_null(list) && !json_is_array(list))))
        return api_fail(e, BAD, "context_management", "context_management: wanted an object with edits, a list");
    json_array_foreach((json_t *)list, i, x)
    {
        const json_t *keep = json_object_get(x, "keep");
        const char *type = body_text(json_object_get(x, "type"));
        const char *all = body_text(json_is_object(keep) ? json_object_get(keep, "type") : keep);
        if (!type || strcmp(type, "clear_thinking_20251015") != 0 || !all || strcmp(all, "all") != 0)
            return api_fail(e, API_UNSUPPORTED, "context_management",
                            "context_management: edits of type %.40s are not supported and would change the answer; "
                            "wanted clear_thinking_20251015 with keep all", type ? type : "none");
    }
    return API_OK;
}

int thoughts_read(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    static const char *const budgets[] = { "thinking_budget_tokens", "thinking_token_budget", "reasoning_budget" };
    const int known = env->traits && env->traits->t;
    int apart = 1, shown = 1;

    r->thoughts.budget = env->thought_budget;
    r->thoughts.apart = env->thoughts_apart && known;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++)
        API_TRY(body_count(o, budgets[i], -1, 1 << 30, &r->thoughts.budget, e));
    if (r->shape == BODY_MESSAGES)
        API_TRY(read_edits(o, e));
    API_TRY(read_format(o, known, r, e));
    API_TRY(body_bool(o, "separate_reasoning", &apart, e));
    API_TRY(body_bool(o, "include_reasoning", &shown, e));
    if (!apart)
        r->thoughts.apart = 0;
    r->thoughts.hidden = !shown && known;
    if (r->thoughts.hidden) /* only what is told apart can be left out */
        r->thoughts.apart = 1;
    return API_OK;
}
