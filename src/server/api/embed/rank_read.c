/* rank_read.c: the bodies of /v1/rerank: a query and documents, as Jina's and Cohere's API name them, or texts, as
 * Text Embeddings Inference does.  The names that a client uses decide how the answer looks.  And of /score, vLLM's:
 * text_1 beside text_2, one of the first for all of the second, or as many. */
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

/* i: its place in a list, -1: it stands alone */
static int check_text(const json_t *v, const char *key, int i, const char *wanted, api_error *e)
{
    if (body_is_text(v))
        return API_OK;
    if (i < 0)
        return body_wrong(e, key, v, "%s: wanted %s", key, wanted);
    return body_wrong(e, key, v, "%s: item %d: wanted %s", key, i, wanted);
}

/* Two texts as one prompt; the document stays with it where the answer shows it. */
static int pair_prompt(const request_env *env, const json_t *query, const json_t *doc, const char *key, int keep,
                       prompt *p, api_error *e)
{
    const char *q = body_text(query), *d;
    kvant_diag diag = { "" };

    d = body_text(doc);
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

    API_TRY(check_text(query, "query", -1, "a string", e));
    if (!json_is_array(list) || json_array_size(list) == 0)
        return api_fail(e, BAD, key, "%s: wanted a list of 1 to %d strings", key, REQUEST_MAX_TEXTS);
    if (json_array_size(list) > REQUEST_MAX_TEXTS)
        return api_fail(e, BAD, key, "%s: %zu items, wanted at most %d", key, json_array_size(list),
                        REQUEST_MAX_TEXTS);
    json_array_foreach((json_t *)list, i, doc)
    {
        const json_t *text = json_is_object(doc) ? json_object_get(doc, "text") : doc; /* Cohere's and Jina's too */
        API_TRY(check_text(text, key, (int)i, "a string, or an object with one as text", e));
        r->n = (int)i + 1;
        API_TRY(pair_prompt(env, query, text, key, keep, &r->prompts[i], e));
    }
    return API_OK;
}

/* A text, or the i-th of a list; a list of one stands for all. */
static const json_t *text_at(const json_t *v, size_t i)
{
    return json_is_array(v) ? json_array_get(v, json_array_size(v) == 1 ? 0 : i) : v;
}

static int check_texts(const json_t *v, const char *key, api_error *e)
{
    size_t i;
    json_t *text;

    if (!json_is_array(v))
        return check_text(v, key, -1, "a string or a list of strings", e);
    json_array_foreach((json_t *)v, i, text) API_TRY(check_text(text, key, (int)i, "a string", e));
    return API_OK;
}

static int read_pairs(const request_env *env, const json_t *o, embed_request *r, api_error *e)
{
    const json_t *a = body_field(o, "text_1"), *b = body_field(o, "text_2");
    const size_t n_a = json_is_array(a) ? json_array_size(a) : 1, n = json_is_array(b) ? json_array_size(b) : 1;

    if (n == 0 || n > REQUEST_MAX_TEXTS)
        return api_fail(e, BAD, "text_2", "text_2: %zu items, wanted 1 to %d", n, REQUEST_MAX_TEXTS);
    if (n_a != 1 && n_a != n)
        return api_fail(e, BAD, "text_1", "text_1: %zu items, wanted one, or as many as text_2 has (%zu)", n_a, n);
    API_TRY(check_texts(a, "text_1", e));
    API_TRY(check_texts(b, "text_2", e));
    for (size_t i = 0; i < n; i++) {
        r->n = (int)i + 1;
        API_TRY(pair_prompt(env, text_at(a, i), text_at(b, i), "text_2", 0, &r->prompts[i], e));
    }
    return API_OK;
}

/* The other route's texts would be passed over. */
static int check_names(const json_t *o, int shape, api_error *e)
{
    static const char *const score[] = { "text_1", "text_2" };
    static const char *const rank[] = { "query", "documents", "texts", "top_n" };
    const char *const *others = shape == RANK_SCORE ? rank : score;
    const size_t n = shape == RANK_SCORE ? sizeof rank / sizeof *rank : sizeof score / sizeof *score;

    for (size_t i = 0; i < n; i++)
        if (body_field(o, others[i]))
            return api_fail(e, BAD, others[i], "%s: %s takes it", others[i],
                            shape == RANK_SCORE ? "/rerank" : "/score");
    return API_OK;
}

static int read_rerank(const request_env *env, const json_t *o, embed_request *r, api_error *e)
{
    int text = 0, documents = 0;

    API_TRY(request_check_model(env, o, e));
    API_TRY(check_head(env, e));
    API_TRY(request_read_salt(o, &r->salt, e));
    API_TRY(request_check_fields(env, o, REQUEST_RERANK, r->ignored, e));
    API_TRY(check_names(o, r->shape, e));
    r->kind = KVANT_REQUEST_EMBED_LAST;
    r->norm = -1;
    if (r->shape == RANK_SCORE)
        return read_pairs(env, o, r, e);
    const int texts = body_field(o, "texts") != NULL;
    r->shape = texts ? RANK_TEI : RANK_JINA;
    if (texts && body_field(o, "documents"))
        return api_fail(e, BAD, "texts", "texts and documents: wanted one of them");
    r->top_n = REQUEST_MAX_TEXTS;
    API_TRY(body_count(o, "top_n", 1, 1 << 30, &r->top_n, e));
    API_TRY(body_bool(o, "return_text", &text, e));
    API_TRY(body_bool(o, "return_documents", &documents, e));
    return read_documents(env, o, texts ? "texts" : "documents", texts ? text : documents, r, e);
}

int request_parse_rerank(const request_env *env, int shape, const char *body, size_t len, embed_request **out,
                         api_error *e)
{
    return embed_parse(env, shape, body, len, read_rerank, out, e);
}
