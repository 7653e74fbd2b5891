/* log.c: the one way out for messages.  Owns the installed sink; formats and escapes a record.  log_emit is what a sink
 * writes with: a server's messages must not wait for whoever reads them. */
#include "base/log.h"

#include "kvant/kvant.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOG_RECORD = 1024 };

/* Set once by the program before it starts threads; the level is atomic because workers read it at any time. */
static log_sink sink_fn;
static void *sink_user;
static _Atomic int sink_level = -1;

void log_set_sink(log_sink sink, void *user, int level)
{
    atomic_store(&sink_level, -1); /* nobody may see the new function with the old user pointer */
    sink_fn = sink;
    sink_user = user;
    atomic_store(&sink_level, sink ? level : -1);
}

void kvant_log_set(void (*sink)(void *user, int level, const char *text), void *user, int level)
{
    log_set_sink(sink, user, level);
}

/* A record is one line of a terminal or of a log file: text from a model file or a request must not be able to end
 * it, nor to send escape sequences.  Bytes >= 0x80 pass (UTF-8), except C1 controls, which come as C2 80..9F. */
static void escape_controls(const char *in, char *out, size_t cap)
{
    size_t n = 0;

    for (; *in && n + 5 < cap; in++) {
        unsigned char c = (unsigned char)*in, next = (unsigned char)in[1];
        if (c == 0xC2 && next >= 0x80 && next < 0xA0) {
            n += (size_t)snprintf(out + n, cap - n, "\\x%02x", next);
            in++;
        } else if (c == '\n') {
            n += (size_t)snprintf(out + n, cap - n, "\\n");
        } else if (c == '\t') {
            n += (size_t)snprintf(out + n, cap - n, "\\t");
        } else if (c < 0x20 || c == 0x7F) {
            n += (size_t)snprintf(out + n, cap - n, "\\x%02x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = 0;
}

void log_msg(int level, const char *fmt, ...)
{
    char raw[LOG_RECORD], text[LOG_RECORD + 512];
    va_list ap;

    if (level > atomic_load(&sink_level))
        return;
    va_start(ap, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    escape_controls(raw, text, sizeof text);
    sink_fn(sink_user, level, text);
}

/* ---- writing ---- */

static _Atomic int drop_not_wait;
static pthread_mutex_t emit_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next and the room that was seen */
static unsigned long n_dropped[2]; /* messages, and lines of what is not standard error */

void log_drop_not_wait(void)
{
    atomic_store(&drop_not_wait, 1);
}

static void write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno != EINTR)
            return; /* nobody reads any more: a message is not worth an end */
        if (k > 0) {
            s += k;
            n -= (size_t)k;
        }
    }
}

/* A pipe that is writable takes PIPE_BUF bytes at once, without a wait (POSIX), and a line is shorter than that.
 * Setting O_NONBLOCK would change the descriptor for every program that shares it. */
static int has_room(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };

    return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* Standard error says what was dropped, of other descriptors too: their lines are read by programs. */
static void tell_dropped(int which)
{
    char told[160];

    if (!n_dropped[which] || !has_room(STDERR_FILENO))
        return;
    snprintf(told, sizeof told, "kvant: warning: %lu %s dropped: nobody took them\n", n_dropped[which],
             which ? "lines of standard output" : "messages");
    write_all(STDERR_FILENO, told, strlen(told));
    n_dropped[which] = 0;
}

void log_emit(int fd, const char *line)
{
    const int which = fd != STDERR_FILENO;

    if (!atomic_load(&drop_not_wait)) {
        write_all(fd, line, strlen(line));
        return;
    }
    pthread_mutex_lock(&emit_lock);
    if (has_room(fd))
        tell_dropped(which);
    if (has_room(fd)) /* still */
        write_all(fd, line, strlen(line));
    else
        n_dropped[which]++;
    pthread_mutex_unlock(&emit_lock);
}
