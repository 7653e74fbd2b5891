/* jinja_emit.c: the parser's output: instructions, constants, names, jumps. */
#include "text/jinja/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void jinja_place(const jinja *t, uint32_t pos, int *line, int *column)
{
    *line = *column = 1;
    for (uint32_t i = 0; i < pos && i < t->n; i++) {
        *column = t->source[i] == '\n' ? 1 : *column + (((uint8_t)t->source[i] & 0xC0) != 0x80);
        *line += t->source[i] == '\n';
    }
}

int jparse_fail(const jparser *p, size_t pos, const char *format, ...)
{
    char text[180];
    int line, column;
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    jinja_place(p->t, (uint32_t)pos, &line, &column);
    return kvant_fail(p->diag, KVANT_EFORMAT, "chat template, line %d, column %d: %s", line, column, text);
}

int jparse_nomem(const jparser *p)
{
    return kvant_fail(p->diag, KVANT_ENOMEM, "chat template: out of memory");
}

int jparse_deeper(jparser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        return jparse_fail(p, p->lex.from, "nested too deeply, want at most %d levels", JINJA_MAX_NESTING);
    return KVANT_OK;
}

/* Room for one more of `size` bytes in *v. */
static int room(jparser *p, void **v, int n, int *cap, size_t size)
{
    if (n < *cap)
        return KVANT_OK;
    int more = *cap ? 2 * *cap : 64;
    void *grown = n < JINJA_MAX_CODE ? kvant_realloc(*v, (size_t)n * size, (size_t)more * size) : NULL;
    if (!grown)
        return n < JINJA_MAX_CODE ? jparse_nomem(p) : jparse_fail(p, p->lex.from, "too long a program");
    *v = grown;
    *cap = more;
    return KVANT_OK;
}

int jemit(jparser *p, enum jop op, int n, int kw, int a, size_t pos)
{
    jinja *t = p->t;
    void *v = t->code;

    if (n > UINT8_MAX || kw > UINT8_MAX)
        return jparse_fail(p, pos, "more than %d arguments or names", UINT8_MAX);
    int code = room(p, &v, t->n_code, &t->cap_code, sizeof *t->code);
    t->code = v;
    if (code == KVANT_OK)
        t->code[t->n_code++] = (jins){ (uint8_t)op, (uint8_t)n, (uint16_t)kw, a, (uint32_t)pos };
    return code;
}

int jemit_const(jparser *p, jval c, size_t pos)
{
    jinja *t = p->t;
    void *v = t->consts;
    int code = room(p, &v, t->n_consts, &t->cap_consts, sizeof *t->consts);

    t->consts = v;
    if (code != KVANT_OK)
        return code;
    t->consts[t->n_consts] = c;
    return jemit(p, JOP_CONST, 0, 0, t->n_consts++, pos);
}

int jemit_jump(jparser *p, enum jop op, size_t pos, int *at)
{
    *at = p->t->n_code;
    return jemit(p, op, 0, 0, 0, pos);
}

void jbind(jparser *p, int at)
{
    p->t->code[at].a = p->t->n_code - (at + 1);
}

int jkeep_jump(jparser *p, int at, int kind)
{
    void *v = p->breaks;
    int code = room(p, &v, p->n_breaks, &p->cap_breaks, sizeof *p->breaks);

    p->breaks = v;
    if (code == KVANT_OK)
        p->breaks[p->n_breaks++] = 2 * at + kind;
    return code;
}

void jbind_kept(jparser *p, int from, int kind)
{
    int n = from;

    for (int i = from; i < p->n_breaks; i++)
        if ((p->breaks[i] & 1) == kind)
            jbind(p, p->breaks[i] >> 1);
        else
            p->breaks[n++] = p->breaks[i];
    p->n_breaks = n;
}

int jcut_from(jparser *p, int from, jcut *out)
{
    const int n = p->t->n_code - from;

    *out = (jcut){ kvant_alloc((size_t)n * sizeof(jins)), n };
    if (!out->code)
        return jparse_nomem(p);
    if (n)
        memcpy(out->code, p->t->code + from, (size_t)n * sizeof(jins));
    p->t->n_code = from;
    return KVANT_OK;
}

int jpaste(jparser *p, const jcut *cut)
{
    for (int i = 0; i < cut->n; i++) {
        const jins *in = &cut->code[i];
        KVANT_TRY(jemit(p, (enum jop)in->op, in->n, in->kw, in->a, in->pos));
    }
    return KVANT_OK;
}

static void reverse(jins *v, int n)
{
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        jins t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

void jrotate(jparser *p, int from, int middle)
{
    jins *v = p->t->code + from;

    reverse(v, middle - from);
    reverse(v + middle - from, p->t->n_code - middle);
    reverse(v, p->t->n_code - from);
}

/* -1: it is new.  Names may be made so that they hash alike: their number of steps has an end. */
static int find_name(jparser *p, const char *s, size_t n, int *id)
{
    const jstr name = { s, NULL, (uint32_t)n, 0, 0 };

    if (!p->known.u.d && !j_dict(&p->t->mem, 0, &p->known))
        return jparse_nomem(p);
    const jval *known = jdict_get(p->known.u.d, (jval){ .type = J_STR, .u.s = &name }, &p->steps);
    if (p->steps < 0)
        return jparse_fail(p, p->lex.from, "too many names that are alike");
    *id = known ? (int)known->u.i : -1;
    return KVANT_OK;
}

int jname_id(jparser *p, const char *s, size_t n, int *id)
{
    jinja *t = p->t;
    void *v = t->names;

    KVANT_TRY(find_name(p, s, n, id));
    if (*id >= 0)
        return KVANT_OK;
    *id = t->n_names;
    int code = room(p, &v, t->n_names, &t->cap_names, sizeof *t->names);
    t->names = v;
    if (code != KVANT_OK)
        return code;
    jname *name = &t->names[t->n_names];
    *name = (jname){ .of_str = jbuiltin_find(jinja_str_methods, s, n),
                     .of_list = jbuiltin_find(jinja_list_methods, s, n),
                     .of_dict = jbuiltin_find(jinja_dict_methods, s, n),
                     .of_loop = jbuiltin_find(jinja_loop_methods, s, n),
                     .function = jbuiltin_find(jinja_functions, s, n) };
    if (!j_string(&t->mem, s, n, JINJA_TEMPLATE, &name->text))
        return jparse_nomem(p);
    if (!jdict_put(&t->mem, p->known.u.d, name->text, j_int(t->n_names), &p->steps))
        return jparse_nomem(p);
    if (jstr_is(name->text.u.s, "loop"))
        t->loop_name = t->n_names;
    t->n_names++;
    return KVANT_OK;
}

/* A construct that is not known: noted once, and an error when the template comes to it. */
int jemit_unknown(jparser *p, size_t pos, const char *what, const char *name, size_t n)
{
    char text[120], note[200];
    int line, column;
    jval message;

    snprintf(text, sizeof text, "%s '%.*s' is not supported", what, n < 60 ? (int)n : 60, name);
    if (!p->t->unknown) {
        jinja_place(p->t, (uint32_t)pos, &line, &column);
        snprintf(note, sizeof note, "line %d, column %d: %s", line, column, text);
        p->t->unknown = kvant_strdup(note);
        if (!p->t->unknown)
            return jparse_nomem(p);
    }
    if (!j_string(&p->t->mem, text, strlen(text), JINJA_TEMPLATE, &message))
        return jparse_nomem(p);
    KVANT_TRY(jemit_const(p, message, pos));
    return jemit(p, JOP_UNKNOWN, 0, 0, 0, pos);
}
