/* server/tools/tool_parser_impl.h: shared by tool_parser.c, tool_frame.c, tool_args.c, tool_loose.c and tool_thought.c.
 * Functions that return 1 made progress; 0: more text is wanted. */
#ifndef KVANT_SERVER_TOOLS_TOOL_PARSER_IMPL_H
#define KVANT_SERVER_TOOLS_TOOL_PARSER_IMPL_H

#include "server/tools/tool_parser.h"

enum {
    PARSER_MOST_REREAD = 1 << 20, /* bytes of what was no call: then other forms are looked for no more */
    PARSER_MOST_BLANKS = 256,     /* in a row, before an end marker or the next call */
    PARSER_HEAD = 400,            /* of one: text behind its first byte, if it has fewer */
};
/* The front of `held` is known to begin no call of the dialect, or none in any form. */
enum { PLAIN_NOT, PLAIN_TRIGGER, PLAIN_ALL };

/* ---- tool_parser.c ---- */
void parser_emit(tool_parser *p, int event, const char *s, size_t n);
void parser_text(tool_parser *p, int event, const char *s, size_t n); /* without blanks around it */
/* pattern_match at the front of what is held; at the end of the output a part is none. */
int parser_try(const tool_parser *p, const char *pattern, int part, size_t *used);
int parser_try_both(const tool_parser *p, const char *a, const char *b, size_t *used);
/* The next n bytes belong to the call: they are text again, should it be none. */
void parser_take(tool_parser *p, size_t n);
int parser_skip_blanks(tool_parser *p); /* 1: there were some */
void parser_to(tool_parser *p, enum tool_state state);
/* The text since the trigger is no call: text; with PLAIN_TRIGGER or PLAIN_ALL it is read once more. */
int parser_not_a_call(tool_parser *p, int plain);
int parser_line_starts(const tool_parser *p);

/* ---- tool_frame.c: what stands around the arguments in the dialect's own form ---- */
int parser_begins(tool_parser *p, int *wait); /* 1: a call begins here */
int parser_in_frame(tool_parser *p);
/* MATCH_FULL: a name of n bytes, and what follows is none of it. */
int parser_read_name(const tool_parser *p, size_t *n);
int parser_begins_name(const tool_set *tools, const char *s, size_t n); /* 1: one of a tool begins so */
int parser_buffers(const tool_parser *p);
void parser_tell_call(tool_parser *p); /* where a grammar holds: before its arguments */
/* The arguments are complete; 0: they are no object, or lack what the tool requires. */
int parser_call_done(tool_parser *p);
/* The output is about to end, has ended within a call. */
void parser_before_end(tool_parser *p);
void parser_end_call(tool_parser *p);

/* ---- tool_args.c ---- */
void parser_begin_arguments(tool_parser *p);
int parser_in_arguments(tool_parser *p);

/* ---- tool_loose.c ---- */
int parser_begins_loose(tool_parser *p, int *wait);
int parser_in_loose(tool_parser *p);
void parser_end_loose(tool_parser *p);
/* A call of keys and values in another form than the dialect's is whole.  1; 0: it is none. */
int parser_form_done(tool_parser *p);
void parser_forget_calls(tool_parser *p); /* those that were found and not told; the dialect's form is read again */
int parser_idle(const tool_parser *p); /* in no call */
int parser_end_marker(const tool_parser *p, size_t *used); /* one that ends calls, behind blanks */
int parser_marker(const tool_parser *p, size_t *used); /* a marker of calls, of any dialect: MATCH_* */

/* ---- tool_thought.c ---- */
int parser_begins_in_thought(tool_parser *p, int *wait);
int parser_in_thought_call(tool_parser *p);
void parser_end_thought_call(tool_parser *p);
void parser_thought_free(tool_parser *p);

#endif
