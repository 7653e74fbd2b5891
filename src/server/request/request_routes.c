/* request_routes.c: the bodies of the routes that do not generate: tokens, templates, slot files. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/tools/tool_generic.h"

static int read_tokenize(const request_env *env, const json_t *o, prompt *out, int *with_pieces, api_error *e)
{
    const json_t *text = body_field(o, "content") ? NULL : body_field(o, "prompt");
    const char *key = text ? "prompt" : "content";
    const json_t *v = body_field(o, key);
    int special = 1, bos = text != NULL; /* vLLM's field, with vLLM's default */

    if (!body_is_text(v))
        return body_wrong(e, key, v, "%s: wanted a string", key);
    API_TRY(body_bool(o, "add_special", &bos, e));
    API_TRY(body_bool(o, "add_special_tokens", &bos, e));
    API_TRY(body_bool(o, "parse_special", &special, e));
    API_TRY(body_bool(o, "with_pieces", with_pieces, e));
    return prompt_of_text(env, body_text(v), json_string_length(v),
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
                                : body_wrong(e, "tokens", v, "tokens: wanted an array of token ids");
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
    int end, off;

    API_TRY(request_check_unsupported(o, 1, e));
    API_TRY(thoughts_spell_out(o, e));
    API_TRY(chat_kwargs_read(env, o, kwargs, &off, e));
    API_TRY(chat_end_read(env, o, &end, e));
    API_TRY(tools_list(o, tools, e));
    API_TRY(messages_read(env, o, m, e));
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

    if (kind == API_OK && !(body_is_text(v) && name_ok(body_text(v), json_string_length(v))))
        kind = body_wrong(e, "filename", v, "filename: wanted 1 to 64 letters, digits, _ . or -, not a dot first");
    if (kind == API_OK)
        snprintf(name, 65, "%s", body_text(v));
    json_decref(o);
    return kind;
}

int request_parse_conversations(const char *body, size_t len, json_t **ids, api_error *e)
{
    json_t *o = NULL;
    int kind = body_read(body, len, &o, e);
    json_t *v = kind == API_OK ? json_object_get(o, "conversation_ids") : NULL;

    if (kind == API_OK && !json_is_array(v))
        kind = body_wrong(e, "conversation_ids", v, "conversation_ids: wanted an array of texts");
    for (size_t i = 0; kind == API_OK && i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            kind = body_wrong(e, "conversation_ids", json_array_get(v, i), "conversation_ids[%zu]: wanted a text", i);
    *ids = kind == API_OK ? json_incref(v) : NULL;
    json_decref(o);
    return kind;
}
