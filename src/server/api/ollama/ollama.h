/* server/api/ollama/ollama.h: Ollama's /api/chat, /api/generate and its routes about models: what an answer needs of
 * its request, and a model as clients of Ollama and LM Studio know it. */
#ifndef KVANT_SERVER_API_OLLAMA_H
#define KVANT_SERVER_API_OLLAMA_H

#include "base/text/jsonw.h"

typedef struct served served;
typedef struct api_request api_request;

/* The release of Ollama whose API these routes follow; clients compare it. */
#define OLLAMA_VERSION "0.12.6"

typedef struct ollama_answer {
    int generates; /* /api/generate: its text stands in `response` */
    int n_told;    /* of a stream: calls that are sent */
} ollama_answer;

/* The answer to a request that asks nothing: the model is loaded, or goes. */
void ollama_put_idle(const served *m, const api_request *r, jsonw *w);
void ollama_put_time(const char *key, int64_t s, int64_t ns, jsonw *w); /* since 1970, as RFC 3339 writes it */
/* Members of an open object, in Ollama's order: name, model, modified_at, size, digest, details, capabilities. */
void ollama_put_model(served *m, jsonw *w);

#endif
