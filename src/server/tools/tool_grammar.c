/* tool_grammar.c: see tool_grammar.h.  Schemas of arguments become rules as those of response_format do
 * (grammar_schema.h); the frame around them is the dialect's row. */
#include "server/tools/tool_grammar.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_schema.h"

typedef struct maker {
    const tool_rules *r;
    schema_maker m;
    sbuf rules; /* behind the root */
    int tool;
} maker;

static int wrong(maker *k, const char *what)
{
    return kvant_fail(k->m.diag, KVANT_EINVAL, "item %d: function.parameters: %s", k->tool, what);
}

/* ---- texts of the dialect ---- */

/* One alternative p[n]. */
static void put_one(sbuf *b, const char *p, size_t n)
{
    for (size_t i = 0, k; i < n; i += k + (k == 0)) {
        for (k = 0; i + k < n && !strchr(" %^", p[i + k]);)
            k++;
        if (k)
            schema_put_text(b, p + i, k);
        else if (p[i] == ' ')
            sbuf_puts(b, " ws ");
        else if (p[i] == '%')
            sbuf_printf(b, " [0-9a-zA-Z]{1,%d} ", DIALECT_MOST_ID);
    }
    sbuf_puts(b, " ");
}

/* The pattern, or what of it stands behind the trigger. */
static void put_pattern(sbuf *b, const char *p, int rest)
{
    const char *mark = p && rest ? strchr(p, '^') : NULL;

    if (!p || !*p)
        return;
    p = mark ? mark + 1 : p;
    if (!strchr(p, '\v')) {
        put_one(b, p, strlen(p));
        return;
    }
    sbuf_puts(b, "(");
    for (size_t k = strcspn(p, "\v");; k = strcspn(p, "\v")) {
        put_one(b, p, k);
        p += k;
        if (!*p++)
            break;
        sbuf_puts(b, "| ");
    }
    sbuf_puts(b, ") ");
}

/* Any text up to `end` and end itself, as rules <name>0.. (one for each part of `end` that has come, as in the
 * search of Knuth, Morris and Pratt): what stands in between never holds `end`. */
static void put_until(sbuf *b, const char *name, const char *end)
{
    const int n = (int)strlen(end);

    for (int i = 0; i < n; i++) {
        sbuf_printf(b, "%s%d ::= ", name, i);
        for (int c = 0; c < n; c++) {
            int next = i + 1;
            if (memchr(end, end[c], (size_t)c))
                continue; /* each character once */
            while (next > 0 && !(end[next - 1] == end[c] && memcmp(end, end + i - next + 1, (size_t)next - 1) == 0))
                next--;
            schema_put_text(b, end + c, 1);
            if (next < n)
                sbuf_printf(b, " %s%d", name, next);
            sbuf_puts(b, " | ");
        }
        sbuf_puts(b, "[^\\x00-\\x08\\x0B-\\x1F\\x7F"); /* what no text of a model has a use for */
        for (int c = 0; c < n; c++)
            if (end[c] != '\n')
                sbuf_printf(b, "\\x%02X", (unsigned char)end[c]);
            else
                sbuf_puts(b, "\\n");
        sbuf_printf(b, "] %s0\n", name);
    }
}

/* ---- arguments as keys and values ---- */

static int put_text_value(maker *k, const json_t *schema)
{
    const dialect_args *a = k->r->d->args;
    const json_t *values = tool_param_values(schema);
    size_t i;
    json_t *v;

    if (a->quote)
        schema_put_text(&k->rules, a->quote, strlen(a->quote));
    if (!values) {
        sbuf_puts(&k->rules, " until0 ");
    } else {
        sbuf_puts(&k->rules, " (");
        json_array_foreach((json_t *)values, i, v)
        {
            sbuf_puts(&k->rules, i ? " | " : "");
            schema_put_text(&k->rules, json_string_value(v), json_string_length(v));
        }
        sbuf_puts(&k->rules, ") ");
        put_pattern(&k->rules, a->quote ? a->quote : a->end, 0);
    }
    if (a->quote)
        put_pattern(&k->rules, a->end, 0);
    return KVANT_OK;
}

static int put_value(maker *k, const char *name, const json_t *schema)
{
    const dialect_args *a = k->r->d->args;
    const tool *t = &k->r->tools->tools[k->tool];
    char path[MAX_PATH];
    int rule;

    if ((a->quote || a->bare) && tool_schema_is_text(schema))
        return put_text_value(k, schema);
    snprintf(path, sizeof path, "%.64s:#/properties/%.64s", t->name, name);
    KVANT_TRY(schema_add_root(&k->m, schema, t->parameters, path, t->strict ? SCHEMA_STRICT : SCHEMA_LOOSE, &rule));
    sbuf_printf(&k->rules, "s%d ", rule);
    put_pattern(&k->rules, a->end, 0);
    return KVANT_OK;
}

static int is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return 1;
    return 0;
}

/* Parameter i: rule t<tool>-k<i>. */
static int put_param(maker *k, int i, const char *name, const json_t *schema)
{
    const dialect_args *a = k->r->d->args;
    size_t n = 0;

    while (dialect_name_char(name[n]))
        n++;
    if (name[n] || !n || n > TOOL_NAME_MOST)
        return wrong(k, "this model's dialect wants names of 1 to 64 letters, digits, _ - . or /");
    sbuf_printf(&k->rules, "t%d-k%d ::= ", k->tool, i);
    put_pattern(&k->rules, a->key, 0);
    schema_put_text(&k->rules, name, n);
    put_pattern(&k->rules, a->value, 0);
    KVANT_TRY(put_value(k, name, schema));
    sbuf_puts(&k->rules, "\n");
    return KVANT_OK;
}

/* Rules a<i> (nothing written yet) and b<i> choose what of the parameters from i on comes, in the schema's order. */
static int put_params(maker *k)
{
    const dialect_args *a = k->r->d->args;
    const json_t *schema = k->r->tools->tools[k->tool].parameters;
    const char *name;
    json_t *v;
    int i = 0, t = k->tool;

    json_object_foreach(json_object_get(schema, "properties"), name, v)
    {
        const int needed = is_required(schema, name);
        sbuf_printf(&k->rules, "t%d-a%d ::= t%d-k%d t%d-b%d", t, i, t, i, t, i + 1);
        if (!needed)
            sbuf_printf(&k->rules, " | t%d-a%d", t, i + 1);
        sbuf_printf(&k->rules, "\nt%d-b%d ::= ", t, i);
        put_pattern(&k->rules, a->between, 0);
        sbuf_printf(&k->rules, "t%d-k%d t%d-b%d", t, i, t, i + 1);
        if (!needed)
            sbuf_printf(&k->rules, " | t%d-b%d", t, i + 1);
        sbuf_puts(&k->rules, "\n");
        KVANT_TRY(put_param(k, i++, name, v));
    }
    sbuf_printf(&k->rules, "t%d-a%d ::= \"\"\nt%d-b%d ::= \"\"\n", t, i, t, i);
    return KVANT_OK;
}

/* What of a schema a list of parameters cannot say. */
static int check_params(maker *k)
{
    static const char *const words[] = { "$ref", "anyOf", "oneOf", "allOf", "not", "patternProperties", "if" };
    const tool *t = &k->r->tools->tools[k->tool];
    const json_t *p = json_object_get(t->parameters, "properties"), *list = json_object_get(t->parameters, "required");
    size_t i;
    json_t *v;

    if (p && !json_is_object(p))
        return wrong(k, "properties: want an object");
    if (json_object_size(p) > 1024)
        return wrong(k, "properties: more than 1024");
    json_array_foreach(
        (json_t *)list, i,
        v) if (!json_is_string(v) ||
               !json_object_get(
                   p, json_string_value(v))) return wrong(k, "required: names a parameter that properties lacks");
    for (i = 0; t->strict && i < sizeof words / sizeof words[0]; i++)
        if (json_object_get(t->parameters, words[i]))
            return wrong(k, "strict: this model's dialect writes parameters one by one: want properties only");
    return KVANT_OK;
}

/* ---- calls ---- */

/* From the name to `after`: rule t<tool>. */
static int put_call(maker *k)
{
    const tool *t = &k->r->tools->tools[k->tool];
    const dialect *d = k->r->d;
    char path[MAX_PATH];
    int rule;

    sbuf_printf(&k->rules, "t%d ::= ", k->tool);
    schema_put_text(&k->rules, t->name, strlen(t->name));
    sbuf_puts(&k->rules, " ");
    put_pattern(&k->rules, d->middle, 0);
    if (d->args) {
        sbuf_printf(&k->rules, "t%d-a0 ", k->tool);
        put_pattern(&k->rules, d->after, 0);
        sbuf_puts(&k->rules, "\n");
        KVANT_TRY(check_params(k));
        return put_params(k);
    }
    if (!t->parameters || json_object_size(t->parameters) == 0) {
        sbuf_puts(&k->rules, "\"{\" ws \"}\" ");
    } else {
        snprintf(path, sizeof path, "%.64s:#", t->name);
        KVANT_TRY(schema_add_root(&k->m, t->parameters, t->parameters, path,
                                  t->strict ? SCHEMA_STRICT : SCHEMA_LOOSE_OBJECT, &rule));
        sbuf_printf(&k->rules, "s%d ", rule);
    }
    put_pattern(&k->rules, d->after, 0);
    sbuf_puts(&k->rules, "\n");
    return KVANT_OK;
}

static void put_calls(maker *k)
{
    const tool_rules *r = k->r;
    const char *bar = "";

    sbuf_puts(&k->rules, "call ::= ");
    for (int i = 0; i < r->tools->n; i++)
        if (r->only < 0 || r->only == i) {
            sbuf_printf(&k->rules, "%st%d", bar, i);
            bar = " | ";
        }
    sbuf_puts(&k->rules, "\n");
}

static void put_root(maker *k)
{
    const tool_rules *r = k->r;
    const dialect *d = r->d;
    sbuf *b = &k->m.out;

    sbuf_puts(b, "root ::= ");
    if (r->from_start && r->t) {
        sbuf_puts(b, "thought? ");
        sbuf_puts(&k->rules, "thought ::= ");
        put_pattern(&k->rules, r->t->begin, 0);
        sbuf_puts(&k->rules, "thinks0 ");
        put_pattern(&k->rules, r->t->then, 0);
        sbuf_puts(&k->rules, "[ \\t\\r\\n]{0,8}\n");
        put_until(&k->rules, "thinks", r->t->end);
    }
    if (r->from_start) {
        sbuf_puts(b, "ws ");
        put_pattern(b, d->lead, 0);
    }
    put_pattern(b, d->open, !r->from_start);
    put_pattern(b, d->before, !r->from_start && !d->open);
    sbuf_puts(b, "call ");
    if (r->several && !d->single) {
        sbuf_puts(b, "(");
        put_pattern(b, d->between, 0);
        put_pattern(b, d->before, 0);
        sbuf_puts(b, "call)* ");
    }
    put_pattern(b, d->close, 0);
    sbuf_puts(b, "\n");
}

static int make(maker *k)
{
    const dialect_args *a = k->r->d->args;

    put_root(k);
    put_calls(k);
    for (k->tool = 0; k->tool < k->r->tools->n; k->tool++)
        if (k->r->only < 0 || k->r->only == k->tool)
            KVANT_TRY(put_call(k));
    if (a && (a->quote || a->bare))
        put_until(&k->rules, "until", a->quote ? a->quote : a->end);
    if (k->rules.n)
        sbuf_put(&k->m.out, k->rules.s, k->rules.n);
    k->m.out.error |= k->rules.error;
    return schema_finish(&k->m);
}

int tool_grammar(const tool_rules *r, char **gbnf, kvant_diag *diag)
{
    maker k = { .r = r,
                .m = { .out = { .max = GRAMMAR_MAX_SCHEMA }, .diag = diag },
                .rules = { .max = GRAMMAR_MAX_SCHEMA } };
    const int code = make(&k);

    if (code == KVANT_OK) {
        *gbnf = k.m.out.s;
        k.m.out.s = NULL;
    }
    sbuf_free(&k.rules);
    schema_free(&k.m);
    return code;
}
