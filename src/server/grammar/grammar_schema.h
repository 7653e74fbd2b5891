/* server/grammar/grammar_schema.h: a JSON schema on its way to a grammar, shared by grammar_schema.c,
 * schema_values.c and schema_groups.c.  `at` is a sub-schema's place in the queue; errors name its path. */
#ifndef KVANT_SERVER_GRAMMAR_SCHEMA_H
#define KVANT_SERVER_GRAMMAR_SCHEMA_H

#include <jansson.h>
#include "server/grammar/grammar.h"
#include "base/text/sbuf.h"

enum { MAX_PATH = 160, SCHEMA_WORK = 2000000 }; /* WORK: keywords looked at to merge them: half a second */

/* A schema with a keyword that is not supported: an error; or any value, or any object, in its place. */
enum { SCHEMA_STRICT, SCHEMA_LOOSE, SCHEMA_LOOSE_OBJECT };

typedef struct schema_job {
    const json_t *schema, *root; /* root: what its references point into */
    const json_t *origin;        /* as it stands there; schema becomes what it says with all that it refers to */
    int loose;
    const json_t *needs; /* of SCHEMA_LOOSE_OBJECT: names of the members that any object has; or NULL */
    char path[MAX_PATH];
} schema_job;

/* All 0 but out.max and diag to begin with. */
typedef struct schema_maker {
    schema_job *jobs; /* [n]: sub-schema i is rule s<i> */
    int n, cap;
    sbuf out;
    sbuf shared;  /* rules that several sub-schemas use */
    int apart, work; /* within schema_check_apart; so much was merged */
    json_t *made; /* schemas of ours; NULL before the first */
    /* Other spellings of what JSON has, as alternatives of a rule; NULL: none. */
    const char *more_strings, *more_booleans, *more_nulls;
    kvant_diag *diag;
} schema_maker;

/* ---- grammar_schema.c ---- */
/* A schema of its own as rule s<rule>; path names it in errors.  schema_finish writes the rules of all of them and what
 * they use: among others ws, blanks as JSON has them. */
int schema_add_root(schema_maker *m, const json_t *schema, const json_t *root, const char *path, int loose, int *rule);
int schema_finish(schema_maker *m);
void schema_free(schema_maker *m);
void schema_put_text(sbuf *b, const char *s, size_t n); /* as a literal */
int schema_fail(const schema_maker *m, int at, const char *key, const char *what);
/* The rule of a sub-schema: a new one, or the one it already has. */
int schema_rule(schema_maker *m, const json_t *schema, int from, const char *key, int *rule);
int schema_put_child(schema_maker *m, int at, const json_t *schema, const char *key); /* a reference to its rule */
int schema_put_json(schema_maker *m, const json_t *v); /* a JSON value, as its text without blanks */
int schema_listed(const char *word, const char *const *list);
/* A non-negative count of at most GRAMMAR_MAX_REPEAT; missing: `none`. */
int schema_count(const schema_maker *m, int at, const char *key, int none, int *v);
/* constrains: a keyword says what is valid; known: all of a schema's are, or an error names the first that is not. */
int schema_constrains(const char *key);
int schema_known_words(const schema_maker *m, int at, const json_t *schema);
int schema_made(schema_maker *m, json_t *v); /* keeps v, whose reference it takes; NULL: no memory */

/* ---- schema_merge.c ---- */
/* Joins a schema with all that it refers to and allOf into one object: const as enum, types as lists, oneOf as
 * anyOf.  *flat lives as long as m. */
int schema_flatten(schema_maker *m, int at, const json_t *schema, json_t **flat);
/* "#/$defs/Name" -> the schema that it points to, or NULL.  In a URI %3C is "<"; names that came as they are do too. */
const json_t *schema_pointed(const json_t *root, const char *ref);
int schema_reference(const schema_maker *m, int at, const json_t *ref, const json_t **schema);

/* ---- schema_accept.c ---- */
int schema_same(const json_t *a, const json_t *b); /* equal as JSON schema has it: 1 and 1.0 are */
/* 1: v is valid against a flat schema; 0: it is not; KVANT_EINVAL: a keyword that cannot be looked at here. */
int schema_allows(const schema_maker *m, int at, const json_t *flat, const json_t *v);
/* KVANT_OK: what comes out for one of the schemas is valid against none of the others. */
int schema_check_apart(schema_maker *m, int at, const json_t *list);
/* All values of a flat schema, where they are few; else NULL. */
json_t *schema_values(schema_maker *m, int at, const json_t *flat);

/* ---- schema_numbers.c ---- */
int schema_put_integer(schema_maker *m, int at);
void schema_put_int64(sbuf *b); /* the rule `integer` */
int schema_put_number(schema_maker *m, int at);

/* ---- schema_values.c ---- */
int schema_put_string(schema_maker *m, int at);
extern const char schema_format_rules[]; /* of formats */

/* ---- schema_groups.c ---- */
int schema_put_array(schema_maker *m, int at, sbuf *later);
/* The members' rules are written behind the rule that refers to them, into `later`. */
int schema_put_object(schema_maker *m, int at, sbuf *later);

#endif
