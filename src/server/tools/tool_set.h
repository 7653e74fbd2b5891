/* server/tools/tool_set.h: the tools of a request, checked: names, and how each parameter is written. */
#ifndef KVANT_SERVER_TOOLS_TOOL_SET_H
#define KVANT_SERVER_TOOLS_TOOL_SET_H

#include <jansson.h>
#include "kvant/error.h"

enum { TOOLS_MOST = 512, TOOL_NAME_MOST = 64 };

typedef struct tool {
    const char *name;
    const json_t *parameters; /* the schema; NULL: an empty object */
    int strict;
} tool;

/* Immutable once read. */
typedef struct tool_set {
    json_t *list; /* as the client sent it: what the strings belong to */
    int n;
    tool tools[];
} tool_set;

/* OpenAI's array of tools (not empty) -> *out.  KVANT_EINVAL names the item and what is wrong with it. */
int tool_set_read(const json_t *list, tool_set **out, kvant_diag *diag);
void tool_set_free(tool_set *s);
int tool_set_find(const tool_set *s, const char *name, size_t n); /* -1: there is none */
/* Whether a parameter is written as plain text where the dialect has a way to: a string without other constraints than
 * a list of values. */
int tool_param_is_text(const tool *t, const char *name, size_t n);
/* The values that such a text may have; NULL: any. */
const json_t *tool_param_values(const json_t *schema);
int tool_schema_is_text(const json_t *schema);

#endif
