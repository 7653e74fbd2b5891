/* base/text/json.h: the reader of JSON: a value is a span of a text that was checked once (RFC 8259: no trailing comma,
 * no raw controls, no leading zero, valid UTF-8 in strings).  No allocation; nesting is limited to JSON_DEPTH.  Keys
 * are compared as written (no escapes in keys). */
#ifndef KVANT_BASE_JSON_H
#define KVANT_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum { JSON_DEPTH = 64 };

/* One JSON value inside the text; p NULL: absent. */
typedef struct gjson {
    const char *p;
    size_t n;
} gjson;

/* Checks that text[n] is exactly one JSON value.  KVANT_EFORMAT with the offset of the first wrong byte. */
int gjson_parse(const char *text, size_t n, gjson *root, kvant_diag *diag);

/* The value of a key; absent if v is no object or has no such key. */
gjson gjson_get(gjson v, const char *key);
/* Iteration over an array: *it starts as {0}; 0 at the end (or v is no array). */
int gjson_next(gjson v, gjson *it);
/* Iteration over an object: *it and *key start as {0}; key spans the quotes too. */
int gjson_member(gjson v, gjson *key, gjson *it);
/* A string's text with its escapes resolved, into out (at least v.n bytes); a surrogate without its partner becomes
 * U+FFFD.  Returns the length; SIZE_MAX if v is no string. */
size_t gjson_unescape(gjson v, char *out);
/* The value at a path such as "models.0.name" (members by key, elements by number). */
gjson gjson_at(gjson v, const char *path);
/* A string's raw content into buf (cut at cap - 1, escapes left as they are); 0 if v is no string. */
int gjson_text(gjson v, char *buf, size_t cap);
/* A number; NaN if v is none. */
double gjson_number(gjson v);
/* Bytes of a hex string; SIZE_MAX if v is no string, odd, or not hex. */
size_t gjson_hex_bytes(gjson v);
/* Decodes a hex string of exactly n bytes; 0 if it is not that. */
int gjson_hex(gjson v, void *out, size_t n);

#endif
