/* server/api_error.h: what a request gets when it fails: one error object, one HTTP status.  The table of types is the
 * one of docs/server.md.  A request for something unsupported is 400, not 501: client libraries send a request
 * again after any 5xx.  501 (OFF) is a route that the operator switched off. */
#ifndef KVANT_SERVER_API_ERROR_H
#define KVANT_SERVER_API_ERROR_H

#include "base/text/jsonw.h"
#include "kvant/error.h"

/* X(name, "type", status) */
#define API_ERRORS(X)                                                                                                  \
    X(INVALID, "invalid_request_error", 400)                                                                           \
    X(CONTEXT, "exceed_context_size_error", 400)                                                                       \
    X(AUTH, "authentication_error", 401)                                                                               \
    X(FORBIDDEN, "permission_error", 403)                                                                              \
    X(NOT_FOUND, "not_found_error", 404)                                                                               \
    X(METHOD, "invalid_request_error", 405)                                                                            \
    X(TOO_LARGE, "invalid_request_error", 413)                                                                         \
    X(MEDIA, "invalid_request_error", 415)                                                                             \
    X(OVERLOAD, "rate_limit_error", 429)                                                                               \
    X(SERVER, "server_error", 500)                                                                                     \
    X(OFF, "not_supported_error", 501)                                                                                 \
    X(UNSUPPORTED, "invalid_request_error", 400)                                                                       \
    X(UNAVAILABLE, "unavailable_error", 503)

enum api_error_kind {
    API_OK,
#define API_ERROR_ENUM(name, type, status) API_##name,
    API_ERRORS(API_ERROR_ENUM)
#undef API_ERROR_ENUM
};

typedef struct api_error {
    int kind;       /* enum api_error_kind */
    char param[64]; /* the request's field, "" for none */
    char message[256];
    int n_prompt, n_ctx; /* of CONTEXT where they are known: tokens of the prompt, and of the context */
} api_error;

/* Fills e and returns kind, so that `return api_fail(...)` ends a check.  param may be "". */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
int api_fail(api_error *e, int kind, const char *param, const char *fmt, ...);
/* The kind that an engine's or a parser's code means to a client. */
int api_kind_of(int code);
int api_status(int kind);
const char *api_type(int kind);
/* The APIs have error objects of their own: {"error":{...}}, with the status as its code where llama.cpp's clients look
 * for it; with a word as its code in OpenAI's /v1/responses; {"type":"error","error":{...}} in Anthropic's;
 * {"error":TEXT}, with an "error_type" in text-generation-inference's. */
enum { ERROR_PLAIN, ERROR_RESPONSES, ERROR_ANTHROPIC, ERROR_OLLAMA, ERROR_TGI };
void api_error_json(const api_error *e, int shape, jsonw *w);
const char *api_error_code(int kind);      /* OpenAI's word, or NULL */
const char *api_anthropic_type(int kind);  /* Anthropic's */

#endif
