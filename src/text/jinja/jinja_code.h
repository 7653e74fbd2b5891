/* text/jinja/jinja_code.h: a parsed template: instructions of a stack machine, and how the parser makes them.
 *
 * Jumps are relative to the next instruction, so that a finished piece of code can be moved.  Every instruction knows
 * its place in the source.  jinja_vm.c says how each changes the stack. */
#ifndef KVANT_TEXT_JINJA_CODE_H
#define KVANT_TEXT_JINJA_CODE_H

#include "text/jinja/jinja_value.h"

#define J_OPS(X)                                                                                                       \
    X(TEXT) X(PRINT) X(CONST) X(LOAD) X(STORE) X(POP) X(ATTR) X(ITEM) X(SLICE) X(LIST) X(TUPLE) X(DICT) X(BINARY)      \
    X(COMPARE) X(CHAIN) X(NOT) X(NEG) X(POS) X(JUMP) X(JUMP_FALSE) X(AND) X(OR) X(FILTER) X(TEST) X(CALL) X(SCOPE)     \
    X(UNSCOPE) X(FOR) X(NEXT) X(ENDFOR) X(SIFT) X(KEEP) X(SIFTED) X(CAPTURE) X(CAPTURED) X(MACRO) X(BOUND) X(RETURN)   \
    X(SETATTR) X(UNPACK) X(UNKNOWN) X(END)
enum jop {
#define J_OP_ENUM(name) JOP_##name,
    J_OPS(J_OP_ENUM)
#undef J_OP_ENUM
};

enum jbinary { JB_ADD, JB_SUB, JB_MUL, JB_DIV, JB_FLOORDIV, JB_MOD, JB_POW, JB_CONCAT };
enum jcompare { JC_EQ, JC_NE, JC_LT, JC_LE, JC_GT, JC_GE, JC_IN, JC_NOT_IN };

typedef struct jins {
    uint8_t op, n;
    uint16_t kw;
    int32_t a;
    uint32_t pos; /* byte of the source */
} jins;

/* CALL, FILTER and TEST: a says what else is on the stack.  n values, names and values of which the first
 * a >> JSPREAD_BEFORE stand before the list of `*`, then the others, then the dict of `**`, then {% call %}'s block. */
enum { JSPREAD_LIST = 1, JSPREAD_DICT = 2, JSPREAD_BLOCK = 4, JSPREAD_BEFORE = 3 };

/* A name of the source, once.  The method or function of that name is looked up when it is first seen. */
typedef struct jname {
    jval text; /* J_STR */
    const struct jbuiltin *of_str, *of_list, *of_dict, *of_loop, *function;
} jname;

enum { JMACRO_MAX_PARAMS = 32 };
typedef struct jmacro_def {
    int name; /* -1: a caller's block */
    int n_params, params[JMACRO_MAX_PARAMS];
    int pc; /* of its body */
    int varargs, kwargs, caller; /* the body reads them: name ids or -1 */
} jmacro_def;

struct jinja {
    char *source; /* with newlines as \n, without the last one */
    size_t n;
    jarena mem; /* texts of constants and names */
    jins *code;
    jval *consts;
    jname *names;
    jmacro_def *macros;
    int n_code, cap_code, n_consts, cap_consts, n_names, cap_names, n_macros, cap_macros;
    int loop_name; /* id of `loop`; -1: the template does not read it */
    char *unknown; /* jinja_unknown */
};

/* Line and column, both from 1, of a byte of the source. */
void jinja_place(const jinja *t, uint32_t pos, int *line, int *column);

/* ---- tokens: jinja_lex.c ---- */

enum jtoken { JT_TEXT, JT_PRINT, JT_TAG, JT_END, JT_NAME, JT_STRING, JT_INT, JT_FLOAT, JT_OP, JT_EOF };

typedef struct jlexer {
    const char *s;
    size_t n, at;
    int in;           /* '}' in {{ }}, '%' in {% %}, 0 in text */
    int brackets;     /* open ones: }} and %} do not end the tag */
    int line_start;   /* the text begins at the start of a line */
    /* the token: text is s[from..to) */
    enum jtoken kind;
    size_t from, to;
    int op;           /* JT_OP: its one or two characters: '+', '*' << 8 | '*', ... */
    const char *why;  /* JT_EOF by an error: what is wrong at `from`; else NULL */
} jlexer;

void jlex_next(jlexer *l);

/* ---- the parser: jinja_template.c (all), jinja_parse.c, jinja_macro.c (statements), jinja_operators.c, jinja_expr.c
 * (expressions), jinja_tokens.c, jinja_emit.c (code) ---- */

enum jopen { JOPEN_LOOP, JOPEN_SCOPE, JOPEN_CAPTURE, JOPEN_MACRO };
typedef struct jblock {
    enum jopen kind;
    int next;             /* JOPEN_LOOP: its NEXT */
    int macro;            /* JOPEN_MACRO: its place in jinja.macros */
} jblock;

typedef struct jparser {
    jinja *t;
    jlexer lex;
    kvant_diag *diag;
    int depth;
    jblock open[JINJA_MAX_NESTING];
    int n_open;
    jval known;    /* a dict: name -> its id */
    int64_t steps; /* for it */
    int *breaks; /* jumps kept: 2 * place + kind */
    int n_breaks, cap_breaks;
} jparser;

int jparse_fail(const jparser *p, size_t pos, const char *format, ...) __attribute__((format(printf, 3, 4)));
int jparse_nomem(const jparser *p);
int jparse_deeper(jparser *p); /* refuses more than JINJA_MAX_NESTING; p->depth-- undoes it */
int jis_op(const jparser *p, int op);
int jis_name(const jparser *p, const char *name);
int jskip_op(jparser *p, int op); /* 1 when it was there */
int jskip_name(jparser *p, const char *name);
int jexpect_op(jparser *p, int op, const char *text);
int jtake_name(jparser *p, int *id);
int jparse_unexpected(const jparser *p, const char *want); /* "found X, want Y", or what is wrong with the token */
int jend_of_tag(jparser *p);

/* Up to a tag of `ends` (its name is the current token), or to the end of the template when ends is NULL; `opened`:
 * where the statement began that it belongs to. */
int jparse_statements(jparser *p, const char *const *ends, size_t opened);
int jopen_block(jparser *p, enum jopen kind);
int jparse_macro(jparser *p, size_t pos);
int jparse_call(jparser *p, size_t pos);

int jemit(jparser *p, enum jop op, int n, int kw, int a, size_t pos);
int jemit_const(jparser *p, jval v, size_t pos);
int jemit_jump(jparser *p, enum jop op, size_t pos, int *at); /* *at: for jbind */
void jbind(jparser *p, int at);                                /* the jump at `at` goes to here */
int jname_id(jparser *p, const char *s, size_t n, int *id);
int jemit_unknown(jparser *p, size_t pos, const char *what, const char *name, size_t n);
void jrotate(jparser *p, int from, int middle); /* code[from..middle) goes behind code[middle..end) */

/* Jumps to the end of an if (kind 1) or a loop (0) are kept until that is known. */
int jkeep_jump(jparser *p, int at, int kind);
void jbind_kept(jparser *p, int from, int kind); /* those of a kind kept since p->n_breaks was `from` go to here */
/* Code taken out, to be put in elsewhere; code is kvant_free's. */
typedef struct jcut {
    jins *code;
    int n;
} jcut;
int jcut_from(jparser *p, int from, jcut *out);
int jpaste(jparser *p, const jcut *cut);

/* Expression of one value; `a, b` gives a tuple.  ternary 0: an `if` is left for the statement. */
int jparse_expr(jparser *p);
int jparse_tuple(jparser *p, int ternary);
int jparse_no_ternary(jparser *p);
int jparse_operand(jparser *p); /* with its signs, calls, filters and tests */
/* `| filter | filter` on the value on the stack; the first name is the current token. */
int jparse_filters(jparser *p);
int jparse_literal(jparser *p); /* a string or number: jinja_literal.c */

#endif
