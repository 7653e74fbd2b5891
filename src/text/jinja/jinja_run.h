/* text/jinja/jinja_run.h: a run of a template: its state, and what operators, filters and methods share. */
#ifndef KVANT_TEXT_JINJA_RUN_H
#define KVANT_TEXT_JINJA_RUN_H

#include "text/jinja/jinja_code.h"

/* Text that grows, with its origins.  mask is NULL while all bytes have one origin. */
typedef struct jbuf {
    char *s;
    uint8_t *mask;
    size_t n, cap;
    int origin;
} jbuf;

typedef struct jvar {
    int name;
    jval v;
} jvar;

typedef struct jscope {
    struct jscope *parent;
    jvar *vars;
    int n, cap;
    int kept; /* a macro was made in it and may look here later */
} jscope;

typedef struct jloop {
    struct jloop *outer;
    const jlist *items;
    size_t i; /* items handed out */
    int depth;
    jval changed; /* loop.changed */
    jlist *kept;  /* of a loop with a condition: the items that pass */
} jloop;

typedef struct jmacro {
    const jmacro_def *def;
    jscope *scope; /* where it was made */
} jmacro;

typedef struct jframe {
    struct jframe *outer;
    int pc, sp;
    jscope *scope;
    jloop *loop;
    const jmacro_def *def;
    uint32_t bound; /* parameters that the caller gave */
} jframe;

typedef struct jcapture {
    struct jcapture *outer;
    jbuf buf;
} jcapture;

struct jinja_run {
    const jinja *t;
    kvant_diag *diag;
    jarena mem; /* and the steps that are left */
    jval *stack;
    int sp, pc, calls, done;
    uint32_t pos; /* of the instruction that runs */
    jscope globals, *scope;
    jloop *loop;
    jframe *frame;
    jcapture base, *out;
    time_t now;
    int has_now, nesting;
    const char **wide; /* texts of numbers of the variables that are printed as they came */
    uint32_t n_wide;
};

/* ---- errors and limits ---- */

int j_fail(jinja_run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
int j_nomem(jinja_run *r); /* no memory, or JINJA_MAX_MEMORY passed */
int j_charge(jinja_run *r, size_t steps);
static inline int j_charge_bytes(jinja_run *r, size_t n)
{
    return j_charge(r, n / 64 + 1);
}
static inline int j_charge_chars(jinja_run *r, size_t n) /* bytes that are read as characters */
{
    return j_charge(r, n / 16 + 1);
}

/* ---- text: jinja_string.c ---- */

int jbuf_put(jinja_run *r, jbuf *b, const char *s, size_t n, int origin);
int jbuf_str(jinja_run *r, jbuf *b, const jstr *s, size_t from, size_t n); /* bytes of s, with their origins */
static inline int jbuf_text(jinja_run *r, jbuf *b, const char *s, size_t n)
{
    return jbuf_put(r, b, s, n, JINJA_TEMPLATE);
}
int jbuf_done(jinja_run *r, jbuf *b, jval *out); /* takes the buffer over */
int j_slice(jinja_run *r, const jstr *s, size_t from, size_t to, jval *out); /* bytes; shares them */
int j_text(jinja_run *r, const char *s, jval *out);                         /* the template's own */
int jstr_any_data(const jstr *s);

size_t jstr_length(const jstr *s);             /* characters */
size_t jstr_byte(const jstr *s, size_t chars); /* byte where that character begins; n when behind the end */
/* The character at byte i, its bytes in *len; a byte that is not UTF-8 is a character of its own. */
uint32_t jstr_char(const jstr *s, size_t i, int *len);
/* Bytes of the line break at byte i, as str.splitlines knows them; 0: none, and *len bytes of a character. */
size_t jstr_line_end(const jstr *s, size_t i, int *len);
size_t jstr_back(const jstr *s, size_t end); /* where the character that ends before byte `end` begins */
/* First place of `what` in s[from..to), last with `last`; SIZE_MAX: none. */
size_t jstr_find(const jstr *s, const jstr *what, size_t from, size_t to, int last);
int j_is_space(uint32_t c);
/* As jstr_find, for its steps; SIZE_MAX also when they are spent: the caller charges. */
size_t j_seek(jinja_run *r, const jstr *s, const jstr *what, size_t from, size_t to, int last);
/* strip, for its steps: chars NULL: white space. */
int j_strip(jinja_run *r, const jstr *s, const jstr *chars, int left, int right, size_t *from, size_t *to);

/* ---- values as text: jinja_print.c ---- */

int j_print(jinja_run *r, jbuf *b, jval v); /* str(v) */
int j_repr(jinja_run *r, jbuf *b, jval v, int depth);
int j_str(jinja_run *r, jval v, jval *out); /* str(v) as a value */
const char *j_type_name(jval v);
typedef struct jjson {
    int indent; /* -1: one line */
    const char *comma, *colon;
    int sort, ascii;
} jjson;
int j_tojson(jinja_run *r, jval v, const jjson *o, jval *out);
void j_float_text(double f, char out[64]); /* as Python's repr */

/* ---- operators: jinja_ops.c, jinja_items.c ---- */

int j_true(jval v);
int j_equal(jinja_run *r, jval a, jval b, int *out);
int j_order(jinja_run *r, jval a, jval b, int *out); /* <0, 0, >0; an error where Python has one */
int j_contains(jinja_run *r, jval in, jval what, int *out);
int j_binary(jinja_run *r, enum jbinary op, jval a, jval b, jval *out);
int j_compare(jinja_run *r, enum jcompare op, jval a, jval b, int *out);
int j_negate(jinja_run *r, jval v, int minus, jval *out);
int j_item(jinja_run *r, jval of, jval key, jval *out);
int j_attr(jinja_run *r, jval of, const jname *name, jval *out);
int j_slice_of(jinja_run *r, jval of, const jval bounds[3], jval *out);
int j_iterate(jinja_run *r, jval v, const jlist **out); /* what a for loop sees */
int j_hashable(jinja_run *r, jval key);
int j_undefined(jinja_run *r, const jstr *name, jval *out);
int j_undefined_error(jinja_run *r, jval v);
/* "a.b.0" of a value, as attribute= of the filters. */
int j_path(jinja_run *r, jval of, jval path, jval *out);

/* ---- data: jinja_json.c ---- */

/* name: what an error calls the value. */
int jinja_json(jinja_run *r, const char *name, const char *json, size_t n, jval *out, kvant_diag *diag);
int jinja_set(jinja_run *r, const char *name, jval v, kvant_diag *diag);

/* ---- builtins ---- */

enum { JARGS_MAX = 6 };
typedef struct jargs {
    jval v[JARGS_MAX]; /* by the order of params; J_UNDEF where not given */
    unsigned given;
    const jval *rest; /* positional ones beyond params, where params ends in * */
    int n_rest;
    const jval *kw; /* name, value, ... where params ends in ** */
    int n_kw;
} jargs;

typedef int jfn(jinja_run *r, jval self, const jargs *a, jval *out);
/* params: "old!,new!,count": ! is required; the last may be * or **.  Lists end with name NULL. */
typedef struct jbuiltin {
    const char *name;
    jfn *fn;
    const char *params;
} jbuiltin;

typedef struct jbound {
    jval self;
    const jbuiltin *fn;
} jbound;

extern const jbuiltin jinja_text_filters[], jinja_list_filters[], jinja_pick_filters[], jinja_tests[],
    jinja_functions[];
extern const jbuiltin jinja_str_methods[], jinja_list_methods[], jinja_dict_methods[], jinja_loop_methods[];

const jbuiltin *jbuiltin_find(const jbuiltin *list, const char *s, size_t n);
const jbuiltin *jfilter_find(const char *s, size_t n);
/* Calls with n values and n_kw pairs (name, value) behind them. */
int jbuiltin_call(jinja_run *r, const jbuiltin *f, jval self, const jval *args, int n, int n_kw, jval *out);
int jargs_int(jinja_run *r, const jargs *a, int i, const char *name, int64_t none, int64_t *out);

#endif
