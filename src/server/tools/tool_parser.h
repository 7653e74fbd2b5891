/* server/tools/tool_parser.h: a model's output, in any pieces, to text, thoughts and tool calls.
 *
 * A call is told as soon as it is sure: where a grammar holds the model to the dialect (`guarded`), from its name on,
 * in pieces; else when its arguments are whole and JSON.  Text that turns out to be no call is told as it came: never
 * half of a call.  Blanks around texts and thoughts are left out.  Joined, the events of one output do not depend on
 * how it was cut.  One thread at a time.
 *
 * Read are, beside the dialect's own text (tool_frame.c):
 *   - other markers, other orders of keys, fences, lists, Python's spelling (tool_loose.c);
 *   - calls without a marker, at the beginning of a line, when nothing but calls follows;
 *   - calls in a thought that was not ended, when nothing but calls follows (tool_thought.c). */
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
    PARSE_COLLECT,
    PARSE_PYTHON,
    PARSE_VALUE_END,
    PARSE_AFTER,
    PARSE_NEXT,
    PARSE_LOOSE,   /* it looks like a call, in another form than the dialect's */
    PARSE_THOUGHT, /* the same within a thought */
};

typedef struct tool_parser {
    const dialect *d;  /* NULL: no calls */
    const thinking *t; /* NULL: no thoughts */
    const tool_set *tools;
    void (*emit)(void *user, int event, const char *s, size_t n); /* NULL: only the state is of interest */
    void *user;
    int guarded; /* a grammar holds from the dialect's trigger on */
    int wanted;  /* the output is nothing but thoughts and calls: what is cut of them is not shown */
    int strict;  /* only the dialect's own form is read */
    int cut;     /* set before the end: the output was cut, and did not end by itself */
    /* own */
    enum tool_state state;
    const dialect *f; /* the form that is read: d, or one that a call in another form has */
    sbuf held;   /* what came and is not decided */
    sbuf raw;    /* of a call that is not sure yet: text, if it is none */
    sbuf args;   /* of such a call */
    sbuf blanks; /* of a text: they count only when more of it comes */
    int broken;  /* there is a line break among them */
    sbuf value;  /* of a parameter that may be JSON */
    char name[PARAM_NAME_MOST + 1];
    size_t at; /* of held: decided up to here */
    int said;  /* the text, or the thought, has more than blanks */
    int wrote; /* any text or call came */
    int rest;  /* the trigger has come: its pattern is matched from there on */
    int other; /* the call began in another form: no grammar holds it */
    int plain; /* what is held begins with a trigger that began no call of the dialect, or none at all (PLAIN_*) */
    int final; /* nothing more comes */
    size_t reread; /* bytes that were looked at again */
    int told;   /* a call's name is out: the rest goes out as it comes */
    int mended; /* a value ended without its marker: the dialect's grammar reads on in it */
    int n_calls, tool, n_params, quoted, marks;
    int typed; /* the type that stands beside the value: 0 text, 1 and more JSON, -1 none */
    struct {
        int depth, in_string, escaped, kind;
    } json;
    struct {
        int phase, depth, quote, escaped, openers, weak, at_end, tool, n;
        size_t from;
        json_t *calls;
    } loose;
    struct tool_parser *sub; /* of PARSE_THOUGHT */
    struct thought_calls *found;
} tool_parser;

/* After d, t, tools, emit and user are set, all else 0.  thinks: the prompt has begun a thought. */
void tool_parser_begin(tool_parser *p, int thinks);
void tool_parser_free(tool_parser *p);
/* KVANT_OK or KVANT_ENOMEM. */
int tool_parser_feed(tool_parser *p, const char *s, size_t n);
int tool_parser_end(tool_parser *p); /* nothing more comes: what was held is text */
/* In the frame of a call, in the dialect's own form: its trigger has come, and no byte of its arguments. */
int tool_parser_framed(const tool_parser *p);
/* Returns 1 if s[n] behind the text so far could go on as a call, in any form that is read. */
int tool_parser_goes_on(const tool_parser *p, const char *s, size_t n);
/* Returns 1 if s[n] completes the call that has come; without s: if the output may end here, its calls complete. */
int tool_parser_completes(const tool_parser *p, const char *s, size_t n);

#endif
