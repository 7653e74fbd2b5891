/* check_server_fields: every field that OpenAI, Anthropic and other servers publish for their requests (tests/fields)
 * has a decision in src/server/request/fields.def; each decision holds when a body with that field is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/request/request_fields.h"
#include "support/check.h"
#include "support/text_file.h"

static const char *const model_path = "tests/golden/tiny/llama.gguf";
static request_env env;

static const struct {
    const char *name;
    int route, shape;
    const char *body; /* what it needs beside the field, without its last brace */
} routes[] = {
    { "completions", REQUEST_TEXT, BODY_TEXT, "{\"prompt\":\"a\"" },
    { "native", REQUEST_NATIVE, BODY_NATIVE, "{\"prompt\":\"a\"" },
    { "chat", REQUEST_CHAT, BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" },
    { "messages", REQUEST_MESSAGES, BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" },
    { "responses", REQUEST_RESPONSES, BODY_RESPONSES, "{\"input\":\"a\"" },
    { "infill", REQUEST_NATIVE | REQUEST_INFILL, -1, "" },
    { "embeddings", REQUEST_EMBED, -1, "" },
    { "rerank", REQUEST_RERANK, -1, "" },
    { "template", REQUEST_TEMPLATE, -1, "" },
    { "tokenize", REQUEST_TOKENIZE, -1, "" },
    { "detokenize", REQUEST_DETOKENIZE, -1, "" },
    { "ollama-chat", REQUEST_OLLAMA_CHAT, BODY_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" },
    { "ollama-generate", REQUEST_OLLAMA_GENERATE, BODY_OLLAMA_GENERATE, "{\"prompt\":\"a\"" },
    { "ollama-embed", REQUEST_OLLAMA_EMBED, -1, "" },
    { "ollama-show", REQUEST_OLLAMA_SHOW, -1, "" },
    { "cohere-embed", REQUEST_COHERE_EMBED, -1, "" },
    { "predict", REQUEST_PREDICT, -1, "" },
    { "cohere-chat", REQUEST_COHERE_CHAT, BODY_COHERE, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" },
    { "fim", REQUEST_FIM, BODY_FIM, "{\"prompt\":\"a\"" },
    { "tei", REQUEST_TEI, -1, "" },
    { "similarity", REQUEST_SIMILAR, -1, "" },
    { "tgi", REQUEST_TGI, BODY_TGI_ROOT, "{\"inputs\":\"a\"" },
};
enum { ROUTES = sizeof routes / sizeof *routes };

static int route_of(const char *name)
{
    for (int i = 0; i < ROUTES; i++)
        if (strcmp(routes[i].name, name) == 0)
            return routes[i].route;
    return 0;
}

/* ---- the inventories ---- */

/* Whether the line's paths are all decided on; n counts them. */
static int decided(char *line, int *n)
{
    char *words = strtok(line, " "), *route;
    int ok = 1;

    strtok(NULL, " "); /* the version */
    route = strtok(NULL, " ");
    if (!words || !route || !route_of(route))
        return 0;
    for (char *path; (path = strtok(NULL, " "));) {
        const int found = request_field_find(route_of(route), path) != NULL;
        CHECK(found, "%s, %s: %s: nobody has decided on this field (src/server/request/fields.def)", words, route,
              path);
        ok &= found;
        ++*n;
    }
    return ok;
}

static void check_inventory(const char *path, int least)
{
    size_t size = 0;
    char *text = text_file_read(path, &size), *next;
    int n = 0;

    for (char *line = text; line && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = 0;
        if (line[0] != '#')
            decided(line, &n);
    }
    CHECK(n >= least, "%s: %d fields, wanted %d at least", path, n, least);
    free(text);
}

/* Fields that nobody publishes: the check above fails for each. */
static void check_planted(void)
{
    static const char *const planted[] = { "chat no_such_field",
                                           "chat messages[].no_such_field",
                                           "chat messages[].content[text].no_such_field",
                                           "chat messages[].tool_calls[function].function.no_such_field",
                                           "chat stream_options.no_such_field",
                                           "chat response_format[json_schema].json_schema.no_such_field",
                                           "messages output_config.no_such_field",
                                           "messages messages[].content[tool_result].no_such_field",
                                           "messages thinking[enabled].no_such_field",
                                           "messages tool_choice[tool].no_such_field",
                                           "responses text.no_such_field",
                                           "responses reasoning.no_such_field",
                                           "responses input[function_call].no_such_field",
                                           "responses tools[custom].no_such_field",
                                           "completions no_such_field",
                                           "embeddings no_such_field",
                                           "rerank no_such_field",
                                           "tokenize no_such_field",
                                           "ollama-chat options.no_such_field",
                                           "ollama-generate messages",
                                           "tgi parameters.no_such_field" };

    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        char route[32];
        const size_t n = strcspn(planted[i], " ");
        snprintf(route, sizeof route, "%.*s", (int)n, planted[i]);
        CHECK(!request_field_find(route_of(route), planted[i] + n + 1), "%s is decided on", planted[i]);
    }
}

/* ---- the decisions, by bodies ---- */

/* body with "field": value -> the kind of the error; *r is NULL on error. */
static int read_with(int i, const char *field, const char *value, api_request **r, api_error *e)
{
    char body[1024];

    *r = NULL;
    snprintf(body, sizeof body, "%s,\"%s\":%s}", routes[i].body, field, value);
    if (strstr(routes[i].body, field) && routes[i].body[2] == field[0]) /* the body's own field */
        snprintf(body, sizeof body, "{\"%s\":%s}", field, value);
    return request_parse(&env, routes[i].shape, body, strlen(body), r, e);
}

/* Values of every type: a field that is read refuses one of them at least. */
static const char *const values[] = { "7.5", "-12345", "\"zz\"", "{\"zz\":1}", "[[1]]", "true", "[\"zz\",3]" };
enum { VALUES = sizeof values / sizeof *values };

/* Whether the header names the field itself, and not only one of its inner ones. */
static int is_noted(const api_request *r, const char *path)
{
    const size_t n = strlen(path);

    for (const char *p = r ? r->ignored : ""; (p = strstr(p, path)) != NULL; p += n)
        if ((p == r->ignored || p[-1] == ' ') && (!p[n] || p[n] == ','))
            return 1;
    return 0;
}

/* Fields of the route that are read whatever they are. */
static int takes_all(const char *path)
{
    return strcmp(path, "input") == 0;
}

static void check_read(int i, const request_field *f)
{
    int refused = 0, noted = 0;

    for (int v = 0; v < VALUES; v++) {
        api_request *r;
        api_error e = { 0 };
        refused += read_with(i, f->path, values[v], &r, &e) != API_OK;
        noted += is_noted(r, f->path);
        request_dispose(r);
    }
    CHECK(refused || takes_all(f->path), "%s: %s is read, says the table, and takes any value", routes[i].name,
          f->path);
    CHECK(!noted, "%s: %s is read, and told as ignored", routes[i].name, f->path);
}

/* Not read: any value passes; named in the header with WARN, or refused with its name. */
static void check_other(int i, const request_field *f)
{
    for (int v = 0; v < VALUES; v++) {
        api_request *r;
        api_error e = { 0 };
        const int kind = read_with(i, f->path, values[v], &r, &e), noted = is_noted(r, f->path);
        if (f->what == FIELD_HARMLESS)
            CHECK(kind == API_OK && !noted, "%s: %s=%s: %s", routes[i].name, f->path, values[v], e.message);
        else if (f->what == FIELD_WARN && strcmp(values[v], "true") != 0)
            CHECK(kind == API_OK && noted, "%s: %s=%s: %s", routes[i].name, f->path, values[v], e.message);
        else if (f->what == FIELD_REFUSE && strcmp(values[v], "true") != 0)
            CHECK(kind != API_OK && strcmp(e.param, f->path) == 0, "%s: %s=%s: %d %s %s", routes[i].name, f->path,
                  values[v], kind, e.param, e.message);
        request_dispose(r);
    }
    api_request *r;
    api_error e = { 0 };
    CHECK(read_with(i, f->path, "null", &r, &e) == API_OK && !r->ignored[0], "%s: %s=null: %s", routes[i].name, f->path,
          e.message);
    request_dispose(r);
}

static void check_decisions(void)
{
    int n = 0;

    for (int i = 0; i < ROUTES; i++)
        for (int k = 0; routes[i].shape >= 0 && k < request_field_count(); k++) {
            const request_field *f = request_field_at(k);
            if (!(f->routes & routes[i].route) || strpbrk(f->path, ".[*") ||
                request_field_find(routes[i].route, f->path) != f)
                continue;
            if (f->what == FIELD_READ)
                check_read(i, f);
            else
                check_other(i, f);
            n++;
        }
    CHECK(n > 800, "%d decisions of five routes", n);
}

/* Every line says why, or what else; a path occurs once for each route. */
static void check_table(void)
{
    for (int i = 0; i < request_field_count(); i++) {
        const request_field *f = request_field_at(i);
        CHECK(f->path[0] && strlen(f->path) < 120, "line %d: %s", i, f->path);
        if (f->what == FIELD_HARMLESS || f->what == FIELD_WARN)
            CHECK(f->text && f->text[0], "%s: a decision without its reason", f->path);
        int reached = 0;
        for (int k = 0; k < ROUTES; k++)
            reached |= (f->routes & routes[k].route) && !strchr(f->path, '*') &&
                       request_field_find(routes[k].route, f->path) == f;
        CHECK(reached || strchr(f->path, '*'), "%s: another line stands before it on every route", f->path);
    }
}

/* ---- inner fields ---- */

static void check_inner(void)
{
    static const struct {
        int shape;
        const char *body, *param, *ignored; /* param: of the error, "" for none */
    } cases[] = {
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"zz\":1}]}", "", "messages[].zz" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"zz\":1}]}]}", "",
          "messages[].content[text].zz" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"zz\":null,\"refusal\":\"x\"}]}", "", "" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\","
                     "\"cache_control\":{\"type\":\"ephemeral\"}}]}]}", "", "" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
                     "\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}},{\"role\":\"user\",\"content\":\"a\"}]}", "messages",
          "" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,\"stream_options\":"
                     "{\"include_usage\":true,\"include_obfuscation\":false,\"continuous_usage_stats\":true,\"yy\":0}}", "",
          "stream_options.continuous_usage_stats, stream_options.yy" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"citations\":"
                         "{\"enabled\":true},\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}]}]}", "", "" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"mcp_servers\":[{\"type\":\"url\"}]}",
          "mcp_servers", "" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"container\":\"c\"}", "container", "" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"thinking\":{\"type\":\"between_tools\"}}",
          "thinking", "" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":2}", "n", "" },
        { BODY_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"web_search_20250305\","
                         "\"name\":\"web_search\",\"max_uses\":8}]}", "", "tools[web_search_20250305]" },
        { BODY_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\",\"q\":1}]}]}", "",
          "input[].content[input_text].q" },
        { BODY_RESPONSES, "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"},{\"type\":\"web_search\"},"
                          "{\"type\":\"image_generation\"}],\"text\":{\"verbosity\":\"low\"}}", "",
          "tools[web_search], tools[image_generation], text.verbosity" },
        { BODY_RESPONSES, "{\"input\":\"a\",\"text\":{\"verbosity\":\"medium\"},"
                          "\"include\":[\"reasoning.encrypted_content\"],\"prompt_cache_key\":\"k\",\"client_metadata\":{\"a\":1},\"service_tier\":\"flex\"}", "", "" },
        { BODY_RESPONSES, "{\"input\":\"a\",\"tool_choice\":{\"type\":\"file_search\"}}", "tool_choice", "" },
        { BODY_RESPONSES, "{\"input\":\"a\",\"truncation\":\"auto\"}", "", "" },
        { BODY_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":{\"num_ctx\":9,\"num_gpu\":1,"
                            "\"zz\":1},\"keep_alive\":\"5m\"}", "", "options.num_ctx, options.zz" },
        { BODY_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"b\"]}]}", "messages", "" },
        { BODY_TEXT, "{\"prompt\":\"a\",\"min_new_tokns\":3}", "min_new_tokens", "" },
        { BODY_TEXT, "{\"prompt\":\"a\",\"regex\":123456789012345678901234567890}", "regex", "" },
        { BODY_TEXT, "{\"prompt\":\"a\",\"MinNewTokens\":3}", "min_new_tokens", "" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        api_request *r = NULL;
        api_error e = { 0 };
        const int kind = request_parse(&env, cases[i].shape, cases[i].body, strlen(cases[i].body), &r, &e);
        CHECK((kind != API_OK) == (cases[i].param[0] != 0) && strcmp(e.param, cases[i].param) == 0, "%s: %d %s: %s",
              cases[i].body, kind, e.param, e.message);
        if (r)
            CHECK(strcmp(r->ignored, cases[i].ignored) == 0, "%s: ignored \"%s\", wanted \"%s\"", cases[i].body,
                  r->ignored, cases[i].ignored);
        request_dispose(r);
    }
}

int main(void)
{
    const kvant_model_params p = { .size = sizeof(kvant_model_params), .path = model_path };
    kvant_model *m = NULL;
    kvant_diag diag = { "" };

    check_table();
    check_inventory("tests/fields/published.txt", 4000);
    check_inventory("tests/fields/servers.txt", 400);
    check_planted();
    CHECK(kvant_model_open(&p, &m, &diag) == KVANT_OK, "%s", diag.text);
    if (m) {
        env = (request_env){ .model = m,
                             .alias = "tiny",
                             .n_ctx = 4096,
                             .pool_tokens = 4096,
                             .default_max_tokens = -1,
                             .n_slots = 2,
                             .prefill = 1,
                             .sampler = kvant_sampler_defaults() };
        check_decisions();
        check_inner();
    }
    kvant_model_close(m);
    return check_end("check_server_fields");
}
