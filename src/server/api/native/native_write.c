/* native_write.c: the JSON shapes of llama.cpp's own /completion and /infill.  Owns field names and their order;
 * decides nothing. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/server_impl.h"

static void put_samplers(const kvant_sampler_params *s, jsonw *w)
{
    jsonw_knum(w, "typical_p", (double)s->typical_p);
    jsonw_knum(w, "top_n_sigma", (double)s->top_n_sigma);
    jsonw_knum(w, "xtc_probability", (double)s->xtc_probability);
    jsonw_knum(w, "xtc_threshold", (double)s->xtc_threshold);
    jsonw_knum(w, "dynatemp_range", (double)s->dynatemp_range);
    jsonw_knum(w, "dynatemp_exponent", (double)s->dynatemp_exponent);
    jsonw_kint(w, "mirostat", s->mirostat);
    jsonw_knum(w, "mirostat_tau", (double)s->mirostat_tau);
    jsonw_knum(w, "mirostat_eta", (double)s->mirostat_eta);
    jsonw_knum(w, "dry_multiplier", (double)s->dry_multiplier);
    jsonw_knum(w, "dry_base", (double)s->dry_base);
    jsonw_kint(w, "dry_allowed_length", s->dry_allowed_length);
    jsonw_kint(w, "dry_penalty_last_n", s->dry_last_n);
    jsonw_kint(w, "adaptive_target", -1); /* off: it is not here */
    jsonw_knum(w, "adaptive_decay", 0.9);
}

static void put_one_bias(int32_t token, float bias, jsonw *w)
{
    jsonw_object(w);
    jsonw_kint(w, "token", token);
    jsonw_knum(w, "bias", (double)bias); /* null: never */
    jsonw_end(w);
}

/* ignore_eos is told as the bans that it means. */
static void put_bias(const job *j, jsonw *w)
{
    const int n_vocab = kvant_model_get_info(j->m->model)->n_vocab;

    jsonw_key(w, "logit_bias");
    jsonw_array(w);
    for (int i = 0; i < j->gen.native.n_bias; i++)
        put_one_bias(j->gen.native.bias_ids[i], j->gen.native.bias[i], w);
    for (int32_t t = 0; j->gen.native.ignore_eos && t < n_vocab; t++)
        if (kvant_token_is_eog(j->m->model, t))
            put_one_bias(t, -INFINITY, w);
    jsonw_end(w);
}

static void put_settings(const job *j, jsonw *w)
{
    const kvant_sampler_params *s = &j->gen.native.sampler;

    jsonw_key(w, "generation_settings");
    jsonw_object(w);
    jsonw_kint(w, "n_predict", j->gen.native.max_tokens);
    jsonw_kint(w, "max_tokens", j->gen.native.max_tokens);
    jsonw_kint(w, "n_keep", j->gen.native.n_keep);
    jsonw_kint(w, "n_discard", j->gen.native.n_discard);
    jsonw_kint(w, "min_tokens", j->gen.min_tokens);
    jsonw_kint(w, "seed", j->gen.native.has_seed ? (int64_t)s->seed : -1);
    jsonw_knum(w, "temperature", (double)s->temp);
    jsonw_kint(w, "top_k", s->top_k);
    jsonw_knum(w, "top_p", (double)s->top_p);
    jsonw_knum(w, "min_p", (double)s->min_p);
    jsonw_kint(w, "repeat_last_n", s->penalty_last_n);
    jsonw_knum(w, "repeat_penalty", (double)s->repeat_penalty);
    jsonw_knum(w, "presence_penalty", (double)s->presence_penalty);
    jsonw_knum(w, "frequency_penalty", (double)s->frequency_penalty);
    put_samplers(s, w);
    put_bias(j, w);
    jsonw_kbool(w, "ignore_eos", j->gen.native.ignore_eos);
    jsonw_kbool(w, "stream", j->stream);
    jsonw_kbool(w, "timings_per_token", j->gen.timings_each);
    jsonw_kint(w, "n_probs", j->gen.probs.wanted ? j->gen.probs.top : 0);
    jsonw_key(w, "stop");
    jsonw_array(w);
    for (int i = 0; i < j->gen.n_stops; i++)
        jsonw_strn(w, j->gen.stop_text[i], (size_t)j->gen.stop_len[i]);
    jsonw_end(w);
    jsonw_end(w);
}

static void put_one_prob(const job *j, int32_t token, float logprob, jsonw *w)
{
    jsonw_object(w);
    jsonw_kint(w, "id", token);
    if (j->gen.probs.post)
        jsonw_knum(w, "prob", exp((double)logprob));
    openai_token(j, token, j->gen.probs.post ? NAN : logprob, w);
}

static void put_probs(const job *j, const choice *c, jsonw *w)
{
    jsonw_key(w, "completion_probabilities");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++) {
        const token_prob *p = &c->probs.list[i];
        put_one_prob(j, p->token, p->logprob, w);
        jsonw_key(w, j->gen.probs.post ? "top_probs" : "top_logprobs");
        jsonw_array(w);
        for (int k = 0; k < p->n_top; k++) {
            put_one_prob(j, p->top[k].token, p->top[k].logprob, w);
            jsonw_end(w);
        }
        jsonw_end(w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

/* Puts the fields that a part of a stream and a whole answer share; the object is left open. */
static void put_head(const job *j, const choice *c, int stop, jsonw *w)
{
    jsonw_object(w);
    jsonw_kint(w, "index", c->index);
    jsonw_key(w, "content");
    jsonw_strn(w, sbuf_text(&c->text), c->text.n);
    jsonw_key(w, "tokens");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n && j->gen.keep_tokens; i++)
        jsonw_int(w, c->probs.list[i].token);
    jsonw_end(w);
    jsonw_kint(w, "id_slot", j->gen.native.slot);
    jsonw_kbool(w, "stop", stop);
    jsonw_kint(w, "tokens_predicted", c->n_generated);
    jsonw_kint(w, "tokens_evaluated", c->n_prompt);
    if (j->gen.probs.wanted && c->probs.n)
        put_probs(j, c, w);
}

/* Returns 1 if the context was full before max_tokens was reached: that was the end, or the text was shortened. */
static int context_full(const job *j, const choice *c)
{
    const int most = j->gen.native.max_tokens;

    return c->timings.n_shifts > 0 || (c->finish == KVANT_FINISH_LENGTH && (most < 0 || c->n_generated < most));
}

static void put_end(const job *j, const choice *c, jsonw *w)
{
    const char *text = j->gen.prompt_texts[c->index / (j->n_choices / j->gen.n_prompt_texts)];

    jsonw_kstr(w, "model", j->m->name);
    put_settings(j, w);
    if (text)
        jsonw_kstr(w, "prompt", text);
    jsonw_kbool(w, "has_new_line", c->new_line);
    jsonw_kbool(w, "truncated", context_full(j, c));
    jsonw_kstr(w, "stop_type", c->finish == KVANT_FINISH_LENGTH ? "limit" : c->out.stopped ? "word" : "eos");
    jsonw_kstr(w, "stopping_word", c->out.stopped ? j->gen.stop_text[c->out.stopped - 1] : "");
    jsonw_kint(w, "tokens_cached", c->n_cached);
    openai_timings(&c->timings, w);
}

/* The member at "a/b/0/c", or NULL. */
static json_t *find_path(json_t *o, const char *path)
{
    char name[128];

    while (o && *path) {
        const size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(name)) : json_object_get(o, name);
        path += n + (path[n] == '/');
    }
    return o;
}

/* response_fields: of an answer only those, under the paths that they were asked for by. */
static void pick_fields(const job *j, jsonw *w)
{
    const uint64_t failures = mem_failures();
    json_t *whole = NULL, *few = json_object();

    if (!jsonw_error(w))
        json_read_any(w->buf, w->len, w->len, &whole, NULL);
    for (int i = 0; i < j->gen.native.n_fields; i++) {
        json_t *v = find_path(whole, j->gen.native.fields[i]);
        if (v)
            json_object_set(few, j->gen.native.fields[i], v);
    }
    char *text = whole && few ? json_dumps(few, JSON_COMPACT) : NULL;
    const int failed = mem_failures() != failures;
    jsonw_free(w);
    jsonw_init(w);
    if (text && !failed)
        jsonw_raw(w, text);
    else
        w->error = 1;
    free(text); /* jansson's */
    json_decref(whole);
    json_decref(few);
}

static void see_lines(choice *c)
{
    c->new_line |= c->text.n && memchr(c->text.s, '\n', c->text.n) != NULL;
}

static void native_chunk(job *j, choice *c, int ends)
{
    jsonw w;

    see_lines(c);
    jsonw_init(&w);
    put_head(j, c, ends, &w);
    if (ends)
        put_end(j, c, &w);
    else if (j->gen.timings_each)
        openai_timings(&c->timings, &w);
    jsonw_end(&w);
    if (ends && j->gen.native.n_fields)
        pick_fields(j, &w);
    openai_frame(j, &w);
    c->role_sent = 1;
    c->probs.n = 0;
    sbuf_drop(&c->text, c->text.n);
}

void native_put(const job *j, choice *c, jsonw *w)
{
    jsonw one;

    see_lines(c);
    jsonw_init(&one);
    put_head(j, c, 1, &one);
    put_end(j, c, &one);
    jsonw_end(&one);
    if (j->gen.native.n_fields)
        pick_fields(j, &one);
    if (jsonw_error(&one))
        w->error = 1;
    else
        jsonw_raw(w, one.buf);
    jsonw_free(&one);
}

/* One prompt: its answer; several: an array of answers. */
static void native_whole(job *j, jsonw *w)
{
    if (j->n_choices > 1)
        jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++)
        native_put(j, &j->choices[i], w);
    if (j->n_choices > 1)
        jsonw_end(w);
}

void native_take(native_answer *a, api_request *r)
{
    a->max_tokens = r->max_tokens;
    a->ignore_eos = r->ignore_eos;
    a->has_seed = r->has_seed;
    a->slot = r->slot;
    a->n_keep = r->native.n_keep;
    a->n_discard = r->native.n_discard;
    a->sampler = r->sampler;
    a->sampler.bias_ids = NULL;
    a->sampler.bias = NULL;
    a->sampler.dry_breakers = NULL;
    a->sampler.n_bias = a->sampler.n_dry_breakers = 0;
    a->fields = r->native.fields;
    a->n_fields = r->native.n_fields;
    r->native.fields = NULL;
    r->native.n_fields = 0;
}

int native_take_bias(native_answer *a, const api_request *r)
{
    const size_t n = (size_t)r->sampler.n_bias;

    if (!n)
        return KVANT_OK;
    a->bias_ids = kvant_calloc(n, sizeof *a->bias_ids);
    a->bias = kvant_calloc(n, sizeof *a->bias);
    if (!a->bias_ids || !a->bias)
        return KVANT_ENOMEM;
    memcpy(a->bias_ids, r->bias_ids, n * sizeof *a->bias_ids);
    memcpy(a->bias, r->bias, n * sizeof *a->bias);
    a->n_bias = (int)n;
    return KVANT_OK;
}

void native_free(native_answer *a)
{
    for (int i = 0; i < a->n_fields; i++)
        kvant_free(a->fields[i]);
    kvant_free(a->fields);
    kvant_free(a->bias_ids);
    kvant_free(a->bias);
}

const answer_shape native_shape = { native_chunk, NULL, openai_error_frame, native_whole,
                                    openai_progress };
