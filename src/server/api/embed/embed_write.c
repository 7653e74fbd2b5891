/* embed_write.c: embeddings and ranks: from a body to requests of the session, and the answers' JSON.  Owns the
 * shapes of OpenAI's /v1/embeddings, llama.cpp's /embedding, and of rerankers (Jina's, and Text Embeddings
 * Inference's). */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/routes/routes.h"

/* ---- from a body: on a worker ---- */

static int begin(work *w, embed_request *r, int kind, api_error *e)
{
    unsigned char salt[16];

    snprintf(w->ignored, sizeof w->ignored, "%s", r->ignored);
    auth_salt(w->s->p.keys, w->key, r->salt, salt);
    w->result = job_new(w->s, w->m, kind, r->n);
    if (!w->result) {
        embed_request_dispose(r);
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    }
    return work_submitted(w, job_submit_embed(w->result, r, w->key, salt, e));
}

int make_embeddings(work *w, api_error *e)
{
    embed_request *r = NULL;

    if (request_parse_embed(&w->m->env, w->shape, sbuf_text(&w->body), w->body.n, &r, e) != API_OK)
        return e->kind;
    return begin(w, r, JOB_EMBED, e);
}

int make_rerank(work *w, api_error *e)
{
    embed_request *r = NULL;

    if (request_parse_rerank(&w->m->env, w->shape, sbuf_text(&w->body), w->body.n, &r, e) != API_OK)
        return e->kind;
    return begin(w, r, JOB_RERANK, e);
}

/* ---- embeddings ---- */

/* f32 little endian -> base64, as the official client asks for it. */
static void put_base64(const float *x, size_t n, jsonw *w)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = n * 4, at = 0;
    char *out = kvant_alloc(bytes * 4 / 3 + 8);
    const unsigned char *b = (const unsigned char *)x;

    if (!out) {
        w->error = 1;
        return;
    }
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t v = (uint32_t)b[i] << 16 | (uint32_t)(i + 1 < bytes ? b[i + 1] : 0) << 8 |
                     (uint32_t)(i + 2 < bytes ? b[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            out[at++] = i + (size_t)k > bytes ? '=' : digits[v >> (18 - 6 * k) & 63];
    }
    jsonw_strn(w, out, at);
    kvant_free(out);
}

static void put_vector(const job *j, const float *x, int n, jsonw *w)
{
    if (j->embed.request->base64) {
        put_base64(x, (size_t)n, w);
        return;
    }
    jsonw_array(w);
    for (int i = 0; i < n; i++)
        jsonw_num(w, (double)x[i]);
    jsonw_end(w);
}

/* llama.cpp's: the embedding is a list of vectors, of each token one where they are not pooled. */
static void put_native(const job *j, int n, jsonw *w)
{
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        jsonw_object(w);
        jsonw_kint(w, "index", c->index);
        jsonw_key(w, "embedding");
        jsonw_array(w);
        for (int r = 0; r < c->vectors.n_rows; r++)
            put_vector(j, c->vectors.v + (size_t)r * (size_t)n, n, w);
        jsonw_end(w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

/* Ollama's: /api/embed, and before it /api/embeddings with one text. */
static void put_ollama(const job *j, int n, jsonw *w)
{
    const int one = j->embed.request->shape == EMBED_OLLAMA_ONE;
    const kvant_timings *t = &j->choices[0].timings;
    int64_t tokens = 0, ended = 0;

    jsonw_object(w);
    if (!one) {
        jsonw_kstr(w, "model", j->m->name);
        jsonw_key(w, "embeddings");
        jsonw_array(w);
    } else {
        jsonw_key(w, "embedding");
    }
    for (int i = 0; i < (one ? 1 : j->n_choices); i++) {
        put_vector(j, j->choices[i].vectors.v, n, w);
        tokens += j->choices[i].n_prompt;
        ended += j->choices[i].timings.prompt_ns;
    }
    if (!one) {
        jsonw_end(w);
        jsonw_kint(w, "total_duration", ended);
        jsonw_kint(w, "load_duration", t->started_ns ? t->started_ns - t->submitted_ns : 0);
        jsonw_kint(w, "prompt_eval_count", tokens);
    }
    jsonw_end(w);
}

static void put_usage(const job *j, jsonw *w)
{
    int64_t tokens = 0;

    for (int i = 0; i < j->n_choices; i++)
        tokens += j->choices[i].n_prompt;
    jsonw_key(w, "usage");
    jsonw_object(w);
    jsonw_kint(w, "prompt_tokens", tokens);
    jsonw_kint(w, "total_tokens", tokens);
    jsonw_end(w);
}

/* Cohere's /v2/embed, which tells the texts again. */
static void put_cohere(const job *j, int n, jsonw *w)
{
    int64_t tokens = 0;

    jsonw_object(w);
    jsonw_kstr(w, "id", j->id);
    jsonw_key(w, "embeddings");
    jsonw_object(w);
    jsonw_key(w, "float");
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++) {
        put_vector(j, j->choices[i].vectors.v, n, w);
        tokens += j->choices[i].n_prompt;
    }
    jsonw_end(w);
    jsonw_end(w);
    jsonw_key(w, "texts");
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++)
        jsonw_str(w, j->embed.request->prompts[i].text ? j->embed.request->prompts[i].text : "");
    jsonw_end(w);
    jsonw_key(w, "meta");
    jsonw_object(w);
    jsonw_key(w, "billed_units");
    jsonw_object(w);
    jsonw_kint(w, "input_tokens", tokens);
    jsonw_end(w);
    jsonw_end(w);
    jsonw_end(w);
}

/* Text Embeddings Inference's /embed. */
static void put_tei(const job *j, int n, jsonw *w)
{
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++)
        put_vector(j, j->choices[i].vectors.v, n, w);
    jsonw_end(w);
}

/* /similarity: of the first text with each other one, the cosine; the vectors have unit length. */
static void put_similar(const job *j, int n, jsonw *w)
{
    const float *source = j->choices[0].vectors.v;

    jsonw_array(w);
    for (int i = 1; i < j->n_choices; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++)
            sum += (double)source[k] * (double)j->choices[i].vectors.v[k];
        jsonw_num(w, sum);
    }
    jsonw_end(w);
}

/* NULL: OpenAI's. */
static void (*const writers[])(const job *j, int n, jsonw *w) = { [EMBED_OPENAI] = NULL,
                                                                  [EMBED_NATIVE] = put_native,
                                                                  [EMBED_OLLAMA] = put_ollama,
                                                                  [EMBED_OLLAMA_ONE] = put_ollama,
                                                                  [EMBED_COHERE] = put_cohere,
                                                                  [EMBED_TEI] = put_tei,
                                                                  [EMBED_SIMILAR] = put_similar };

static void put_embeddings(const job *j, jsonw *w)
{
    const int n = kvant_model_get_info(j->m->model)->n_embd;

    if (writers[j->embed.request->shape]) {
        writers[j->embed.request->shape](j, n, w);
        return;
    }
    jsonw_object(w);
    jsonw_kstr(w, "id", j->id); /* Mistral's clients want one */
    jsonw_kstr(w, "object", "list");
    jsonw_key(w, "data");
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "object", "embedding");
        jsonw_kint(w, "index", j->choices[i].index);
        jsonw_key(w, "embedding");
        put_vector(j, j->choices[i].vectors.v, n, w);
        jsonw_end(w);
    }
    jsonw_end(w);
    jsonw_kstr(w, "model", j->m->name);
    put_usage(j, w);
    jsonw_end(w);
}

/* ---- ranks ---- */

/* The highest score first; of equal ones the earlier document. */
static int by_score(const void *pa, const void *pb)
{
    const choice *a = *(const choice *const *)pa, *b = *(const choice *const *)pb;

    if (a->vectors.score != b->vectors.score)
        return a->vectors.score < b->vectors.score ? 1 : -1;
    return a->index - b->index;
}

static void put_rank(const job *j, const choice *c, jsonw *w)
{
    const char *text = j->embed.request->prompts[c->index].text;
    const int tei = j->embed.request->shape == RANK_TEI;

    jsonw_object(w);
    jsonw_kint(w, "index", c->index);
    jsonw_knum(w, tei ? "score" : "relevance_score", (double)c->vectors.score);
    if (text && tei) {
        jsonw_kstr(w, "text", text);
    } else if (text) {
        jsonw_key(w, "document");
        jsonw_object(w);
        jsonw_kstr(w, "text", text);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void put_ranks(const job *j, jsonw *w)
{
    const choice *list[REQUEST_MAX_TEXTS];
    const int n = j->n_choices < j->embed.request->top_n ? j->n_choices : j->embed.request->top_n;

    for (int i = 0; i < j->n_choices; i++)
        list[i] = &j->choices[i];
    qsort(list, (size_t)j->n_choices, sizeof *list, by_score);
    if (j->embed.request->shape != RANK_TEI) {
        jsonw_object(w);
        jsonw_kstr(w, "id", j->id);
        jsonw_kstr(w, "model", j->m->name);
        jsonw_kstr(w, "object", "list");
        put_usage(j, w);
        jsonw_key(w, "results");
    }
    jsonw_array(w);
    for (int i = 0; i < n; i++)
        put_rank(j, list[i], w);
    jsonw_end(w);
    if (j->embed.request->shape != RANK_TEI)
        jsonw_end(w);
}

/* vLLM's: all pairs, in their order. */
static void put_scores(const job *j, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "object", "list");
    jsonw_kint(w, "created", j->created);
    jsonw_kstr(w, "model", j->m->name);
    jsonw_key(w, "data");
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++) {
        jsonw_object(w);
        jsonw_kint(w, "index", i);
        jsonw_kstr(w, "object", "score");
        jsonw_knum(w, "score", (double)j->choices[i].vectors.score);
        jsonw_end(w);
    }
    jsonw_end(w);
    put_usage(j, w);
    jsonw_end(w);
}

void embed_whole(job *j, jsonw *w)
{
    if (j->kind == JOB_RERANK && j->embed.request->shape == RANK_SCORE)
        put_scores(j, w);
    else if (j->kind == JOB_RERANK)
        put_ranks(j, w);
    else
        put_embeddings(j, w);
}
