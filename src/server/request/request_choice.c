/* request_choice.c: how a request wants its tokens chosen: sampling, bias, stops, log-probabilities, grammar. */
#include "server/request/request_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"

static int read_sampler(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    kvant_sampler_params *s = &r->sampler;
    int64_t seed = -1;

    API_TRY(body_num(o, "temperature", 0, 2, &s->temp, e));
    API_TRY(body_num(o, "top_p", 0, 1, &s->top_p, e));
    API_TRY(body_num(o, "min_p", 0, 1, &s->min_p, e));
    API_TRY(body_count(o, "top_k", -1, 1 << 30, &s->top_k, e));
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    API_TRY(body_num(o, "repeat_penalty", 0.01, 100, &s->repeat_penalty, e));
    API_TRY(body_num(o, "repetition_penalty", 0.01, 100, &s->repeat_penalty, e));
    API_TRY(body_count(o, "repeat_last_n", -1, 1 << 30, &s->penalty_last_n, e));
    if (s->penalty_last_n >= env->n_ctx)
        s->penalty_last_n = -1; /* all of them, without a window of that size */
    API_TRY(body_num(o, "presence_penalty", -2, 2, &s->presence_penalty, e));
    API_TRY(body_num(o, "frequency_penalty", -2, 2, &s->frequency_penalty, e));
    API_TRY(body_int(o, "seed", INT64_MIN, INT64_MAX, &seed, e));
    const int given = body_field(o, "seed") != NULL;
    r->has_seed = given ? seed != -1 : env->has_seed; /* -1 is llama.cpp's way to ask for a random one */
    if (r->has_seed)
        s->seed = given ? (uint64_t)seed : env->seed;
    return API_OK;
}

static int one_bias(const request_env *env, int64_t id, const json_t *value, api_request *r, api_error *e)
{
    const int width = kvant_model_get_info(env->model)->n_vocab;
    const double v = json_is_false(value) ? -100 : json_number_value(value); /* false: llama.cpp's way to ban */

    if (id < 0 || id >= width)
        return api_fail(e, BAD, "logit_bias", "logit_bias: found token %" PRId64 ", wanted ids from 0 to %d", id,
                        width - 1);
    if (!(json_is_number(value) || json_is_false(value)) || !(v >= -100 && v <= 100))
        return body_wrong(e, "logit_bias", value, "logit_bias: token %d: wanted a number from -100 to 100, or false",
                        (int)id);
    if (r->sampler.n_bias == REQUEST_MAX_BIAS)
        return api_fail(e, BAD, "logit_bias", "logit_bias: wanted at most %d tokens", REQUEST_MAX_BIAS);
    r->bias_ids[r->sampler.n_bias] = (int32_t)id;
    r->bias[r->sampler.n_bias++] = v == -100 ? -INFINITY : (float)v; /* -100 bans, as OpenAI's documents say */
    return API_OK;
}

/* A text instead of an id: each of its tokens. */
static int bias_of_text(const request_env *env, const char *s, const json_t *value, api_request *r, api_error *e)
{
    prompt p = { 0 };
    int kind = prompt_of_text(env, s, strlen(s), 0, &p, e);

    for (int i = 0; kind == API_OK && i < p.n; i++)
        kind = one_bias(env, p.ids[i], value, r, e);
    prompt_free(&p);
    return kind;
}

/* {"ID": BIAS}, or {"TEXT": BIAS} */
static int bias_of_object(const request_env *env, const json_t *bias, api_request *r, api_error *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)bias, key, value)
    {
        int id = -1, used = 0;
        if (key[strspn(key, "-0123456789")])
            API_TRY(bias_of_text(env, key, value, r, e));
        else
            API_TRY(one_bias(env, sscanf(key, "%9d%n", &id, &used) == 1 && !key[used] ? id : -1, value, r, e));
    }
    return API_OK;
}

/* [[ID or TEXT, BIAS], ...]: llama.cpp's way to write it. */
static int bias_of_array(const request_env *env, const json_t *bias, api_request *r, api_error *e)
{
    json_t *pair;
    size_t i;

    json_array_foreach((json_t *)bias, i, pair)
    {
        const json_t *id = json_array_get(pair, 0);
        if (json_array_size(pair) != 2 || !(json_is_integer(id) || body_is_text(id)))
            return body_wrong(e, "logit_bias", pair, "logit_bias: item %zu: wanted a pair of a token id, or a text, and its bias", i);
        if (body_is_text(id))
            API_TRY(bias_of_text(env, body_text(id), json_array_get(pair, 1), r, e));
        else
            API_TRY(one_bias(env, json_integer_value(id), json_array_get(pair, 1), r, e));
    }
    return API_OK;
}

static int read_bias(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    const json_t *bias = body_field(o, "logit_bias");

    r->sampler.bias_ids = r->bias_ids;
    r->sampler.bias = r->bias;
    if (!bias)
        return API_OK;
    if (json_is_object(bias))
        return bias_of_object(env, bias, r, e);
    return json_is_array(bias) ? bias_of_array(env, bias, r, e)
                               : body_wrong(e, "logit_bias", bias, "logit_bias: wanted an object or an array of pairs");
}

static int one_stop(api_request *r, const json_t *v, api_error *e)
{
    size_t n = json_string_length(v);

    if (!body_is_text(v) || n == 0 || n > REQUEST_MAX_STOP_BYTES)
        return body_wrong(e, "stop", v, "stop: wanted strings of 1 to %d bytes", REQUEST_MAX_STOP_BYTES);
    char *s = kvant_strndup(body_text(v), n);
    if (!s)
        return api_no_memory(e);
    r->stop_len[r->n_stops] = (int)n;
    r->stops[r->n_stops++] = s;
    return API_OK;
}

static int read_stops(const json_t *o, api_request *r, api_error *e)
{
    const json_t *v = body_field(o, "stop");
    size_t i;
    json_t *x;

    if (!v)
        return API_OK;
    if (body_is_text(v))
        return one_stop(r, v, e);
    if (!json_is_array(v) || json_array_size(v) > REQUEST_MAX_STOPS)
        return body_wrong(e, "stop", v, "stop: wanted a string or an array of at most %d", REQUEST_MAX_STOPS);
    json_array_foreach((json_t *)v, i, x) API_TRY(one_stop(r, x, e));
    return API_OK;
}

static int read_logprobs(const json_t *o, api_request *r, api_error *e)
{
    const int openai = r->shape == BODY_TEXT || request_is_tgi(r);
    const char *key = openai ? "logprobs" : "n_probs";
    const json_t *v = body_field(o, key);

    if (r->shape == BODY_MESSAGES || r->shape == BODY_RESPONSES) /* their answers have no place for them */
        return API_OK;
    if (r->chat) {
        API_TRY(body_bool(o, "logprobs", &r->probs.wanted, e));
        API_TRY(body_count(o, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &r->probs.top, e));
        if (body_field(o, "top_logprobs") && r->probs.top && !r->probs.wanted)
            return api_fail(e, BAD, "top_logprobs", "top_logprobs: wanted together with logprobs: true");
        return API_OK;
    }
    API_TRY(body_count(o, key, 0, REQUEST_MAX_LOGPROBS, &r->probs.top, e));
    r->probs.wanted = v && (openai || r->probs.top > 0);
    if (!openai)
        return body_bool(o, "post_sampling_probs", &r->probs.post, e);
    return API_OK;
}

int request_read_sampling(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    API_TRY(read_sampler(env, o, r, e));
    API_TRY(request_read_samplers(env, o, r, e));
    API_TRY(read_bias(env, o, r, e));
    API_TRY(read_stops(o, r, e));
    return read_logprobs(o, r, e);
}
