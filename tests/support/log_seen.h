/* tests/support/log_seen.h: what was logged since log_seen_begin, warnings and errors, one behind the other.
 * Process-wide; one thread logs. */
#ifndef KVANT_TESTS_LOG_SEEN_H
#define KVANT_TESTS_LOG_SEEN_H

void log_seen_begin(void);
/* 1: the text is in one of the messages; "" : there was one. */
int log_seen(const char *text);
const char *log_seen_all(void);

#endif
