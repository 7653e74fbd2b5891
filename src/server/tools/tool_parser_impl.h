/* server/tools/tool_parser_impl.h: shared by tool_parser.c and tool_args.c. */
#ifndef KVANT_SERVER_TOOLS_TOOL_PARSER_IMPL_H
#define KVANT_SERVER_TOOLS_TOOL_PARSER_IMPL_H

#include "server/tools/tool_parser.h"

/* ---- tool_parser.c ---- */
void parser_emit(tool_parser *p, int event, const char *s, size_t n);
/* pattern_match at the front of what is held; at the end of the output a part is none. */
int parser_try(const tool_parser *p, const char *pattern, int part, size_t *used);
int parser_try_both(const tool_parser *p, const char *a, const char *b, size_t *used);
int parser_skip_blanks(tool_parser *p); /* 1: there were some */
/* MATCH_FULL: a name of n bytes, and what follows is none of it. */
int parser_read_name(tool_parser *p, size_t *n);
void parser_give_up(tool_parser *p); /* a call that is not one in the end: what follows is text */

/* ---- tool_args.c ---- */
void parser_begin_arguments(tool_parser *p);
int parser_in_arguments(tool_parser *p); /* a step, as progress */

#endif
