/* request_samplers.c: the samplers beyond the usual ones: what llama.cpp's server takes, under its names. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"

/* ---- DRY's breakers ---- */

enum { MOST_BREAKERS = 32, TOKEN_TEXT = 4096 };

typedef struct breakers {
    const char *text[MOST_BREAKERS]; /* one character each */
    size_t len[MOST_BREAKERS];
    int n;
} breakers;

static size_t character_length(const char *s)
{
    size_t n = s[0] != 0;

    while (n && ((unsigned char)s[n] & 0xC0) == 0x80)
        n++;
    return n;
}

static int read_breakers(const json_t *o, breakers *b, api_error *e)
{
    static const char *const usual[] = { "\n", ":", "\"", "*" };
    const json_t *list = body_field(o, "dry_sequence_breakers");
    size_t i;
    json_t *x;

    for (b->n = 0; b->n < 4; b->n++)
        b->text[b->n] = usual[b->n];
    if (list && (!json_is_array(list) || json_array_size(list) > MOST_BREAKERS))
        return api_fail(e, BAD, "dry_sequence_breakers", "dry_sequence_breakers: wanted an array of at most %d strings",
                        MOST_BREAKERS);
    b->n = list ? 0 : b->n;
    json_array_foreach((json_t *)list, i, x)
    {
        const char *s = json_string_value(x);
        if (!s || !s[0] || s[character_length(s)])
            return api_fail(e, BAD, "dry_sequence_breakers",
                            "dry_sequence_breakers: item %zu: wanted a string of one character (longer ones are not "
                            "supported)",
                            i);
        b->text[b->n++] = s;
    }
    for (int k = 0; k < b->n; k++)
        b->len[k] = strlen(b->text[k]);
    return API_OK;
}

/* A token breaks where its text has one of them. */
static int breaks(const breakers *b, const char *text, size_t n)
{
    for (int i = 0; i < b->n; i++)
        if (memmem(text, n, b->text[i], b->len[i]))
            return 1;
    return 0;
}

static int find_breakers(const request_env *env, const json_t *o, request *r, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;
    char text[TOKEN_TEXT];
    breakers b;

    API_TRY(read_breakers(o, &b, e));
    if (r->sampler.dry_multiplier <= 0)
        return API_OK;
    r->dry_breakers = kvant_calloc((size_t)width, sizeof *r->dry_breakers);
    if (!r->dry_breakers)
        return api_no_memory(e);
    for (int32_t t = 0; t < width; t++) {
        const int n = kvant_token_bytes(env->model, t, 1, text, sizeof text);
        if (n > 0 && n <= TOKEN_TEXT && breaks(&b, text, (size_t)n))
            r->dry_breakers[r->sampler.n_dry_breakers++] = t;
    }
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

enum { PENALTIES, DRY, TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC, TEMPERATURE, SAMPLERS };

static const char *const names[SAMPLERS][2] = {
    { "penalties", "penalties" }, { "dry", "dry" },     { "top_n_sigma", "top_n_sigma" },
    { "top_k", "top-k" },         { "typ_p", "typical_p" }, { "top_p", "top-p" },
    { "min_p", "min-p" },         { "xtc", "xtc" },     { "temperature", "temp" }
};

static void switch_off(kvant_sampler_params *s, int which)
{
    switch (which) {
    case PENALTIES:
        s->repeat_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
        break;
    case DRY: s->dry_multiplier = 0; break;
    case TOP_N_SIGMA: s->top_n_sigma = 0; break;
    case TOP_K: s->top_k = 0; break;
    case TYPICAL: s->typical_p = 1; break;
    case TOP_P: s->top_p = 1; break;
    case MIN_P: s->min_p = 0; break;
    case XTC: s->xtc_probability = 0; break;
    default:
        s->temp = 1;
        s->dynatemp_range = 0;
    }
}

/* The sampler of a name, or of a letter, as llama.cpp has them; SAMPLERS: none. */
static int find_sampler(const char *name)
{
    static const char letters[] = "edskypmxt";
    int which = 0;

    if (name[0] && !name[1])
        return strchr(letters, name[0]) ? (int)(strchr(letters, name[0]) - letters) : SAMPLERS;
    while (which < SAMPLERS && strcmp(name, names[which][0]) != 0 && strcmp(name, names[which][1]) != 0)
        which++;
    return which;
}

/* Which samplers run, as names or as a text of letters; their order is fixed. */
static int read_order(const json_t *o, request *r, api_error *e)
{
    const json_t *list = body_field(o, "samplers");
    const size_t n = json_is_string(list) ? json_string_length(list) : json_array_size(list);
    int listed[SAMPLERS] = { 0 }, last = -1;

    if (!list)
        return API_OK;
    if (!json_is_array(list) && !json_is_string(list))
        return api_fail(e, BAD, "samplers", "samplers: wanted an array of names, or a string of letters");
    for (size_t i = 0; i < n; i++) {
        const char letter[2] = { json_is_string(list) ? json_string_value(list)[i] : 0, 0 };
        const char *name = letter[0] ? letter : json_string_value(json_array_get(list, i));
        const int which = find_sampler(name ? name : "");
        if (which == SAMPLERS || which <= last)
            return api_fail(e, BAD, "samplers",
                            "samplers: item %zu, %.40s: wanted names in this order: penalties, dry, top_n_sigma, "
                            "top_k, typ_p, top_p, min_p, xtc, temperature",
                            i, name ? name : "(no name)");
        listed[last = which] = 1;
    }
    for (int k = 0; k < SAMPLERS; k++)
        if (!listed[k])
            switch_off(&r->sampler, k);
    return API_OK;
}

int request_read_samplers(const request_env *env, const json_t *o, request *r, api_error *e)
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
