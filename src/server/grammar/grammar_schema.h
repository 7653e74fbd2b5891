/* server/grammar/grammar_schema.h: a JSON schema on its way to a grammar, shared by grammar_schema.c,
 * schema_values.c and schema_groups.c.  `at` is a sub-schema's place in the queue; errors name its path. */
#ifndef KVANT_SERVER_GRAMMAR_SCHEMA_H
#define KVANT_SERVER_GRAMMAR_SCHEMA_H

#include <jansson.h>
#include "server/grammar/grammar.h"
#include "base/text/sbuf.h"

enum { MAX_PATH = 160 };

/* A schema with a keyword that is not supported: an error; or any value, or any object, in its place. */
enum { SCHEMA_STRICT, SCHEMA_LOOSE, SCHEMA_LOOSE_OBJECT };

typedef struct schema_job {
    const json_t *schema, *root; /* root: what its references point into */
    int loose;
    char path[MAX_PATH];
} schema_job;

/* All 0 but out.max and diag to begin with. */
typedef struct schema_maker {
    schema_job *jobs; /* [n]: sub-schema i is rule s<i> */
    int n, cap;
    sbuf out;
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
const char *schema_first_of(const json_t *schema, const char *const *list);
/* A non-negative count of at most GRAMMAR_MAX_REPEAT; missing: `none`. */
int schema_count(const schema_maker *m, int at, const char *key, int none, int *v);
extern const char *const schema_number_words[]; /* minimum first */

/* ---- schema_values.c ---- */
int schema_put_integer(schema_maker *m, int at);
int schema_put_number(schema_maker *m, int at);
int schema_put_string(schema_maker *m, int at);

/* ---- schema_groups.c ---- */
int schema_put_array(schema_maker *m, int at);
/* The members' rules are written behind the rule that refers to them, into `later`. */
int schema_put_object(schema_maker *m, int at, sbuf *later);

#endif
