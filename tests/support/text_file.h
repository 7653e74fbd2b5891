/* tests/support/text_file.h: reading the golden files of the text tests. */
#ifndef KVANT_TESTS_TEXT_FILE_H
#define KVANT_TESTS_TEXT_FILE_H

#include <stddef.h>

/* The whole file, malloc'd and NUL-terminated; exits when it cannot be read. */
char *text_file_read(const char *path, size_t *n);
/* Lower-case hex digits -> out[digits / 2]; returns the number of bytes, -1 for another character. */
int text_from_hex(const char *s, size_t digits, char *out);

#endif
