/* api_error.c: see api_error.h. */
#include "server/api_error.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *type;
    int status;
} kinds[] = { { "", 200 },
#define API_ERROR_ROW(name, type, status) { type, status },
              API_ERRORS(API_ERROR_ROW)
#undef API_ERROR_ROW
};

int api_fail(api_error *e, int kind, const char *param, const char *fmt, ...)
{
    va_list ap;

    e->kind = kind;
    e->n_prompt = e->n_ctx = 0;
    snprintf(e->param, sizeof e->param, "%s", param);
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return kind;
}

int api_kind_of(int code)
{
    static const struct {
        int code, kind;
    } map[] = { { KVANT_EINVAL, API_INVALID },   { KVANT_EUNSUPPORTED, API_UNSUPPORTED },
                { KVANT_EBUSY, API_OVERLOAD },   { KVANT_ENOMEM, API_UNAVAILABLE },
                { KVANT_ENOENT, API_NOT_FOUND }, { KVANT_EFORMAT, API_INVALID },
                { KVANT_ENOSPC, API_CONTEXT },   { KVANT_EDEVICE, API_UNAVAILABLE } };

    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (map[i].code == code)
            return map[i].kind;
    return API_SERVER;
}

int api_status(int kind)
{
    return kinds[kind].status;
}

const char *api_type(int kind)
{
    return kinds[kind].type;
}

const char *api_error_code(int kind)
{
    static const char *const words[] = {
        [API_CONTEXT] = "context_length_exceeded", [API_AUTH] = "invalid_api_key", [API_NOT_FOUND] = "not_found",
        [API_OVERLOAD] = "rate_limit_exceeded",    [API_SERVER] = "server_error",  [API_UNAVAILABLE] = "server_error"
    };

    return kind < (int)(sizeof words / sizeof *words) ? words[kind] : NULL;
}

const char *api_anthropic_type(int kind)
{
    static const char *const words[] = {
        [API_CONTEXT] = "invalid_request_error", [API_TOO_LARGE] = "request_too_large", [API_SERVER] = "api_error",
        [API_OFF] = "api_error",                 [API_UNAVAILABLE] = "overloaded_error"
    };

    return kind < (int)(sizeof words / sizeof *words) && words[kind] ? words[kind] : api_type(kind);
}

/* huggingface_hub has an exception for each; NULL: an error of HTTP. */
static const char *tgi_type(int kind)
{
    switch (kind) {
        case API_INVALID:
        case API_CONTEXT:
        case API_UNSUPPORTED: return "validation";
        case API_OVERLOAD:
        case API_UNAVAILABLE: return "overloaded";
        case API_SERVER: return "generation";
        default: return NULL;
    }
}

static void put_or_null(const char *key, const char *text, jsonw *w)
{
    jsonw_key(w, key);
    if (text && text[0])
        jsonw_str(w, text);
    else
        jsonw_null(w);
}

void api_error_json(const api_error *e, int shape, jsonw *w)
{
    jsonw_object(w);
    if (shape == ERROR_OLLAMA || shape == ERROR_TGI) {
        jsonw_kstr(w, "error", e->message);
        if (shape == ERROR_TGI && tgi_type(e->kind))
            jsonw_kstr(w, "error_type", tgi_type(e->kind));
        jsonw_end(w);
        return;
    }
    if (shape == ERROR_ANTHROPIC)
        jsonw_kstr(w, "type", "error");
    jsonw_key(w, "error");
    jsonw_object(w);
    if (shape == ERROR_PLAIN)
        jsonw_kint(w, "code", api_status(e->kind));
    if (shape == ERROR_RESPONSES)
        put_or_null("code", api_error_code(e->kind), w);
    jsonw_kstr(w, "message", e->message);
    jsonw_kstr(w, "type", shape == ERROR_ANTHROPIC ? api_anthropic_type(e->kind) : api_type(e->kind));
    put_or_null("param", e->param, w);
    if (e->n_prompt) { /* llama.cpp's names; clients shorten their prompt by them */
        jsonw_kint(w, "n_prompt_tokens", e->n_prompt);
        jsonw_kint(w, "n_ctx", e->n_ctx);
    }
    jsonw_end(w);
    if (shape == ERROR_ANTHROPIC)
        put_or_null("request_id", NULL, w);
    jsonw_end(w);
}
