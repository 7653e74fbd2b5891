/* jinja_parse.c: a template's statements -> code; macros: jinja_macro.c, expressions: jinja_expr.c. */
#include "text/jinja/jinja_run.h"

#include <string.h>
#include "base/mem.h"

enum { TARGET_MAX = 16 }; /* instructions: this is on the stack of blocks in blocks */

int jend_of_tag(jparser *p)
{
    if (p->lex.kind != JT_END)
        return jparse_unexpected(p, "the end of the tag");
    jlex_next(&p->lex);
    return KVANT_OK;
}

int jopen_block(jparser *p, enum jopen kind)
{
    if (p->n_open == JINJA_MAX_NESTING)
        return jparse_fail(p, p->lex.from, "nested too deeply, want at most %d levels", JINJA_MAX_NESTING);
    p->open[p->n_open++] = (jblock){ .kind = kind };
    return KVANT_OK;
}

static int scope_open(jparser *p, size_t pos)
{
    KVANT_TRY(jopen_block(p, JOPEN_SCOPE));
    return jemit(p, JOP_SCOPE, 0, 0, 0, pos);
}

static int scope_close(jparser *p, size_t pos)
{
    p->n_open--;
    return jemit(p, JOP_UNSCOPE, 0, 0, 0, pos);
}

static int block_of(jparser *p, const char *const *ends, size_t pos)
{
    KVANT_TRY(jend_of_tag(p));
    KVANT_TRY(jopen_block(p, JOPEN_CAPTURE));
    KVANT_TRY(jemit(p, JOP_CAPTURE, 0, 0, 0, pos));
    KVANT_TRY(scope_open(p, pos));
    KVANT_TRY(jparse_statements(p, ends, pos));
    KVANT_TRY(scope_close(p, pos));
    p->n_open--;
    jlex_next(&p->lex);
    return jemit(p, JOP_CAPTURED, 0, 0, 0, pos);
}

/* A block whose text is caught (set, filter); the code from `filters` on goes behind it. */
static int caught(jparser *p, int filters, const char *const *ends, size_t pos)
{
    jcut cut;

    KVANT_TRY(jcut_from(p, filters, &cut));
    int code = block_of(p, ends, pos);
    if (code == KVANT_OK)
        code = jpaste(p, &cut);
    kvant_free(cut.code);
    return code;
}

/* ---- targets of set and for: their code is kept apart until the value's code is there ---- */

typedef struct target {
    jins code[TARGET_MAX];
    int n;
} target;

static int target_put(jparser *p, target *t, jins in)
{
    if (t->n == TARGET_MAX)
        return jparse_fail(p, p->lex.from, "more than %d names", TARGET_MAX);
    t->code[t->n++] = in;
    return KVANT_OK;
}

static int target_name(jparser *p, target *t)
{
    const uint32_t pos = (uint32_t)p->lex.from;
    int id, attribute;

    KVANT_TRY(jtake_name(p, &id));
    if (!jskip_op(p, '.'))
        return target_put(p, t, (jins){ .op = JOP_STORE, .a = id, .pos = pos });
    KVANT_TRY(jtake_name(p, &attribute));
    KVANT_TRY(target_put(p, t, (jins){ .op = JOP_LOAD, .a = id, .pos = pos }));
    return target_put(p, t, (jins){ .op = JOP_SETATTR, .a = attribute, .pos = pos });
}

static int target_list(jparser *p, target *t);

static int target_one(jparser *p, target *t)
{
    if (!jskip_op(p, '('))
        return target_name(p, t);
    KVANT_TRY(jparse_deeper(p));
    KVANT_TRY(target_list(p, t));
    p->depth--;
    return jexpect_op(p, ')', "')'");
}

/* a, (b, c), d */
static int target_list(jparser *p, target *t)
{
    const int at = t->n;
    int n = 1;

    KVANT_TRY(target_one(p, t));
    if (!jis_op(p, ','))
        return KVANT_OK;
    while (jskip_op(p, ',') && (p->lex.kind == JT_NAME ? !jis_name(p, "in") : jis_op(p, '('))) {
        KVANT_TRY(target_one(p, t));
        n++;
    }
    KVANT_TRY(target_put(p, t, (jins){ 0 }));
    memmove(t->code + at + 1, t->code + at, (size_t)(t->n - 1 - at) * sizeof *t->code);
    t->code[at] = (jins){ JOP_UNPACK, (uint8_t)n, 0, 0, (uint32_t)p->lex.from };
    return KVANT_OK;
}

static int emit_target(jparser *p, const target *t)
{
    for (int i = 0; i < t->n; i++)
        KVANT_TRY(jemit(p, (enum jop)t->code[i].op, t->code[i].n, 0, t->code[i].a, t->code[i].pos));
    return KVANT_OK;
}

/* ---- set, filter, with ---- */

static int parse_set(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endset", NULL };
    target t = { .n = 0 };
    const int start = p->t->n_code;

    KVANT_TRY(target_list(p, &t));
    if (jskip_op(p, '=')) {
        KVANT_TRY(jparse_tuple(p, 1));
    } else {
        if (jskip_op(p, '|'))
            KVANT_TRY(jparse_filters(p));
        KVANT_TRY(caught(p, start, ends, pos));
    }
    return emit_target(p, &t);
}

static int parse_filter(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endfilter", NULL };
    const int start = p->t->n_code;

    KVANT_TRY(jparse_filters(p));
    KVANT_TRY(caught(p, start, ends, pos));
    return jemit(p, JOP_PRINT, 0, 0, 0, pos);
}

/* The values are read outside of the scope that has the names. */
static int parse_with(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endwith", NULL };
    int ids[TARGET_MAX], n = 0;

    while (p->lex.kind == JT_NAME) {
        if (n == TARGET_MAX)
            return jparse_fail(p, p->lex.from, "more than %d names", TARGET_MAX);
        KVANT_TRY(jtake_name(p, &ids[n++]));
        KVANT_TRY(jexpect_op(p, '=', "'='"));
        KVANT_TRY(jparse_expr(p));
        if (!jskip_op(p, ','))
            break;
    }
    KVANT_TRY(jend_of_tag(p));
    KVANT_TRY(scope_open(p, pos));
    while (n)
        KVANT_TRY(jemit(p, JOP_STORE, 0, 0, ids[--n], pos));
    KVANT_TRY(jparse_statements(p, ends, pos));
    jlex_next(&p->lex);
    return scope_close(p, pos);
}

/* ---- if ---- */

static int parse_if(jparser *p, size_t pos)
{
    static const char *const branches[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    const int outer = p->n_breaks; /* the jumps to the end are kept with those of loops */
    int no, jump;

    for (;;) {
        KVANT_TRY(jparse_tuple(p, 0));
        KVANT_TRY(jend_of_tag(p));
        KVANT_TRY(jemit_jump(p, JOP_JUMP_FALSE, pos, &no));
        KVANT_TRY(jparse_statements(p, branches, pos));
        if (jis_name(p, "endif"))
            break;
        KVANT_TRY(jemit_jump(p, JOP_JUMP, pos, &jump));
        KVANT_TRY(jkeep_jump(p, jump, 1));
        jbind(p, no);
        no = -1;
        if (jskip_name(p, "else")) {
            KVANT_TRY(jend_of_tag(p));
            KVANT_TRY(jparse_statements(p, last, pos));
            break;
        }
        jlex_next(&p->lex);
    }
    if (no >= 0)
        jbind(p, no);
    jbind_kept(p, outer, 1);
    jlex_next(&p->lex);
    return KVANT_OK;
}

/* ---- for ---- */

/* `if` of a for: the items that pass become the list of the loop. */
static int parse_condition(jparser *p, const target *t, size_t pos)
{
    int next, sift;

    KVANT_TRY(jemit(p, JOP_SIFT, 0, 0, 0, pos));
    sift = p->t->n_code;
    KVANT_TRY(jemit_jump(p, JOP_NEXT, pos, &next));
    KVANT_TRY(emit_target(p, t));
    KVANT_TRY(jparse_expr(p));
    KVANT_TRY(jemit(p, JOP_KEEP, 0, 0, 0, pos));
    KVANT_TRY(jemit(p, JOP_JUMP, 0, 0, sift - (p->t->n_code + 1), pos));
    jbind(p, next);
    return jemit(p, JOP_SIFTED, 0, 0, 0, pos);
}

static int for_head(jparser *p, target *t, size_t pos)
{
    KVANT_TRY(target_list(p, t));
    if (!jskip_name(p, "in"))
        return jparse_unexpected(p, "'in'");
    KVANT_TRY(jparse_tuple(p, 0));
    if (jskip_name(p, "if"))
        KVANT_TRY(parse_condition(p, t, pos));
    if (jis_name(p, "recursive"))
        KVANT_TRY(jemit_unknown(p, p->lex.from, "the loop's", "recursive", 9));
    jskip_name(p, "recursive");
    return jend_of_tag(p);
}

static int for_else(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endfor", NULL };

    KVANT_TRY(jend_of_tag(p));
    KVANT_TRY(scope_open(p, pos));
    KVANT_TRY(jparse_statements(p, ends, pos));
    return scope_close(p, pos);
}

/* value FOR else  next: NEXT end  target  body  JUMP next  end: ENDFOR JUMP after  else: ...  after: */
static int parse_for(jparser *p, size_t pos)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    target t = { .n = 0 };
    int none, next, after;

    KVANT_TRY(for_head(p, &t, pos));
    KVANT_TRY(jemit_jump(p, JOP_FOR, pos, &none));
    KVANT_TRY(jopen_block(p, JOPEN_LOOP));
    const int first_break = p->n_breaks;
    KVANT_TRY(jemit_jump(p, JOP_NEXT, pos, &next));
    p->open[p->n_open - 1].next = next;
    KVANT_TRY(emit_target(p, &t));
    KVANT_TRY(jparse_statements(p, ends, pos));
    KVANT_TRY(jemit(p, JOP_JUMP, 0, 0, next - (p->t->n_code + 1), pos));
    jbind(p, next);
    jbind_kept(p, first_break, 0);
    p->n_open--;
    KVANT_TRY(jemit(p, JOP_ENDFOR, 0, 0, 0, pos));
    KVANT_TRY(jemit_jump(p, JOP_JUMP, pos, &after));
    jbind(p, none);
    if (jskip_name(p, "else"))
        KVANT_TRY(for_else(p, pos));
    jbind(p, after);
    jlex_next(&p->lex);
    return KVANT_OK;
}

/* Leaves the scopes and catches that were opened in the loop; *loop is its block. */
static int leave_loop(jparser *p, size_t pos, jblock **loop)
{
    for (int i = p->n_open - 1; i >= 0 && p->open[i].kind != JOPEN_MACRO; i--) {
        *loop = &p->open[i];
        if (p->open[i].kind == JOPEN_LOOP)
            return KVANT_OK;
        KVANT_TRY(jemit(p, p->open[i].kind == JOPEN_SCOPE ? JOP_UNSCOPE : JOP_CAPTURED, 0, 0, 0, pos));
        if (p->open[i].kind == JOPEN_CAPTURE)
            KVANT_TRY(jemit(p, JOP_POP, 0, 0, 0, pos));
    }
    return jparse_fail(p, pos, "break or continue outside of a loop");
}

static int parse_break(jparser *p, size_t pos)
{
    jblock *loop;
    int jump;

    KVANT_TRY(leave_loop(p, pos, &loop));
    KVANT_TRY(jemit_jump(p, JOP_JUMP, pos, &jump));
    return jkeep_jump(p, jump, 0);
}

static int parse_continue(jparser *p, size_t pos)
{
    jblock *loop;

    KVANT_TRY(leave_loop(p, pos, &loop));
    return jemit(p, JOP_JUMP, 0, 0, loop->next - (p->t->n_code + 1), pos);
}

/* {% generation %}: marks answers for training; the text is what is in it. */
static int parse_generation(jparser *p, size_t pos)
{
    static const char *const ends[] = { "endgeneration", NULL };

    KVANT_TRY(jend_of_tag(p));
    KVANT_TRY(scope_open(p, pos));
    KVANT_TRY(jparse_statements(p, ends, pos));
    jlex_next(&p->lex);
    return scope_close(p, pos);
}

/* ---- the rest ---- */

static const struct {
    const char *name;
    int (*parse)(jparser *p, size_t pos);
} known[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", jparse_macro },
    { "filter", parse_filter },
    { "break", parse_break },
    { "with", parse_with },
    { "call", jparse_call },
    { "continue", parse_continue },
    { "generation", parse_generation },
};

/* A tag that is not known: noted, and skipped up to its end; running into it is an error. */
static int unknown_tag(jparser *p, size_t from, size_t to, size_t pos)
{
    KVANT_TRY(jemit_unknown(p, pos, "tag", p->lex.s + from, to - from));
    while (p->lex.kind != JT_END && p->lex.kind != JT_EOF)
        jlex_next(&p->lex);
    return KVANT_OK;
}

static int statement(jparser *p, size_t pos)
{
    const size_t from = p->lex.from, to = p->lex.to;

    if (p->lex.kind != JT_NAME)
        return jparse_unexpected(p, "a tag's name");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (jskip_name(p, known[i].name)) {
            KVANT_TRY(known[i].parse(p, pos));
            return jend_of_tag(p);
        }
    jlex_next(&p->lex);
    KVANT_TRY(unknown_tag(p, from, to, pos));
    return jend_of_tag(p);
}

static int text(jparser *p)
{
    const jlexer *l = &p->lex;
    jval v;

    if (l->to > l->from) {
        if (!j_string(&p->t->mem, l->s + l->from, l->to - l->from, JINJA_TEMPLATE, &v))
            return jparse_nomem(p);
        KVANT_TRY(jemit_const(p, v, l->from));
        p->t->code[p->t->n_code - 1].op = JOP_TEXT;
    }
    jlex_next(&p->lex);
    return KVANT_OK;
}

static int print(jparser *p)
{
    const size_t pos = p->lex.from;

    jlex_next(&p->lex);
    KVANT_TRY(jparse_tuple(p, 1));
    KVANT_TRY(jemit(p, JOP_PRINT, 0, 0, 0, pos));
    return jend_of_tag(p);
}

static int is_end(const jparser *p, const char *const *ends)
{
    for (int i = 0; ends && ends[i]; i++)
        if (jis_name(p, ends[i]))
            return 1;
    return 0;
}

/* Up to a tag of `ends` (its name is the current token), or to the end of the template when there are none. */
int jparse_statements(jparser *p, const char *const *ends, size_t opened)
{
    int line, column;

    KVANT_TRY(jparse_deeper(p));
    p->depth++; /* a block takes the stack of two expressions */
    for (;;) {
        const size_t pos = p->lex.from;
        if (p->lex.kind == JT_EOF)
            break;
        if (p->lex.kind == JT_TEXT) {
            KVANT_TRY(text(p));
        } else if (p->lex.kind == JT_PRINT) {
            KVANT_TRY(print(p));
        } else {
            jlex_next(&p->lex);
            if (is_end(p, ends)) {
                p->depth -= 2;
                return KVANT_OK;
            }
            KVANT_TRY(statement(p, pos));
        }
    }
    p->depth -= 2;
    if (p->lex.why)
        return jparse_fail(p, p->lex.from, "%s", p->lex.why);
    if (!ends)
        return KVANT_OK;
    jinja_place(p->t, (uint32_t)opened, &line, &column);
    return jparse_fail(p, p->lex.from, "the template ends, want %s for line %d", ends[0], line);
}
