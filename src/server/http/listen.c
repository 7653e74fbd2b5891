/* listen.c: the addresses that a server listens on: TCP, several with one port, or one socket in the file system.  Owns
 * their sockets, but for the first one's once the library has it. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/error.h"
#include "base/log.h"
#include "server/server_impl.h"

enum { SEND_BUFFER = 64 << 10 }; /* the kernel's part of what waits for a client; it takes twice that */

/* Returns 1 if a server takes connections at the socket: it refuses them when its server is dead. */
static int socket_answers(const struct sockaddr_un *a)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int dead = fd < 0 || (connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED);

    if (fd >= 0)
        close(fd);
    return !dead;
}

/* Removes a file of that name only when it is a socket that a dead server left. */
static int clear_socket_path(const struct sockaddr_un *a, kvant_diag *diag)
{
    struct stat st;

    if (lstat(a->sun_path, &st) != 0)
        return errno == ENOENT ? KVANT_OK : kvant_fail(diag, KVANT_EIO, "--host %s: %s", a->sun_path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return kvant_fail(diag, KVANT_EINVAL, "--host %s: is there and is not a socket; wanted a free name",
                          a->sun_path);
    if (socket_answers(a))
        return kvant_fail(diag, KVANT_EBUSY, "--host %s: another server answers there", a->sun_path);
    if (unlink(a->sun_path) != 0)
        return kvant_fail(diag, KVANT_EIO, "--host %s: the socket of a dead server cannot be removed: %s", a->sun_path,
                          strerror(errno));
    return KVANT_OK;
}

static int listen_unix(server *s, kvant_diag *diag)
{
    int *fd = &s->listen_fds[s->n_listen++];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct stat st;

    if (strlen(s->p.host) >= sizeof a.sun_path)
        return kvant_fail(diag, KVANT_EINVAL, "--host: socket path of %zu bytes, want fewer than %zu",
                          strlen(s->p.host), sizeof a.sun_path);
    strcpy(a.sun_path, s->p.host);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    KVANT_TRY(clear_socket_path(&a, diag));
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(*fd, 1024) != 0)
        return kvant_fail(diag, KVANT_EIO, "%s: %s", s->p.host, strerror(errno));
    if (lstat(a.sun_path, &st) == 0)
        s->address.socket_inode = st.st_ino;
    snprintf(s->address.socket_path, sizeof s->address.socket_path, "%s", a.sun_path);
    snprintf(s->address.url, sizeof s->address.url, "unix:%s", a.sun_path);
    return KVANT_OK;
}

static int is_loopback(const struct sockaddr *a)
{
    static const unsigned char v6[16] = { [15] = 1 };

    if (a->sa_family == AF_INET)
        return ((const unsigned char *)&((const struct sockaddr_in *)(const void *)a)->sin_addr)[0] == 127;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, v6, 16) == 0;
}

/* Name of one of the addresses, and as it stands in a URL. */
static void tell_address(server *s, const char *name)
{
    char url[sizeof s->address.url];

    snprintf(url, sizeof url, strchr(name, ':') ? "http://[%.100s]:%d" : "http://%.100s:%d", name, s->address.port);
    if (s->n_listen > 1)
        log_msg(LOG_INFO, "also listening on %s", url);
    else
        memcpy(s->address.url, url, sizeof url);
}

static int bind_address(server *s, const char *name, const struct addrinfo *a, kvant_diag *diag)
{
    struct sockaddr_storage own = { 0 };
    socklen_t size = sizeof own;
    int on = 1, send_buffer = SEND_BUFFER, *fd = &s->listen_fds[s->n_listen];

    if (!is_loopback(a->ai_addr) && !server_has_keys(s))
        return kvant_fail(diag, KVANT_EINVAL,
                          "--host %s: an address that others can reach needs --api-key or --api-key-file", name);
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return kvant_fail(diag, KVANT_EIO, "socket: %s", strerror(errno));
    s->n_listen++;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6 && strchr(s->p.host, ',')) /* 0.0.0.0 may stand beside :: */
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    setsockopt(*fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer); /* connections inherit it */
    if (bind(*fd, a->ai_addr, a->ai_addrlen) != 0 || listen(*fd, 1024) != 0)
        return kvant_fail(diag, errno == EADDRINUSE ? KVANT_EBUSY : KVANT_EIO, "--host %s --port %d: %s", name,
                          s->address.port, strerror(errno));
    getsockname(*fd, (struct sockaddr *)&own, &size);
    s->address.port = ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&own)->sin_port
                                             : ((struct sockaddr_in6 *)(void *)&own)->sin6_port);
    tell_address(s, name);
    return KVANT_OK;
}

/* All have one port: the one that the first got, where any free one will do. */
static int listen_tcp(server *s, const char *name, kvant_diag *diag)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list;
    char port[16];

    snprintf(port, sizeof port, "%d", s->address.port);
    int code = getaddrinfo(name, port, &hints, &list);
    if (code != 0)
        return kvant_fail(diag, KVANT_EINVAL, "--host %s: %s", name, gai_strerror(code));
    code = bind_address(s, name, list, diag);
    freeaddrinfo(list);
    return code;
}

static int is_socket_path(const char *host)
{
    const size_t n = strlen(host);

    return n > 5 && strcmp(host + n - 5, ".sock") == 0;
}

int listen_open(server *s, kvant_diag *diag)
{
    char name[256];
    size_t n;

    s->address.port = s->p.port;
    if (is_socket_path(s->p.host) && (s->p.host[0] == '/' || !strchr(s->p.host, ',')))
        return listen_unix(s, diag);
    for (const char *p = s->p.host;; p += n + 1) {
        n = strcspn(p, ",");
        if (n == 0 || n >= sizeof name || s->n_listen == LISTEN_MOST)
            return kvant_fail(diag, KVANT_EINVAL, "--host: found \"%.100s\", want 1 to %d addresses, with commas",
                              s->p.host, LISTEN_MOST);
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (is_socket_path(name)) /* requests of a socket are trusted, whatever their Host */
            return kvant_fail(diag, KVANT_EINVAL, "--host %s: a socket stands alone", name);
        KVANT_TRY(listen_tcp(s, name, diag));
        if (!p[n])
            return KVANT_OK;
    }
}

int listen_is_host(const server *s, const char *name, size_t n)
{
    size_t k;

    for (const char *p = s->p.host;; p += k + 1) {
        k = strcspn(p, ",");
        if (k == n && strncasecmp(p, name, n) == 0)
            return 1;
        if (!p[k])
            return 0;
    }
}

/* ---- connections of the second and later addresses; the library takes those of the first ---- */

static int room(const server *s)
{
    return s->p.max_connections + SPARE_CONNECTIONS - s->n_clients;
}

void listen_watch(server *s)
{
    const int on = room(s) > 0;

    if (on == s->listens)
        return;
    for (int i = 1; i < s->n_listen; i++) {
        struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = &s->listen_fds[i] };
        epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listen_fds[i], &ev);
    }
    s->listens = on;
}

int listen_accept(server *s, const void *fd)
{
    const int *p = s->listen_fds + 1, *const end = s->listen_fds + s->n_listen;

    while (p < end && p != fd)
        p++;
    if (p >= end)
        return 0;
    for (int k; room(s) > 0;) {
        struct sockaddr_storage a;
        socklen_t size = sizeof a;
        if ((k = accept4(*p, (struct sockaddr *)&a, &size, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
            break;
        if (MHD_add_connection(s->daemon, k, (struct sockaddr *)&a, size) != MHD_YES) /* it has closed k */
            break;
    }
    return 1;
}

/* Ours, and not what somebody has put in its place since. */
static void remove_socket(const server *s)
{
    struct stat st;

    if (s->address.socket_path[0] && lstat(s->address.socket_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        st.st_ino == s->address.socket_inode)
        unlink(s->address.socket_path);
}

void listen_close(server *s)
{
    for (int i = 0; i < s->n_listen; i++)
        if (s->listen_fds[i] >= 0)
            close(s->listen_fds[i]);
    remove_socket(s);
}
