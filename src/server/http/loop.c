/* loop.c: the one thread that owns all connections: it waits in one epoll set and serves what has news.
 *
 * In the set: the daemon's own, the event counter that other threads write, a one-second timer, signals, and the socket
 * of every client that waits for something (a suspended connection is not watched by the library, so a client that
 * leaves is seen here).  A client that closes its sending side counts as gone.  An event's pointer is the address of
 * the server's field for the descriptor, or a client. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/http/kept.h"

enum {
    FIRST_REQUEST_S = 10, /* headers of the first request after accept */
    BODY_GRACE_S = 10,
    BODY_RATE = 1024, /* then at least so many bytes per second */
    EVENTS = 128,
    LOOP_NICER = 10,
    LAST_BYTES_MS = 700, /* after --drain-seconds: error events, what is read slowly */
};

static void take_dirty(server *s)
{
    uint64_t n;

    if (read(s->event_fd, &n, sizeof n) < 0)
        n = 0;
    pthread_mutex_lock(&s->dirty_lock);
    job *list = s->dirty;
    s->dirty = NULL;
    for (job *j = list; j; j = j->link.dirty_next) {
        j->link.taken_next = j->link.dirty_next;
        j->link.dirty = 0;
    }
    if (s->not_loaded)
        s->stop = s->draining = 1;
    pthread_mutex_unlock(&s->dirty_lock);
    while (list) {
        job *j = list;
        list = j->link.taken_next;
        pthread_mutex_lock(&j->lock);
        int news = j->stream ? j->out.n > 0 || j->done || j->gone : j->done || j->gone;
        pthread_mutex_unlock(&j->lock);
        if (news && j->kept)
            kept_news(j);
        else if (news)
            job_resume(j);
        job_release(j);
    }
    downloads_tick(s);
}

static void client_left(client *k)
{
    job *j = k->job;

    client_watch(k, 0);
    if (!j)
        return;
    k->left = 1;
    if (!j->kept)
        job_gone(j);
    job_resume(j); /* the library finds the closed socket, or our error, and cleans up */
}

static void begin_drain(server *s)
{
    pthread_mutex_lock(&s->dirty_lock);
    const int failed = s->fail_code;
    pthread_mutex_unlock(&s->dirty_lock);
    s->draining = 1;
    s->stop_ns = clock_ns();
    models_drain(s, s->p.drain_ms);
    if (s->n_streams > 0)
        log_msg(LOG_INFO, "shutting down: %d requests end first, at most %d ms", s->n_streams, s->p.drain_ms);
    else if (!failed) /* else the error says why */
        log_msg(LOG_INFO, "shutting down");
}

static void renew_keys(server *s)
{
    kvant_diag diag = { "" };

    if (s->p.renew.fn(s->p.renew.user, &diag) != KVANT_OK) {
        log_msg(LOG_ERROR, "SIGHUP: nothing is changed in the keys: %s", diag.text);
        return;
    }
    budget_share(s);
    models_share(s, s->p.renew.queue_key(s->p.renew.user));
    log_msg(LOG_INFO, "SIGHUP: %d API keys, %d of them admin keys", auth_count(s->p.keys, 0), auth_count(s->p.keys, 1));
}

/* Keys, and the list of models: each anew, or on an error as it was. */
static void reload(server *s)
{
    kvant_diag diag = { "" };

    if (s->draining) {
        log_msg(LOG_INFO, "SIGHUP: nothing is read again, the server is shutting down");
        return;
    }
    if (s->p.renew.fn)
        renew_keys(s);
    if (s->p.router && models_reload(s, &diag) != KVANT_OK)
        log_msg(LOG_ERROR, "SIGHUP: nothing is changed in the list of models: %s", diag.text);
    else if (s->p.router)
        log_msg(LOG_INFO, "SIGHUP: %d models", (int)s->models.n);
}

/* The kernel's, when the terminal is lost, ends the program; so does kill -HUP where nothing can be read again. */
static int is_reload(const server *s, const struct signalfd_siginfo *info)
{
    return info->ssi_signo == SIGHUP && info->ssi_code != SI_KERNEL && (s->p.renew.fn || s->p.router);
}

static void take_signals(server *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (is_reload(s, &info))
            reload(s);
        else if (s->signals++ || !models_ready(s)) {
            s->stop = 1;
            s->killed_by = s->signals > 1 ? (int)info.ssi_signo : 0;
        } else {
            begin_drain(s);
        }
    }
}

/* Bytes that come are of no interest. */
static void take_end(server *s)
{
    char bytes[4096];
    const ssize_t n = read(s->p.end_fd, bytes, sizeof bytes);

    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->p.end_fd, NULL);
    log_msg(LOG_INFO, "standard input ended (--end-with-stdin)");
    if (!models_ready(s))
        s->stop = 1;
    else if (!s->draining)
        begin_drain(s);
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
    const int failed = s->fail_code ? 0 : models_failed(s);

    if (!failed)
        return;
    s->fail_code = kvant_fail(&s->fail_diag, failed, "engine: stopped after an error (%s)", kvant_error_text(failed));
    s->p.drain_ms = 0; /* only for bytes that are on their way */
    begin_drain(s);
}

/* A request that runs or waits and has not got a single token yet. */
static int is_hungry(job *j)
{
    int hungry = j->kind == JOB_GENERATE || j->kind == JOB_EMBED;

    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < j->n_choices; i++)
        hungry &= !j->choices[i].last_token_ns;
    hungry &= !j->done;
    pthread_mutex_unlock(&j->lock);
    return hungry;
}

static int others_wait(const server *s)
{
    for (job *j = s->jobs; j; j = j->link.next)
        if (is_hungry(j))
            return 1;
    for (const kept_stream *k = s->kept.streams; k; k = k->next)
        if (k->job && is_hungry(k->job))
            return 1;
    return 0;
}

/* A stream that is cut: nothing was taken for long; or it was paused for as long in all, a second at a time, while
 * others waited for their first token: slowly is not fast enough then.  Under j->lock. */
static int is_stalled(job *j, int64_t now, int waited_for)
{
    const int64_t stall_ns = j->s->p.stream.stall_s * (int64_t)1000000000;
    const int paused = j->kind == JOB_READ ? kept_holds(j) : j->n_paused > 0;

    j->held_s += waited_for && paused;
    return (j->out.n && now - j->link.last_taken_ns > stall_ns) || j->held_s > j->s->p.stream.stall_s;
}

/* Once a second: the engine's health, pings, stalled streams, slow clients, the live view. */
static void take_timer(server *s)
{
    uint64_t n;
    int64_t now = clock_ns(), second = 1000000000;
    const int waited_for = others_wait(s);

    if (read(s->timer_fd, &n, sizeof n) < 0)
        n = 0;
    check_engine(s);
    live_tick(s, now);
    downloads_tick(s);
    answers_tick(s, now);
    kept_tick(s, now);
    for (job *j = s->jobs; j; j = j->link.next) {
        int cut;
        pthread_mutex_lock(&j->lock);
        cut = is_stalled(j, now, waited_for);
        const int pings = s->p.stream.ping_s && j->stream && !job_sends_lines(j) && j->kind != JOB_READ;
        if (pings && !j->out.n && !j->done && now - j->link.last_out_ns >= s->p.stream.ping_s * second)
            sbuf_puts(&j->out, ": ping\n\n");
        int news = j->stream && j->out.n;
        pthread_mutex_unlock(&j->lock);
        if (cut) {
            job_gone(j);
            shutdown(j->link.client->fd, SHUT_RDWR);
        }
        if (news || cut)
            job_resume(j);
    }
    for (client *k = s->clients; k; k = k->next)
        if (too_slow(k, now))
            shutdown(k->fd, SHUT_RDWR);
}

static int drained(server *s)
{
    if (!s->draining)
        return 0;
    if (clock_ns() - s->stop_ns > ((int64_t)s->p.drain_ms + LAST_BYTES_MS) * 1000000)
        return 1;
    if (models_busy(s) > 0)
        return 0;
    for (const job *j = s->jobs; j; j = j->link.next)
        if (j->kind != JOB_LIVE)
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

    KVANT_TRY(models_start(s, diag)); /* before: a thread inherits the priority of the one that makes it */
    prefer_loop();
    while (!s->stop) {
        listen_watch(s);
        int limit = MHD_get_timeout(s->daemon, &wait) == MHD_YES && wait < 1000 ? (int)wait : 1000;
        int n = epoll_wait(s->epoll, ev, EVENTS, s->draining && limit > 20 ? 20 : limit);
        for (int i = 0; i < n; i++) {
            void *p = ev[i].data.ptr;
            if (p == &s->event_fd)
                take_dirty(s);
            else if (p == &s->timer_fd)
                take_timer(s);
            else if (p == &s->signal_fd)
                take_signals(s);
            else if (p == &s->p.end_fd)
                take_end(s);
            else if (p != &s->mhd_fd && !listen_accept(s, p))
                client_left(p);
        }
        run_daemon(s);
        if (s->draining && !s->stop_ns)
            begin_drain(s);
        if (drained(s))
            break;
    }
    if (!s->killed_by)
        s->stuck = !downloads_stop(s) || !models_stop(s) || !workers_stop(s);
    pthread_mutex_lock(&s->dirty_lock);
    int code = s->fail_code;
    if (code != KVANT_OK && diag)
        *diag = s->fail_diag;
    pthread_mutex_unlock(&s->dirty_lock);
    return code;
}
