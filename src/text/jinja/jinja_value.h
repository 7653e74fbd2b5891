/* text/jinja/jinja_value.h: values of templates and the arena they live in.
 * Values are immutable but for lists and dicts while they are built, namespaces, and list.append. */
#ifndef KVANT_TEXT_JINJA_VALUE_H
#define KVANT_TEXT_JINJA_VALUE_H

#include "text/jinja/jinja.h"

/* ---- memory: chunks, freed as a whole ---- */

typedef struct jarena {
    struct jchunk *chunks;
    char *at, *end;
    size_t total, most;
    int full;      /* `most` was reached */
    int metered;   /* of a run: nothing more when its steps are spent */
    int64_t steps; /* that are left */
} jarena;

/* NULL: out of memory, above `most`, or no steps left.  16-byte aligned; every 64 bytes are a step. */
void *jarena_alloc(jarena *a, size_t bytes);
void jarena_free(jarena *a);

/* ---- values ---- */

enum jtype { J_UNDEF, J_NONE, J_BOOL, J_INT, J_FLOAT, J_STR, J_LIST, J_TUPLE, J_DICT, J_SPACE, J_LOOP, J_MACRO,
             J_BOUND, J_FUNCTION };

/* Origin of a string's bytes: all of one, or by a mask of n bytes. */
enum { J_MIXED = 2 };

typedef struct jstr {
    const char *s;
    const uint8_t *mask; /* origin J_MIXED only */
    uint32_t n;
    uint8_t origin;
    uint8_t markup; /* of the filters safe and escape: what is added to it with + is escaped, as markupsafe does */
} jstr;

typedef struct jval {
    enum jtype type;
    uint32_t wide; /* J_FLOAT of a number that no 64 bits hold: its text is run.wide[wide - 1]; 0: none */
    union {
        int b;
        int64_t i;
        double f;
        const jstr *s;       /* J_STR; J_UNDEF: what is undefined, or NULL */
        struct jlist *l;     /* J_LIST, J_TUPLE */
        struct jdict *d;     /* J_DICT, J_SPACE */
        struct jloop *loop;
        struct jmacro *macro;
        struct jbound *bound; /* a method and its object */
        const struct jbuiltin *fn;
    } u;
} jval;

typedef struct jlist {
    jval *v;
    size_t n, cap;
    int fixed; /* data of the caller: append is refused */
    int lazy;  /* Python's generator (map, select, ...): true even when empty, gone through once, no length */
    const char *view; /* Python's name of what is no list: dict_items, dict_keys, dict_values, range; NULL: a list */
} jlist;

typedef struct jdict {
    jval *keys, *vals;
    size_t n, cap;
    uint32_t *index; /* hash -> place + 1; NULL while the dict is small */
    size_t n_index;
} jdict;

#define J_NONE_VALUE ((jval){ .type = J_NONE })
#define J_UNDEF_VALUE ((jval){ .type = J_UNDEF })

static inline jval j_bool(int b)
{
    return (jval){ .type = J_BOOL, .u.b = b != 0 };
}

static inline jval j_int(int64_t i)
{
    return (jval){ .type = J_INT, .u.i = i };
}

static inline jval j_float(double f)
{
    return (jval){ .type = J_FLOAT, .u.f = f };
}

static inline int j_is_list(jval v)
{
    return v.type == J_LIST || v.type == J_TUPLE;
}

/* A list or tuple itself: no generator, no view. */
static inline int j_is_plain(jval v)
{
    return j_is_list(v) && !v.u.l->lazy && !v.u.l->view;
}

/* It has places: items by number, slices. */
static inline int j_has_places(jval v)
{
    return j_is_list(v) && !v.u.l->lazy && (!v.u.l->view || v.u.l->view[0] == 'r');
}

static inline int j_is_number(jval v)
{
    return v.type == J_BOOL || v.type == J_INT || v.type == J_FLOAT;
}

static inline double j_number(jval v)
{
    return v.type == J_FLOAT ? v.u.f : v.type == J_INT ? (double)v.u.i : v.u.b;
}

/* Integer of a bool or an int. */
static inline int64_t j_integer(jval v)
{
    return v.type == J_BOOL ? v.u.b : v.u.i;
}

int jstr_is(const jstr *s, const char *text);
/* These return 0 when there is no memory. */
int j_string(jarena *a, const char *s, size_t n, int origin, jval *out); /* copies */
int j_list(jarena *a, size_t cap, jval *out);                            /* J_LIST, empty */
int j_dict(jarena *a, size_t cap, jval *out);                            /* empty */
int jlist_add(jarena *a, jlist *l, jval v);

/* Keys are strings, numbers, bools, None and tuples; jdict_put replaces the value of an equal key.
 * *steps goes down by the bytes and places looked at.  If none are left the result is wrong: the caller has to
 * look, or to charge, before it goes on. */
int jdict_put(jarena *a, jdict *d, jval key, jval v, int64_t *steps);
jval *jdict_get(const jdict *d, jval key, int64_t *steps);
jval *jdict_text(const jdict *d, const char *key);
/* Equality of keys, 1 == 1.0 == True as in Python. */
int jkey_equal(jval a, jval b);

#endif
