/* cmd_health.c: `kvant health`: whether a server takes requests, for a container's HEALTHCHECK and for scripts.  It
 * takes --host, --port and --api-prefix as the server does, so that the variables of its container are enough. */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "cli/common.h"

enum { REPLY_BYTES = 4096, PREFIX_MOST = 1000 };

/* The rest of --wait limits the next call on the socket, connect too. */
static void set_limit(int fd, int64_t until)
{
    const int64_t us = (until - clock_ns()) / 1000;
    const struct timeval left = { .tv_sec = us > 0 ? us / 1000000 : 0, .tv_usec = us > 0 ? us % 1000000 : 1 };

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &left, sizeof left);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof left);
}

static const char *why_not(int error)
{
    return error == EINPROGRESS || error == EAGAIN ? "no answer in time (--wait)" : strerror(error);
}

/* 0, or the error. */
static int connect_to(int fd, const struct sockaddr *a, socklen_t n, int64_t until)
{
    if (fd < 0)
        return errno;
    set_limit(fd, until);
    return connect(fd, a, n) == 0 ? 0 : errno;
}

static int connect_unix(const char *path, int64_t until, int *out, kvant_diag *diag)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    if (strlen(path) >= sizeof a.sun_path)
        return kvant_fail(diag, KVANT_EINVAL, "--host: a socket's path of %zu bytes, wanted fewer than %zu",
                          strlen(path), sizeof a.sun_path);
    strcpy(a.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int error = connect_to(fd, (struct sockaddr *)&a, sizeof a, until);
    *out = fd;
    return error ? kvant_fail(diag, KVANT_EIO, "%.200s: no connection: %s", path, why_not(error)) : KVANT_OK;
}

static int connect_host(const char *host, const char *port, int64_t until, int *out, kvant_diag *diag)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    int error = getaddrinfo(host, port, &hints, &list);

    if (error)
        return kvant_fail(diag, KVANT_EIO, "%.200s, port %s: %s", host, port, gai_strerror(error));
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        error = connect_to(fd, a->ai_addr, a->ai_addrlen, until);
        if (*out >= 0)
            close(*out);
        *out = fd;
        if (!error)
            break;
    }
    freeaddrinfo(list);
    if (error)
        return kvant_fail(diag, KVANT_EIO, "%.200s, port %s: no connection: %s", host, port, why_not(error));
    return KVANT_OK;
}

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

/* The first of the server's addresses, and of one that means all of them this machine's own. */
static int reach(const opts *o, int64_t until, int *fd, kvant_diag *diag)
{
    char host[256], port[16];

    const size_t n = strcspn(opt_str(o, OPT_HOST), ",");
    if (n >= sizeof host)
        return kvant_fail(diag, KVANT_EINVAL, "--host: %zu bytes, wanted fewer than %zu", n, sizeof host);
    snprintf(host, sizeof host, "%.*s", (int)n, opt_str(o, OPT_HOST));
    snprintf(port, sizeof port, "%d", (int)opt_int(o, OPT_PORT));
    if (ends_with(host, ".sock"))
        return connect_unix(host, until, fd, diag);
    const char *own = strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(host, "::") == 0 ? "::1" : host;
    return connect_host(own, port, until, fd, diag);
}

/* Sends the request and reads all of the answer, as far as there is room. */
static int ask(int fd, const char *prefix, int64_t until, char reply[REPLY_BYTES], kvant_diag *diag)
{
    char text[PREFIX_MOST + 100];
    size_t n = 0;
    ssize_t got = 1;

    set_limit(fd, until);
    const int len = snprintf(text, sizeof text, "GET %s/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                             prefix);
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return kvant_fail(diag, KVANT_EIO, "health: the request is not taken: %s", why_not(errno));
    for (; n < REPLY_BYTES - 1 && got > 0; n += got > 0 ? (size_t)got : 0) {
        set_limit(fd, until);
        got = recv(fd, reply + n, REPLY_BYTES - 1 - n, 0);
    }
    reply[n] = 0;
    return n ? KVANT_OK
             : kvant_fail(diag, KVANT_EIO, "health: %s", got < 0 ? why_not(errno) : "the connection closed, no answer");
}

int cmd_health(const opts *o, kvant_diag *diag)
{
    const char *prefix = opt_str(o, OPT_API_PREFIX) ? opt_str(o, OPT_API_PREFIX) : "";
    char reply[REPLY_BYTES];
    const int64_t until = clock_ns() + opt_int(o, OPT_HEALTH_WAIT) * 1000000000;
    int fd = -1;

    if (strlen(prefix) > PREFIX_MOST)
        return kvant_fail(diag, KVANT_EINVAL, "--api-prefix: %zu bytes, wanted at most %d", strlen(prefix),
                          PREFIX_MOST);
    int code = reach(o, until, &fd, diag);
    if (code == KVANT_OK)
        code = ask(fd, prefix, until, reply, diag);
    if (fd >= 0)
        close(fd);
    KVANT_TRY(code);
    if (strncmp(reply, "HTTP/1.1 200", 12) == 0) {
        puts("ok");
        return KVANT_OK;
    }
    const int http = strncmp(reply, "HTTP/1.1 ", 9) == 0;
    const char *body = strstr(reply, "\r\n\r\n");
    return kvant_fail(diag, KVANT_EIO, "health: %s %.3s: %.200s", http ? "status" : "no HTTP:", http ? reply + 9 : "",
                      body ? body + 4 : reply);
}
