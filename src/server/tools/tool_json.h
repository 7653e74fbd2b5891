/* server/tools/tool_json.h: JSON as models write it, and the calls that it tells of. */
#ifndef KVANT_SERVER_TOOLS_TOOL_JSON_H
#define KVANT_SERVER_TOOLS_TOOL_JSON_H

#include "base/text/sbuf.h"
#include "server/tools/tool_set.h"

/* s[n] as JSON text appended to *out: texts in either quote and with line breaks in them, Python's True, False and
 * None, commas too many, and calls NAME(KEY=VALUE) as {"name": NAME, "arguments": {KEY: VALUE}}.
 * 1: all of s was read. */
int tool_json_normal(const char *s, size_t n, sbuf *out);
/* One JSON value of any type; NULL: it is none. */
json_t *tool_json_read(const char *s, size_t n);
/* Arguments as a model wrote them, an object or a text that holds one -> *out gets the object; 0: it is neither, or
 * lacks a parameter that the tool requires. */
int tool_json_arguments(const char *s, size_t n, const tool *t, sbuf *out);
/* A value as text, numbers with as few digits as give them back. */
void tool_json_put(const json_t *v, sbuf *out);

/* The calls of a value, an object or a list of them, appended to `calls` as [index of the tool, arguments]; 0: it holds
 * something else, or arguments without a parameter that the tool requires.  Keys in any order, as they are known:
 * name, function, tool, tool_name; arguments, parameters, args, input; and type, id, index and the like, which say
 * nothing. */
int tool_json_calls(const json_t *v, const tool_set *tools, json_t *calls);
/* The tool that is meant by a name: also "functions.NAME"; -1: none. */
int tool_json_find(const tool_set *tools, const char *s, size_t n);
/* 0: s[n], the beginning of a value, cannot become calls of these tools. */
int tool_json_may_call(const char *s, size_t n, const tool_set *tools);

#endif
