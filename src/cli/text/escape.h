/* cli/text/escape.h: escapes of texts on the command line. */
#ifndef KVANT_CLI_ESCAPE_H
#define KVANT_CLI_ESCAPE_H

/* \n \r \t \' \" \\ and \xHH in place; any other backslash stays. */
void unescape(char *s);

#endif
