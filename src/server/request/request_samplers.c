/* request_samplers.c: the samplers beyond the usual ones: what llama.cpp's server takes, under its names. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"
#include "engine/sampler/sampler_words.h"

/* ---- DRY's breakers ---- */

/* Texts -> b[SAMPLER_BREAKERS], *n: llama.cpp's where the body has none. */
static int read_breakers(const json_t *o, const char **b, int *n, api_error *e)
{
    const json_t *list = body_field(o, "dry_sequence_breakers");
    size_t i;
    json_t *x;

    *n = list ? 0 : 4;
    if (!list)
        memcpy(b, sampler_usual_breakers, sizeof sampler_usual_breakers);
    if (list && (!json_is_array(list) || json_array_size(list) > SAMPLER_BREAKERS))
        return body_wrong(e, "dry_sequence_breakers", list, "dry_sequence_breakers: wanted an array of at most %d strings",
                        SAMPLER_BREAKERS);
    json_array_foreach((json_t *)list, i, x)
    {
        const char *s = body_text(x);
        if (!s || !sampler_is_breaker(s))
            return body_wrong(e, "dry_sequence_breakers", x, "dry_sequence_breakers: item %zu: wanted a string of one character (longer ones are not "
                            "supported)",
                            i);
        b[(*n)++] = s;
    }
    return API_OK;
}

static int find_breakers(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;
    const char *texts[SAMPLER_BREAKERS];
    int n;

    API_TRY(read_breakers(o, texts, &n, e));
    if (r->sampler.dry_multiplier <= 0)
        return API_OK;
    r->dry_breakers = kvant_calloc((size_t)width, sizeof *r->dry_breakers);
    if (!r->dry_breakers)
        return api_no_memory(e);
    r->sampler.n_dry_breakers = sampler_find_breakers(env->model, texts, n, r->dry_breakers);
    r->sampler.dry_breakers = r->dry_breakers;
    return API_OK;
}

static int read_dry(const json_t *o, kvant_sampler_params *s, int n_ctx, api_error *e)
{
    API_TRY(body_num(o, "dry_multiplier", 0, 100, &s->dry_multiplier, e));
    API_TRY(body_num(o, "dry_base", 1, 100, &s->dry_base, e));
    API_TRY(body_count(o, "dry_allowed_length", 0, 1 << 20, &s->dry_allowed_length, e));
    API_TRY(body_count(o, "dry_penalty_last_n", -1, 1 << 24, &s->dry_last_n, e));
    if (s->dry_last_n >= n_ctx)
        s->dry_last_n = -1;
    return API_OK;
}

/* ---- which of them run ---- */

enum { MOST_LISTED = 16 }; /* more than there are: the first one too many is not in order */

/* Which samplers run, as names or as a text of letters; their order is fixed. */
static int read_order(const json_t *o, api_request *r, api_error *e)
{
    const json_t *list = body_field(o, "samplers");
    const char *text = body_text(list), *names[MOST_LISTED];
    const size_t given = text ? json_string_length(list) : json_array_size(list);
    const int n = (int)(given < MOST_LISTED ? given : MOST_LISTED);
    char letters[MOST_LISTED][2];

    if (!list)
        return API_OK;
    if (!json_is_array(list) && !text)
        return body_wrong(e, "samplers", list, "samplers: wanted an array of names, or a string of letters");
    for (int i = 0; i < n; i++) {
        letters[i][0] = text ? text[i] : 0;
        letters[i][1] = 0;
        names[i] = text ? letters[i] : body_text(json_array_get(list, (size_t)i));
    }
    const int bad = sampler_only(&r->sampler, names, n);
    if (bad < 0)
        return API_OK;
    return api_fail(e, BAD, "samplers", "samplers: item %d, %.40s: wanted names in this order: " SAMPLER_NAMES, bad,
                    names[bad] ? names[bad] : "(no name)");
}

int request_read_samplers(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    kvant_sampler_params *s = &r->sampler;

    s->context = env->n_ctx;
    API_TRY(body_num(o, "typical_p", 0, 1, &s->typical_p, e));
    API_TRY(body_num(o, "typ_p", 0, 1, &s->typical_p, e));
    API_TRY(body_num(o, "top_n_sigma", -1, 100, &s->top_n_sigma, e));
    API_TRY(body_num(o, "xtc_probability", 0, 1, &s->xtc_probability, e));
    API_TRY(body_num(o, "xtc_threshold", 0, 1, &s->xtc_threshold, e));
    API_TRY(body_num(o, "dynatemp_range", 0, 10, &s->dynatemp_range, e));
    API_TRY(body_num(o, "dynatemp_exponent", 0, 10, &s->dynatemp_exponent, e));
    API_TRY(body_count(o, "mirostat", 0, 2, &s->mirostat, e));
    API_TRY(body_num(o, "mirostat_tau", 0, 100, &s->mirostat_tau, e));
    API_TRY(body_num(o, "mirostat_eta", 0, 10, &s->mirostat_eta, e));
    API_TRY(body_count(o, "no_repeat_ngram_size", 0, 1 << 10, &s->no_repeat_ngram, e));
    API_TRY(read_dry(o, s, env->n_ctx, e));
    API_TRY(read_order(o, r, e));
    return find_breakers(env, o, r, e);
}
