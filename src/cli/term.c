/* term.c: see term.h.  Owns the process-wide colour choice and the interrupt flag. */
#include "cli/term.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"

static int color_mode, log_color_mode; /* 1 always, 0 never, -1: terminals */
static int plain;                      /* --simple-io: no bars */
static int log_times, log_bare;        /* --log-timestamps, --no-log-prefix */
static FILE *log_file;                 /* --log-file: open until the program ends */
/* The handler may run on any thread of the process; lock-free atomics are safe in it. */
static _Atomic int interrupts;
static void (*_Atomic interrupt_fn)(void *);
static void *_Atomic interrupt_arg;
static _Atomic int bar_drawn; /* a bar is on the line: messages, which come from any thread, must erase it first */

int term_color_on(FILE *f)
{
    if (color_mode >= 0)
        return color_mode;
    const char *no = getenv("NO_COLOR"), *t = getenv("TERM");
    return isatty(fileno(f)) && !(no && *no) && !(t && strcmp(t, "dumb") == 0);
}

const char *term_color(FILE *f, int code)
{
    static const struct {
        int code;
        const char *text;
    } seq[] = {
        { 0, "\x1b[0m" }, { 1, "\x1b[1m" }, { 31, "\x1b[31m" }, { 32, "\x1b[32m" }, { 33, "\x1b[33m" },
    };

    for (size_t i = 0; i < sizeof seq / sizeof seq[0]; i++)
        if (seq[i].code == code && term_color_on(f))
            return seq[i].text;
    return "";
}

static void erase_bar(void)
{
    if (atomic_exchange(&bar_drawn, 0))
        fputs("\r\x1b[K", stderr);
}

/* One line: [time] [kvant: level:] text, past stdio: a server's messages do not wait for their reader (log.h). */
static void log_line(FILE *f, int level, const char *text, const char *color, const char *end)
{
    static const char *const words[] = { "error: ", "warning: ", "", "debug: " };
    char when[40] = "", line[2048];

    if (log_times) {
        struct timespec now;
        struct tm tm;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(when + n, sizeof when - n, ".%03ldZ ", now.tv_nsec / 1000000);
    }
    snprintf(line, sizeof line, "%s%s%s%s%s%s\n", color, when, log_bare ? "" : "kvant: ",
             log_bare ? "" : words[level < 0 || level > 3 ? 3 : level], text, end);
    log_emit(fileno(f), line);
}

static void log_to_stderr(void *user, int level, const char *text)
{
    const char *color = "", *end = "";

    (void)user;
    erase_bar();
    if (level <= LOG_WARN && (log_color_mode >= 0 ? log_color_mode : term_color_on(stderr))) {
        color = level == LOG_ERROR ? "\x1b[31m" : "\x1b[33m";
        end = "\x1b[0m";
    }
    log_line(stderr, level, text, color, end);
    if (log_file)
        log_line(log_file, level, text, "", "");
}

/* "auto" (or nothing), "on", "off" -> -1, 1, 0 */
static int color_choice(const char *given)
{
    return given && strcmp(given, "on") == 0 ? 1 : given && strcmp(given, "off") == 0 ? 0 : -1;
}

static int log_setup(const opts *o, kvant_diag *diag)
{
    const char *path = opt_str(o, OPT_LOG_FILE);

    color_mode = color_choice(opt_str(o, OPT_COLOR));
    log_color_mode = opt_str(o, OPT_LOG_COLORS) ? color_choice(opt_str(o, OPT_LOG_COLORS)) : color_mode;
    plain = opt_flag(o, OPT_SIMPLE_IO);
    log_times = opt_flag(o, OPT_LOG_TIMESTAMPS);
    log_bare = opt_flag(o, OPT_NO_LOG_PREFIX);
    if (path && !(log_file = fopen(path, "ae")))
        return kvant_fail(diag, KVANT_EIO, "%s: %.160s cannot be written: %s", opt_origin(o, OPT_LOG_FILE), path,
                          strerror(errno));
    return KVANT_OK;
}

static int log_level(const opts *o)
{
    const int64_t given = opt_int(o, OPT_VERBOSITY);

    if (opt_flag(o, OPT_LOG_DISABLE))
        return LOG_ERROR;
    return opt_flag(o, OPT_VERBOSE) || given > LOG_DEBUG ? LOG_DEBUG : (int)given;
}

int term_setup(const opts *o, kvant_diag *diag)
{
    color_mode = log_color_mode = -1;
    log_set_sink(log_to_stderr, NULL, LOG_WARN);
    if (!o)
        return KVANT_OK;
    KVANT_TRY(log_setup(o, diag));
    log_set_sink(log_to_stderr, NULL, log_level(o));
    return KVANT_OK;
}

void term_error(const char *text)
{
    log_set_sink(log_to_stderr, NULL, LOG_ERROR);
    log_msg(LOG_ERROR, "%s", text);
}

static void on_interrupt(int sig)
{
    (void)sig;
    if (interrupts)
        _exit(130);
    interrupts = 1;
    void (*fn)(void *) = interrupt_fn;
    if (fn)
        fn(interrupt_arg);
}

void term_on_interrupt(void (*fn)(void *), void *arg)
{
    interrupt_fn = NULL; /* never the new function with the old argument */
    interrupt_arg = arg;
    interrupt_fn = fn;
}

void term_catch_interrupt(void)
{
    struct sigaction sa;

    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_interrupt; /* no SA_RESTART: a chat that waits for a line must wake up */
    sigaction(SIGINT, &sa, NULL);
}

int term_interrupted(void)
{
    return interrupts;
}

void term_clear_interrupt(void)
{
    interrupts = 0;
}

/* ---- progress ---- */

static int terminal_width(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

void progress_start(progress *p, const char *what, int64_t total)
{
    const char *term = getenv("TERM");

    *p = (progress){ what, total, 0, isatty(STDERR_FILENO) && !plain && !(term && strcmp(term, "dumb") == 0) };
}

void progress_show(progress *p, int64_t done)
{
    int64_t now = p->on ? clock_ns() : 0;
    int width = 0, room;

    if (!p->on || (p->shown_ns && now - p->shown_ns < 100 * 1000000ll))
        return;
    p->shown_ns = now;
    room = terminal_width() - (int)strlen(p->what) - 12;
    room = room > 50 ? 50 : room < 5 ? 5 : room;
    width = p->total > 0 ? (int)((double)room * (double)done / (double)p->total) : 0;
    width = width > room ? room : width;
    fprintf(stderr, "\r%s [", p->what);
    for (int i = 0; i < room; i++)
        fputc(i < width ? '#' : '.', stderr);
    fprintf(stderr, "] %3d%%", p->total > 0 ? (int)(100.0 * (double)done / (double)p->total) : 0);
    bar_drawn = 1;
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->on)
        erase_bar();
    p->on = 0;
}

/* ---- text ---- */

const char *human_bytes(int64_t n, char *buf, size_t cap)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)n;
    int u = 0;

    while (v >= 1024.0 && u < 4) {
        v /= 1024.0;
        u++;
    }
    snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", v, units[u]);
    return buf;
}

const char *human_count(int64_t n, char *buf, size_t cap)
{
    if (n >= 1000000000)
        snprintf(buf, cap, "%.2f B", (double)n / 1e9);
    else
        snprintf(buf, cap, "%.2f M", (double)n / 1e6);
    return buf;
}

void term_sanitize(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7F)
            *p = '?';
        if (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0)
            p[0] = p[1] = '?';
    }
}

int term_flush(kvant_diag *diag)
{
    const int had = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !had)
        return KVANT_OK;
    /* stdio forgot why an earlier write failed, and errno is of some later call: a write more fails likewise */
    if (!errno && write(STDOUT_FILENO, "\n", 1) == 1)
        errno = 0;
    return kvant_fail(diag, KVANT_EIO, "standard output: %s", errno ? strerror(errno) : "a part of it was lost");
}
