/* tests/support/json.h: base/text/json.h as tests ask: is a text one valid JSON value, and what is at a path. */
#ifndef KVANT_TESTS_JSON_H
#define KVANT_TESTS_JSON_H

#include <stddef.h>

/* 1 when text[n] is exactly one JSON value (RFC 8259: no trailing comma, no raw controls, valid UTF-8, finite
 * numbers). */
int json_valid(const char *text, size_t n);
/* Start and length of the value at a path such as "models.0.name", NULL if absent.  text must be valid JSON. */
const char *json_at(const char *text, const char *path, size_t *n);
/* Number at a path; NaN if absent or not a number. */
double json_num(const char *text, const char *path);

#endif
