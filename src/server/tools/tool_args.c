/* tool_args.c: the arguments of a call, as JSON: passed on where the model writes JSON, made where it writes a list of
 * keys and values. */
#include <stdio.h>
#include <string.h>
#include "server/tools/tool_json.h"
#include "server/tools/tool_parser_impl.h"

enum {
    MOST_MARKS = 16, /* end markers within one value that is JSON */
    MOST_ENDS = 4,   /* of a call, one behind another */
    IN_QUOTE = 256,  /* json.in_string: in a text between the dialect's quotes */
};

/* More of the arguments: passed on, or kept until they are sure. */
static void put_n(tool_parser *p, const char *s, size_t n)
{
    if (parser_buffers(p))
        sbuf_put(&p->args, s, n);
    else
        parser_emit(p, TOOL_ARGS, s, n);
}

static void put(tool_parser *p, const char *s)
{
    put_n(p, s, strlen(s));
}

void parser_begin_arguments(tool_parser *p)
{
    memset(&p->json, 0, sizeof p->json);
    p->n_params = 0;
    p->args.n = p->value.n = 0;
    if (p->f->args)
        put(p, "{");
}

/* The text so far is no call: all of it is text, unless some of it is out. */
static int give_up(tool_parser *p)
{
    if (parser_buffers(p)) /* it may be one in another form */
        return parser_not_a_call(p, PLAIN_TRIGGER);
    parser_to(p, PARSE_TEXT);
    return 1;
}

/* ---- JSON ---- */

/* Takes one byte of a string in a value: an escape, the quote that ends it, or text. */
static void string_byte(tool_parser *p, char c)
{
    if (p->json.escaped)
        p->json.escaped = 0;
    else if (c == '\\')
        p->json.escaped = 1;
    else if (c == p->json.in_string)
        p->json.in_string = 0;
}

/* Takes one byte of a value that has begun; 1: it is its last. */
static int json_byte(tool_parser *p, char c)
{
    if (p->json.in_string) {
        string_byte(p, c);
    } else {
        p->json.in_string = c == '"' || (c == '\'' && parser_buffers(p)) ? c : 0;
        p->json.depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return p->json.depth == 0 && !p->json.in_string;
}

static int json_end(tool_parser *p)
{
    memset(&p->json, 0, sizeof p->json);
    p->state = PARSE_AFTER;
    return parser_call_done(p) ? 1 : parser_not_a_call(p, PLAIN_NOT);
}

/* Reads an argument without a grammar, which may be JSON within a text. */
static int in_json(tool_parser *p)
{
    const char *from = p->held.s + p->at;
    const size_t left = p->held.n - p->at;
    size_t n = 0;
    int ends = 0;

    if (!p->json.kind && parser_skip_blanks(p))
        return 1;
    if (!p->json.kind && *from == '"' && parser_buffers(p)) {
        if (left < 2 && !p->final)
            return 0;
        if (left < 2 || !strchr("{ \\", from[1]))
            return give_up(p);
    } else if (!p->json.kind && *from != '{') {
        return give_up(p);
    }
    if (!p->json.kind && !parser_buffers(p))
        parser_tell_call(p); /* not before: a model that is let go may write its arguments otherwise */
    p->json.kind = 1;
    while (n < left && !ends)
        ends = json_byte(p, from[n++]);
    put_n(p, from, n);
    parser_take(p, n);
    return ends ? json_end(p) : 0;
}

/* ---- keys and values ---- */

/* Blanks, and then the next call; MATCH_PART: nothing else has come. */
static int behind_blanks(tool_parser *q)
{
    const size_t from = q->at;
    size_t used;

    while (q->at < q->held.n && strchr(" \n\t\r", q->held.s[q->at]))
        q->at++;
    if (q->at - from > PARSER_MOST_BLANKS)
        return MATCH_NO;
    return q->at < q->held.n ? parser_marker(q, &used) : MATCH_PART;
}

/* The call's own end was forgotten: another end comes, or the next call. */
static int another_end(const tool_parser *p)
{
    tool_parser q = { .d = p->d, .f = p->f, .held = p->held, .at = p->at, .final = p->final };
    size_t used;
    const int m = p->f->args->bare && parser_buffers(p) ? parser_end_marker(&q, &used) : MATCH_FULL;

    if (!p->f->args->bare || !parser_buffers(p))
        return MATCH_NO;
    return m == MATCH_NO ? behind_blanks(&q) : m;
}

static int in_key(tool_parser *p)
{
    size_t last = 0, used = 0;
    const int end = parser_try(p, p->f->after, PATTERN_ALL, &last);
    const int more = parser_try_both(p, p->n_params ? p->f->args->between : NULL, p->f->args->key, &used);
    const int other = end == MATCH_NO && more == MATCH_NO ? another_end(p) : MATCH_NO;

    if (end == MATCH_PART || more == MATCH_PART || other == MATCH_PART)
        return 0;
    if (other == MATCH_FULL) {
        put(p, "}");
        p->state = PARSE_AFTER;
        return parser_call_done(p) ? 1 : parser_not_a_call(p, PLAIN_NOT);
    }
    if (end == MATCH_FULL) {
        parser_take(p, last);
        put(p, "}");
        p->state = PARSE_NEXT;
        return parser_call_done(p) ? 1 : parser_not_a_call(p, PLAIN_NOT);
    }
    if (more == MATCH_NO)
        return give_up(p);
    parser_take(p, used);
    p->state = PARSE_KEY_NAME;
    return 1;
}

/* Returns 1 if c separates a parameter's name from its value. */
static int ends_key(const dialect_args *a, char c)
{
    return strchr(a->value, '~') ? c == '"' || c == '\'' || c == '>' : c == *a->value;
}

/* Bytes of a parameter's name: up to what separates it from its value. */
static int read_key(const tool_parser *p, size_t *n)
{
    const char *s = p->held.s + p->at;
    const size_t left = p->held.n - p->at;

    for (*n = 0; *n < left; ++*n) {
        if (ends_key(p->f->args, s[*n]) || strchr(p->f->args->bare ? "<>\"" : "<>\"{}()[],", s[*n]))
            return *n ? MATCH_FULL : MATCH_NO;
        if ((unsigned char)s[*n] < 0x20 || *n == PARAM_NAME_MOST)
            return MATCH_NO;
    }
    return p->final ? MATCH_NO : MATCH_PART;
}

static void put_escaped(tool_parser *p, unsigned char c)
{
    static const char letters[] = "\"\\\b\f\n\r\t", as[] = "\"\\bfnrt";
    const char *at = c ? strchr(letters, c) : NULL;
    char text[8] = { (char)c, 0 };

    if (at)
        snprintf(text, sizeof text, "\\%c", as[at - letters]);
    else if (c < 0x20)
        snprintf(text, sizeof text, "\\u%04x", c);
    put(p, text);
}

static int in_key_name(tool_parser *p)
{
    size_t n;

    if (parser_skip_blanks(p))
        return 1;
    const int m = read_key(p, &n);
    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return give_up(p);
    memcpy(p->name, p->held.s + p->at, n);
    p->name[n] = 0;
    for (size_t k = n; k && p->name[k - 1] == ' '; k--)
        p->name[k - 1] = 0;
    parser_take(p, n);
    put(p, p->n_params ? ", \"" : "\"");
    for (const char *c = p->name; *c; c++)
        put_escaped(p, (unsigned char)*c);
    put(p, "\": ");
    p->state = PARSE_VALUE;
    return 1;
}

/* How the value is read: text as it comes, text or JSON once it is whole, or JSON (tool_schema.h). */
static enum tool_state value_state(tool_parser *p)
{
    const dialect_args *a = p->f->args;

    if (p->typed >= 0)
        return p->typed == 0 ? PARSE_RAW : PARSE_COLLECT;
    if (p->quoted)
        return PARSE_RAW;
    if (!a->bare)
        return PARSE_PYTHON;
    return tool_param_is_text(&p->tools->tools[p->tool], p->name, strlen(p->name)) ? PARSE_RAW : PARSE_COLLECT;
}

/* The alternative that comes, where its place tells the value's type; -1: the schema does. */
static int typed_by(const tool_parser *p, const char *value)
{
    char one[80];
    size_t used, n;
    int i = 0;

    for (const char *s = value; strchr(value, '\v') && *s != '~'; s += n + 1, i++) {
        n = strcspn(s, "\v");
        snprintf(one, sizeof one, "%.*s", (int)n, s);
        if (parser_try(p, one, PATTERN_ALL, &used) == MATCH_FULL)
            return i;
        if (!s[n])
            break;
    }
    return -1;
}

static int in_value(tool_parser *p)
{
    const dialect_args *a = p->f->args;
    size_t used, quote = 0;
    const char *opens = a->wrap ? a->wrap : a->quote;
    int m = parser_try(p, a->value, PATTERN_ALL, &used);

    if (m == MATCH_FULL && opens)
        m = parser_try_both(p, a->value, opens, &quote);
    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO && parser_try(p, a->value, PATTERN_ALL, &used) != MATCH_FULL)
        return give_up(p);
    p->quoted = opens && m == MATCH_FULL;
    p->typed = typed_by(p, a->value);
    parser_take(p, p->quoted ? quote : used);
    p->state = value_state(p);
    p->value.n = 0;
    p->marks = 0;
    if (p->state == PARSE_RAW)
        put(p, "\"");
    return 1;
}

/* Behind "<parameter=": a name that the tool's schema has, which is not this one, and what separates it from its
 * value. */
static int begins_param(const tool_parser *p)
{
    const dialect_args *a = p->f->args;
    const json_t *all = p->tools->tools[p->tool].properties;
    tool_parser q = { .held = p->held, .final = p->final };
    char name[PARAM_NAME_MOST + 1];
    size_t used, n = 0;
    const int m = parser_try(p, a->key, PATTERN_ALL, &used);

    if (m != MATCH_FULL)
        return m;
    q.at = p->at + used;
    while (q.at + n < q.held.n && n < PARAM_NAME_MOST && !ends_key(a, q.held.s[q.at + n]))
        n++;
    if (q.at + n == q.held.n)
        return p->final ? MATCH_NO : MATCH_PART;
    memcpy(name, q.held.s + q.at, n);
    name[n] = 0;
    if (strcmp(name, p->name) == 0 || !json_object_get(all, name))
        return MATCH_NO;
    q.at += n;
    return parser_try(&q, a->value, PATTERN_ALL, &used);
}

/* The call's own end, other ends, and then the output's or the next call. */
static int ends_call(const tool_parser *p)
{
    tool_parser q = { .d = p->d, .f = p->f, .held = p->held, .at = p->at, .final = p->final };
    size_t used;
    int m = parser_try(&q, q.f->after, PATTERN_ALL, &used);

    for (int i = 0; m == MATCH_FULL && i < MOST_ENDS; i++) {
        q.at += used;
        m = parser_end_marker(&q, &used);
    }
    if (m != MATCH_NO || q.at == p->at)
        return m == MATCH_FULL ? MATCH_NO : m;
    m = behind_blanks(&q);
    if (q.at < q.held.n || !p->final)
        return m;
    return p->cut ? MATCH_NO : MATCH_FULL;
}

/* A text whose end marker was forgotten ends before the next parameter, and before the end of the call. */
static int lacks_end(const tool_parser *p)
{
    const char c = p->held.s[p->at];

    if (!p->f->args->bare || p->quoted || (p->guarded && p->wanted) || !strchr("< \n\t\r", c))
        return MATCH_NO;
    const int next = begins_param(p), end = ends_call(p);
    return next == MATCH_FULL || end == MATCH_FULL ? MATCH_FULL
           : next == MATCH_PART || end == MATCH_PART ? MATCH_PART
                                                     : MATCH_NO;
}

static int in_raw(tool_parser *p)
{
    const dialect_args *a = p->f->args;
    const char *quote = a->unwrap ? a->unwrap : a->quote, *end = p->quoted ? quote : a->lines ? a->lines : a->end;
    size_t used;

    if (a->lines && p->marks++ == 0 && p->held.s[p->at] == '\n') {
        parser_take(p, 1);
        return 1;
    }
    const int m = parser_try(p, end, PATTERN_ALL, &used);
    const int lacks = m == MATCH_NO ? lacks_end(p) : MATCH_NO;
    if (m == MATCH_PART || lacks == MATCH_PART)
        return 0;
    if (m == MATCH_NO && lacks == MATCH_NO) {
        put_escaped(p, (unsigned char)p->held.s[p->at]);
        parser_take(p, 1);
        return 1;
    }
    p->mended |= lacks == MATCH_FULL;
    parser_take(p, lacks == MATCH_FULL ? 0 : used);
    put(p, "\"");
    p->n_params += !p->quoted;
    p->state = p->quoted ? PARSE_VALUE_END : PARSE_KEY;
    return 1;
}

/* The whole value is there: without the line breaks that the format puts around it. */
static int value_done(tool_parser *p)
{
    const char *s = sbuf_text(&p->value);
    size_t n = p->value.n;
    sbuf out = { 0 };

    if (p->f->args->lines && n && s[0] == '\n') {
        s++;
        n--;
    }
    if (p->f->args->lines && n && s[n - 1] == '\n')
        n--;
    const int ok = p->typed > 0 ? tool_json_normal(s, n, &out) /* as JSON, whatever the schema says */
                                : tool_param_value(&p->tools->tools[p->tool], p->name, strlen(p->name), s, n, &out);
    if (ok)
        put_n(p, sbuf_text(&out), out.n);
    sbuf_free(&out);
    return ok;
}

static int in_collect(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->f->args->end, PATTERN_ALL, &used);

    const int lacks = m == MATCH_NO ? lacks_end(p) : MATCH_NO;
    if (m == MATCH_PART || lacks == MATCH_PART)
        return 0;
    if ((m == MATCH_FULL || lacks == MATCH_FULL) && value_done(p)) {
        p->mended |= m != MATCH_FULL;
        parser_take(p, m == MATCH_FULL ? used : 0);
        p->n_params++;
        p->state = PARSE_KEY;
        return 1;
    }
    if ((m == MATCH_FULL || lacks == MATCH_FULL) && ++p->marks > MOST_MARKS)
        return give_up(p);
    sbuf_put(&p->value, p->held.s + p->at, 1); /* a marker in a text of a JSON value goes on with it */
    parser_take(p, 1);
    return 1;
}

/* Returns 1 if the value so far ends with the first n bytes of the dialect's quote. */
static int ends_in_quote(const tool_parser *p, size_t n)
{
    return p->value.n >= n && memcmp(sbuf_text(&p->value) + p->value.n - n, p->f->args->quote, n) == 0;
}

/* The dialect's quote within a list or an object, which may hold a '"' itself; 1: c is one of its bytes. */
static int quote_byte(tool_parser *p, char c)
{
    const char *quote = p->f->args->quote, *mark = quote ? strchr(quote, '"') : NULL;
    const size_t n = quote ? strlen(quote) : 0;

    if (!quote || (p->json.in_string && p->json.in_string != IN_QUOTE))
        return 0;
    if (c == quote[n - 1] && ends_in_quote(p, n - 1)) {
        p->json.in_string = p->json.in_string ? 0 : IN_QUOTE;
        return 1;
    }
    return p->json.in_string == IN_QUOTE || (c == '"' && mark && ends_in_quote(p, (size_t)(mark - quote)));
}

/* Takes one byte of a value in Python's or Gemma's spelling; 1: it is not of it, but what comes behind. */
static int python_byte(tool_parser *p, char c)
{
    if (quote_byte(p, c))
        return 0;
    if (p->json.in_string) {
        string_byte(p, c);
        return 0;
    }
    if (p->json.depth == 0 && strchr(",)}]", c))
        return 1;
    if (c == '"' || (c == '\'' && !p->f->args->quote))
        p->json.in_string = c;
    p->json.depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
    return 0;
}

static int in_python(tool_parser *p)
{
    const char c = p->held.s[p->at];
    sbuf out = { 0 };

    if (!python_byte(p, c)) {
        sbuf_put(&p->value, &c, 1);
        parser_take(p, 1);
        return 1;
    }
    memset(&p->json, 0, sizeof p->json);
    const int ok = tool_json_normal(sbuf_text(&p->value), p->value.n, &out);
    if (ok)
        put_n(p, sbuf_text(&out), out.n);
    sbuf_free(&out);
    p->state = PARSE_VALUE_END;
    return ok ? 1 : give_up(p);
}

static int in_value_end(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->f->args->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return give_up(p);
    parser_take(p, used);
    p->n_params++;
    p->state = PARSE_KEY;
    return 1;
}

int parser_in_arguments(tool_parser *p)
{
    switch (p->state) {
    case PARSE_JSON: return in_json(p);
    case PARSE_KEY: return in_key(p);
    case PARSE_KEY_NAME: return in_key_name(p);
    case PARSE_VALUE: return in_value(p);
    case PARSE_RAW: return in_raw(p);
    case PARSE_COLLECT: return in_collect(p);
    case PARSE_PYTHON: return in_python(p);
    default: return in_value_end(p);
    }
}
