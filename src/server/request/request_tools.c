/* request_tools.c: the tools that a chat brings, and which of them may be called. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "server/tools/tool_grammar.h"

/* {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or NULL. */
static const json_t *allowed_tools(const json_t *o)
{
    const json_t *v = body_field(o, "tool_choice");
    const char *type = body_text(json_object_get(v, "type"));

    return type && strcmp(type, "allowed_tools") == 0 ? json_object_get(v, "allowed_tools") : NULL;
}

/* The tool that the request names: {"type": "function", "function": {"name": ...}}. */
static int read_named(const json_t *v, api_request *r, api_error *e)
{
    const char *type = body_text(json_object_get(v, "type"));
    const char *name = body_text(json_object_get(json_object_get(v, "function"), "name"));

    if (!type || strcmp(type, "function") != 0 || !name)
        return body_wrong(
            e, "tool_choice", v,
            "tool_choice: wanted auto, none, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    r->only = tool_set_find(r->tools, name, strlen(name));
    r->calls = CALLS_WANTED;
    r->several = 0;
    if (r->only < 0)
        return api_fail(e, BAD, "tool_choice", "tool_choice: %.64s is none of the tools", name);
    return API_OK;
}

static int read_choice(const json_t *o, api_request *r, api_error *e)
{
    static const char *const words[] = { "none", "auto", "required" }; /* in the order of CALLS_* */
    const json_t *v = body_field(o, "tool_choice"), *allowed = allowed_tools(o);
    const char *word = body_text(v);

    if (allowed) {
        v = json_object_get(allowed, "mode");
        word = v ? body_text(v) : "auto";
        if (!word || strcmp(word, "none") == 0)
            return api_fail(e, BAD, "tool_choice", "tool_choice: allowed_tools: mode: wanted auto or required");
    }
    r->only = -1;
    r->calls = CALLS_FREE;
    if (!v)
        return API_OK;
    if (!allowed && json_is_object(v))
        return read_named(v, r, e);
    if (word && strcmp(word, "any") == 0) /* Mistral's word */
        word = "required";
    for (int i = 0; i < 3 && word; i++)
        if (strcmp(word, words[i]) == 0) {
            r->calls = i;
            return API_OK;
        }
    return body_wrong(e, "tool_choice", v,
                      "tool_choice: wanted auto, none, required or an object with a function's name");
}

static int check_model_calls(const request_env *env, api_error *e)
{
    if (!env->traits)
        return api_fail(e, API_UNSUPPORTED, "tools", "tools: not supported: the model has no chats");
    return API_OK;
}

static const char *function_name(const json_t *t)
{
    return body_text(json_object_get(json_object_get(t, "function"), "name"));
}

/* Keeps the allowed tools; the model is told about no others.  *out: a new reference. */
static int keep_allowed(const json_t *tools, const json_t *allowed, json_t **out, api_error *e)
{
    const json_t *names = json_object_get(allowed, "tools");
    json_t *t, *a;
    size_t i, k;

    if (!json_is_array(names))
        return api_fail(e, BAD, "tool_choice", "tool_choice: allowed_tools: wanted mode and a list of tools");
    if (!(*out = json_array()))
        return api_no_memory(e);
    json_array_foreach((json_t *)tools, i, t) json_array_foreach((json_t *)names, k, a)
    {
        const char *name = function_name(t), *want = function_name(a);
        if (name && want && strcmp(name, want) == 0 && json_array_append(*out, t) != 0)
            return api_no_memory(e);
        if (name && want && strcmp(name, want) == 0)
            break;
    }
    return json_array_size(*out) ? API_OK
                                 : api_fail(e, BAD, "tool_choice", "tool_choice: allowed_tools: none of the tools");
}

int tools_list(const json_t *o, tool_set **out, api_error *e)
{
    const char *choice = body_text(body_field(o, "tool_choice"));
    const json_t *list = body_field(o, "tools"), *allowed = allowed_tools(o);
    json_t *few = NULL;
    kvant_diag diag = { "" };

    *out = NULL;
    if (allowed && !json_array_size(list))
        return api_fail(e, BAD, "tool_choice", "tool_choice: allowed_tools, but there are no tools");
    if (json_array_size(list) == 0) /* request_check_unsupported has looked at tool_choice */
        return API_OK;
    if (choice && strcmp(choice, "none") == 0) /* as if there were none: the model is not told about them either */
        return API_OK;
    if (allowed) {
        const int kind = keep_allowed(list, allowed, &few, e);
        list = few;
        if (kind != API_OK) {
            json_decref(few);
            return kind;
        }
    }
    const int code = tool_set_read(list, out, &diag);
    json_decref(few);
    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), "tools", "tools: %s", diag.text);
}

int tools_read(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    r->several = 1;
    API_TRY(body_bool(o, "parallel_tool_calls", &r->several, e));
    API_TRY(tools_list(o, &r->tools, e));
    if (!r->tools)
        return API_OK;
    API_TRY(check_model_calls(env, e));
    return read_choice(o, r, e);
}

int tools_grammar(const request_env *env, api_request *r, const json_t *format, api_error *e)
{
    const tool_traits *t = env->traits;
    const int start = r->calls == CALLS_WANTED || format;
    const tool_rules rules = { t->d, r->tools, r->only, r->several, start, r->thoughts.begun ? NULL : t->t,
                               r->calls == CALLS_WANTED ? NULL : format };
    kvant_diag diag = { "" };
    char *gbnf = NULL;
    int code = tool_grammar(&rules, &gbnf, &diag);

    if (code != KVANT_OK)
        return api_fail(e, api_kind_of(code), "tools", "tools: %s", diag.text);
    if (!start)
        r->grammar_begins = GRAMMAR_AT_CALL;
    code = request_compile(env, t->vocab, gbnf, strlen(gbnf), "tools", r, e);
    kvant_free(gbnf);
    return code;
}
