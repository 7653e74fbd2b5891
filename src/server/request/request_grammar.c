/* request_grammar.c: what constrains an answer: GBNF, a schema, a regular expression or a list of texts, under the
 * names that clients of OpenAI, llama.cpp, vLLM, SGLang and TGI have.  One at most; beside tools a schema. */
#include "server/request/request_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "server/grammar/grammar_pattern.h"
#include "server/grammar/grammar_schema.h"
#include "server/request/json_scan.h"

/* The request has at most one of these values; key names it in errors. */
typedef struct constraint {
    const char *key;
    int n;
    json_t *schema, *made; /* made: where it is ours */
    const json_t *gbnf, *regex, *choice;
} constraint;

int request_compile(const request_env *env, const grammar_vocab *vocab, const char *text, size_t n, const char *key,
                    api_request *r, api_error *e)
{
    kvant_diag diag = { "" };
    int code = grammar_cache_get(env->grammars, vocab, text, n, &r->grammar, &diag);

    return code == KVANT_OK ? API_OK : api_fail(e, api_kind_of(code), key, "%s", diag.text);
}

static int compile_schema(const request_env *env, const json_t *schema, const char *key, api_request *r, api_error *e)
{
    kvant_diag diag = { "" };
    char *text = json_text(schema, JSON_COMPACT | JSON_ENCODE_ANY), *gbnf = NULL;

    if (!text)
        return api_no_memory(e);
    int code = grammar_from_schema(text, strlen(text), &gbnf, &diag);
    free(text);
    if (code != KVANT_OK)
        return api_fail(e, api_kind_of(code), key, "%s", diag.text);
    int kind = request_compile(env, NULL, gbnf, strlen(gbnf), key, r, e);
    kvant_free(gbnf);
    return kind;
}

static int compile_text(const request_env *env, sbuf *b, const char *key, api_request *r, api_error *e)
{
    const int kind = b->error ? api_fail(e, BAD, key, "%s: too large", key)
                              : request_compile(env, NULL, b->s, b->n, key, r, e);

    sbuf_free(b);
    return kind;
}

static int compile_regex(const request_env *env, const constraint *c, api_request *r, api_error *e)
{
    sbuf b = { .max = GRAMMAR_MAX_SCHEMA };
    pattern_lengths n = { .cap = -1, .whole = 1, .raw = 1 };
    kvant_diag diag = { "" };

    if (!body_is_text(c->regex) || json_string_length(c->regex) > GRAMMAR_MAX_TEXT)
        return body_wrong(e, c->key, c->regex, "%s: wanted a regular expression of at most %d bytes", c->key,
                        GRAMMAR_MAX_TEXT);
    sbuf_puts(&b, "root ::= ");
    if (grammar_from_pattern(body_text(c->regex), &n, &b, &diag) != KVANT_OK) {
        sbuf_free(&b);
        return api_fail(e, BAD, c->key, "%s: %s", c->key, diag.text);
    }
    sbuf_puts(&b, "\n");
    return compile_text(env, &b, c->key, r, e);
}

static int compile_choice(const request_env *env, const constraint *c, api_request *r, api_error *e)
{
    sbuf b = { .max = GRAMMAR_MAX_SCHEMA };
    size_t i;
    json_t *v;

    if (json_array_size(c->choice) < 1)
        return body_wrong(e, c->key, c->choice, "%s: wanted an array of texts", c->key);
    sbuf_puts(&b, "root ::= ");
    json_array_foreach((json_t *)c->choice, i, v)
    {
        if (!body_is_text(v)) {
            sbuf_free(&b);
            return body_wrong(e, c->key, v, "%s: item %zu: wanted a text", c->key, i);
        }
        sbuf_puts(&b, i ? " | " : "");
        schema_put_text(&b, body_text(v), json_string_length(v));
    }
    sbuf_puts(&b, "\n");
    return compile_text(env, &b, c->key, r, e);
}

/* ---- names ---- */

/* A schema, or its text. */
static int take_schema(constraint *c, const char *key, const json_t *v, api_error *e)
{
    kvant_diag diag = { "" };

    if (!v)
        return API_OK;
    c->n++;
    c->key = key;
    c->schema = (json_t *)v;
    if (!body_is_text(v))
        return API_OK;
    json_decref(c->made);
    c->made = NULL;
    if (json_read(body_text(v), json_string_length(v), &c->made, &diag) != KVANT_OK)
        return api_fail(e, BAD, key, "%s: %s", key, diag.text);
    c->schema = c->made;
    return API_OK;
}

static int take_any_object(constraint *c, const char *key, api_error *e)
{
    json_decref(c->made);
    c->made = json_pack("{s:s}", "type", "object");
    c->schema = c->made;
    c->key = key;
    c->n++;
    return c->made ? API_OK : api_no_memory(e);
}

static void take(constraint *c, const char *key, const json_t *v, const json_t **to)
{
    if (!v || (body_is_text(v) ? !json_string_length(v) : json_is_array(v) && !json_array_size(v)))
        return;
    c->n++;
    c->key = key;
    *to = v;
}

static int take_format(const json_t *format, constraint *c, api_error *e)
{
    static const char key[] = "response_format";
    const char *type = body_text(json_object_get(format, "type"));
    const json_t *wrapped = body_field(format, "json_schema"), *schema = body_field(wrapped, "schema");

    if (!format)
        return API_OK;
    if (!json_is_object(format))
        return body_wrong(e, key, format, "response_format: wanted an object");
    if (type && strcmp(type, "text") == 0)
        return API_OK;
    schema = schema ? schema : body_field(format, "schema"); /* llama.cpp's place for it */
    schema = schema ? schema : body_field(format, "value");  /* huggingface_hub's */
    if (type && strcmp(type, "regex") == 0 && (schema = schema ? schema : body_field(format, "pattern")))
        take(c, key, schema, &c->regex);
    else if (type && strcmp(type, "grammar") == 0 && body_field(format, "grammar"))
        take(c, key, body_field(format, "grammar"), &c->gbnf);
    else if (type && strcmp(type, "json_object") == 0 && !schema)
        return take_any_object(c, key, e);
    else if (!type || (strcmp(type, "json_object") && strcmp(type, "json_schema") && strcmp(type, "json")))
        return body_wrong(e, key, json_object_get(format, "type"),
                          "response_format: type: wanted text, json_object, json_schema, regex or grammar");
    else if (!schema)
        return api_fail(e, BAD, key, "response_format: json_schema.schema: missing");
    else
        return take_schema(c, key, schema, e);
    return API_OK;
}

/* vLLM's structured_outputs, and what it was called before: the same with `guided_`. */
static int take_structured(const json_t *o, const char *prefix, constraint *c, api_error *e)
{
    static const char *const words[] = { "json", "regex", "choice", "grammar", "json_object" };
    static const char *const keys[][2] = { { "structured_outputs", "guided_json" },
                                           { "structured_outputs", "guided_regex" },
                                           { "structured_outputs", "guided_choice" },
                                           { "structured_outputs", "guided_grammar" },
                                           { "structured_outputs", "guided_json_object" } };
    const json_t **const places[] = { NULL, &c->regex, &c->choice, &c->gbnf };

    for (int i = 0; i < 5; i++) {
        char name[40];
        const char *key = keys[i][*prefix != 0];
        snprintf(name, sizeof name, "%s%s", prefix, words[i]);
        const json_t *v = body_field(o, name);
        if (!v)
            continue;
        if (i == 0)
            API_TRY(take_schema(c, key, v, e));
        else if (i < 4)
            take(c, key, v, places[i]);
        else if (!json_is_boolean(v))
            return body_wrong(e, key, v, "%s: wanted true or false", name);
        else if (json_is_true(v))
            API_TRY(take_any_object(c, key, e));
    }
    return API_OK;
}

static int take_all(const json_t *o, constraint *c, api_error *e)
{
    const json_t *structured = body_field(o, "structured_outputs");

    API_TRY(take_format(body_field(o, "response_format"), c, e));
    API_TRY(take_schema(c, "json_schema", body_field(o, "json_schema"), e));
    take(c, "grammar", body_field(o, "grammar"), &c->gbnf);
    take(c, "ebnf", body_field(o, "ebnf"), &c->gbnf);
    take(c, "regex", body_field(o, "regex"), &c->regex);
    API_TRY(take_structured(o, "guided_", c, e));
    if (structured && !json_is_object(structured) && !(json_is_array(structured) && !json_array_size(structured)))
        return body_wrong(e, "structured_outputs", structured, "structured_outputs: wanted an object");
    API_TRY(take_structured(structured, "", c, e));
    return c->n <= 1 ? API_OK
                     : api_fail(e, BAD, c->key,
                                "grammar, json_schema, response_format, structured_outputs and their "
                                "like: %d are there, want one",
                                c->n);
}

static int compile(const request_env *env, const constraint *c, api_request *r, api_error *e)
{
    const char *text = body_text(c->gbnf);

    if (r->calls != CALLS_NONE) {
        if (c->n && !c->schema)
            return api_fail(e, API_UNSUPPORTED, "tools",
                            "tools: not together with %s (but with a schema, or tool_choice none)", c->key);
        return tools_grammar(env, r, c->schema, e);
    }
    if (c->gbnf && (!text || json_string_length(c->gbnf) > GRAMMAR_MAX_TEXT))
        return body_wrong(e, c->key, c->gbnf, "%s: wanted a string of at most %d bytes", c->key, GRAMMAR_MAX_TEXT);
    if (c->gbnf)
        return request_compile(env, NULL, text, json_string_length(c->gbnf), c->key, r, e);
    if (c->schema)
        return compile_schema(env, c->schema, c->key, r, e);
    if (c->regex)
        return compile_regex(env, c, r, e);
    return c->choice ? compile_choice(env, c, r, e) : API_OK;
}

int request_read_grammar(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    constraint c = { .key = "grammar" };

    r->grammar_begins = r->thoughts.begun ? GRAMMAR_AFTER_THOUGHT : GRAMMAR_AT_START;
    int kind = take_all(o, &c, e);
    if (kind == API_OK)
        kind = compile(env, &c, r, e);
    json_decref(c.made);
    return kind;
}
