/* http.c: the daemon: listening, the loop, connections, responses.  Owns the use of libmicrohttpd; what a route
 * does is in routes.c.
 *
 * One epoll set: the daemon's own, the event counter that other threads write, a one-second timer, signals, and
 * the socket of every client that waits for something (a suspended connection is not watched by the library, so a
 * client that leaves is seen here).  A client that closes its sending side counts as gone. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum {
    CONNECTION_BYTES = 24 << 10, /* the library's buffer of one connection; headers must fit.  Touched as used. */
    STREAM_BLOCK = 1024,         /* bytes handed to the library at once */
    FIRST_REQUEST_S = 10,        /* headers of the first request after accept */
    KEEP_ALIVE_S = 60,           /* headers of the next one after a response */
    BODY_GRACE_S = 10,
    BODY_RATE = 1024,       /* then at least so many bytes per second */
    SEND_BUFFER = 64 << 10, /* the kernel's part of what waits for a client; it takes twice that */
    EVENTS = 128,
    LOOP_NICER = 10,
};

static char tag_daemon, tag_event, tag_timer, tag_signal; /* addresses tell the loop what an event is of */

server_params server_defaults(void)
{
    return (server_params){ .host = "127.0.0.1",
                            .port = 8686,
                            .alias = "kvant",
                            .api_prefix = "",
                            .max_connections = 4096,
                            .max_body = 8 << 20,
                            .ping_s = 30,
                            .drain_ms = 30000,
                            .stall_s = 30,
                            .watchdog_s = 60,
                            .default_max_tokens = -1,
                            .slots = 1,
                            .sampler = kvant_sampler_defaults() };
}

/* ---- responses ---- */

static int origin_allowed(const char *list, const char *origin)
{
    size_t n = strlen(origin);

    while (*list) {
        size_t k = strcspn(list, ",");
        if (k == n && memcmp(list, origin, n) == 0)
            return 1;
        list += k + (list[k] == ',');
    }
    return 0;
}

static void add_cors(const call *c, struct MHD_Connection *conn, struct MHD_Response *r)
{
    const char *list = c->s->p.cors_origins, *origin;

    if (!list)
        return;
    origin = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin");
    if (strcmp(list, "*") == 0) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", "*");
    } else if (origin && origin_allowed(list, origin)) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(r, "Vary", "Origin");
    } else {
        return;
    }
    MHD_add_response_header(r, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key");
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
}

static enum MHD_Result queue(call *c, struct MHD_Connection *conn, int status, struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    add_cors(c, conn, r);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == 429 || status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    enum MHD_Result ok = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    c->answered = 1;
    c->status = status;
    atomic_fetch_add_explicit(&c->s->metrics.http[status / 100 < 6 ? status / 100 : 5], 1, memory_order_relaxed);
    return ok;
}

enum MHD_Result respond(call *c, struct MHD_Connection *conn, int status, const char *type, const char *body, size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);

    if (r)
        MHD_add_response_header(r, "Content-Type", type);
    return queue(c, conn, status, r);
}

enum MHD_Result respond_json(call *c, struct MHD_Connection *conn, int status, jsonw *w)
{
    enum MHD_Result ok = MHD_NO;

    if (!jsonw_error(w) && w->buf)
        ok = respond(c, conn, status, "application/json", w->buf, w->len);
    jsonw_free(w);
    return ok;
}

enum MHD_Result respond_error(call *c, struct MHD_Connection *conn, const api_error *e)
{
    jsonw w;

    jsonw_init(&w);
    api_error_json(e, &w);
    return respond_json(c, conn, api_status(e->kind), &w);
}

static enum MHD_Result respond_fail(call *c, struct MHD_Connection *conn, int kind, const char *text)
{
    api_error e;

    api_fail(&e, kind, "", "%s", text);
    return respond_error(c, conn, &e);
}

const char *query_value(struct MHD_Connection *conn, const char *key)
{
    return MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, key);
}

/* ---- streams ---- */

/* Called by the library when it can send: what is there, or suspend until there is something. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    job *j = cls;
    ssize_t n;

    (void)pos;
    pthread_mutex_lock(&j->lock);
    if (j->gone || j->out.error) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (j->out.n) {
        max = max < STREAM_BLOCK ? max : STREAM_BLOCK; /* touches no more of the connection's buffer than this */
        n = (ssize_t)(j->out.n < max ? j->out.n : max);
        memcpy(buf, j->out.s, (size_t)n);
        sbuf_drop(&j->out, (size_t)n);
        if (j->out.n == 0 && j->out.cap > 1024)
            sbuf_free(&j->out);
        j->last_out_ns = j->last_taken_ns = clock_ns();
    } else if (j->done) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        n = 0;
        j->last_taken_ns = clock_ns();
        j->suspended = 1;
        MHD_suspend_connection(j->conn);
    }
    int go_on = j->n_paused > 0 && j->out.n < STREAM_LOW;
    pthread_mutex_unlock(&j->lock);
    if (go_on)
        job_go_on(j);
    return n;
}

static void drop_reference(void *cls)
{
    job_release(cls);
}

static void watch(client *k, int on)
{
    struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = k };

    if (!k || k->watched == on || !k->job)
        return;
    k->watched = on;
    epoll_ctl(k->job->s->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, k->fd, &ev);
}

static void link_job(call *c, struct MHD_Connection *conn, job *j)
{
    server *s = c->s;

    c->job = j;
    j->conn = conn;
    j->client = c->client;
    c->client->job = j;
    j->last_out_ns = j->last_taken_ns = clock_ns();
    j->next = s->jobs;
    j->prev = NULL;
    if (s->jobs)
        s->jobs->prev = j;
    s->jobs = j;
    s->n_streams += j->stream;
    watch(c->client, 1);
}

static void unlink_job(call *c)
{
    server *s = c->s;
    job *j = c->job;

    watch(c->client, 0);
    if (j->prev)
        j->prev->next = j->next;
    else
        s->jobs = j->next;
    if (j->next)
        j->next->prev = j->prev;
    s->n_streams -= j->stream;
    c->client->job = NULL;
    j->conn = NULL;
    c->job = NULL;
}

enum MHD_Result respond_job(call *c, struct MHD_Connection *conn, job *j)
{
    link_job(c, conn, j);
    if (!j->stream) {
        j->suspended = 1;
        MHD_suspend_connection(conn);
        return MHD_YES;
    }
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, j,
                                                               drop_reference);
    if (!r)
        return MHD_NO;
    atomic_fetch_add(&j->refs, 1);
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return queue(c, conn, 200, r);
}

/* The response of a job that is done and does not stream. */
static enum MHD_Result finish_job(call *c, struct MHD_Connection *conn)
{
    job *j = c->job;
    jsonw w;

    jsonw_init(&w);
    pthread_mutex_lock(&j->lock);
    api_error e = j->error;
    int gone = j->gone;
    if (!gone && !e.kind && j->kind == JOB_GENERATE)
        openai_whole(j, &w);
    else if (!gone && !e.kind && j->kind == JOB_EMBED)
        openai_embeddings(j, &w);
    else if (!gone && !e.kind)
        route_slot_result(j, &w);
    pthread_mutex_unlock(&j->lock);
    if (gone) {
        jsonw_free(&w);
        return MHD_NO;
    }
    if (e.kind) {
        jsonw_free(&w);
        return respond_error(c, conn, &e);
    }
    return respond_json(c, conn, 200, &w);
}

static void resume(job *j)
{
    if (j->suspended && j->conn) {
        j->suspended = 0;
        MHD_resume_connection(j->conn);
    }
}

/* ---- requests ---- */

static int find_key(const server *s, struct MHD_Connection *conn)
{
    const char *given = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Authorization");

    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        given += 7;
    else
        given = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "X-Api-Key");
    return given ? auth_find(s->p.keys, given, strlen(given)) : -1;
}

static int has_keys(const server *s)
{
    return s->p.keys && s->p.keys->n > 0;
}

/* Without a key, a page of another site must not reach us through a name that it pointed here. */
static int host_allowed(const server *s, struct MHD_Connection *conn)
{
    static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };
    const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Host");

    if (has_keys(s) || s->socket_path[0] || !host)
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
    if (has_keys(s) && !(c->route && c->route->flags & ROUTE_PUBLIC)) {
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

static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
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
        return finish_job(c, conn); /* resumed */
    if ((int64_t)c->body_seen > c->s->p.max_body)
        return respond_fail(c, conn, API_TOO_LARGE, "body: larger than this server takes");
    if (c->body.error)
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    enum MHD_Result ok = c->route->handler(c, conn);
    sbuf_free(&c->body);
    return ok;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode how)
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
        unlink_job(c);
        job_gone(j);
        job_release(j);
    }
    sbuf_free(&c->body);
    kvant_free(c);
    *con_cls = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
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
static size_t keep_escapes(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls;
    (void)conn;
    return strlen(s);
}

/* ---- the loop ---- */

static void take_dirty(server *s)
{
    uint64_t n;

    if (read(s->event_fd, &n, sizeof n) < 0)
        n = 0;
    pthread_mutex_lock(&s->dirty_lock);
    job *list = s->dirty;
    s->dirty = NULL;
    for (job *j = list; j; j = j->dirty_next) {
        j->taken_next = j->dirty_next;
        j->dirty = 0;
    }
    if (s->asked_stop && !s->stop) {
        s->stop = !s->asked_drain;
        s->draining = 1;
    }
    pthread_mutex_unlock(&s->dirty_lock);
    while (list) {
        job *j = list;
        list = j->taken_next;
        pthread_mutex_lock(&j->lock);
        int news = j->stream ? j->out.n > 0 || j->done || j->gone : j->done || j->gone;
        pthread_mutex_unlock(&j->lock);
        if (news)
            resume(j);
        job_release(j);
    }
}

static void client_left(client *k)
{
    job *j = k->job;

    watch(k, 0);
    if (!j)
        return;
    job_gone(j);
    resume(j); /* the library finds the closed socket, or our error, and cleans up */
}

static void begin_drain(server *s)
{
    s->draining = 1;
    s->stop_ns = clock_ns();
    if (s->session)
        kvant_session_drain(s->session, s->p.drain_ms);
    log_msg(LOG_INFO, "shutting down: %d requests end first, at most %d ms", s->n_streams, s->p.drain_ms);
}

static void take_signals(server *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (s->signals++ || !atomic_load(&s->ready)) {
            s->stop = 1;
            s->killed_by = s->signals > 1 ? (int)info.ssi_signo : 0;
        } else {
            begin_drain(s);
        }
    }
}

static int too_slow(const client *k, int64_t now)
{
    const int64_t second = 1000000000;

    if (!k->call_ns)
        return now - k->since_ns > (k->fresh ? FIRST_REQUEST_S : KEEP_ALIVE_S) * second;
    if (!k->body_done) {
        int64_t late = now - k->call_ns - BODY_GRACE_S * second;
        return late > 0 && (int64_t)k->body_bytes < late / second * BODY_RATE;
    }
    return 0;
}

/* A lost device or a vanished model file: every request has had its error.  A context that is gone cannot be made anew
 * in this process (CUDA), so the program ends and whoever watches over it starts it again. */
static void check_engine(server *s)
{
    kvant_session_stats st;

    if (s->fail_code || !atomic_load(&s->ready))
        return;
    kvant_session_get_stats(s->session, &st);
    if (!st.failed)
        return;
    s->fail_code = kvant_fail(&s->fail_diag, st.failed, "engine: stopped after an error (%s)",
                              kvant_error_text(st.failed));
    s->p.drain_ms = 0; /* only for bytes that are on their way */
    begin_drain(s);
}

/* Once a second: the engine's health, pings, stalled streams, slow clients, the live view. */
static void take_timer(server *s)
{
    uint64_t n;
    int64_t now = clock_ns(), second = 1000000000;

    if (read(s->timer_fd, &n, sizeof n) < 0)
        n = 0;
    check_engine(s);
    live_tick(s, now);
    for (job *j = s->jobs; j; j = j->next) {
        int cut;
        pthread_mutex_lock(&j->lock);
        cut = j->out.n && now - j->last_taken_ns > s->p.stall_s * second;
        if (j->stream && !j->out.n && !j->done && s->p.ping_s && now - j->last_out_ns >= s->p.ping_s * second)
            sbuf_puts(&j->out, ": ping\n\n");
        int news = j->stream && j->out.n;
        pthread_mutex_unlock(&j->lock);
        if (cut) {
            job_gone(j);
            shutdown(j->client->fd, SHUT_RDWR);
        }
        if (news || cut)
            resume(j);
    }
    for (client *k = s->clients; k; k = k->next)
        if (too_slow(k, now))
            shutdown(k->fd, SHUT_RDWR);
}

static int drained(const server *s)
{
    kvant_session_stats st;

    if (!s->draining)
        return 0;
    if (s->session) {
        kvant_session_get_stats(s->session, &st);
        if (st.queued + st.running > 0 && clock_ns() - s->stop_ns < ((int64_t)s->p.drain_ms + 1000) * 1000000)
            return 0;
    }
    for (const job *j = s->jobs; j; j = j->next)
        if (j->kind != JOB_LIVE && clock_ns() - s->stop_ns < ((int64_t)s->p.drain_ms + 1000) * 1000000)
            return 0; /* its last bytes are on their way */
    return 1;
}

static void run_daemon(server *s)
{
    MHD_UNSIGNED_LONG_LONG wait = 1;
    int rounds = 0;

    do
        MHD_run(s->daemon);
    while (++rounds < 64 && MHD_get_timeout(s->daemon, &wait) == MHD_YES && wait == 0);
}

/* The threads that compute take every CPU there is.  The loop needs little, but at once: with an equal share a burst
 * of 256 requests (12 ms of work) kept /health waiting for 68 ms on 2 CPUs.  10 below the others: allowed to root,
 * and where RLIMIT_NICE says so (contrib/kvant.service); elsewhere the loop stays as it is.  Linux: only this thread;
 * the others exist. */
static void prefer_loop(void)
{
    if (setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) - LOOP_NICER) != 0)
        log_msg(LOG_DEBUG, "the loop keeps its priority: %s", strerror(errno));
}

int server_run(server *s, kvant_diag *diag)
{
    struct epoll_event ev[EVENTS];
    MHD_UNSIGNED_LONG_LONG wait;

    prefer_loop();
    while (!s->stop) {
        int limit = MHD_get_timeout(s->daemon, &wait) == MHD_YES && wait < 1000 ? (int)wait : 1000;
        int n = epoll_wait(s->epoll, ev, EVENTS, s->draining && limit > 20 ? 20 : limit);
        for (int i = 0; i < n; i++) {
            void *p = ev[i].data.ptr;
            if (p == &tag_event)
                take_dirty(s);
            else if (p == &tag_timer)
                take_timer(s);
            else if (p == &tag_signal)
                take_signals(s);
            else if (p != &tag_daemon)
                client_left(p);
        }
        run_daemon(s);
        if (s->draining && !s->stop_ns)
            begin_drain(s);
        if (drained(s))
            break;
    }
    pthread_mutex_lock(&s->dirty_lock);
    int code = s->fail_code;
    if (code != KVANT_OK && diag)
        *diag = s->fail_diag;
    pthread_mutex_unlock(&s->dirty_lock);
    return code;
}

/* ---- from other threads ---- */

void server_stop(server *s, int drain)
{
    pthread_mutex_lock(&s->dirty_lock);
    s->asked_stop = 1;
    s->asked_drain = drain;
    pthread_mutex_unlock(&s->dirty_lock);
    server_wake(s);
}

void server_fail(server *s, int code, const kvant_diag *diag)
{
    pthread_mutex_lock(&s->dirty_lock);
    s->fail_code = code;
    s->fail_diag = *diag;
    s->asked_stop = 1;
    pthread_mutex_unlock(&s->dirty_lock);
    server_wake(s);
}

int server_attach(server *s, kvant_model *m, kvant_engine *e, kvant_session *session, kvant_diag *diag)
{
    const kvant_engine_params *p = kvant_engine_get_params(e);

    KVANT_TRY(grammar_vocab_create(m, &s->vocab, diag));
    s->model = m;
    s->engine = e;
    s->session = session;
    s->env = (request_env){ .model = m,
                            .alias = s->p.alias,
                            .n_ctx = p->n_ctx,
                            .pool_tokens = p->pool_tokens,
                            .default_max_tokens = s->p.default_max_tokens,
                            .sampler = s->p.sampler,
                            .grammars = grammar_cache_new() };
    if (!s->env.grammars)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    atomic_store(&s->ready, 1);
    return KVANT_OK;
}

/* ---- opening ---- */

static int listen_unix(server *s, kvant_diag *diag)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    if (strlen(s->p.host) >= sizeof a.sun_path)
        return kvant_fail(diag, KVANT_EINVAL, "--host: socket path of %zu bytes, want fewer than %zu",
                          strlen(s->p.host), sizeof a.sun_path);
    strcpy(a.sun_path, s->p.host);
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(a.sun_path);
    if (s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(s->listen_fd, 1024) != 0)
        return kvant_fail(diag, KVANT_EIO, "%s: %s", s->p.host, strerror(errno));
    snprintf(s->socket_path, sizeof s->socket_path, "%s", a.sun_path);
    snprintf(s->url, sizeof s->url, "unix:%s", a.sun_path);
    return KVANT_OK;
}

static int is_loopback(const struct sockaddr *a)
{
    static const unsigned char v6[16] = { [15] = 1 };

    if (a->sa_family == AF_INET)
        return ((const unsigned char *)&((const struct sockaddr_in *)(const void *)a)->sin_addr)[0] == 127;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, v6, 16) == 0;
}

static int bind_address(server *s, const struct addrinfo *a, kvant_diag *diag)
{
    struct sockaddr_storage own = { 0 };
    socklen_t size = sizeof own;
    int on = 1, send_buffer = SEND_BUFFER;

    if (!is_loopback(a->ai_addr) && !has_keys(s))
        return kvant_fail(diag, KVANT_EINVAL,
                          "--host %s: an address that others can reach needs --api-key or --api-key-file", s->p.host);
    s->listen_fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen_fd < 0)
        return kvant_fail(diag, KVANT_EIO, "socket: %s", strerror(errno));
    setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(s->listen_fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer); /* connections inherit it */
    if (bind(s->listen_fd, a->ai_addr, a->ai_addrlen) != 0 || listen(s->listen_fd, 1024) != 0)
        return kvant_fail(diag, errno == EADDRINUSE ? KVANT_EBUSY : KVANT_EIO, "--host %s --port %d: %s", s->p.host,
                          s->p.port, strerror(errno));
    getsockname(s->listen_fd, (struct sockaddr *)&own, &size);
    s->port = ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&own)->sin_port
                                             : ((struct sockaddr_in6 *)(void *)&own)->sin6_port);
    snprintf(s->url, sizeof s->url, strchr(s->p.host, ':') ? "http://[%.100s]:%d" : "http://%.100s:%d", s->p.host,
             s->port);
    return KVANT_OK;
}

static int listen_tcp(server *s, kvant_diag *diag)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list;
    char port[16];

    snprintf(port, sizeof port, "%d", s->p.port);
    int code = getaddrinfo(s->p.host, port, &hints, &list);
    if (code != 0)
        return kvant_fail(diag, KVANT_EINVAL, "--host %s: %s", s->p.host, gai_strerror(code));
    code = bind_address(s, list, diag);
    freeaddrinfo(list);
    return code;
}

static int add_fd(server *s, int fd, void *tag, kvant_diag *diag)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = tag };

    if (fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) != 0)
        return kvant_fail(diag, KVANT_EIO, "epoll: %s", strerror(errno));
    return KVANT_OK;
}

static int open_fds(server *s, kvant_diag *diag)
{
    struct itimerspec every = { { 1, 0 }, { 1, 0 } };
    sigset_t set;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    timerfd_settime(s->timer_fd, 0, &every, NULL);
    KVANT_TRY(add_fd(s, s->event_fd, &tag_event, diag));
    KVANT_TRY(add_fd(s, s->timer_fd, &tag_timer, diag));
    if (!s->p.catch_signals)
        return KVANT_OK;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any other thread is made: they inherit it */
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return add_fd(s, s->signal_fd, &tag_signal, diag);
}

/* As many descriptors as the system gives. */
static int connection_limit(const server *s)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return s->p.max_connections;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    int64_t most = (int64_t)r.rlim_max - 64;
    return most < s->p.max_connections ? (int)most : s->p.max_connections;
}

static int open_daemon(server *s, kvant_diag *diag)
{
    const union MHD_DaemonInfo *info;

    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_access, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)connection_limit(s), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(KEEP_ALIVE_S + 5),
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!s->daemon)
        return kvant_fail(diag, KVANT_EIO, "libmicrohttpd: the daemon did not start");
    s->listen_fd = -1; /* the daemon's now */
    info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return kvant_fail(diag, KVANT_EIO, "libmicrohttpd: no epoll descriptor");
    s->mhd_fd = info->epoll_fd;
    return add_fd(s, s->mhd_fd, &tag_daemon, diag);
}

int server_open(const server_params *p, server **out, kvant_diag *diag)
{
    server *s = kvant_calloc(1, sizeof *s);
    size_t n = strlen(p->host);

    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    s->p = *p;
    s->listen_fd = s->epoll = s->event_fd = s->timer_fd = s->signal_fd = -1;
    s->started_ns = clock_ns();
    s->wall_s = clock_wall_s();
    if (getrandom(&s->nonce, sizeof s->nonce, 0) != (ssize_t)sizeof s->nonce)
        s->nonce = (uint64_t)s->started_ns;
    pthread_mutex_init(&s->dirty_lock, NULL);
    signal(SIGPIPE, SIG_IGN);
    int code = n > 5 && strcmp(p->host + n - 5, ".sock") == 0 ? listen_unix(s, diag) : listen_tcp(s, diag);
    if (code == KVANT_OK)
        code = open_fds(s, diag);
    if (code == KVANT_OK)
        code = open_daemon(s, diag);
    if (code == KVANT_OK)
        *out = s;
    else
        server_close(s);
    return code;
}

const char *server_url(const server *s)
{
    return s->url;
}

int server_killed_by(const server *s)
{
    return s->killed_by;
}

int server_port(const server *s)
{
    return s->port;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void server_close(server *s)
{
    if (!s)
        return;
    for (job *j = s->jobs; j; j = j->next) {
        job_gone(j);
        resume(j);
    }
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    while (s->dirty) {
        job *j = s->dirty;
        s->dirty = j->dirty_next;
        job_release(j);
    }
    close_fd(s->listen_fd);
    close_fd(s->epoll);
    close_fd(s->event_fd);
    close_fd(s->timer_fd);
    close_fd(s->signal_fd);
    if (s->socket_path[0])
        unlink(s->socket_path);
    grammar_cache_free(s->env.grammars);
    grammar_vocab_free(s->vocab);
    pthread_mutex_destroy(&s->dirty_lock);
    kvant_free(s);
}
