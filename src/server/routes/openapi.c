/* openapi.c: GET /openapi.json, a description of the routes (OpenAPI 3.1).  Nothing is written twice: paths and methods
 * come from the table of routes, fields from the table that bodies are checked against (fields.def), statuses from that
 * of errors; here stand the types of fields, and the values that a query takes.
 *
 * A field that has no type here takes what its reader says.  A type is a promise: a body that breaks it is refused. */
#include <stdio.h>
#include <string.h>
#include "kvant/kvant.h"
#include "server/request/request_fields.h"
#include "server/routes/routes.h"

#define NULLABLE(type) "{\"type\":[" type ",\"null\"]}"
#define COUNT "{\"type\":[\"integer\",\"null\"],\"minimum\":0}"
#define NUMBER NULLABLE("\"number\"")
#define BOOLEAN NULLABLE("\"boolean\"")
#define TEXT NULLABLE("\"string\"")

/* Types of fields at the top of a body, wherever they are read; of several lines about a field the first one that has
 * its route counts. */
static const struct {
    const char *name, *type;
    int routes; /* 0: all */
} types[] = {
    { "messages", "{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"object\"}}", REQUEST_OLLAMA_CHAT },
    { "messages", "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}", 0 },
    { "stream", BOOLEAN, 0 },
    { "temperature", NUMBER, 0 },
    { "top_p", NUMBER, 0 },
    { "min_p", NUMBER, 0 },
    { "presence_penalty", NUMBER, 0 },
    { "frequency_penalty", NUMBER, 0 },
    { "echo", BOOLEAN, 0 },
    { "ignore_eos", BOOLEAN, 0 },
    { "return_progress", BOOLEAN, 0 },
    { "timings_per_token", BOOLEAN, 0 },
    { "cache_salt", TEXT, 0 },
    { "documents", "{\"type\":\"array\"}", 0 },
    { "query", "{\"type\":\"string\"}", 0 },
    { "inputs", "{\"type\":\"object\",\"required\":[\"source_sentence\",\"sentences\"]}", REQUEST_SIMILAR },
    { "inputs", "{}", REQUEST_TEI },
    { "inputs", "{\"type\":\"string\"}", 0 },
    { "parameters", "{\"type\":[\"object\",\"null\"]}", 0 },
    { "tokens", "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", 0 },
};

/* Fields without which a body is refused. */
static const struct {
    int routes;
    const char *names;
} required[] = {
    { REQUEST_CHAT | REQUEST_MESSAGES | REQUEST_TEMPLATE | REQUEST_COHERE_CHAT, "[\"messages\"]" },
    { REQUEST_TEXT | REQUEST_FIM, "[\"prompt\"]" },
    { REQUEST_DETOKENIZE, "[\"tokens\"]" },
    { REQUEST_TGI | REQUEST_TEI | REQUEST_SIMILAR, "[\"inputs\"]" },
    { REQUEST_PREDICT, "[\"instances\"]" },
};

static const struct {
    const char *path, *name, *schema;
    int required;
    const char *method; /* NULL: every one of the path */
} queries[] = {
    { "/slots", "fail_on_no_slot", "{\"type\":\"string\"}", 0, NULL },
    { "/debug/events", "interval", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":86400}", 0, NULL },
    { "/slots/", "action", "{\"enum\":[\"save\",\"restore\",\"erase\"]}", 1, NULL },
    { "/cache", "action", "{\"enum\":[\"save\",\"restore\",\"clear\"]}", 1, NULL },
    { "/v1/stream", "conv_id", "{\"type\":\"string\",\"minLength\":1}", 1, NULL },
    { "/v1/stream", "from", "{\"type\":\"integer\",\"minimum\":0}", 0, NULL },
    { "/v1/responses/", "cache_salt", "{\"type\":\"string\"}", 0, NULL },
    { "/models", "model", "{\"type\":\"string\",\"minLength\":1}", 1, "DELETE" },
};

static int fields_of(const route *r)
{
    static const struct {
        work_fn make;
        int fields;
    } makers[] = { { make_rerank, REQUEST_RERANK },         { make_tokenize, REQUEST_TOKENIZE },
                   { make_detokenize, REQUEST_DETOKENIZE }, { make_template, REQUEST_TEMPLATE },
                   { make_ollama_show, REQUEST_OLLAMA_SHOW },
                   { make_predict, REQUEST_PREDICT } };

    if (r->make == make_answer || r->make == make_count || r->make == make_render)
        return request_fields_of(r->shape);
    if (r->make == make_embeddings)
        return embed_fields_of(r->shape);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (r->make == makers[i].make)
            return makers[i].fields;
    return 0;
}

static const char *type_of(const char *name, int fields)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0 && (!types[i].routes || (types[i].routes & fields)))
            return types[i].type;
    return "{}";
}

static int is_field(int i, int fields)
{
    const request_field *f = request_field_at(i);

    return (f->routes & fields) && f->what == FIELD_READ && !strpbrk(f->path, ".[*") &&
           request_field_find(fields, f->path) == f;
}

static void put_properties(int fields, jsonw *w)
{
    jsonw_key(w, "properties");
    jsonw_object(w);
    for (int i = 0; i < request_field_count(); i++)
        if (is_field(i, fields)) {
            jsonw_key(w, request_field_at(i)->path);
            jsonw_raw(w, type_of(request_field_at(i)->path, fields));
        }
    jsonw_end(w);
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (required[i].routes & fields) {
            jsonw_key(w, "required");
            jsonw_raw(w, required[i].names);
        }
}

static void put_body(const route *r, jsonw *w)
{
    const int fields = fields_of(r);

    jsonw_key(w, "requestBody");
    jsonw_object(w);
    jsonw_kbool(w, "required", fields != 0);
    jsonw_key(w, "content");
    jsonw_object(w);
    jsonw_key(w, "application/json");
    jsonw_object(w);
    jsonw_key(w, "schema");
    jsonw_object(w);
    if (fields) {
        jsonw_kstr(w, "type", "object");
        put_properties(fields, w);
    }
    for (int i = 0; i < 4; i++)
        jsonw_end(w);
}

static void put_parameter(const char *name, const char *in, int wanted, const char *schema, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "in", in);
    jsonw_kbool(w, "required", wanted);
    jsonw_key(w, "schema");
    jsonw_raw(w, schema);
    jsonw_end(w);
}

static void put_parameters(const route *r, jsonw *w)
{
    jsonw_key(w, "parameters");
    jsonw_array(w);
    if (r->flags & ROUTE_NAMED)
        put_parameter("name", "path", 1, "{\"type\":\"string\",\"minLength\":1}", w);
    if (r->flags & ROUTE_SLOT)
        put_parameter("slot", "path", 1, "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9999}", w);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        if (strcmp(queries[i].path, r->path) == 0 && (!queries[i].method || strcmp(queries[i].method, r->method) == 0))
            put_parameter(queries[i].name, "query", queries[i].required, queries[i].schema, w);
    jsonw_end(w);
}

/* The types of a whole answer's body; of a stream's. */
static const char *media_of(const route *r)
{
    if (r->handler == get_page)
        return "{\"*/*\":{}}";
    if (r->handler == get_metrics)
        return "{\"text/plain\":{}}";
    if (r->handler == get_events || r->handler == get_models_sse || r->handler == get_stream)
        return "{\"text/event-stream\":{}}";
    if (r->make == make_answer)
        return strncmp(r->path, "/api/", 5) == 0 ? "{\"application/json\":{},\"application/x-ndjson\":{}}"
                                                 : "{\"application/json\":{},\"text/event-stream\":{}}";
    return "{\"application/json\":{}}";
}

/* Errors are of the API whose clients ask. */
static const char *error_of(const route *r)
{
    return (strncmp(r->path, "/api/", 5) == 0 && strncmp(r->path, "/api/v0/", 8) != 0) || fields_of(r) == REQUEST_TGI
               ? "#/components/schemas/OllamaError"
               : "#/components/schemas/Error";
}

static void put_responses(const route *r, jsonw *w)
{
    static const char *const statuses[] = {
#define STATUS(name, type, status) #status,
        API_ERRORS(STATUS)
#undef STATUS
    };
    char schema[160];

    snprintf(schema, sizeof schema, "{\"application/json\":{\"schema\":{\"$ref\":\"%s\"}}}", error_of(r));
    jsonw_key(w, "responses");
    jsonw_object(w);
    for (size_t i = 0; i <= sizeof statuses / sizeof *statuses; i++) {
        const char *status = i ? statuses[i - 1] : r->handler == delete_stream ? "204" : "200";
        if (i > 1 && (strcmp(status, statuses[i - 2]) == 0 || (i > 2 && strcmp(status, "400") == 0)))
            continue; /* several kinds have one status */
        jsonw_key(w, status);
        jsonw_object(w);
        jsonw_kstr(w, "description", i ? "an error" : "the answer");
        jsonw_key(w, "content");
        jsonw_raw(w, i ? schema : media_of(r));
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void put_operation(const route *r, jsonw *w)
{
    char method[8] = "";

    for (size_t i = 0; r->method[i] && i + 1 < sizeof method; i++)
        method[i] = (char)(r->method[i] | 32);
    jsonw_key(w, method);
    jsonw_object(w);
    if (r->flags & ROUTE_PUBLIC) {
        jsonw_key(w, "security");
        jsonw_raw(w, "[]");
    }
    put_parameters(r, w);
    if (r->method[0] == 'P')
        put_body(r, w);
    put_responses(r, w);
    jsonw_end(w);
}

static void put_paths(jsonw *w)
{
    jsonw_key(w, "paths");
    jsonw_object(w);
    for (int i = 0; i < route_count(); i++) {
        char path[120];
        int before = 0;
        for (int k = 0; k < i; k++)
            before |= strcmp(route_at(k)->path, route_at(i)->path) == 0;
        if (before)
            continue;
        snprintf(path, sizeof path, "%s%s", route_at(i)->path,
                 route_at(i)->flags & ROUTE_NAMED ? "{name}" : route_at(i)->flags & ROUTE_SLOT ? "{slot}" : "");
        jsonw_key(w, path);
        jsonw_object(w);
        for (int k = i; k < route_count(); k++)
            if (strcmp(route_at(k)->path, route_at(i)->path) == 0)
                put_operation(route_at(k), w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static const char components[] =
    "{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
    "\"xkey\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"x-api-key\"}},\"schemas\":{"
    "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
    "\"required\":[\"message\",\"type\"],\"properties\":{\"message\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"}}}}},"
    "\"OllamaError\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"string\"}}}}}";

enum MHD_Result get_openapi(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "openapi", "3.1.0");
    jsonw_key(&w, "info");
    jsonw_object(&w);
    jsonw_kstr(&w, "title", "kvant serve");
    jsonw_kstr(&w, "version", kvant_version_text());
    jsonw_end(&w);
    if (c->s->p.api_prefix[0]) {
        jsonw_key(&w, "servers");
        jsonw_array(&w);
        jsonw_object(&w);
        jsonw_kstr(&w, "url", c->s->p.api_prefix);
        jsonw_end(&w);
        jsonw_end(&w);
    }
    if (server_has_keys(c->s)) {
        jsonw_key(&w, "security");
        jsonw_raw(&w, "[{\"key\":[]},{\"xkey\":[]}]");
    }
    put_paths(&w);
    jsonw_key(&w, "components");
    jsonw_raw(&w, components);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}
