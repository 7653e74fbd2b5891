/* cli/term.h: the terminal side of the program: messages, colours, progress bars, Ctrl-C, sizes for people.
 * Reports go to standard output, everything else to standard error. */
#ifndef KVANT_CLI_TERM_H
#define KVANT_CLI_TERM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "cli/options/options.h"

/* Installs the log sink on standard error at the level of -v, -lv, and the colours of --color and NO_COLOR; o: NULL, or
 * what --log-file and the other --log options ask for too.  KVANT_EIO: the log file cannot be opened. */
int term_setup(const opts *o, kvant_diag *diag);
int term_color_on(FILE *f);
/* Escape sequence for a colour on f, or "": 0 reset, 1 bold, 31 red, 32 green, 33 yellow. */
const char *term_color(FILE *f, int code);
/* "kvant: error: text" with control characters escaped. */
void term_error(const char *text);

/* Ctrl-C: the first one sets a flag that term_interrupted shows, the second one ends the process with code 130. */
void term_catch_interrupt(void);
int term_interrupted(void);
void term_clear_interrupt(void);
/* fn(arg) is called inside the handler of the first Ctrl-C (it must be safe there); NULL: nothing. */
void term_on_interrupt(void (*fn)(void *), void *arg);

/* A progress bar on standard error, drawn only on a terminal that can erase it (not dumb, no --simple-io), at most 10
 * times a second. */
typedef struct progress {
    const char *what;
    int64_t total, shown_ns;
    int on;
} progress;
void progress_start(progress *p, const char *what, int64_t total);
void progress_show(progress *p, int64_t done);
void progress_end(progress *p);

/* "38.2 MiB"; returns buf. */
const char *human_bytes(int64_t n, char *buf, size_t cap);
/* "20.46 M"; returns buf. */
const char *human_count(int64_t n, char *buf, size_t cap);

/* Text of a model on a terminal: control characters but newline and tab become '?', so that a model cannot send escape
 * sequences.  In place. */
void term_sanitize(char *text);

/* Flushes standard output; KVANT_EIO if anything written to it was lost. */
int term_flush(kvant_diag *diag);

#endif
