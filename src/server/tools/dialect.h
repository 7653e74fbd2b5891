/* server/tools/dialect.h: how models write tool calls and thoughts, as data.  One row of `dialects` describes both what
 * the parser reads (tool_parser.h) and what the grammar allows (tool_grammar.h), so that the two cannot differ.
 *
 * An answer with calls is   open  before NAME middle ARGUMENTS after  (between  before ... after)*  close.
 * In these texts
 *   ' '   stands for blanks, also none,
 *   '\n'  for one line break,
 *   '^'   ends the trigger: text that, once written, is a call (in `open`, else in `before`),
 *   '%'   for 1 to DIALECT_MOST_ID letters and digits (an id that nobody needs),
 *   '~'   for what an XML tag may have up to its '>' (in other forms only),
 *   '\v'  separates alternatives (`middle`, `after`, `also`, `drop` and `hint` only); a grammar has the first.
 *
 * A text that is NULL is empty.  Constant data; any thread. */
#ifndef KVANT_SERVER_TOOLS_DIALECT_H
#define KVANT_SERVER_TOOLS_DIALECT_H

#include <stddef.h>

enum { DIALECT_MOST_ID = 10 };

/* Arguments that are not one JSON object:  key NAME value VALUE end (between key ...)*.  A VALUE is JSON; a plain text
 * stands bare, up to `end` (bare 1: tool_schema.h says when), or between two `quote`s. */
typedef struct dialect_args {
    const char *key, *value, *end, *between;
    /* value: with alternatives, the first stands before plain text and the others before JSON, but for one with '~' */
    const char *quote; /* NULL: texts are JSON strings */
    int bare;
    const char *lines; /* values stand on lines of their own: the end, also with a line break before it; NULL: not */
    const char *wrap, *unwrap; /* around a bare text that could not stand alone (CDATA), if it is written; NULL: none */
} dialect_args;

typedef struct dialect {
    const char *name;
    const char *open, *before, *middle, *after, *between, *close;
    const dialect_args *args; /* NULL: a JSON object */
    const char *also;         /* other text up to the name, of which a part of the frame is forgotten */
    const char *lead;         /* written before a call that the request demands */
    const char *drop;         /* texts that belong to the format and not to the answer */
    const char *hint;         /* what templates that write no calls tell of it */
    int at_start;             /* only an answer that begins with the trigger is a call */
    int by_name;              /* nor is the trigger enough: a call begins with a tool's name behind it */
    int single;               /* one call an answer */
    int short_ids;            /* its templates want ids of 9 letters and digits */
} dialect;

typedef struct thinking {
    const char *name;
    const char *begin, *end;
    const char *then; /* what follows the end before a call */
    const char *drop; /* as dialect.drop */
} thinking;

int dialect_count(void);
const dialect *dialect_at(int i);
const dialect *dialect_named(const char *name); /* NULL: there is none */
/* Forms of keys and values that any dialect's calls may have (args and after; the others are NULL). */
int dialect_form_count(void);
const dialect *dialect_form(int i);
int thinking_count(void);
const thinking *thinking_at(int i);

enum { MATCH_NO = -1, MATCH_PART = 0, MATCH_FULL = 1 };
/* Says if s[n] begins with the pattern (its alternatives: the longest that is complete), could still become it, or
 * cannot.  *used: bytes of it when it does; with MATCH_PART those of an alternative that is complete, or 0.
 * only_trigger: up to '^'; skip_trigger: from there on. */
enum { PATTERN_ALL, PATTERN_TRIGGER, PATTERN_REST };
int pattern_match(const char *pattern, int part, const char *s, size_t n, size_t *used);
/* Returns 1 if c may stand in the name of a tool or of a parameter. */
int dialect_name_char(char c);

#endif
