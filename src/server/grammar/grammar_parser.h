/* server/grammar/grammar_parser.h: a grammar's text while it is read, shared by grammar_parse.c and grammar_chars.c.
 * Functions that append do so to the open frame. */
#ifndef KVANT_SERVER_GRAMMAR_PARSER_H
#define KVANT_SERVER_GRAMMAR_PARSER_H

#include "server/grammar/grammar_internal.h"

enum { MAX_RANGES = 4096 }; /* of a character class */
enum { SET_BUCKETS = 1024 };

typedef struct span {
    const char *s;
    int n;
} span;

typedef struct range {
    uint32_t lo, hi;
} range;

/* The elements of one rule while it is read. */
typedef struct frame {
    int rule;
    gram_elem *e;
    int n, cap;
    int item; /* where the last item begins: what * + ? {} repeat; -1: none */
} frame;

typedef struct parser {
    grammar *g;
    const char *s, *end;
    int line;
    span *names; /* [rule]; n == 0: made by the parser */
    int cap_names;
    int *hash, buckets; /* rule + 1, open addressing */
    int set_hash[SET_BUCKETS]; /* a byte set + 1 of that hash */
    int64_t spent;             /* units of GRAMMAR_FUEL_COMPILE */
    frame frames[GRAMMAR_MAX_GROUPS + 1];
    int depth; /* index of the open frame */
    range ranges[MAX_RANGES];
    int n_ranges;
    kvant_diag *diag;
} parser;

/* ---- grammar_parse.c ---- */
int parse_bad(parser *p, const char *what);
int parse_spend(parser *p, int64_t units); /* KVANT_EINVAL beyond the limit */
int parse_put_elem(parser *p, int type, uint32_t value);
int parse_put_set(parser *p, const byte_set *set, uint32_t *index); /* the set's index; appends nothing */
int parse_put_byte(parser *p, int lo, int hi);                      /* one byte of lo..hi */
int parse_open_group(parser *p);
int parse_close_group(parser *p); /* it becomes one item of the frame below */

/* ---- grammar_chars.c: from the character behind the opening one ---- */
int parse_literal(parser *p);
int parse_class(parser *p);
int parse_any(parser *p);

#endif
