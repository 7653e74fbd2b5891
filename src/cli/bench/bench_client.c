/* bench_client.c: see bench_client.h.  One connection per request, one epoll set; a connection's bytes go through three
 * small state machines: HTTP head, chunks, event lines. */
#include "cli/bench/bench_client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/text/sbuf.h"

enum { HEAD_MAX = 16384, LINE_MAX_BYTES = 4 << 20, TEXT_MAX_BYTES = 16 << 20, EVENTS = 64 };
enum { IN_HEAD, IN_CHUNK_SIZE, IN_CHUNK, IN_CHUNK_END, IN_BODY, AT_END };

typedef struct conn {
    bc_request *r;
    int fd, state, stream, slot;
    int64_t left; /* bytes of the chunk or body; -1: until the connection closes */
    sbuf out, line, text;
    size_t sent;
    int64_t last_ns;
} conn;

typedef struct client_runner {
    const bc_options *o;
    bc_request *r;
    int n, next, live, epoll;
    struct addrinfo *address;
    conn *conns; /* [in_flight] */
    int64_t deadline;
} client_runner;

int bc_parse_url(const char *text, bc_url *u, kvant_diag *diag)
{
    const char *s = text, *end;
    size_t n;

    if (strncmp(s, "http://", 7) != 0)
        return kvant_fail(diag, KVANT_EINVAL, "URL: found \"%.80s\", wanted http://host:port", text);
    s += 7;
    n = strcspn(s, ":/");
    end = s + n;
    snprintf(u->host, sizeof u->host, "%.*s", (int)n, s);
    snprintf(u->port, sizeof u->port, "80");
    if (*end == ':') {
        n = strspn(end + 1, "0123456789");
        snprintf(u->port, sizeof u->port, "%.*s", (int)n, end + 1);
        end += 1 + n;
    }
    if (!u->host[0] || strlen(u->host) + 1 == sizeof u->host || (*end && *end != '/') ||
        strlen(end) >= sizeof u->prefix)
        return kvant_fail(diag, KVANT_EINVAL, "URL: found \"%.80s\", wanted http://host:port", text);
    snprintf(u->prefix, sizeof u->prefix, "%s", end);
    n = strlen(u->prefix);
    if (n && u->prefix[n - 1] == '/')
        u->prefix[--n] = 0;
    if (n >= 3 && strcmp(u->prefix + n - 3, "/v1") == 0)
        u->prefix[n - 3] = 0;
    return KVANT_OK;
}

void bc_request_free(bc_request *r)
{
    kvant_free(r->text);
    kvant_free(r->reply);
    r->text = r->reply = NULL;
}

/* ---- what comes in ---- */

static void fail(conn *c, const char *what)
{
    if (!c->r->error[0])
        snprintf(c->r->error, sizeof c->r->error, "%s", what);
    c->state = AT_END;
}

/* Number behind "key": in a JSON text, or -1. */
static int number_of(const char *json, const char *key)
{
    const char *s = strstr(json, key);

    if (!s)
        return -1;
    s += strlen(key);
    s += strspn(s, " :");
    return *s >= '0' && *s <= '9' ? atoi(s) : -1;
}

static void keep_usage(conn *c, const char *json)
{
    const char *usage = strstr(json, "\"usage\"");

    if (!usage || !strstr(usage, "\"completion_tokens\""))
        return;
    c->r->gen_tokens = number_of(usage, "\"completion_tokens\"");
    c->r->prompt_tokens = number_of(usage, "\"prompt_tokens\"");
    c->r->cached_tokens = number_of(usage, "\"cached_tokens\"");
}

/* The string behind "text": or "content":, as it stands in the JSON. */
static const char *text_of(const char *json, size_t *n)
{
    const char *s = strstr(json, "\"text\":");

    s = s ? s + 7 : strstr(json, "\"content\":") ? strstr(json, "\"content\":") + 10 : NULL;
    if (!s)
        return NULL;
    s += strspn(s, " ");
    if (*s++ != '"')
        return NULL;
    for (*n = 0; s[*n] && s[*n] != '"'; ++*n)
        if (s[*n] == '\\' && s[*n + 1])
            ++*n;
    return s;
}

static void take_data(conn *c, const char *json, const client_runner *x)
{
    int64_t now = clock_ns();
    size_t n;
    const char *text;

    if (strcmp(json, "[DONE]") == 0)
        return;
    if (strncmp(json, "{\"error\"", 8) == 0) {
        fail(c, json);
        return;
    }
    keep_usage(c, json);
    text = text_of(json, &n);
    if (!text)
        return;
    if (!c->r->chunks++)
        c->r->first_ns = now;
    else if (x->o->gap)
        x->o->gap(x->o->user, now - c->last_ns);
    c->last_ns = now;
    sbuf_put(&c->text, text, n);
    if (c->text.error || c->text.n > TEXT_MAX_BYTES) /* a stream without end */
        fail(c, c->text.error ? "out of memory" : "answer too large");
}

/* Payload bytes: lines of an event stream, or a whole reply. */
static void take_payload(conn *c, const char *s, size_t n, const client_runner *x)
{
    sbuf_put(&c->line, s, n);
    if (c->line.error || c->line.n > LINE_MAX_BYTES) {
        fail(c, "answer too large");
        return;
    }
    if (!c->stream)
        return;
    char *at = c->line.s, *end;
    while ((end = memchr(at, '\n', (size_t)(c->line.s + c->line.n - at))) != NULL) {
        *end = 0;
        if (end > at && end[-1] == '\r')
            end[-1] = 0;
        if (strncmp(at, "data:", 5) == 0)
            take_data(c, at + 5 + strspn(at + 5, " "), x);
        at = end + 1;
    }
    sbuf_drop(&c->line, (size_t)(at - c->line.s));
}

static void take_head(conn *c, const char *head)
{
    const char *length = strcasestr(head, "\r\ncontent-length:");

    if (sscanf(head, "HTTP/1.%*d %d", &c->r->status) != 1) {
        fail(c, "no HTTP answer");
        return;
    }
    c->stream = strcasestr(head, "\r\ncontent-type: text/event-stream") != NULL;
    if (strcasestr(head, "\r\ntransfer-encoding: chunked")) {
        c->state = IN_CHUNK_SIZE;
    } else {
        c->left = length ? atoll(length + 17) : -1;
        c->state = c->left == 0 ? AT_END : IN_BODY;
    }
}

/* Consumes up to a "\n" into the line that is being collected in `out` (free after the request was sent). */
static int whole_line(conn *c, const char **s, size_t *n, const char *end_mark)
{
    while (*n) {
        sbuf_put(&c->out, *s, 1);
        if (c->out.error || c->out.n > HEAD_MAX) {
            fail(c, "answer: head too long");
            return 0;
        }
        ++*s;
        --*n;
        size_t m = strlen(end_mark);
        if (c->out.n >= m && memcmp(c->out.s + c->out.n - m, end_mark, m) == 0)
            return 1;
    }
    return 0;
}

static void take_bytes(conn *c, const char *s, size_t n, const client_runner *x)
{
    while (n && c->state != AT_END) {
        if (c->state == IN_HEAD) {
            if (whole_line(c, &s, &n, "\r\n\r\n")) {
                take_head(c, c->out.s);
                c->out.n = 0;
            }
        } else if (c->state == IN_CHUNK_SIZE) {
            if (whole_line(c, &s, &n, "\n")) {
                c->left = strtoll(c->out.s, NULL, 16);
                c->state = c->left > 0 ? IN_CHUNK : AT_END;
                c->out.n = 0;
            }
        } else if (c->state == IN_CHUNK_END) {
            if (whole_line(c, &s, &n, "\n")) {
                c->state = IN_CHUNK_SIZE;
                c->out.n = 0;
            }
        } else {
            size_t k = c->left < 0 || (size_t)c->left > n ? n : (size_t)c->left;
            take_payload(c, s, k, x);
            s += k;
            n -= k;
            c->left -= c->left < 0 ? 0 : (int64_t)k;
            if (c->left == 0 && c->state != AT_END)
                c->state = c->state == IN_CHUNK ? IN_CHUNK_END : AT_END;
        }
    }
}

/* ---- connections ---- */

static void finish(client_runner *x, conn *c)
{
    bc_request *r = c->r;

    r->end_ns = clock_ns();
    if (!r->error[0] && r->status != 200)
        snprintf(r->error, sizeof r->error, "status %d: %.70s", r->status, sbuf_text(&c->line));
    if (!c->stream && c->line.s) {
        r->reply = c->line.s;
        c->line = (sbuf){ 0 };
    }
    r->text = c->text.s;
    close(c->fd);
    sbuf_free(&c->out);
    sbuf_free(&c->line);
    c->r = NULL;
    x->live--;
}

static int build_request(client_runner *x, conn *c)
{
    const bc_url *u = x->o->url;
    const bc_request *r = c->r;
    char head[1024];
    int n = snprintf(head, sizeof head,
                     "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAccept: */*\r\n%s%.400s%s",
                     r->body ? "POST" : "GET", u->prefix, r->path, u->host, u->port,
                     x->o->key ? "Authorization: Bearer " : "", x->o->key ? x->o->key : "", x->o->key ? "\r\n" : "");
    if (r->body)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      r->body_len);
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    sbuf_put(&c->out, head, (size_t)n);
    if (r->body)
        sbuf_put(&c->out, r->body, r->body_len);
    return !c->out.error;
}

static void start(client_runner *x, int i)
{
    bc_request *r = &x->r[i];
    conn *c = x->conns;
    int on = 1;

    while (c->r)
        c++;
    *c = (conn){ .r = r, .left = -1 };
    r->prompt_tokens = r->gen_tokens = r->cached_tokens = -1;
    x->live++;
    c->fd = socket(x->address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = c };
    r->start_ns = clock_ns();
    if (c->fd < 0 || !build_request(x, c) ||
        (connect(c->fd, x->address->ai_addr, x->address->ai_addrlen) != 0 && errno != EINPROGRESS) ||
        epoll_ctl(x->epoll, EPOLL_CTL_ADD, c->fd, &ev) != 0) {
        fail(c, strerror(errno));
        finish(x, c);
    }
}

static void send_more(client_runner *x, conn *c)
{
    ssize_t n = send(c->fd, c->out.s + c->sent, c->out.n - c->sent, MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN) {
        fail(c, strerror(errno));
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    if (c->sent == c->out.n) {
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
        epoll_ctl(x->epoll, EPOLL_CTL_MOD, c->fd, &ev);
        c->out.n = 0;
        c->sent = (size_t)-1; /* sent; `out` now collects heads and sizes */
    }
}

static void receive(client_runner *x, conn *c)
{
    char buf[16384];
    ssize_t n = recv(c->fd, buf, sizeof buf, 0);

    if (n > 0)
        take_bytes(c, buf, (size_t)n, x);
    else if (n == 0 && c->state == IN_BODY && c->left < 0)
        c->state = AT_END;
    else if (n == 0)
        fail(c, "connection closed early");
    else if (errno != EAGAIN)
        fail(c, strerror(errno));
}

/* ---- the run ---- */

static int may_start(const client_runner *x, int i, int64_t now)
{
    return x->r[i].at_ns <= now && (x->r[i].after < 0 || x->r[x->r[i].after].end_ns);
}

static int start_ready(client_runner *x, int64_t now, kvant_diag *diag)
{
    for (int i = x->next; i < x->n && x->live < x->o->in_flight; i++) {
        if (x->r[i].start_ns || !may_start(x, i, now))
            continue;
        if (x->o->prepare)
            KVANT_TRY(x->o->prepare(x->o->user, i, diag));
        start(x, i);
    }
    while (x->next < x->n && x->r[x->next].start_ns)
        x->next++;
    return KVANT_OK;
}

/* Milliseconds until a request is due, at most 100. */
static int wait_ms(const client_runner *x, int64_t now)
{
    int64_t least = now + 100000000;

    for (int i = x->next; i < x->n; i++)
        if (!x->r[i].start_ns && x->r[i].after < 0 && x->r[i].at_ns < least)
            least = x->r[i].at_ns;
    return least <= now ? 1 : (int)((least - now + 999999) / 1000000);
}

static void turn(client_runner *x, int64_t now)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(x->epoll, ev, EVENTS, wait_ms(x, now));

    for (int i = 0; i < n; i++) {
        conn *c = ev[i].data.ptr;
        if (c->r && c->sent != (size_t)-1 && ev[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            send_more(x, c);
        if (c->r && c->state != AT_END && ev[i].events & (EPOLLIN | EPOLLHUP))
            receive(x, c);
        if (c->r && c->state == AT_END)
            finish(x, c);
    }
}

static void stop_all(client_runner *x, const char *why)
{
    for (int i = 0; i < x->o->in_flight; i++)
        if (x->conns[i].r) {
            fail(&x->conns[i], why);
            finish(x, &x->conns[i]);
        }
    for (int i = 0; i < x->n; i++)
        if (!x->r[i].start_ns)
            snprintf(x->r[i].error, sizeof x->r[i].error, "%s", why);
}

int bc_run(const bc_options *o, bc_request *r, int n, kvant_diag *diag)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    client_runner x = { .o = o, .r = r, .n = n, .deadline = clock_ns() + o->timeout_ns };
    int code = getaddrinfo(o->url->host, o->url->port, &hints, &x.address);

    if (code != 0)
        return kvant_fail(diag, KVANT_EIO, "%s:%s: %s", o->url->host, o->url->port, gai_strerror(code));
    x.epoll = epoll_create1(EPOLL_CLOEXEC);
    x.conns = kvant_calloc((size_t)o->in_flight, sizeof *x.conns);
    code = x.epoll >= 0 && x.conns ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
    while (code == KVANT_OK && (x.next < n || x.live)) {
        int64_t now = clock_ns();
        code = start_ready(&x, now, diag);
        if (now > x.deadline) {
            stop_all(&x, "time is up");
            break;
        }
        turn(&x, now);
    }
    if (code != KVANT_OK && x.conns)
        stop_all(&x, "given up");
    freeaddrinfo(x.address);
    if (x.epoll >= 0)
        close(x.epoll);
    kvant_free(x.conns);
    return code;
}
