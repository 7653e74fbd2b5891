/* cli/text/line.h: lines that a person types: edited and with a history on a terminal, where libedit was there when
 * cmake ran; as they come otherwise.  The prompt and the editing go to standard error, so that standard output has
 * the answers alone. */
#ifndef KVANT_CLI_LINE_H
#define KVANT_CLI_LINE_H

#include <stddef.h>

typedef struct line_reader line_reader;

/* plain: no editing on a terminal either.  NULL: no memory. */
line_reader *line_open(int plain);
void line_close(line_reader *r);
/* The next message without its last newline -> *text (the reader's, until the next call), *len: one line; lines that
 * end in \ and the one behind them; or what stands between two """.  1; 0: the end, or Ctrl-C; KVANT_ENOMEM. */
int line_message(line_reader *r, const char **text, size_t *len);

#endif
