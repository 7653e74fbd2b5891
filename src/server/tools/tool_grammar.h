/* server/tools/tool_grammar.h: the calls that a request allows, as GBNF: what tool_parser.h reads and nothing else. */
#ifndef KVANT_SERVER_TOOLS_TOOL_GRAMMAR_H
#define KVANT_SERVER_TOOLS_TOOL_GRAMMAR_H

#include "base/text/sbuf.h"
#include "server/tools/dialect.h"
#include "server/tools/tool_set.h"

typedef struct tool_rules {
    const dialect *d;
    const tool_set *tools;
    int only;          /* index of the one tool that may be called; -1: any */
    int several;       /* more than one call may come */
    int from_start;    /* 0: the grammar begins behind the trigger; 1: with the answer */
    const thinking *t; /* from_start: a thought may come before the call; NULL: none */
    const struct json_t *format; /* from_start: a schema of JSON that may come instead of calls; NULL: none */
} tool_rules;

/* *gbnf: kvant_free.  KVANT_EINVAL names the tool and what of it cannot be said. */
int tool_grammar(const tool_rules *r, char **gbnf, kvant_diag *diag);

/* ---- tool_grammar_texts.c ---- */
/* The pattern's first alternative, or what of it stands behind the trigger. */
void rule_pattern(sbuf *b, const char *p, int rest);
void rule_alternatives(sbuf *b, const char *p);
/* Any text up to `end` and end itself, as rules <name>0.. (one for each part of `end` that has come, as in the search
 * of Knuth, Morris and Pratt): what stands in between never holds `end`. */
void rule_until(sbuf *b, const char *name, const char *end);

#endif
