/* call.c: one request on a connection, as libmicrohttpd hands it over: its head is checked (head.c), its body collected
 * within the budgets (budget.c), its route called, its end noticed.  routes.c has the work of a route. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http/kept.h"
#include "server/routes/routes.h"

static enum MHD_Result begin_call(call *c, struct MHD_Connection *conn, const char *url, const char *version)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    c->client = info ? info->socket_context : NULL;
    if (!c->client)
        return MHD_NO;
    c->client->call_ns = c->t0_ns;
    c->client->body_bytes = 0;
    c->client->body_done = 0;
    int answer = head_check(c, conn, url, version);
    return answer < 0 ? MHD_YES : (enum MHD_Result)answer;
}

/* The rest of a body is of no interest: the answer goes straight to the socket, since the library sends none before it
 * has read all of the body, and the connection closes. */
static enum MHD_Result refuse_rest(call *c, const api_error *e)
{
    respond_cut(c, e);
    return MHD_NO;
}

static enum MHD_Result take_body(call *c, const char *data, size_t *n)
{
    api_error e;

    c->client->body_bytes += *n;
    if (budget_body_grow(c, c->body.n + *n, &e) != API_OK)
        return refuse_rest(c, &e);
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
    if (c->body.error)
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    enum MHD_Result ok = c->route->handler(c, conn);
    budget_body_free(c);
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
    access_done(c, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (c->job) {
        job *j = c->job;
        call_unlink_job(c);
        if (!kept_left(j))
            job_gone(j);
        job_release(j);
    }
    budget_body_free(c);
    budget_call_end(c);
    served_release(c->m);
    kvant_free(c);
    *con_cls = NULL;
}

static client *add_client(server *s, int fd)
{
    client *k = kvant_calloc(1, sizeof *k);

    if (!k)
        return NULL;
    *k = (client){ .fd = fd, .since_ns = clock_ns(), .fresh = 1, .next = s->clients };
    if (s->clients)
        s->clients->prev = k;
    s->clients = k;
    s->n_clients++;
    return k;
}

static void remove_client(server *s, client *k)
{
    if (k->prev)
        k->prev->next = k->next;
    else
        s->clients = k->next;
    if (k->next)
        k->next->prev = k->prev;
    s->n_clients--;
    s->n_cut -= k->cut;
    kvant_free(k);
}

void call_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                     enum MHD_ConnectionNotificationCode what)
{
    server *s = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        client *k = info ? add_client(s, info->connect_fd) : NULL;
        *socket_context = k;
        info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        if (k)
            access_address(info ? info->client_addr : NULL, k->address);
        budget_make_room(s);
    } else if (*socket_context) {
        remove_client(s, *socket_context);
        *socket_context = NULL;
    }
}

/* Paths are compared as they came: nothing is decoded. */
size_t call_keep_escapes(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls;
    (void)conn;
    return strlen(s);
}
