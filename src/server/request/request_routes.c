/* request_routes.c: the bodies of the routes that do not generate: embeddings, tokens, templates, slot files. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/tools/tool_generic.h"

/* Reads the kind of request for each kind of pooling; rank has no vector. */
static int read_pooling(const request_env *env, embed_request *r, api_error *e)
{
    static const int kinds[] = { KVANT_REQUEST_EMBED_EACH, KVANT_REQUEST_EMBED_MEAN, KVANT_REQUEST_EMBED_FIRST,
                                 KVANT_REQUEST_EMBED_LAST };

    if (env->pooling == KVANT_POOLING_RANK)
        return api_fail(e, API_UNSUPPORTED, "", "embeddings: the pooling is %d (rank): this model ranks, at /v1/rerank; "
                        "--pooling none, mean, cls or last make embeddings", env->pooling);
    if (env->pooling == KVANT_POOLING_NONE && !r->native)
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

static int read_embed(const request_env *base, const json_t *o, embed_request *r, api_error *e)
{
    request_env own = *base;
    const request_env *env = &own;
    const char *key = r->native && !body_field(o, "input") ? "content" : "input";
    const json_t *format = body_field(o, "encoding_format"), *dims = body_field(o, "dimensions");
    const char *text = json_string_value(format);

    API_TRY(request_read_specials(o, &own, e));
    API_TRY(request_check_model(env, o, e));
    API_TRY(read_pooling(env, r, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(request_check_fields(env, o, REQUEST_EMBED, r->ignored, e));
    if (format && !(text && (strcmp(text, "float") == 0 || strcmp(text, "base64") == 0)))
        return api_fail(e, BAD, "encoding_format", "encoding_format: wanted float or base64");
    r->base64 = text && strcmp(text, "base64") == 0;
    if (dims && !json_is_integer(dims))
        return api_fail(e, BAD, "dimensions", "dimensions: wanted an integer");
    if (dims && json_integer_value(dims) != kvant_model_get_info(env->model)->n_embd)
        return api_fail(e, API_UNSUPPORTED, "dimensions", "dimensions: wanted the model's %d",
                        kvant_model_get_info(env->model)->n_embd);
    r->norm = 2;
    API_TRY(body_count(o, "embd_normalize", -1, 16, &r->norm, e));
    API_TRY(prompts_read(env, body_field(o, key), key, 1, REQUEST_MAX_TEXTS, r->prompts, &r->n, e));
    for (int i = 0; i < r->n; i++)
        API_TRY(end_text(env, &r->prompts[i], e));
    return check_rows(env, r, e);
}

int request_parse_embed(const request_env *env, int native, const char *body, size_t len, embed_request **out,
                        api_error *e)
{
    const uint64_t failures = mem_failures();
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);
    embed_request *r = kind == API_OK ? kvant_calloc(1, sizeof *r) : NULL;

    if (r)
        r->native = native;
    if (kind == API_OK)
        kind = r ? read_embed(env, o, r, e) : api_no_memory(e);
    json_decref(o);
    if (mem_failures() != failures)
        kind = api_no_memory(e);
    if (kind == API_OK)
        *out = r;
    else
        embed_request_dispose(r);
    return kind;
}

void embed_request_dispose(embed_request *r)
{
    for (int i = 0; r && i < r->n; i++)
        prompt_free(&r->prompts[i]);
    if (r)
        kvant_free(r->salt);
    kvant_free(r);
}

static int read_tokenize(const request_env *env, const json_t *o, prompt *out, int *with_pieces, api_error *e)
{
    const json_t *text = body_field(o, "content") ? NULL : body_field(o, "prompt");
    const char *key = text ? "prompt" : "content";
    const json_t *v = body_field(o, key);
    int special = 1, bos = text != NULL; /* vLLM's field, with vLLM's default */

    if (!json_is_string(v))
        return api_fail(e, BAD, key, "%s: wanted a string", key);
    API_TRY(body_bool(o, "add_special", &bos, e));
    API_TRY(body_bool(o, "add_special_tokens", &bos, e));
    API_TRY(body_bool(o, "parse_special", &special, e));
    API_TRY(body_bool(o, "with_pieces", with_pieces, e));
    return prompt_of_text(env, json_string_value(v), json_string_length(v),
                          (special ? KVANT_TOK_SPECIAL : 0) | (bos ? KVANT_TOK_BOS : 0), out, e);
}

int request_parse_tokenize(const request_env *env, const char *body, size_t len, prompt *out, int *with_pieces,
                           char ignored[REQUEST_IGNORED], api_error *e)
{
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);

    *with_pieces = 0;
    if (kind == API_OK)
        kind = request_check_fields(env, o, REQUEST_TOKENIZE, ignored, e);
    if (kind == API_OK)
        kind = read_tokenize(env, o, out, with_pieces, e);
    json_decref(o);
    if (kind != API_OK)
        prompt_free(out);
    return kind;
}

int request_parse_detokenize(const request_env *env, const char *body, size_t len, prompt *out,
                             char ignored[REQUEST_IGNORED], api_error *e)
{
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);

    if (kind == API_OK)
        kind = request_check_fields(env, o, REQUEST_DETOKENIZE, ignored, e);
    const json_t *v = kind == API_OK ? body_field(o, "tokens") : NULL;

    if (kind == API_OK)
        kind = json_is_array(v) ? prompt_of_ids(env, v, "tokens", out, e)
                                : api_fail(e, BAD, "tokens", "tokens: wanted an array of token ids");
    json_decref(o);
    if (kind != API_OK)
        prompt_free(out);
    return kind;
}

static int render_template(const request_env *env, json_t *o, messages *m, char **kwargs, tool_set **tools, char **text,
                           api_error *e)
{
    char *list = NULL;
    kvant_diag diag = { "" };
    int end;

    API_TRY(request_check_unsupported(o, 1, e));
    API_TRY(thoughts_spell_out(o, e));
    API_TRY(chat_kwargs_read(env, o, kwargs, e));
    API_TRY(chat_end_read(env, o, &end, e));
    API_TRY(tools_list(o, tools, e));
    API_TRY(messages_read(o, m, e));
    if (tool_generic(env->traits, *tools, &m->json) != KVANT_OK)
        return api_no_memory(e);
    if (*tools && !(list = json_text((*tools)->list, JSON_COMPACT)))
        return api_no_memory(e);
    const kvant_chat_input in = { .messages = m->json, .tools = list, .kwargs = *kwargs, .end = end };
    const int code = kvant_chat_render(env->model, &in, text, &diag);
    free(list); /* jansson's */
    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), "messages", "messages: %s", diag.text);
}

int request_parse_template(const request_env *env, const char *body, size_t len, char **text,
                           char ignored[REQUEST_IGNORED], api_error *e)
{
    json_t *o = NULL;
    messages m = { 0 };
    tool_set *tools = NULL;
    char *kwargs = NULL;
    int kind = body_read(body, len, &o, e);

    if (kind == API_OK)
        kind = request_check_fields(env, o, REQUEST_TEMPLATE, ignored, e);
    if (kind == API_OK)
        kind = render_template(env, o, &m, &kwargs, &tools, text, e);
    free(kwargs); /* jansson's */
    tool_set_free(tools);
    messages_free(&m);
    json_decref(o);
    return kind;
}

int request_parse_model(const char *body, size_t len, char *name, size_t cap, api_error *e)
{
    json_t *o = NULL;
    const char *given = NULL;
    size_t n = 0;
    int kind = body_read(body, len, &o, e);

    if (kind == API_OK)
        kind = body_string(o, "model", cap - 1, &given, &n, e);
    if (kind == API_OK)
        snprintf(name, cap, "%.*s", (int)n, given ? given : "");
    json_decref(o);
    return kind;
}

static int name_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') ||
              s[i] == '_' || s[i] == '-' || (s[i] == '.' && i > 0)))
            return 0;
    return n >= 1 && n <= 64;
}

int request_parse_filename(const char *body, size_t len, char name[65], api_error *e)
{
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);
    const json_t *v = kind == API_OK ? body_field(o, "filename") : NULL;

    if (kind == API_OK && !(json_is_string(v) && name_ok(json_string_value(v), json_string_length(v))))
        kind = api_fail(e, BAD, "filename", "filename: wanted 1 to 64 letters, digits, _ . or -, not a dot first");
    if (kind == API_OK)
        snprintf(name, 65, "%s", json_string_value(v));
    json_decref(o);
    return kind;
}
