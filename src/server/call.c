/* call.c: one request on a connection, as libmicrohttpd hands it over: its head is checked, its body collected, its
 * route called, its end noticed.  What a route does is in routes.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

static int find_key(const server *s, struct MHD_Connection *conn)
{
    const char *given = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Authorization");

    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        given += 7;
    else
        given = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "X-Api-Key");
    return given ? auth_find(s->p.keys, given, strlen(given)) : -1;
}

int server_has_keys(const server *s)
{
    return s->p.keys && s->p.keys->n > 0;
}

/* Without a key, a page of another site must not reach us through a name that it pointed here. */
static int host_allowed(const server *s, struct MHD_Connection *conn)
{
    static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };
    const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Host");

    if (server_has_keys(s) || s->socket_path[0] || !host)
        return 1;
    size_t n = strcspn(host, host[0] == '[' ? "]" : ":") + (host[0] == '[');
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (strlen(local[i]) == n && strncasecmp(host, local[i], n) == 0)
            return 1;
    return strlen(s->p.host) == n && strncasecmp(host, s->p.host, n) == 0;
}

static const char *strip_prefix(const server *s, const char *url)
{
    size_t n = strlen(s->p.api_prefix);

    return strncmp(url, s->p.api_prefix, n) == 0 ? url + n : url;
}

static int declared_too_large(const server *s, struct MHD_Connection *conn)
{
    const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Content-Length");
    size_t digits = length ? strlen(length) : 0;

    return digits > 18 || (digits && atoll(length) > s->p.max_body);
}

static int is_json(struct MHD_Connection *conn)
{
    const char *type = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Content-Type");

    return !type || strncasecmp(type, "application/json", 16) == 0;
}

/* Everything that can be said before the body: -1 when the request may go on, else the answer's result. */
static int check_head(call *c, struct MHD_Connection *conn, const char *url, const char *version)
{
    server *s = c->s;
    const char *bad = framing_error(conn, version);
    int other = 0;

    if (bad)
        return (int)respond_fail(c, conn, API_INVALID, bad);
    c->route = route_find(c->method, strip_prefix(s, url), &other);
    if (strcmp(c->method, "OPTIONS") == 0 && s->p.cors_origins)
        return (int)respond(c, conn, 204, "text/plain", "", 0);
    if (!host_allowed(s, conn))
        return (int)respond_fail(c, conn, API_INVALID,
                                 "Host: not a name of this server (set an API key to serve other names)");
    if (server_has_keys(s) && !(c->route && c->route->flags & ROUTE_PUBLIC)) {
        c->key = find_key(s, conn);
        if (c->key < 0)
            return (int)respond_fail(c, conn, API_AUTH, "API key: missing or wrong (Authorization: Bearer KEY)");
    }
    if (!c->route)
        return (int)respond_fail(c, conn, other ? API_METHOD : API_NOT_FOUND,
                                 other ? "method not allowed here" : "no such route");
    if (MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Content-Encoding"))
        return (int)respond_fail(c, conn, API_MEDIA, "Content-Encoding: not supported");
    if (declared_too_large(s, conn))
        return (int)respond_fail(c, conn, API_TOO_LARGE, "body: larger than this server takes");
    if (c->method[0] == 'P' && !is_json(conn))
        return (int)respond_fail(c, conn, API_MEDIA, "Content-Type: wanted application/json");
    if ((c->route->flags & ROUTE_MODEL) && !atomic_load(&s->ready))
        return (int)respond_fail(c, conn, API_UNAVAILABLE, "Loading model");
    if ((c->route->flags & ROUTE_MODEL) && s->draining && c->method[0] == 'P')
        return (int)respond_fail(c, conn, API_UNAVAILABLE, "the server is shutting down");
    return -1;
}

static enum MHD_Result begin_call(call *c, struct MHD_Connection *conn, const char *url, const char *version)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    c->client = info ? info->socket_context : NULL;
    if (!c->client)
        return MHD_NO;
    c->client->call_ns = c->t0_ns;
    c->client->body_bytes = 0;
    c->client->body_done = 0;
    snprintf(c->path, sizeof c->path, "%s", url);
    int answer = check_head(c, conn, url, version);
    return answer < 0 ? MHD_YES : (enum MHD_Result)answer;
}

static enum MHD_Result take_body(call *c, const char *data, size_t *n)
{
    c->body_seen += *n;
    c->client->body_bytes += *n;
    if ((int64_t)c->body_seen > 2 * c->s->p.max_body)
        return MHD_NO; /* a chunked body without end: close */
    if ((int64_t)c->body_seen <= c->s->p.max_body)
        sbuf_put(&c->body, data, *n);
    *n = 0;
    return MHD_YES;
}

enum MHD_Result call_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                            const char *version, const char *data, size_t *n, void **con_cls)
{
    call *c = *con_cls;

    if (!c) {
        c = kvant_calloc(1, sizeof *c);
        if (!c)
            return MHD_NO;
        *c = (call){ .s = cls, .method = method, .key = -1, .t0_ns = clock_ns() };
        *con_cls = c;
        return begin_call(c, conn, url, version);
    }
    if (c->answered)
        return MHD_YES;
    if (*n)
        return take_body(c, data, n);
    c->client->body_done = 1;
    if (c->job)
        return respond_done(c, conn); /* resumed */
    if ((int64_t)c->body_seen > c->s->p.max_body)
        return respond_fail(c, conn, API_TOO_LARGE, "body: larger than this server takes");
    if (c->body.error)
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    enum MHD_Result ok = c->route->handler(c, conn);
    sbuf_free(&c->body);
    return ok;
}

void call_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode how)
{
    call *c = *con_cls;

    (void)cls;
    (void)conn;
    if (!c)
        return;
    if (c->client) {
        c->client->call_ns = 0;
        c->client->fresh = 0;
        c->client->since_ns = clock_ns();
    }
    log_msg(LOG_DEBUG, "%.10s %.90s %d %.1f ms%s", c->method, c->path, c->status,
            (double)(clock_ns() - c->t0_ns) * 1e-6,
            how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : " (not completed)");
    if (c->job) {
        job *j = c->job;
        call_unlink_job(c);
        job_gone(j);
        job_release(j);
    }
    sbuf_free(&c->body);
    kvant_free(c);
    *con_cls = NULL;
}

void call_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                     enum MHD_ConnectionNotificationCode what)
{
    server *s = cls;
    client *k = *socket_context;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        k = kvant_calloc(1, sizeof *k);
        *socket_context = k;
        if (!k || !info)
            return;
        *k = (client){ .fd = info->connect_fd, .since_ns = clock_ns(), .fresh = 1, .next = s->clients };
        if (s->clients)
            s->clients->prev = k;
        s->clients = k;
        s->n_clients++;
        return;
    }
    if (!k)
        return;
    if (k->prev)
        k->prev->next = k->next;
    else
        s->clients = k->next;
    if (k->next)
        k->next->prev = k->prev;
    s->n_clients--;
    kvant_free(k);
    *socket_context = NULL;
}

/* Paths are compared as they came: nothing is decoded. */
size_t call_keep_escapes(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls;
    (void)conn;
    return strlen(s);
}
