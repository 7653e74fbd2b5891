/* server/request/json_scan.h: what is checked of a JSON text before a parser that recurses may see it, and small
 * readers. */
#ifndef KVANT_SERVER_JSON_SCAN_H
#define KVANT_SERVER_JSON_SCAN_H

#include <stddef.h>
#include "base/error.h"

struct json_t;

enum { JSON_MAX_DEPTH = 64, JSON_MAX_NODES = 1000000 };

/* Depth and node count of text[len], without recursion.  KVANT_EINVAL names what was passed.  Does not check syntax
 * beyond what it needs: the parser does. */
int json_scan(const char *text, size_t len, kvant_diag *diag);
/* Scan, then parse: no duplicate keys, valid UTF-8, no \u0000, nothing behind the value.  *out: json_decref. */
int json_read(const char *text, size_t len, struct json_t **out, kvant_diag *diag);

#endif
