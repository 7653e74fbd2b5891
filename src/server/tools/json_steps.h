/* server/tools/json_steps.h: steps over JSON as models write it, for tool_json.c and tool_json_calls.c. */
#ifndef KVANT_SERVER_TOOLS_JSON_STEPS_H
#define KVANT_SERVER_TOOLS_JSON_STEPS_H

#include "base/text/sbuf.h"

typedef struct json_steps {
    const char *s, *end;
    sbuf *out;
    int depth;
} json_steps;

static inline int json_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline int json_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '+' || c == '.';
}

static inline void json_skip(json_steps *r)
{
    while (r->s < r->end && json_is_blank(*r->s))
        r->s++;
}

static inline int json_at(json_steps *r, char c)
{
    json_skip(r);
    return r->s < r->end && *r->s == c;
}

/* Length of the word at r->s. */
static inline size_t json_word(const json_steps *r)
{
    size_t n = 0;

    while (r->s + n < r->end && (json_is_word(r->s[n]) || r->s[n] == '/'))
        n++;
    return n;
}

#endif
