/* tgi_read.c: a body of text-generation-inference as one of /v1/completions.  Parameters mean what they mean there:
 * without do_sample, and without a parameter that only sampling has, the likeliest token is taken, whatever this
 * server's own defaults are. */
#include <stdint.h>
#include <string.h>
#include "server/request/request_impl.h"

/* An answer of a request that does not say; a text longer than so many contexts is refused although it would be cut. */
enum { USUAL_TOKENS = 100, CUT_CONTEXTS = 16 };

static int copy_all(const json_t *o, json_t *out, api_error *e)
{
    static const char *const names[] = { "seed", "stop", "repetition_penalty", "frequency_penalty" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        API_TRY(body_copy(o, names[i], out, names[i], e));
    return body_put(out, "repeat_last_n", json_integer(-1), e); /* penalties see the whole context */
}

/* A sampler's parameter: without it nothing changes at `off`; *samples is set where it says something else. */
static int read_number(const json_t *o, const char *key, double lo, double hi, float off, json_t *out, int *samples,
                       api_error *e)
{
    float v = off;

    API_TRY(body_num(o, key, lo, hi, &v, e));
    *samples |= v != off;
    return body_put(out, key, json_real((double)v), e);
}

static int read_sampling(const json_t *o, json_t *out, api_error *e)
{
    int samples = 0, top_k = 0;

    API_TRY(body_bool(o, "do_sample", &samples, e));
    API_TRY(read_number(o, "top_p", 0, 1, 1, out, &samples, e));
    API_TRY(read_number(o, "typical_p", 0, 1, 1, out, &samples, e));
    API_TRY(read_number(o, "temperature", 0, 2, 1, out, &samples, e));
    API_TRY(body_count(o, "top_k", 0, 1 << 30, &top_k, e));
    API_TRY(body_put(out, "top_k", json_integer(top_k), e));
    API_TRY(body_put(out, "min_p", json_integer(0), e));
    return samples || top_k ? API_OK : body_put(out, "temperature", json_integer(0), e);
}

/* {"type": "json" | "regex" | "json_schema", "value"} */
static int read_grammar(const json_t *o, json_t *out, api_error *e)
{
    const json_t *g = body_field(o, "grammar"), *value = body_field(g, "value");
    const json_t *inner = body_field(value, "schema");
    const char *type = body_text(body_field(g, "type"));

    if (!g)
        return API_OK;
    const int regex = type && strcmp(type, "regex") == 0, named = type && strcmp(type, "json_schema") == 0;
    if (!regex && !named && !(type && strcmp(type, "json") == 0))
        return body_wrong(e, "parameters", body_field(g, "type"),
                          "parameters.grammar.type: wanted json, regex or json_schema");
    if (!value)
        return api_fail(e, BAD, "parameters", "parameters.grammar.value: missing");
    return body_put(out, regex ? "regex" : "json_schema", json_incref((json_t *)(named && inner ? inner : value)), e);
}

/* The parts of the answer; the log-probabilities that it needs are those of /v1/completions. */
static int read_wanted(const json_t *o, api_request *r, json_t *out, api_error *e)
{
    int top = 0;

    API_TRY(body_bool(o, "details", &r->tgi.details, e));
    API_TRY(body_bool(o, "decoder_input_details", &r->tgi.prefill, e));
    API_TRY(body_bool(o, "return_full_text", &r->tgi.full_text, e));
    API_TRY(body_count(o, "truncate", 1, 1 << 30, &r->tgi.truncate, e));
    API_TRY(body_count(o, "top_n_tokens", 0, REQUEST_MAX_LOGPROBS, &top, e));
    if (r->tgi.prefill && r->stream)
        return api_fail(e, BAD, "parameters", "parameters.decoder_input_details: true, but a stream tells no prompt");
    r->tgi.details |= r->tgi.prefill;
    if (!r->tgi.details && !r->stream)
        return API_OK;
    return body_put(out, "logprobs", json_integer(top), e);
}

static int read_parameters(const json_t *o, api_request *r, json_t *out, api_error *e)
{
    int most = USUAL_TOKENS;

    API_TRY(body_count(o, "max_new_tokens", 1, 1 << 30, &most, e));
    API_TRY(body_put(out, "max_tokens", json_integer(most), e));
    API_TRY(copy_all(o, out, e));
    API_TRY(read_sampling(o, out, e));
    API_TRY(read_grammar(o, out, e));
    return read_wanted(o, r, out, e);
}

int tgi_to_text(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e)
{
    const json_t *inputs = body_field(o, "inputs"), *parameters = body_field(o, "parameters");
    int stream = r->shape == BODY_TGI_STREAM;

    (void)env;
    if (!body_is_text(inputs))
        return body_wrong(e, "inputs", inputs, "inputs: wanted a text");
    if (parameters && !json_is_object(parameters))
        return body_wrong(e, "parameters", parameters, "parameters: wanted an object");
    if (r->shape == BODY_TGI_ROOT)
        API_TRY(body_bool(o, "stream", &stream, e));
    r->stream = stream;
    API_TRY(body_put(out, "stream", json_boolean(stream), e));
    API_TRY(body_copy(o, "inputs", out, "prompt", e));
    return read_parameters(parameters, r, out, e);
}

void tgi_widen(request_env *env)
{
    env->n_ctx = env->n_ctx < INT32_MAX / CUT_CONTEXTS ? env->n_ctx * CUT_CONTEXTS : INT32_MAX;
    env->pool_tokens *= CUT_CONTEXTS;
}

int tgi_truncate(const request_env *env, api_request *r, api_error *e)
{
    prompt *p = &r->prompts[0];
    const int over = p->n - r->tgi.truncate;

    if (over > 0) {
        memmove(p->ids, p->ids + over, (size_t)r->tgi.truncate * sizeof *p->ids);
        p->n = r->tgi.truncate;
    }
    return prompt_check_length(env, p, "inputs", e);
}
