/* http.c: a server's life: listening, its descriptors, what other threads may say to it, closing.  Loop: loop.c;
 * requests: call.c; responses: respond.c; what a route does: routes.c. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/api/responses/responses_store.h"
#include "server/http/kept.h"

enum {
    CONNECTION_BYTES = 24 << 10, /* the library's buffer of one connection; headers must fit.  Touched as used. */
    OTHER_FDS = 64,              /* files, devices, the loop's own */
    LEAST_CONNECTIONS = 16,      /* fewer are no server; the system must allow at least so many */
};

server_params server_defaults(void)
{
    return (server_params){ .host = "127.0.0.1",
                            .end_fd = -1,
                            .port = 8686,
                            .autoload = 1,
                            .api_prefix = "",
                            .max_connections = 4096,
                            .max_body = 8 << 20,
                                                        .drain_ms = 30000,
                            .stream = { .ping_s = 30, .stall_s = 30, .keep_s = 300 },
                            .watchdog_s = 60,
                            .lengths = { .max_tokens = -1 },
                            .on = { .slots = 1, .metrics = 1, .page = 1 },
                            .seed = -1,
                            .thoughts = { .apart = 1, .budget = -1 },
                            .sampler = kvant_sampler_defaults() };
}

/* ---- from other threads ---- */

void server_fail(server *s, int code, const kvant_diag *diag)
{
    pthread_mutex_lock(&s->dirty_lock);
    s->fail_code = code;
    s->fail_diag = *diag;
    s->not_loaded = 1;
    pthread_mutex_unlock(&s->dirty_lock);
    server_wake(s);
}

/* ---- opening ---- */

/* Events of the descriptor carry the address of the field. */
static int add_fd(server *s, int *fd, kvant_diag *diag)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = fd };

    if (*fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, *fd, &ev) != 0)
        return kvant_fail(diag, KVANT_EIO, "epoll: %s", strerror(errno));
    return KVANT_OK;
}

/* Whoever started the server holds the other end, or has ended, however that was. */
static int watch_end(server *s, kvant_diag *diag)
{
    if (s->p.end_fd < 0 || add_fd(s, &s->p.end_fd, NULL) == KVANT_OK)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "--end-with-stdin: found a standard input that is no pipe, socket or terminal");
}

static int open_fds(server *s, kvant_diag *diag)
{
    struct itimerspec every = { { 1, 0 }, { 1, 0 } };
    sigset_t set;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    timerfd_settime(s->timer_fd, 0, &every, NULL);
    KVANT_TRY(add_fd(s, &s->event_fd, diag));
    KVANT_TRY(add_fd(s, &s->timer_fd, diag));
    KVANT_TRY(watch_end(s, diag));
    if (!s->p.catch_signals)
        return KVANT_OK;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);                /* a reload, or a terminal that closes */
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any other thread is made: they inherit it */
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return add_fd(s, &s->signal_fd, diag);
}

/* As many descriptors as the system gives: fewer connections than wanted are told, too few are no start. */
static int limit_connections(server *s, kvant_diag *diag)
{
    const int64_t other = OTHER_FDS + SPARE_CONNECTIONS;
    int least = s->p.max_connections < LEAST_CONNECTIONS ? s->p.max_connections : LEAST_CONNECTIONS;
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return KVANT_OK;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_max == RLIM_INFINITY || (int64_t)r.rlim_max >= s->p.max_connections + other)
        return KVANT_OK;
    if ((int64_t)r.rlim_max < least + other)
        return kvant_fail(diag, KVANT_EINVAL,
                          "open files: the system allows %lld, want at least %lld for %d connections (ulimit -n)",
                          (long long)r.rlim_max, (long long)(least + other), least);
    log_msg(LOG_WARN, "open files: the system allows %lld (ulimit -n), so at most %lld connections instead of %d",
            (long long)r.rlim_max, (long long)((int64_t)r.rlim_max - other), s->p.max_connections);
    s->p.max_connections = (int)((int64_t)r.rlim_max - other);
    return KVANT_OK;
}

static int open_daemon(server *s, kvant_diag *diag)
{
    const union MHD_DaemonInfo *info;
    unsigned connections = (unsigned)(s->p.max_connections + SPARE_CONNECTIONS);

    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, call_access, s, MHD_OPTION_LISTEN_SOCKET,
        s->listen_fds[0], MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(KEEP_ALIVE_S + 5),
        MHD_OPTION_NOTIFY_COMPLETED, call_completed, s, MHD_OPTION_NOTIFY_CONNECTION, call_connection, s,
        MHD_OPTION_UNESCAPE_CALLBACK, call_keep_escapes, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!s->daemon)
        return kvant_fail(diag, KVANT_EIO, "libmicrohttpd: the daemon did not start");
    s->listen_fds[0] = -1; /* the daemon's now */
    for (int i = 1; i < s->n_listen; i++)
        KVANT_TRY(add_fd(s, &s->listen_fds[i], diag));
    s->listens = 1;
    info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return kvant_fail(diag, KVANT_EIO, "libmicrohttpd: no epoll descriptor");
    s->mhd_fd = info->epoll_fd;
    return add_fd(s, &s->mhd_fd, diag);
}

int server_open(const server_params *p, server **out, kvant_diag *diag)
{
    server *s = kvant_calloc(1, sizeof *s);

    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    s->p = *p;
    for (int i = 0; i < LISTEN_MOST; i++)
        s->listen_fds[i] = -1;
    s->epoll = s->event_fd = s->timer_fd = s->signal_fd = -1;
    s->started_ns = clock_ns();
    s->wall_s = clock_wall_s();
    if (getrandom(s->secret, sizeof s->secret, 0) != (ssize_t)sizeof s->secret)
        memcpy(s->secret, &s->started_ns, sizeof s->started_ns);
    pthread_mutex_init(&s->dirty_lock, NULL);
    downloads_open(s);
    json_memory();
    mem_give_back(1);
    signal(SIGPIPE, SIG_IGN);
    int code = limit_connections(s, diag);
    if (code == KVANT_OK)
        code = budget_open(s, diag);
    if (code == KVANT_OK)
        code = listen_open(s, diag);
    if (code == KVANT_OK)
        code = open_fds(s, diag);
    if (code == KVANT_OK)
        code = access_open(s, diag);
    if (code == KVANT_OK)
        code = workers_start(s, diag); /* signals are blocked by now, for them too */
    if (code == KVANT_OK) {
        budget_share(s);
        code = models_open(s, diag);
    }
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
    return s->address.url;
}

int server_killed_by(const server *s)
{
    return s->killed_by;
}

int server_stuck(const server *s)
{
    return s->stuck;
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
    downloads_stop(s);
    models_stop(s);
    workers_stop(s);
    models_end(s);
    for (job *j = s->jobs; j; j = j->link.next) {
        job_gone(j);
        job_resume(j);
    }
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    while (s->dirty) {
        job *j = s->dirty;
        s->dirty = j->link.dirty_next;
        job_release(j);
    }
    listen_close(s);
    close_fd(s->epoll);
    close_fd(s->event_fd);
    close_fd(s->timer_fd);
    close_fd(s->signal_fd);
    kept_close(s);
    models_close(s);
    downloads_close(s);
    response_store_free(s->kept.responses);
    pthread_mutex_destroy(&s->dirty_lock);
    budget_close(s);
    access_close(s);
    kvant_free(s);
}
