/* base/log.h: the program's messages.  Libraries never print: they call log_msg, which goes to the installed sink
 * (none by default).  One record per call; control characters are escaped. */
#ifndef KVANT_BASE_LOG_H
#define KVANT_BASE_LOG_H

/* As KVANT_LOG_*. */
enum { LOG_ERROR = 0, LOG_WARN = 1, LOG_INFO = 2, LOG_DEBUG = 3 };

typedef void (*log_sink)(void *user, int level, const char *text);
void log_set_sink(log_sink sink, void *user, int level);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void log_msg(int level, const char *fmt, ...);
/* For sinks: one line, with its end, to a descriptor.  Any thread.  After log_drop_not_wait a line that would have to
 * wait is dropped; when the next one of its descriptor goes out, standard error says how many were. */
void log_emit(int fd, const char *line);
void log_drop_not_wait(void);

#endif
