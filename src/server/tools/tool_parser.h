/* server/tools/tool_parser.h: a model's output, in any pieces, to text, thoughts and tool calls.
 *
 * Whatever is not a call from its trigger to its name is text, as it came.  Blanks around texts and thoughts are left
 * out.  Joined, the events of one output do not depend on how it was cut.  One thread at a time. */
#ifndef KVANT_SERVER_TOOLS_TOOL_PARSER_H
#define KVANT_SERVER_TOOLS_TOOL_PARSER_H

#include "base/text/sbuf.h"
#include "server/tools/dialect.h"
#include "server/tools/tool_set.h"

enum {
    TOOL_TEXT,  /* s[n]: more text */
    TOOL_THINK, /* s[n]: more of a thought */
    TOOL_CALL,  /* a call of the tool with this name begins */
    TOOL_ARGS,  /* s[n]: more of its arguments (JSON) */
    TOOL_END,   /* its arguments are complete */
};

enum tool_state {
    PARSE_THINK,
    PARSE_TEXT,
    PARSE_OPEN, /* from here on: in a call */
    PARSE_BEFORE,
    PARSE_NAME,
    PARSE_MIDDLE,
    PARSE_JSON, /* the arguments, or one value of them */
    PARSE_KEY,
    PARSE_KEY_NAME,
    PARSE_VALUE,
    PARSE_RAW,
    PARSE_VALUE_END,
    PARSE_AFTER,
    PARSE_NEXT,
};

typedef struct tool_parser {
    const dialect *d;  /* NULL: no calls */
    const thinking *t; /* NULL: no thoughts */
    const tool_set *tools;
    void (*emit)(void *user, int event, const char *s, size_t n); /* NULL: only the state is of interest */
    void *user;
    /* own */
    enum tool_state state;
    sbuf held;   /* what came and is not decided */
    sbuf raw;    /* of a call whose name has not come: text, if it is none */
    sbuf blanks; /* of a text: they count only when more of it comes */
    char name[TOOL_NAME_MOST + 1];
    size_t at; /* of held: decided up to here */
    int said;  /* the text, or the thought, has more than blanks */
    int wrote; /* any text or call came */
    int rest;  /* the trigger has come: its pattern is matched from there on */
    int final; /* nothing more comes */
    int n_calls, tool, n_params, quoted;
    struct {
        int depth, in_string, escaped, kind;
    } json;
} tool_parser;

/* After d, t, tools, emit and user are set, all else 0.  thinks: the prompt has begun a thought. */
void tool_parser_begin(tool_parser *p, int thinks);
void tool_parser_free(tool_parser *p);
/* KVANT_OK or KVANT_ENOMEM. */
int tool_parser_feed(tool_parser *p, const char *s, size_t n);
int tool_parser_end(tool_parser *p); /* nothing more comes: what was held is text */
/* From here on no call begins; one whose name has not come is text. */
void tool_parser_no_calls(tool_parser *p);

#endif
