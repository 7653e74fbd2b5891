/* respond.c: what goes back to a client: whole responses, streams, and the tie between a call and its job.  A response
 * that has to wait is suspended; the loop resumes it (loop.c). */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/api/responses/responses_store.h"
#include "server/http/kept.h"
#include "server/routes/routes.h"

enum { STREAM_BLOCK = 1024 }; /* bytes handed to the library at once */

/* A page that this machine serves, at any port. */
static int is_local(const char *origin)
{
    static const char *const names[] = { "http://localhost", "https://localhost", "http://127.0.0.1", "https://127.0.0.1",
                                         "http://[::1]", "https://[::1]" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *port = origin + strlen(names[i]);
        if (strncmp(origin, names[i], strlen(names[i])) != 0)
            continue;
        if (!*port || (*port == ':' && port[1] && strspn(port + 1, "0123456789") == strlen(port + 1)))
            return 1;
    }
    return 0;
}

int origin_listed(const char *list, const char *origin)
{
    const size_t n = strlen(origin);

    while (*list) {
        size_t k = strcspn(list, ",");
        if (k == n && memcmp(list, origin, n) == 0)
            return 1;
        if (k == strlen("localhost") && memcmp(list, "localhost", k) == 0 && is_local(origin))
            return 1;
        list += k + (list[k] == ',');
    }
    return 0;
}

/* Nothing but names: such a list goes back as it came. */
int server_is_token_list(const char *s)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~, ";

    return s[0] && strlen(s) <= 1024 && strspn(s, allowed) == strlen(s);
}

/* The answer to a preflight.  Every header that the page asks for may be sent: what a header can do does not depend on
 * it (a key is still checked), and client libraries send some of their own (X-Stainless-*). */
static void add_preflight(const struct server_cors *cors, struct MHD_Connection *conn, struct MHD_Response *r)
{
    const char *asked = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Access-Control-Request-Headers");

    if (cors->headers)
        asked = cors->headers;
    MHD_add_response_header(r, "Access-Control-Allow-Headers",
                            asked && server_is_token_list(asked) ? asked : "authorization, content-type, x-api-key");
    MHD_add_response_header(r, "Access-Control-Allow-Methods", cors->methods);
    MHD_add_response_header(r, "Access-Control-Max-Age", "600");
}

static void add_cors(const call *c, struct MHD_Connection *conn, struct MHD_Response *r)
{
    const char *list = c->s->p.cors.origins, *origin;

    if (!list)
        return;
    origin = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin");
    const int any = strcmp(list, "*") == 0, credentials = c->s->p.cors.credentials;
    if (any && !(credentials && origin)) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", "*");
    } else if (any || (origin && origin_listed(list, origin))) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(r, "Vary", "Origin");
        if (credentials)
            MHD_add_response_header(r, "Access-Control-Allow-Credentials", "true");
    } else {
        return;
    }
    MHD_add_response_header(r, "Access-Control-Expose-Headers", "Retry-After, X-Kvant-Ignored-Fields");
    if (strcmp(c->method, "OPTIONS") == 0)
        add_preflight(&c->s->p.cors, conn, r);
}

static enum MHD_Result queue(call *c, struct MHD_Connection *conn, int status, struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    add_cors(c, conn, r);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (c->s->p.compat.header && c->s->p.compat.header[0])
        MHD_add_response_header(r, "Server", c->s->p.compat.header);
    if (c->route && strcmp(c->route->path, "/metrics") == 0) {
        char start[24];
        snprintf(start, sizeof start, "%lld", (long long)c->s->wall_s);
        MHD_add_response_header(r, "Process-Start-Time-Unix", start);
    }
    if (c->ignored[0]) {
        MHD_add_response_header(r, "X-Kvant-Ignored-Fields", c->ignored);
        log_msg(LOG_DEBUG, "%.90s: fields that nothing reads: %s", c->path, c->ignored);
    }
    if (status == 405 || (strcmp(c->method, "OPTIONS") == 0 && c->allow[0]))
        MHD_add_response_header(r, "Allow", c->allow);
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == 429 || status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    enum MHD_Result ok = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    c->answered = 1;
    c->status = status;
    atomic_fetch_add_explicit(&c->s->http[status / 100 < 6 ? status / 100 : 5], 1, memory_order_relaxed);
    return ok;
}

/* The page loads its own files and speaks to its own server, whatever a model writes. */
static const char page_policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                  "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

static enum MHD_Result queue_typed(call *c, struct MHD_Connection *conn, int status, const char *type,
                                   struct MHD_Response *r)
{
    if (r)
        MHD_add_response_header(r, "Content-Type", type);
    if (r && strncmp(type, "text/html", 9) == 0)
        MHD_add_response_header(r, "Content-Security-Policy", page_policy);
    return queue(c, conn, status, r);
}

enum MHD_Result respond_fixed(call *c, struct MHD_Connection *conn, int status, const char *type, const char *body,
                              size_t n)
{
    return queue_typed(c, conn, status, type,
                       MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT));
}

/* A text that waits to be read within the budgets. */
static enum MHD_Result respond_counted(call *c, struct MHD_Connection *conn, int status, const char *type,
                                       stored_text *t)
{
    struct MHD_Response *r = answers_begin(c, t);

    return r ? queue_typed(c, conn, status, type, r)
             : respond_fail(c, conn, API_OVERLOAD,
                            "answers of this key that wait to be read: too many bytes (--max-body-memory); try later");
}

enum MHD_Result respond_stored(call *c, struct MHD_Connection *conn, stored_text *text)
{
    return respond_counted(c, conn, 200, "application/json", text);
}

static enum MHD_Result respond_buffer(call *c, struct MHD_Connection *conn, int status, const char *type, char *body,
                                      size_t n, size_t bytes)
{
    if (n <= SMALL_ANSWER) {
        struct MHD_Response *r = MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_COPY);
        kvant_free(body);
        return queue_typed(c, conn, status, type, r);
    }
    stored_text *t = stored_text_new(body, n, bytes);
    if (!t) {
        kvant_free(body);
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    }
    const enum MHD_Result ok = respond_counted(c, conn, status, type, t);
    stored_text_release(t);
    return ok;
}

enum MHD_Result respond_text(call *c, struct MHD_Connection *conn, int status, const char *type, char *body, size_t n)
{
    return respond_buffer(c, conn, status, type, body, n, n);
}

enum MHD_Result respond_json(call *c, struct MHD_Connection *conn, int status, jsonw *w)
{
    jsonw all = *w;

    jsonw_init(w);
    if (!jsonw_error(&all) && all.buf)
        return respond_buffer(c, conn, status, "application/json", all.buf, all.len, all.cap);
    const int full = jsonw_error(&all) & JSONW_FULL;
    jsonw_free(&all);
    if (!full && status >= 400) /* no memory even for the error */
        return MHD_NO;
    return full ? respond_fail(c, conn, API_INVALID, "the answer: larger than this server keeps (--max-body-memory)")
                : respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
}

enum MHD_Result respond_success(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kbool(&w, "success", 1);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result respond_error(call *c, struct MHD_Connection *conn, const api_error *e)
{
    jsonw w;

    jsonw_init(&w);
    api_error_json(e, c->api, &w);
    return respond_json(c, conn, api_status(e->kind), &w);
}

enum MHD_Result respond_fail(call *c, struct MHD_Connection *conn, int kind, const char *text)
{
    api_error e;

    api_fail(&e, kind, "", "%s", text);
    return respond_error(c, conn, &e);
}

void respond_cut(call *c, const api_error *e)
{
    const char *name = c->s->p.compat.header;
    sbuf head = { 0 };
    jsonw w;

    jsonw_init(&w);
    api_error_json(e, c->api, &w);
    sbuf_printf(&head, "HTTP/1.1 %d Refused\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                "Connection: close\r\n%s", api_status(e->kind), w.len,
                e->kind == API_TOO_LARGE ? "" : "Retry-After: 1\r\n");
    if (name && name[0])
        sbuf_printf(&head, "Server: %s\r\n", name);
    sbuf_puts(&head, "\r\n");
    if (!head.error && !jsonw_error(&w) &&
        send(c->client->fd, head.s, head.n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) == (ssize_t)head.n &&
        send(c->client->fd, w.buf, w.len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)w.len)
        c->status = api_status(e->kind);
    sbuf_free(&head);
    jsonw_free(&w);
}

const char *query_value(struct MHD_Connection *conn, const char *key)
{
    return MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, key);
}

/* ---- jobs ---- */

/* Called by the library when it can send: what is there, or suspend until there is something. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    job *j = cls;
    ssize_t n;

    (void)pos;
    if (j->kind == JOB_READ)
        kept_feed(j);
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
        answers_count_stream(j);
        j->link.last_out_ns = j->link.last_taken_ns = clock_ns();
    } else if (j->done) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        n = 0;
        j->link.last_taken_ns = clock_ns();
        j->link.suspended = 1;
        MHD_suspend_connection(j->link.conn);
    }
    int go_on = j->n_paused > 0 && j->out.n < (answers_tight(j) ? STREAM_TIGHT_LOW : STREAM_LOW);
    pthread_mutex_unlock(&j->lock);
    if (go_on)
        job_go_on(j);
    return n;
}

static void drop_reference(void *cls)
{
    job_release(cls);
}

void client_watch(client *k, int on)
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
    j->link.conn = conn;
    j->link.client = c->client;
    c->client->job = j;
    j->link.last_out_ns = j->link.last_taken_ns = clock_ns();
    j->link.next = s->jobs;
    j->link.prev = NULL;
    if (s->jobs)
        s->jobs->link.prev = j;
    s->jobs = j;
    s->n_streams += j->stream;
    client_watch(c->client, 1);
}

void call_unlink_job(call *c)
{
    server *s = c->s;
    job *j = c->job;

    client_watch(c->client, 0);
    if (j->link.prev)
        j->link.prev->link.next = j->link.next;
    else
        s->jobs = j->link.next;
    if (j->link.next)
        j->link.next->link.prev = j->link.prev;
    s->n_streams -= j->stream;
    c->client->job = NULL;
    j->link.conn = NULL;
    c->job = NULL;
}

enum MHD_Result respond_job(call *c, struct MHD_Connection *conn, job *j)
{
    link_job(c, conn, j);
    if (!j->stream) {
        pthread_mutex_lock(&j->lock);
        int done = j->done; /* before it was linked: its news found no connection to resume */
        pthread_mutex_unlock(&j->lock);
        if (done)
            return respond_done(c, conn);
        j->link.suspended = 1;
        MHD_suspend_connection(conn);
        return MHD_YES;
    }
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, j,
                                                               drop_reference);
    if (!r)
        return MHD_NO;
    atomic_fetch_add(&j->refs, 1);
    MHD_add_response_header(r, "Content-Type", job_sends_lines(j) ? "application/x-ndjson" : "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return queue(c, conn, 200, r);
}

/* A worker has read the body: its answer, or the job that it began takes the place of its own. */
static enum MHD_Result respond_work(call *c, struct MHD_Connection *conn)
{
    job *j = c->job;
    enum MHD_Result ok;

    pthread_mutex_lock(&j->lock);
    api_error e = j->error;
    int gone = j->gone;
    pthread_mutex_unlock(&j->lock);
    if (gone && j->stopped)
        return respond_fail(c, conn, API_INVALID, "the request was cancelled: its stream was stopped (DELETE /v1/stream, "
                            "or another request with its X-Conversation-Id)");
    if (gone || c->client->left)
        return MHD_NO; /* the worker may still be at it */
    job *next = j->work->result;
    const int made = next != NULL;
    kept_stream *const kept = j->kept;
    jsonw reply = j->work->reply;
    j->work->result = NULL;
    jsonw_init(&j->work->reply);
    snprintf(c->ignored, sizeof c->ignored, "%s", j->work->ignored);
    call_unlink_job(c);
    job_release(j);
    if (kept)
        next = kept_made(kept, next);
    if (next)
        return respond_job(c, conn, next);
    if (made)
        api_fail(&e, API_UNAVAILABLE, "", "out of memory");
    ok = e.kind ? respond_error(c, conn, &e) : respond_json(c, conn, 200, &reply);
    if (e.kind)
        jsonw_free(&reply);
    return ok;
}

/* The response of a job that is done and does not stream. */
enum MHD_Result respond_done(call *c, struct MHD_Connection *conn)
{
    job *j = c->job;
    jsonw w;

    if (j->kind == JOB_WORK)
        return respond_work(c, conn);
    jsonw_init(&w);
    w.max = (size_t)answers_most(c->s);
    pthread_mutex_lock(&j->lock);
    api_error e = j->error;
    int gone = j->gone;
    if (!gone && !e.kind && j->kind == JOB_GENERATE)
        j->gen.shape->whole(j, &w);
    else if (!gone && !e.kind && (j->kind == JOB_EMBED || j->kind == JOB_RERANK))
        embed_whole(j, &w);
    else if (!gone && !e.kind && j->kind == JOB_PREDICT)
        predict_whole(j, &w);
    else if (!gone && !e.kind && j->kind == JOB_CACHE)
        jsonw_raw(&w, "{\"success\":true}");
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

void job_resume(job *j)
{
    if (j->link.suspended && j->link.conn) {
        j->link.suspended = 0;
        MHD_resume_connection(j->link.conn);
    }
}
