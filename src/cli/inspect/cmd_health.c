/* cmd_health.c: `kvant health`: whether a server takes requests, for a container's HEALTHCHECK and for scripts.  It
 * takes --host, --port and --api-prefix as the server does, so that the variables of its container are enough. */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/error.h"
#include "cli/common.h"

enum { REPLY_BYTES = 4096 };

static int connect_unix(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (fd >= 0 && strlen(path) < sizeof a.sun_path && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int connect_host(const char *host, const char *port)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

/* The first of the server's addresses, and of one that means all of them this machine's own. */
static int reach(const opts *o, int *fd, kvant_diag *diag)
{
    char host[256], port[16];

    snprintf(host, sizeof host, "%.*s", (int)strcspn(opt_str(o, OPT_HOST), ","), opt_str(o, OPT_HOST));
    snprintf(port, sizeof port, "%d", (int)opt_int(o, OPT_PORT));
    if (ends_with(host, ".sock"))
        *fd = connect_unix(host);
    else
        *fd = connect_host(strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(host, "::") == 0 ? "::1" : host, port);
    return *fd >= 0 ? KVANT_OK
                    : kvant_fail(diag, KVANT_EIO, "%.200s, port %s: no connection: %s", host, port, strerror(errno));
}

/* Sends the request and reads all of the answer, as far as there is room. */
static int ask(int fd, const char *prefix, int seconds, char reply[REPLY_BYTES], kvant_diag *diag)
{
    const struct timeval limit = { .tv_sec = seconds };
    char text[400];
    size_t n = 0;
    ssize_t got;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int len = snprintf(text, sizeof text, "GET %.200s/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                             prefix);
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return kvant_fail(diag, KVANT_EIO, "health: the request is not taken: %s", strerror(errno));
    while (n < REPLY_BYTES - 1 && (got = recv(fd, reply + n, REPLY_BYTES - 1 - n, 0)) > 0)
        n += (size_t)got;
    reply[n] = 0;
    return n ? KVANT_OK : kvant_fail(diag, KVANT_EIO, "health: no answer in %d s", seconds);
}

int cmd_health(const opts *o, kvant_diag *diag)
{
    const char *prefix = opt_str(o, OPT_API_PREFIX) ? opt_str(o, OPT_API_PREFIX) : "";
    char reply[REPLY_BYTES];
    int fd;

    KVANT_TRY(reach(o, &fd, diag));
    const int code = ask(fd, prefix, (int)opt_int(o, OPT_HEALTH_WAIT), reply, diag);
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
