/* routes.c: the table of routes.  A route gets a request whose head was accepted and whose body is here: a worker
 * (routes_work.c) runs those that take a text or a JSON of any length, the loop the rest. */
#include "server/routes/routes.h"

#include <stdio.h>
#include <string.h>

enum MHD_Result route_fail(call *c, struct MHD_Connection *conn, int kind, const char *param, const char *text)
{
    api_error e;

    api_fail(&e, kind, param, "%s", text);
    return respond_error(c, conn, &e);
}

/* ---- the table ---- */

#define LOOP(method, path, handler, flags) { method, path, handler, flags, NULL, 0 }
#define WORKER(path, make, shape) { "POST", path, work_begin, ROUTE_MODEL, make, shape }
static const route routes[] = {
    LOOP("GET", "/", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/index.html", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/app.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/chat.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/code.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/katex.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/live.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/markdown.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/store.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/view.js", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/style.css", get_page, ROUTE_PUBLIC),
    LOOP("GET", "/health", get_health, ROUTE_PUBLIC),
    LOOP("GET", "/v1/health", get_health, ROUTE_PUBLIC),
    LOOP("GET", "/ready", get_ready, ROUTE_PUBLIC),
    LOOP("GET", "/ping", get_health, ROUTE_PUBLIC),
    LOOP("GET", "/openapi.json", get_openapi, 0),
    LOOP("GET", "/version", get_version, 0),
    LOOP("GET", "/metrics", get_metrics, ROUTE_ANY),
    LOOP("GET", "/v1/models", get_models, ROUTE_MODEL),
    LOOP("GET", "/models", get_models, ROUTE_MODEL),
    LOOP("POST", "/models/load", post_load, ROUTE_ADMIN | ROUTE_SHORT),
    LOOP("POST", "/models/unload", post_unload, ROUTE_ADMIN | ROUTE_SHORT),
    LOOP("POST", "/models", post_models, ROUTE_ADMIN | ROUTE_SHORT),
    LOOP("DELETE", "/models", delete_models, ROUTE_ADMIN),
    LOOP("GET", "/models/sse", get_models_sse, 0),
    LOOP("GET", "/v1/models/", get_model, ROUTE_MODEL | ROUTE_NAMED),
    LOOP("GET", "/models/", get_model, ROUTE_MODEL | ROUTE_NAMED),
    LOOP("GET", "/props", get_props, ROUTE_MODEL | ROUTE_ANY),
    LOOP("GET", "/tokenizer_info", get_tokenizer, ROUTE_MODEL | ROUTE_ONE),
    LOOP("GET", "/slots", get_slots, ROUTE_MODEL | ROUTE_ONE | ROUTE_ADMIN),
    LOOP("GET", "/debug/trace", get_trace, ROUTE_MODEL | ROUTE_ONE | ROUTE_ADMIN),
    LOOP("GET", "/debug/events", get_events, ROUTE_MODEL | ROUTE_ANY | ROUTE_ADMIN),
    WORKER("/v1/completions", make_answer, BODY_TEXT),
    WORKER("/v1/chat/completions", make_answer, BODY_CHAT),
    WORKER("/chat/completions", make_answer, BODY_CHAT),
    WORKER("/v1/completions/render", make_render, BODY_TEXT),
    WORKER("/v1/chat/completions/render", make_render, BODY_CHAT),
    WORKER("/v1/responses/render", make_render, BODY_RESPONSES),
    WORKER("/v1/chat/completions/input_tokens", make_count, BODY_CHAT),
    WORKER("/chat/completions/input_tokens", make_count, BODY_CHAT),
    WORKER("/v1/embeddings", make_embeddings, EMBED_OPENAI),
    WORKER("/embeddings", make_embeddings, EMBED_NATIVE),
    WORKER("/embedding", make_embeddings, EMBED_NATIVE),
    WORKER("/v2/chat", make_answer, BODY_COHERE),
    WORKER("/v1/fim/completions", make_answer, BODY_FIM),
    WORKER("/v2/embed", make_embeddings, EMBED_COHERE),
    WORKER("/embed", make_embeddings, EMBED_TEI),
    WORKER("/similarity", make_embeddings, EMBED_SIMILAR),
    WORKER("/v2/rerank", make_rerank, RANK_JINA),
    WORKER("/v1/rerank", make_rerank, RANK_JINA),
    WORKER("/v1/reranking", make_rerank, RANK_JINA),
    WORKER("/rerank", make_rerank, RANK_JINA),
    WORKER("/reranking", make_rerank, RANK_JINA),
    WORKER("/v1/score", make_rerank, RANK_SCORE),
    WORKER("/score", make_rerank, RANK_SCORE),
    WORKER("/tokenize", make_tokenize, 0),
    WORKER("/detokenize", make_detokenize, 0),
    WORKER("/apply-template", make_template, 0),
    LOOP("POST", "/slots/", post_slot, ROUTE_MODEL | ROUTE_ONE | ROUTE_SLOT | ROUTE_SHORT),
    LOOP("POST", "/cache", post_cache, ROUTE_MODEL | ROUTE_ONE | ROUTE_SHORT | ROUTE_ADMIN),
    WORKER("/v1/responses", make_answer, BODY_RESPONSES),
    WORKER("/responses", make_answer, BODY_RESPONSES),
    LOOP("GET", "/v1/responses/", get_response, ROUTE_NAMED),
    LOOP("GET", "/responses/", get_response, ROUTE_NAMED),
    LOOP("DELETE", "/v1/responses/", delete_response, ROUTE_NAMED),
    LOOP("DELETE", "/responses/", delete_response, ROUTE_NAMED),
    LOOP("GET", "/v1/stream", get_stream, 0),
    LOOP("DELETE", "/v1/stream", delete_stream, 0),
    LOOP("POST", "/v1/streams/lookup", post_streams_lookup, ROUTE_SHORT),
    WORKER("/v1/responses/input_tokens", make_count, BODY_RESPONSES),
    WORKER("/responses/input_tokens", make_count, BODY_RESPONSES),
    WORKER("/v1/messages", make_answer, BODY_MESSAGES),
    WORKER("/v1/messages/count_tokens", make_count, BODY_MESSAGES),
    WORKER("/completion", make_answer, BODY_NATIVE),
    WORKER("/completions", make_answer, BODY_NATIVE),
    WORKER("/infill", make_answer, BODY_INFILL),
    WORKER("/predict", make_predict, 0),
    LOOP("GET", "/lora-adapters", get_lora, ROUTE_MODEL | ROUTE_ONE),
    LOOP("POST", "/lora-adapters", post_lora, ROUTE_MODEL | ROUTE_ONE | ROUTE_SHORT | ROUTE_ADMIN),
    WORKER("/", make_answer, BODY_TGI_ROOT),
    WORKER("/generate", make_answer, BODY_TGI),
    WORKER("/generate_stream", make_answer, BODY_TGI_STREAM),
    LOOP("GET", "/info", get_tgi_info, ROUTE_MODEL | ROUTE_ONE),
    WORKER("/api/chat", make_answer, BODY_OLLAMA_CHAT),
    WORKER("/api/generate", make_answer, BODY_OLLAMA_GENERATE),
    WORKER("/api/embed", make_embeddings, EMBED_OLLAMA),
    WORKER("/api/embeddings", make_embeddings, EMBED_OLLAMA_ONE),
    { "POST", "/api/show", work_begin, 0, make_ollama_show, 0 },
    LOOP("GET", "/api/version", get_ollama_version, 0),
    LOOP("GET", "/api/tags", get_ollama_tags, ROUTE_MODEL),
    LOOP("GET", "/api/ps", get_ollama_ps, ROUTE_MODEL),
    LOOP("GET", "/api/v0/models", get_studio_models, ROUTE_MODEL),
    LOOP("GET", "/api/v0/models/", get_studio_model, ROUTE_MODEL | ROUTE_NAMED),
};
#undef LOOP
#undef WORKER

static int path_is(const route *r, const char *path)
{
    size_t n = strlen(r->path);

    if (r->flags & ROUTE_NAMED)
        return strncmp(r->path, path, n) == 0 && path[n];
    if (!(r->flags & ROUTE_SLOT))
        return strcmp(r->path, path) == 0;
    return strncmp(r->path, path, n) == 0 && path[n] && strlen(path + n) <= 4 &&
           strspn(path + n, "0123456789") == strlen(path + n);
}

static int takes_head(const route *r)
{
    return r->method[0] == 'G' && r->handler != get_events && r->handler != get_models_sse && r->handler != get_stream;
}

static void add_method(const char *method, char *allow)
{
    const size_t n = strlen(allow);

    if (!strstr(allow, method))
        snprintf(allow + n, ROUTE_METHODS - n, "%s%s", n ? ", " : "", method);
}

const route *route_find(const char *method, const char *path, char *allow)
{
    const route *found = NULL;

    allow[0] = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const route *r = &routes[i];
        if (!path_is(r, path))
            continue;
        add_method(r->method, allow);
        if (takes_head(r))
            add_method("HEAD", allow);
        if (!found && (strcmp(r->method, method) == 0 || (strcmp(method, "HEAD") == 0 && takes_head(r))))
            found = r;
    }
    if (allow[0])
        add_method("OPTIONS", allow);
    return found;
}

int route_count(void)
{
    return (int)(sizeof routes / sizeof *routes);
}

const route *route_at(int i)
{
    return &routes[i];
}
