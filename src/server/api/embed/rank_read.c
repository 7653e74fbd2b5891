/* rank_read.c: the bodies of /v1/rerank: a query and documents, as Jina's and Cohere's API name them, or texts, as
 * Text Embeddings Inference does.  The names that a client uses decide how the answer looks. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"

static int check_head(const request_env *env, api_error *e)
{
    if (kvant_model_rank_classes(env->model) > 0)
        return API_OK;
    return api_fail(e, API_UNSUPPORTED, "", "rerank: the model's file has no rank head (cls.output.weight), wanted a "
                    "reranker such as Qwen3-Reranker");
}

static int check_text(const json_t *v, const char *key, api_error *e)
{
    if (!json_is_string(v))
        return api_fail(e, BAD, key, "%s: wanted %s", key, strcmp(key, "query") ? "a list of strings" : "a string");
    return API_OK;
}

/* A query and a document as one prompt; the document stays with it where the answer shows it. */
static int pair_prompt(const request_env *env, const json_t *query, const json_t *doc, const char *key, int keep,
                       prompt *p, api_error *e)
{
    const char *q = json_string_value(query), *d;
    kvant_diag diag = { "" };

    if (json_is_object(doc)) /* Cohere's and Jina's other way to write one */
        doc = json_object_get(doc, "text");
    API_TRY(check_text(doc, key, e));
    d = json_string_value(doc);
    API_TRY(prompt_check_bytes(env, json_string_length(query) + json_string_length(doc), key, e));
    int code = kvant_rank_tokenize(env->model, q, d, NULL, 0, &p->n, &diag);
    if (code != KVANT_OK && code != KVANT_ENOSPC)
        return api_fail(e, api_kind_of(code), key, "%s: %s", key, diag.text);
    p->ids = kvant_alloc(((size_t)p->n + 1) * sizeof *p->ids);
    if (!p->ids || (keep && !(p->text = kvant_strdup(d))))
        return api_no_memory(e);
    code = kvant_rank_tokenize(env->model, q, d, p->ids, p->n, &p->n, &diag);
    if (code != KVANT_OK)
        return api_fail(e, api_kind_of(code), key, "%s: %s", key, diag.text);
    return prompt_check_length(env, p, key, e);
}

static int read_documents(const request_env *env, const json_t *o, const char *key, int keep, embed_request *r,
                          api_error *e)
{
    const json_t *list = body_field(o, key), *query = body_field(o, "query");
    json_t *doc;
    size_t i;

    API_TRY(check_text(query, "query", e));
    if (!json_is_array(list) || json_array_size(list) == 0)
        return api_fail(e, BAD, key, "%s: wanted a list of 1 to %d strings", key, REQUEST_MAX_TEXTS);
    if (json_array_size(list) > REQUEST_MAX_TEXTS)
        return api_fail(e, BAD, key, "%s: %zu items, wanted at most %d", key, json_array_size(list),
                        REQUEST_MAX_TEXTS);
    json_array_foreach((json_t *)list, i, doc)
    {
        r->n = (int)i + 1;
        API_TRY(pair_prompt(env, query, doc, key, keep, &r->prompts[i], e));
    }
    return API_OK;
}

static int read_rerank(const request_env *env, const json_t *o, embed_request *r, api_error *e)
{
    int text = 0, documents = 0;

    API_TRY(request_check_model(env, o, e));
    API_TRY(check_head(env, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(request_check_fields(env, o, REQUEST_RERANK, r->ignored, e));
    const int texts = body_field(o, "texts") != NULL;
    r->shape = texts ? RANK_TEI : RANK_JINA;
    if (texts && body_field(o, "documents"))
        return api_fail(e, BAD, "texts", "texts and documents: wanted one of them");
    r->top_n = REQUEST_MAX_TEXTS;
    API_TRY(body_count(o, "top_n", 1, 1 << 30, &r->top_n, e));
    API_TRY(body_bool(o, "return_text", &text, e));
    API_TRY(body_bool(o, "return_documents", &documents, e));
    r->kind = KVANT_REQUEST_EMBED_LAST;
    r->norm = -1;
    return read_documents(env, o, texts ? "texts" : "documents", texts ? text : documents, r, e);
}

int request_parse_rerank(const request_env *env, const char *body, size_t len, embed_request **out, api_error *e)
{
    return embed_parse(env, RANK_JINA, body, len, read_rerank, out, e); /* the body says which shape it has */
}
