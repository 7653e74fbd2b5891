/* jinja_template.c: a source text -> a template that can be run. */
#include "text/jinja/jinja_run.h"

#include "base/mem.h"

enum { PARSE_STEPS = 20000000 }; /* places looked at for names: a template of 1 MiB has 100,000 at most */

/* Newlines as \n; one at the end is not part of the template. */
static int copy_source(jinja *t, const char *s, size_t n)
{
    t->source = kvant_alloc(n + 1);
    if (!t->source)
        return KVANT_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            continue;
        t->source[t->n++] = s[i] == '\r' ? '\n' : s[i];
    }
    if (t->n && t->source[t->n - 1] == '\n')
        t->n--;
    t->source[t->n] = 0;
    return KVANT_OK;
}

int jinja_parse(const char *source, size_t n, jinja **out, kvant_diag *diag)
{
    if (n > JINJA_MAX_SOURCE)
        return kvant_fail(diag, KVANT_EFORMAT, "chat template: %zu bytes, want at most %d", n, JINJA_MAX_SOURCE);
    jinja *t = kvant_calloc(1, sizeof *t);
    jparser *p = kvant_calloc(1, sizeof *p);
    int code = t && p ? copy_source(t, source, n) : KVANT_ENOMEM;

    if (code == KVANT_OK) {
        t->mem.most = JINJA_MAX_MEMORY;
        t->loop_name = -1;
        *p = (jparser){ .t = t, .diag = diag, .lex = { .s = t->source, .n = t->n, .line_start = 1 } };
        p->steps = PARSE_STEPS;
        jlex_next(&p->lex);
        code = jparse_statements(p, NULL, 0);
        if (code == KVANT_OK)
            code = jemit(p, JOP_END, 0, 0, 0, t->n);
        kvant_free(p->breaks);
    } else {
        kvant_fail(diag, code, "chat template: out of memory");
    }
    kvant_free(p);
    if (code != KVANT_OK) {
        jinja_free(t);
        return code;
    }
    *out = t;
    return KVANT_OK;
}

void jinja_free(jinja *t)
{
    if (!t)
        return;
    kvant_free(t->source);
    kvant_free(t->code);
    kvant_free(t->consts);
    kvant_free(t->names);
    kvant_free(t->macros);
    kvant_free(t->unknown);
    jarena_free(&t->mem);
    kvant_free(t);
}

const char *jinja_unknown(const jinja *t)
{
    return t->unknown;
}
