/* kept_routes.c: GET and DELETE of /v1/stream, and /v1/streams/lookup, in llama-server's shapes.  Nobody is told which
 * streams there are: who asks knows the name, and has the key. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/http/kept.h"
#include "server/request/request_impl.h"
#include "server/routes/routes.h"

static int read_name(struct MHD_Connection *conn, char name[KEPT_NAME], api_error *e)
{
    const char *given = query_value(conn, "conv_id");
    char text[3 * KEPT_NAME]; /* each byte may be escaped */

    if (!given || !given[0])
        return api_fail(e, API_INVALID, "conv_id", "conv_id: missing, wanted the X-Conversation-Id of the request");
    if (strlen(given) >= sizeof text)
        return kept_check_name("conv_id", given, strlen(given), e);
    snprintf(text, sizeof text, "%s", given);
    API_TRY(kept_check_name("conv_id", text, MHD_http_unescape(text), e));
    memcpy(name, text, strlen(text) + 1);
    return API_OK;
}

static int read_from(struct MHD_Connection *conn, uint64_t *from, api_error *e)
{
    const char *given = query_value(conn, "from");

    *from = 0;
    if (!given || !given[0])
        return API_OK;
    if (strspn(given, "0123456789") != strlen(given) || strlen(given) > 18)
        return api_fail(e, API_INVALID, "from", "from: found \"%.40s\", wanted how many bytes of the stream came", given);
    *from = strtoull(given, NULL, 10);
    return API_OK;
}

/* The stream that may be read from this place on, or why not. */
static int find_stream(call *c, struct MHD_Connection *conn, kept_stream **k, uint64_t *from, api_error *e)
{
    char name[KEPT_NAME];

    if (!c->s->p.stream.keep_s)
        return api_fail(e, API_OFF, "", "streams are not kept here (--stream-keep-seconds 0)");
    API_TRY(read_name(conn, name, e));
    API_TRY(read_from(conn, from, e));
    *k = kept_find(c->s, c->key + 1, name);
    if (!*k)
        return api_fail(e, API_NOT_FOUND, "conv_id", "conv_id: no stream of this name is kept here (any more)");
    if (!(*k)->began)
        return api_fail(e, API_UNAVAILABLE, "conv_id", "conv_id: the stream has not begun: its request is read, or waits "
                        "for its model; try later");
    if (*from < (*k)->lost)
        return api_fail(e, API_INVALID, "from", "from: found %llu, the stream is kept from byte %llu on",
                        (unsigned long long)*from, (unsigned long long)(*k)->lost);
    if (*from > (*k)->lost + (*k)->n)
        return api_fail(e, API_INVALID, "from", "from: found %llu, the stream has %llu bytes",
                        (unsigned long long)*from, (unsigned long long)((*k)->lost + (*k)->n));
    return API_OK;
}

enum MHD_Result get_stream(call *c, struct MHD_Connection *conn)
{
    kept_stream *k = NULL;
    uint64_t from = 0;
    api_error e;

    if (find_stream(c, conn, &k, &from, &e) != API_OK)
        return respond_error(c, conn, &e);
    job *r = kept_reader(k, from, NULL);
    return r ? respond_job(c, conn, r) : respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
}

enum MHD_Result delete_stream(call *c, struct MHD_Connection *conn)
{
    char name[KEPT_NAME];
    api_error e;

    if (read_name(conn, name, &e) != API_OK)
        return respond_error(c, conn, &e);
    kept_stream *k = kept_find(c->s, c->key + 1, name);
    if (k)
        kept_stop(k);
    return respond_fixed(c, conn, 204, "application/json", "", 0);
}

/* The id itself, or an id and a model: "ID::MODEL". */
static int is_of(const kept_stream *k, const char *id)
{
    const size_t n = strlen(id);

    return strncmp(k->name, id, n) == 0 && (!k->name[n] || strncmp(k->name + n, "::", 2) == 0);
}

static void put_stream(const kept_stream *k, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "conversation_id", k->name);
    jsonw_kbool(w, "is_done", !k->job);
    jsonw_kint(w, "total_bytes", (int64_t)(k->lost + k->n));
    jsonw_kint(w, "started_at", k->started_s);
    jsonw_kint(w, "completed_at", k->ended_s);
    jsonw_end(w);
}

enum MHD_Result post_streams_lookup(call *c, struct MHD_Connection *conn)
{
    json_t *ids = NULL;
    api_error e;
    jsonw w;

    if (request_parse_conversations(sbuf_text(&c->body), c->body.n, &ids, &e) != API_OK)
        return respond_error(c, conn, &e);
    jsonw_init(&w);
    jsonw_array(&w);
    for (const kept_stream *k = c->s->kept.streams; k; k = k->next) {
        int asked = 0;
        for (size_t i = 0; i < json_array_size(ids) && !asked; i++)
            asked = is_of(k, json_string_value(json_array_get(ids, i)));
        if (asked && k->listed && k->tenant == c->key + 1)
            put_stream(k, &w);
    }
    jsonw_end(&w);
    json_decref(ids);
    return respond_json(c, conn, 200, &w);
}
