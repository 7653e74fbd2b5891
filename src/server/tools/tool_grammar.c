/* tool_grammar.c: see tool_grammar.h.  Schemas of arguments become rules as those of response_format do
 * (grammar_schema.h); the frame around them is the dialect's row. */
#include "server/tools/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_schema.h"
#include "server/tools/tool_json.h"
#include "server/tools/tool_schema.h"

typedef struct rule_maker {
    const tool_rules *r;
    schema_maker m;
    sbuf rules;       /* behind the root */
    int tool, format; /* format: the rule of what may come instead */
} rule_maker;

static int wrong(rule_maker *k, const char *what)
{
    return kvant_fail(k->m.diag, KVANT_EINVAL, "item %d: function.parameters: %s", k->tool, what);
}

/* ---- arguments as keys and values ---- */

/* A line's end may stand before a value's end marker, in dialects whose values have lines of their own. */
static void put_line(rule_maker *k)
{
    if (k->r->d->args->lines)
        sbuf_puts(&k->rules, "\"\\n\"? ");
}

/* Returns 1 if a text can stand before the marker that ends it. */
static int fits(const dialect_args *a, const json_t *v, const sbuf *text)
{
    const char *end = a->quote ? a->quote : a->end;

    return !json_is_string(v) || (strlen(sbuf_text(text)) == text->n && !strstr(sbuf_text(text), end));
}

/* One of the listed values, as tool_param_value reads it; 0: none of them can be written. */
static int put_listed(rule_maker *k, const json_t *list)
{
    const dialect_args *a = k->r->d->args;
    size_t i, n = 0;
    json_t *v;

    json_array_foreach((json_t *)list, i, v)
    {
        sbuf text = { 0 };
        if (json_is_string(v))
            sbuf_put(&text, json_string_value(v), json_string_length(v));
        else
            tool_json_put(v, &text);
        if (fits(a, v, &text)) {
            const int quotes = a->quote && json_is_string(v);
            sbuf_puts(&k->rules, n++ ? " | " : "(");
            if (quotes)
                schema_put_text(&k->rules, a->quote, strlen(a->quote));
            schema_put_text(&k->rules, sbuf_text(&text), text.n);
            if (quotes)
                schema_put_text(&k->rules, a->quote, strlen(a->quote));
        }
        sbuf_free(&text);
    }
    if (n)
        sbuf_puts(&k->rules, ") ");
    return n > 0;
}

static int put_json_value(rule_maker *k, const char *name, const json_t *schema)
{
    const tool *t = &k->r->tools->tools[k->tool];
    char path[MAX_PATH];
    int rule;

    snprintf(path, sizeof path, "%.64s:#/properties/%.64s", t->name, name);
    KVANT_TRY(schema_add_root(&k->m, schema, t->parameters, path, t->strict ? SCHEMA_STRICT : SCHEMA_LOOSE, &rule));
    sbuf_printf(&k->rules, "s%d ", rule);
    return KVANT_OK;
}

/* Between quotes, or JSON: the same types as tool_args.c reads. */
static int put_quoted(rule_maker *k, const char *name, const json_t *schema, unsigned types)
{
    const char *quote = k->r->d->args->quote;

    if (!(types & ACCEPTS_TEXT))
        return put_json_value(k, name, schema);
    sbuf_puts(&k->rules, "(");
    schema_put_text(&k->rules, quote, strlen(quote));
    sbuf_puts(&k->rules, " until0 ");
    if (types != ACCEPTS_TEXT) {
        sbuf_puts(&k->rules, "| ");
        KVANT_TRY(put_json_value(k, name, schema));
    }
    sbuf_puts(&k->rules, ") ");
    return KVANT_OK;
}

/* Returns 1 if a schema, or one in it, limits the form of a text. */
static int constrains_texts(const json_t *schema)
{
    static const char *const words[] = { "\"minLength\"", "\"maxLength\"", "\"pattern\"", "\"format\"", "\"$ref\"" };
    char *s = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    int found = !s;

    for (size_t i = 0; !found && i < sizeof words / sizeof words[0]; i++)
        found = strstr(s, words[i]) != NULL;
    free(s); /* jansson's */
    return found;
}

/* Texts in single quotes: any, or the listed ones. */
static void put_single_quotes(rule_maker *k, const json_t *list)
{
    size_t i;
    json_t *v;

    if (!json_array_size(list))
        sbuf_puts(&k->rules, "| \"'\" [^'\\\\\\x00-\\x1F\\x7F]* \"'\" ");
    json_array_foreach((json_t *)list, i, v)
    {
        const char *s = json_string_value(v);
        if (!s || strpbrk(s, "'\\") || strlen(s) != json_string_length(v))
            continue;
        sbuf_puts(&k->rules, "| \"'\" ");
        schema_put_text(&k->rules, s, strlen(s));
        sbuf_puts(&k->rules, " \"'\" ");
    }
}

/* Python has quotes and words of its own. */
static int put_python(rule_maker *k, const char *name, const json_t *schema, unsigned types)
{
    json_t *list = json_array();
    const int listed = schema_lists(schema, k->r->tools->tools[k->tool].parameters, list);
    int code;

    sbuf_puts(&k->rules, "(");
    code = put_json_value(k, name, schema);
    if (types & ACCEPTS_TEXT && (listed || !constrains_texts(schema)))
        put_single_quotes(k, listed ? list : NULL);
    if (types & ACCEPTS_BOOL && !listed)
        sbuf_puts(&k->rules, "| \"True\" | \"False\" ");
    if (types & ACCEPTS_NULL)
        sbuf_puts(&k->rules, "| \"None\" ");
    sbuf_puts(&k->rules, ") ");
    json_decref(list);
    return code;
}

/* Puts a value with its type before it: plain text, or JSON. */
static int put_typed(rule_maker *k, const char *name, const json_t *schema, unsigned types)
{
    const dialect_args *a = k->r->d->args;
    int code = KVANT_OK;

    sbuf_puts(&k->rules, "(");
    if (types & ACCEPTS_TEXT) {
        json_t *list = json_array();
        rule_pattern(&k->rules, a->value, 0);
        if (types == ACCEPTS_TEXT && schema_lists(schema, k->r->tools->tools[k->tool].parameters, list) &&
            put_listed(k, list))
            rule_pattern(&k->rules, a->end, 0);
        else
            sbuf_puts(&k->rules, "until0 ");
        json_decref(list);
    }
    if (types != ACCEPTS_TEXT) {
        sbuf_puts(&k->rules, types & ACCEPTS_TEXT ? "| " : "");
        rule_alternatives(&k->rules, a->value + strcspn(a->value, "\v") + 1);
        code = put_json_value(k, name, schema);
        rule_pattern(&k->rules, a->end, 0);
    }
    sbuf_puts(&k->rules, ") ");
    return code;
}

static int put_value(rule_maker *k, const char *name, const json_t *schema)
{
    const dialect_args *a = k->r->d->args;
    const json_t *root = k->r->tools->tools[k->tool].parameters;
    const unsigned types = schema_accepts(schema, root);
    json_t *list = json_array();
    const int listed = (a->bare ? types & ACCEPTS_TEXT : a->quote && types == ACCEPTS_TEXT) &&
                       schema_lists(schema, root, list);
    int code = KVANT_OK;

    if (strchr(a->value, '\v')) {
        json_decref(list);
        return put_typed(k, name, schema, types);
    }
    rule_pattern(&k->rules, a->value, 0);
    put_line(k);
    if (listed && put_listed(k, list)) {
        put_line(k);
        rule_pattern(&k->rules, a->end, 0);
    } else if (a->bare && types & ACCEPTS_TEXT) {
        sbuf_puts(&k->rules, "until0 ");
    } else {
        code = a->bare    ? put_json_value(k, name, schema)
               : a->quote ? put_quoted(k, name, schema, types)
                          : put_python(k, name, schema, types);
        put_line(k);
        rule_pattern(&k->rules, a->end, 0);
    }
    json_decref(list);
    return code;
}

static int is_required(const tool *t, const char *name)
{
    size_t i;
    json_t *v;

    json_array_foreach(t->required, i, v) if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return 1;
    return 0;
}

/* These characters end a parameter's name, or would look like its end (tool_args.c, read_key). */
static const char *name_ends(const dialect_args *a)
{
    return a->bare ? "<>\"" : a->value[0] == '=' ? "<>\"{}()[],=" : "<>\"{}()[],:";
}

/* Parameter i: rule t<tool>-k<i>. */
static int put_param(rule_maker *k, int i, const char *name, const json_t *schema)
{
    const dialect_args *a = k->r->d->args;
    size_t n = 0;

    while ((unsigned char)name[n] >= ' ' && !strchr(name_ends(a), name[n]))
        n++;
    if (name[n] || !n || n > PARAM_NAME_MOST || name[0] == ' ' || name[n - 1] == ' ')
        return wrong(k, "a parameter's name has characters that this model's dialect cannot write, or over 128");
    sbuf_printf(&k->rules, "t%d-k%d ::= ", k->tool, i);
    rule_pattern(&k->rules, a->key, 0);
    schema_put_text(&k->rules, name, n);
    KVANT_TRY(put_value(k, name, schema));
    sbuf_puts(&k->rules, "\n");
    return KVANT_OK;
}

/* Any parameters behind those that have names of their own: rules a<i> and b<i>. */
static int put_others(rule_maker *k, int i)
{
    const dialect_args *a = k->r->d->args;
    const json_t *schema = schema_others(k->r->tools->tools[k->tool].parameters);
    const int t = k->tool;

    sbuf_printf(&k->rules, schema ? "t%d-a%d ::= (t%d-k%d t%d-b%d)?\n" : "t%d-a%d ::= \"\"\n", t, i, t, i, t, i);
    sbuf_printf(&k->rules, "t%d-b%d ::= ", t, i);
    if (!schema) {
        sbuf_puts(&k->rules, "\"\"\n");
        return KVANT_OK;
    }
    sbuf_puts(&k->rules, "(");
    rule_pattern(&k->rules, a->between, 0);
    sbuf_printf(&k->rules, "t%d-k%d)*\nt%d-k%d ::= ", t, i, t, i);
    rule_pattern(&k->rules, a->key, 0);
    sbuf_puts(&k->rules, "[a-zA-Z_] [a-zA-Z0-9_.-]{0,63} ");
    KVANT_TRY(put_value(k, "*", schema));
    sbuf_puts(&k->rules, "\n");
    return KVANT_OK;
}

/* Rules a<i> (nothing written yet) and b<i> choose what of the parameters from i on comes, in the schema's order. */
static int put_params(rule_maker *k)
{
    const dialect_args *a = k->r->d->args;
    const tool *which = &k->r->tools->tools[k->tool];
    const char *name;
    json_t *v;
    int i = 0, t = k->tool;

    json_object_foreach(which->properties, name, v)
    {
        const int needed = is_required(which, name);
        sbuf_printf(&k->rules, "t%d-a%d ::= t%d-k%d t%d-b%d", t, i, t, i, t, i + 1);
        if (!needed)
            sbuf_printf(&k->rules, " | t%d-a%d", t, i + 1);
        sbuf_printf(&k->rules, "\nt%d-b%d ::= ", t, i);
        rule_pattern(&k->rules, a->between, 0);
        sbuf_printf(&k->rules, "t%d-k%d t%d-b%d", t, i, t, i + 1);
        if (!needed)
            sbuf_printf(&k->rules, " | t%d-b%d", t, i + 1);
        sbuf_puts(&k->rules, "\n");
        KVANT_TRY(put_param(k, i++, name, v));
    }
    return put_others(k, i);
}

/* Refuses the parts of a schema that a list of parameters cannot say. */
static int check_params(rule_maker *k)
{
    static const char *const words[] = { "not", "patternProperties", "if" };
    const tool *t = &k->r->tools->tools[k->tool];
    const json_t *p = json_object_get(t->parameters, "properties");
    size_t i;
    json_t *v;

    if (p && !json_is_object(p))
        return wrong(k, "properties: want an object");
    if (json_object_size(t->properties) > 1024)
        return wrong(k, "properties: more than 1024");
    json_array_foreach(
        t->required, i,
        v) if (!json_is_string(v) ||
               (!json_object_get(t->properties, json_string_value(v)) &&
                !schema_others(t->parameters))) return wrong(k, "required: names a parameter that properties lacks");
    for (i = 0; t->strict && i < sizeof words / sizeof words[0]; i++)
        if (json_object_get(t->parameters, words[i]))
            return wrong(k, "strict: this model's dialect writes parameters one by one: want properties only");
    return KVANT_OK;
}

/* ---- calls ---- */

/* From the name to `after`: rule t<tool>. */
static int put_call(rule_maker *k)
{
    const tool *t = &k->r->tools->tools[k->tool];
    const dialect *d = k->r->d;
    char path[MAX_PATH];
    int rule;

    sbuf_printf(&k->rules, "t%d ::= ", k->tool);
    schema_put_text(&k->rules, t->name, strlen(t->name));
    sbuf_puts(&k->rules, " ");
    rule_alternatives(&k->rules, d->middle);
    if (d->args) {
        sbuf_printf(&k->rules, "t%d-a0 ", k->tool);
        rule_pattern(&k->rules, d->after, 0);
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
        k->m.jobs[rule].needs = t->required;
        sbuf_printf(&k->rules, "s%d ", rule);
    }
    rule_pattern(&k->rules, d->after, 0);
    sbuf_puts(&k->rules, "\n");
    return KVANT_OK;
}

static void put_calls(rule_maker *k)
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

static void put_root(rule_maker *k)
{
    const tool_rules *r = k->r;
    const dialect *d = r->d;
    sbuf *b = &k->m.out;

    sbuf_puts(b, "root ::= ");
    if (r->from_start && r->t) {
        sbuf_puts(b, "thought? ");
        sbuf_puts(&k->rules, "thought ::= ");
        rule_pattern(&k->rules, r->t->begin, 0);
        sbuf_puts(&k->rules, "thinks0 ");
        rule_pattern(&k->rules, r->t->then, 0);
        sbuf_puts(&k->rules, "[ \\t\\r\\n]{0,8}\n");
        rule_until(&k->rules, "thinks", r->t->end);
    }
    sbuf_puts(b, r->format ? "(" : "");
    if (r->from_start) {
        sbuf_puts(b, "ws ");
        rule_pattern(b, d->lead, 0);
    }
    rule_pattern(b, d->open, !r->from_start);
    rule_pattern(b, d->before, !r->from_start && !d->open);
    sbuf_puts(b, "call ");
    if (r->several && !d->single) {
        sbuf_puts(b, "(");
        rule_pattern(b, d->between, 0);
        rule_pattern(b, d->before, 0);
        sbuf_puts(b, "call)* ");
    }
    rule_pattern(b, d->close, 0);
    if (r->format)
        sbuf_printf(b, " | ws s%d)", k->format);
    sbuf_puts(b, "\n");
}

/* Texts within lists and objects, in dialects with quotes and words of their own: `b` holds the quoted one. */
static void put_spellings(rule_maker *k, sbuf *b)
{
    const dialect_args *a = k->r->d->args;

    if (!a || a->bare)
        return;
    if (a->quote) {
        schema_put_text(b, a->quote, strlen(a->quote));
        sbuf_puts(b, " until0");
        k->m.more_strings = sbuf_text(b);
        return;
    }
    k->m.more_strings = "\"'\" [^'\\\\\\x00-\\x1F\\x7F]* \"'\"";
    k->m.more_booleans = "\"True\" | \"False\"";
    k->m.more_nulls = "\"None\"";
}

static int make(rule_maker *k)
{
    const dialect_args *a = k->r->d->args;
    sbuf quoted = { 0 };

    if (k->r->format)
        KVANT_TRY(schema_add_root(&k->m, k->r->format, k->r->format, "response_format:#", SCHEMA_STRICT, &k->format));
    put_root(k);
    put_calls(k);
    for (k->tool = 0; k->tool < k->r->tools->n; k->tool++)
        if (k->r->only < 0 || k->r->only == k->tool)
            KVANT_TRY(put_call(k));
    if (a && (a->quote || a->bare))
        rule_until(&k->rules, "until", a->quote ? a->quote : a->end);
    if (k->rules.n)
        sbuf_put(&k->m.out, k->rules.s, k->rules.n);
    put_spellings(k, &quoted);
    k->m.out.error |= k->rules.error | quoted.error;
    const int code = schema_finish(&k->m);
    sbuf_free(&quoted);
    return code;
}

int tool_grammar(const tool_rules *r, char **gbnf, kvant_diag *diag)
{
    rule_maker k = { .r = r,
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
