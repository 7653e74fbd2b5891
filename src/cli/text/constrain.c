/* constrain.c: see constrain.h.  Owns the grammar of a run.  One sequence, nobody else waits for a step: masks are made
 * where they are asked for. */
#include "cli/text/constrain.h"

#include <string.h>
#include "base/error.h"
#include "base/mem.h"

static const int sources[] = { OPT_GRAMMAR, OPT_GRAMMAR_FILE, OPT_JSON_SCHEMA, OPT_JSON_SCHEMA_FILE };
enum { SOURCES = sizeof sources / sizeof *sources };

/* The option that names a grammar; -1: none does. */
static int find_source(const opts *o, int *option, kvant_diag *diag)
{
    *option = -1;
    for (int i = 0; i < SOURCES; i++) {
        if (!opt_given(o, sources[i]))
            continue;
        if (*option >= 0)
            return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", opt_origin(o, *option),
                              opt_origin(o, sources[i]));
        *option = sources[i];
    }
    return KVANT_OK;
}

#ifdef KVANT_HAVE_SERVER
#include "server/grammar/grammar.h"

struct constrain {
    grammar *g;
    grammar_vocab *v;
    grammar_run *run;
    int done;
    kvant_diag diag;
};

/* A grammar's text is used as it is; a schema becomes one. */
static int compile(const opts *o, int option, const char *text, size_t n, grammar **g, kvant_diag *diag)
{
    const int schema = option == OPT_JSON_SCHEMA || option == OPT_JSON_SCHEMA_FILE;
    kvant_diag why = { "" };
    char *gbnf = NULL;

    int code = schema ? grammar_from_schema(text, n, &gbnf, &why) : KVANT_OK;
    if (code == KVANT_OK)
        code = grammar_compile(gbnf ? gbnf : text, gbnf ? strlen(gbnf) : n, g, &why);
    kvant_free(gbnf);
    return code == KVANT_OK ? code : kvant_fail(diag, code, "%s: %.300s", opt_origin(o, option), why.text);
}

static int compile_source(const opts *o, int option, grammar **g, kvant_diag *diag)
{
    const char *file = opt_str(o, option == OPT_GRAMMAR_FILE ? OPT_GRAMMAR_FILE : OPT_JSON_SCHEMA_FILE),
               *given = opt_str(o, option == OPT_GRAMMAR ? OPT_GRAMMAR : OPT_JSON_SCHEMA);
    char *text = NULL;
    size_t n = given ? strlen(given) : 0;

    if (file)
        KVANT_TRY(read_text(file, &text, &n, diag));
    const int code = compile(o, option, file ? text : given, n, g, diag);
    kvant_free(text);
    return code;
}

int constrain_open(const opts *o, const kvant_model *m, constrain **out, kvant_diag *diag)
{
    int option, code;

    *out = NULL;
    KVANT_TRY(find_source(o, &option, diag));
    if (option < 0)
        return KVANT_OK;
    constrain *c = kvant_calloc(1, sizeof *c);
    if (!c)
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");
    code = compile_source(o, option, &c->g, diag);
    if (code == KVANT_OK)
        code = grammar_vocab_create(m, NULL, &c->v, diag);
    if (code == KVANT_OK)
        *out = c;
    else
        constrain_close(c);
    return code;
}

void constrain_close(constrain *c)
{
    if (!c)
        return;
    if (c->run)
        grammar_run_free(c->run);
    grammar_release(c->g);
    grammar_vocab_free(c->v);
    kvant_free(c);
}

static int make_mask(constrain *c)
{
    int code = grammar_run_try(c->run, &c->diag);

    while (code == KVANT_EBUSY)
        code = grammar_run_work(c->run, &c->diag);
    return code;
}

static int mask(void *user, float *logits, int n_vocab)
{
    constrain *c = user;
    int left, complete;

    KVANT_TRY(make_mask(c));
    KVANT_TRY(grammar_run_apply(c->run, logits, n_vocab, &left, &complete, &c->diag));
    c->done = complete && left == 0;
    return c->done ? KVANT_ECANCELED : KVANT_OK;
}

static void accepted(void *user, int32_t token)
{
    constrain *c = user;

    (void)grammar_run_take(c->run, token, &c->diag); /* one that was not allowed: the next mask fails */
}

int constrain_begin(constrain *c, kvant_request *q, kvant_diag *diag)
{
    if (!c)
        return KVANT_OK;
    if (c->run)
        grammar_run_free(c->run);
    c->run = NULL;
    c->done = 0;
    c->diag.text[0] = 0;
    q->mask = mask;
    q->accepted = accepted;
    q->mask_user = c;
    return grammar_run_create(c->g, c->v, &c->run, diag);
}

int constrain_is_done(const constrain *c)
{
    return c && c->done;
}

const char *constrain_error(const constrain *c)
{
    return c ? c->diag.text : "";
}

#else

int constrain_open(const opts *o, const kvant_model *m, constrain **out, kvant_diag *diag)
{
    int option;

    (void)m;
    *out = NULL;
    KVANT_TRY(find_source(o, &option, diag));
    if (option < 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: this build has no grammars: it was made without the server",
                      opt_origin(o, option));
}

void constrain_close(constrain *c)
{
    (void)c;
}

int constrain_begin(constrain *c, kvant_request *q, kvant_diag *diag)
{
    (void)c;
    (void)q;
    (void)diag;
    return KVANT_OK;
}

int constrain_is_done(const constrain *c)
{
    (void)c;
    return 0;
}

const char *constrain_error(const constrain *c)
{
    (void)c;
    return "";
}

#endif
