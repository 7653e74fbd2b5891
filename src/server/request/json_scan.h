/* server/request/json_scan.h: what is checked of a JSON text before a parser that recurses may see it, and small
 * readers. */
#ifndef KVANT_SERVER_JSON_SCAN_H
#define KVANT_SERVER_JSON_SCAN_H

#include <stddef.h>
#include "base/error.h"

struct json_t;
struct sbuf;

enum { JSON_MAX_DEPTH = 64, JSON_MAX_NODES = 1000000 };

/* Depth and node count of text[len], without recursion.  KVANT_EINVAL names what was passed.  Does not check syntax
 * beyond what it needs: the parser does. */
int json_scan(const char *text, size_t len, kvant_diag *diag);
/* jansson's memory is kvant's (base/mem.h) from the first call on.  Before threads use it. */
void json_memory(void);
/* Scan, then parse: no duplicate keys, valid UTF-8, nothing behind the value; a byte order mark before it is passed
 * over.  \u0000 and halves of surrogate pairs are U+FFFD, and numbers stay (json_is_wide).  *out: json_decref.
 * KVANT_ENOMEM also where jansson would have left out characters. */
int json_read(const char *text, size_t len, struct json_t **out, kvant_diag *diag);
/* Without the limits: a text of our own, none of whose tokens is longer than `longest` bytes. */
int json_read_any(const char *text, size_t len, size_t longest, struct json_t **out, kvant_diag *diag);

/* ---- json_mend.c ---- */
/* Rewrites JSON that jansson would refuse into a form that it takes.  0: text may stay as it is; out is empty.  Else
 * sbuf_free, and out->error says whether there was memory. */
int json_mend(const char *text, size_t len, struct sbuf *out);
/* A number that no 64 bits hold: json_read keeps it as a string of NUL and its text, which is no string of a client. */
int json_is_wide(const struct json_t *v);
void json_unmark(char *text); /* a dump, or its beginning: such numbers are numbers again */
/* json_dumps, with such numbers as they came. */
char *json_text(const struct json_t *v, size_t flags);

#endif
