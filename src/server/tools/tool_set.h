/* server/tools/tool_set.h: the tools of a request, checked: names, and how each parameter is written. */
#ifndef KVANT_SERVER_TOOLS_TOOL_SET_H
#define KVANT_SERVER_TOOLS_TOOL_SET_H

#include <jansson.h>
#include "base/text/sbuf.h"
#include "kvant/error.h"

enum { TOOLS_MOST = 512, TOOL_NAME_MOST = 64, PARAM_NAME_MOST = 128 };

typedef struct tool {
    const char *name;
    const json_t *parameters; /* the schema; NULL: an empty object */
    json_t *properties;       /* of it, and of the schemas that it refers to and combines */
    json_t *required;         /* names */
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
/* Returns 1 if an object has every parameter that the tool requires, of whatever type. */
int tool_has_required(const tool *t, const json_t *arguments);
/* The schema of a parameter; NULL: any value. */
const json_t *tool_param(const tool *t, const char *name, size_t n);
/* A value of a parameter as it stands between the markers of a dialect of keys and values (tool_schema.h), as JSON
 * appended to *out; 0: it is none that the parameter accepts. */
int tool_param_value(const tool *t, const char *name, size_t name_n, const char *s, size_t n, sbuf *out);
/* Only texts are accepted: what stands there is one, whatever it looks like. */
int tool_param_is_text(const tool *t, const char *name, size_t n);

#endif
