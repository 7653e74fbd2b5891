/* text/jinja/jinja.h: a bounded interpreter of the Jinja2 language that chat templates use.
 *
 * A template is parsed once into instructions (immutable, any thread) and run many times.  A run owns all values and
 * its memory; one thread.  Nothing outside is reachable: no file, no import, no attribute but dict items and the fixed
 * lists of methods.  The table of limits below bounds the cost of a run.
 * Every byte of the output knows where it came from: the template (JINJA_TEMPLATE) or the data (JINJA_DATA), through
 * concatenation, slices, trim, replace, upper, ...: control tokens are parsed in template text only. */
#ifndef KVANT_TEXT_JINJA_H
#define KVANT_TEXT_JINJA_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "base/error.h"

/* Limits of a template's cost.  A step takes some 20 ns: an instruction, an item or a key that is looked at, 64 bytes
 * that are made or copied (the arena counts them), 16 that are read as characters. */
enum {
    JINJA_MAX_SOURCE = 1 << 20,  /* bytes of a template; the longest in use has 30,000 */
    JINJA_MAX_NESTING = 100,     /* of expressions; blocks count twice: the parser recurses, on 64 KiB of stack */
    JINJA_MAX_CODE = 1 << 20,    /* instructions */
    JINJA_MAX_STEPS = 4000000,   /* ends any loop in under 100 ms; 10,000 messages take about 1,000,000 */
    JINJA_MAX_OUTPUT = 16 << 20, /* bytes; a body of a request has at most 8 MiB */
    JINJA_MAX_MEMORY = 128 << 20, /* bytes of all values of a run: the data, the output and what is made between */
    JINJA_MAX_STACK = 4096,      /* values under work: a list literal needs one each */
    JINJA_MAX_CALLS = 200,       /* macros in macros; a schema of tools nests about ten deep */
    JINJA_MAX_DEPTH = 64,        /* of lists in lists, as in a request's body: printing and comparing recurse */
    JINJA_MAX_RANGE = 100000,    /* numbers of range(), as jinja2's sandbox */
};

enum jinja_origin { JINJA_TEMPLATE = 0, JINJA_DATA = 1 };

typedef struct jinja jinja;
typedef struct jinja_run jinja_run;

/* source[n] -> a template.  KVANT_EFORMAT: not a template, with line and column; KVANT_ENOMEM. */
int jinja_parse(const char *source, size_t n, jinja **out, kvant_diag *diag);
void jinja_free(jinja *t);
/* The first construct that is not known, with line and column; NULL: none.  A run that comes to it ends there. */
const char *jinja_unknown(const jinja *t);

int jinja_run_open(const jinja *t, jinja_run **out, kvant_diag *diag);
void jinja_run_close(jinja_run *r);
/* The clock of strftime_now; without it the time of the call. */
void jinja_run_clock(jinja_run *r, time_t now);
/* Variables of the template.  json[n]: any JSON value; its strings are data.  KVANT_EINVAL: not JSON. */
int jinja_set_json(jinja_run *r, const char *name, const char *json, size_t n, kvant_diag *diag);
int jinja_set_string(jinja_run *r, const char *name, const char *s, size_t n, enum jinja_origin origin,
                     kvant_diag *diag);
int jinja_set_bool(jinja_run *r, const char *name, int v, kvant_diag *diag);
int jinja_set_none(jinja_run *r, const char *name, kvant_diag *diag);

/* Output: text[n] with a NUL behind; origin[i] is that of text[i].  Both live as long as the run. */
typedef struct jinja_text {
    const char *text;
    const uint8_t *origin;
    size_t n;
} jinja_text;

/* Once per run.  KVANT_EINVAL: the template refused (raise_exception), failed (with line and column), or passed a
 * limit; KVANT_EUNSUPPORTED: it came to a construct that is not known; KVANT_ENOMEM. */
int jinja_render(jinja_run *r, jinja_text *out, kvant_diag *diag);

#endif
