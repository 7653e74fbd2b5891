/* embed_read.c: the bodies of /v1/embeddings and of the routes that other servers have for it. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"

/* Reads the kind of request for each kind of pooling; rank has no vector. */
static int read_pooling(const request_env *env, embed_request *r, api_error *e)
{
    static const int kinds[] = { KVANT_REQUEST_EMBED_EACH, KVANT_REQUEST_EMBED_MEAN, KVANT_REQUEST_EMBED_FIRST,
                                 KVANT_REQUEST_EMBED_LAST };

    if (env->pooling == KVANT_POOLING_RANK)
        return api_fail(e, API_UNSUPPORTED, "", "embeddings: the pooling is %d (rank): this model ranks, at /v1/rerank; "
                        "--pooling none, mean, cls or last make embeddings", env->pooling);
    if (env->pooling == KVANT_POOLING_NONE && r->shape != EMBED_NATIVE)
        return api_fail(e, API_UNSUPPORTED, "", "embeddings: the pooling is %d (none), and /v1/embeddings has one vector "
                        "for a text; wanted /embeddings, or --pooling mean, cls or last", env->pooling);
    r->kind = kinds[env->pooling];
    return API_OK;
}

/* An answer with all hidden states is as large as its texts together. */
static int check_rows(const request_env *env, const embed_request *r, api_error *e)
{
    const int64_t d = kvant_model_get_info(env->model)->n_embd;
    int64_t n = 0;

    for (int i = 0; i < r->n; i++)
        n += r->prompts[i].n;
    if (r->kind != KVANT_REQUEST_EMBED_EACH && r->n * d > REQUEST_MAX_VALUES)
        return api_fail(e, BAD, "input", "input: %d vectors of %lld values, wanted at most %d values", r->n,
                        (long long)d, REQUEST_MAX_VALUES);
    if (r->kind != KVANT_REQUEST_EMBED_EACH || n * d <= REQUEST_MAX_ROWS)
        return API_OK;
    return api_fail(e, BAD, "input", "input: %lld tokens of %lld values without pooling, wanted at most %d values",
                    (long long)n, (long long)d, REQUEST_MAX_ROWS);
}

/* Models whose embedding is that of the last token want the token that ends a text there. */
static int end_text(const request_env *env, prompt *p, api_error *e)
{
    const int32_t eos = kvant_token_eos(env->model);
    const prompt end = { .ids = (int32_t[]){ eos }, .n = 1 };

    if (env->no_bos || !p->text || !kvant_token_add_eos(env->model) || p->ids[p->n - 1] == eos)
        return API_OK;
    API_TRY(prompt_append(p, &end, e));
    return prompt_check_length(env, p, "input", e);
}

/* The field that holds the texts. */
static const char *key_of(const json_t *o, int shape)
{
    if (shape == EMBED_COHERE)
        return "texts";
    if (shape == EMBED_TEI)
        return "inputs";
    if (body_field(o, "input"))
        return "input";
    return shape == EMBED_NATIVE ? "content" : shape == EMBED_OLLAMA_ONE ? "prompt" : "input";
}

/* Cohere's list of number types. */
static int check_types(const json_t *o, api_error *e)
{
    const json_t *v = body_field(o, "embedding_types");
    const char *type = body_text(json_array_get(v, 0));

    if (!v || (json_array_size(v) == 1 && type && strcmp(type, "float") == 0))
        return API_OK;
    return api_fail(e, json_is_array(v) ? API_UNSUPPORTED : BAD, "embedding_types",
                    "embedding_types: wanted [\"float\"], the only type here");
}

/* {"source_sentence", "sentences"}: that text first, then those that it is compared with. */
static int read_compared(const request_env *env, const json_t *o, embed_request *r, api_error *e)
{
    const json_t *in = body_field(o, "inputs"), *source = body_field(in, "source_sentence");
    json_t *sentences = json_object_get(in, "sentences"), *text;
    size_t i;

    if (!body_is_text(source))
        return body_wrong(e, "inputs", in, "inputs: wanted an object with source_sentence, a text, and sentences");
    if (json_array_size(sentences) == 0 || json_array_size(sentences) >= REQUEST_MAX_TEXTS)
        return body_wrong(e, "inputs", sentences, "inputs: sentences: wanted an array of 1 to %d texts",
                          REQUEST_MAX_TEXTS - 1);
    json_array_foreach(sentences, i, text) if (!body_is_text(text))
        return body_wrong(e, "inputs", text, "inputs: sentences: item %zu: wanted a text", i);
    json_t *list = json_pack("[O]", source);
    int kind = list && json_array_extend(list, sentences) == 0 ? API_OK : api_no_memory(e);
    if (kind == API_OK)
        kind = prompts_read(env, list, "inputs", 1, REQUEST_MAX_TEXTS, r->prompts, &r->n, e);
    json_decref(list);
    return kind;
}

static int read_norm(const json_t *o, embed_request *r, api_error *e)
{
    int unit = 1;

    r->norm = 2;
    if (r->shape == EMBED_TEI) {
        API_TRY(body_bool(o, "normalize", &unit, e));
        r->norm = unit ? 2 : -1;
    }
    API_TRY(body_count(o, "embd_normalize", -1, 16, &r->norm, e));
    if (r->kind == KVANT_REQUEST_EMBED_EACH)
        r->norm = -1;
    return API_OK;
}

static const int fields_of[] = { [EMBED_OPENAI] = REQUEST_EMBED,
                                 [EMBED_NATIVE] = REQUEST_EMBED,
                                 [EMBED_OLLAMA] = REQUEST_OLLAMA_EMBED,
                                 [EMBED_OLLAMA_ONE] = REQUEST_OLLAMA_EMBED,
                                 [EMBED_COHERE] = REQUEST_COHERE_EMBED,
                                 [EMBED_TEI] = REQUEST_TEI,
                                 [EMBED_SIMILAR] = REQUEST_SIMILAR };

int embed_fields_of(int shape)
{
    return fields_of[shape];
}

static int read_embed(const request_env *base, const json_t *o, embed_request *r, api_error *e)
{
    request_env own = *base;
    const request_env *env = &own;
    const char *key = key_of(o, r->shape), *size = r->shape == EMBED_COHERE ? "output_dimension" : "dimensions";
    const json_t *format = body_field(o, "encoding_format"), *dims = body_field(o, size);
    const char *text = body_text(format);

    API_TRY(request_read_specials(o, &own, e));
    API_TRY(request_check_model(env, o, e));
    API_TRY(read_pooling(env, r, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(request_check_fields(env, o, fields_of[r->shape], r->ignored, e));
    if (r->shape == EMBED_COHERE)
        API_TRY(check_types(o, e));
    if (format && !(text && (strcmp(text, "float") == 0 || strcmp(text, "base64") == 0)))
        return body_wrong(e, "encoding_format", format, "encoding_format: wanted float or base64");
    r->base64 = text && strcmp(text, "base64") == 0;
    if (dims && !json_is_integer(dims))
        return body_wrong(e, size, dims, "%s: wanted an integer", size);
    if (dims && json_integer_value(dims) != kvant_model_get_info(env->model)->n_embd)
        return api_fail(e, API_UNSUPPORTED, size, "%s: wanted the model's %d", size,
                        kvant_model_get_info(env->model)->n_embd);
    API_TRY(read_norm(o, r, e));
    if (r->shape == EMBED_SIMILAR)
        API_TRY(read_compared(env, o, r, e));
    else
        API_TRY(prompts_read(env, body_field(o, key), key, 1, REQUEST_MAX_TEXTS, r->prompts, &r->n, e));
    for (int i = 0; i < r->n; i++)
        API_TRY(end_text(env, &r->prompts[i], e));
    return check_rows(env, r, e);
}

int embed_parse(const request_env *env, int shape, const char *body, size_t len, embed_reader read,
                embed_request **out, api_error *e)
{
    const uint64_t failures = mem_failures();
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);
    embed_request *r = kind == API_OK ? kvant_calloc(1, sizeof *r) : NULL;

    if (r)
        r->shape = shape;
    if (kind == API_OK)
        kind = r ? read(env, o, r, e) : api_no_memory(e);
    json_decref(o);
    if (mem_failures() != failures)
        kind = api_no_memory(e);
    if (kind == API_OK)
        *out = r;
    else
        embed_request_dispose(r);
    return kind;
}

int request_parse_embed(const request_env *env, int shape, const char *body, size_t len, embed_request **out,
                        api_error *e)
{
    return embed_parse(env, shape, body, len, read_embed, out, e);
}

void embed_request_dispose(embed_request *r)
{
    for (int i = 0; r && i < r->n; i++)
        prompt_free(&r->prompts[i]);
    if (r)
        kvant_free(r->salt);
    kvant_free(r);
}
