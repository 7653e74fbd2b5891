/* jinja_lex.c: a template's tokens, with the white space rules of trim_blocks and lstrip_blocks.
 *
 * Text before a tag: `-` at the tag takes all white space before it; else a block or comment that stands alone on its
 * line takes what is before it on the line (not with `+`).  Behind a tag: `-` takes all white space; else a block or
 * comment takes one newline (not with `+`). */
#include "text/jinja/jinja_code.h"

#include <string.h>

static int space(char c)
{
    return c == ' ' || (c >= 9 && c <= 13);
}

static int word(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (uint8_t)c >= 0x80;
}

static int digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek(const jlexer *l, size_t i)
{
    return l->at + i < l->n ? l->s[l->at + i] : 0;
}

static void token(jlexer *l, enum jtoken kind, size_t from, size_t to)
{
    l->kind = kind;
    l->from = from;
    l->to = to;
}

static void fail(jlexer *l, size_t at, const char *why)
{
    token(l, JT_EOF, at, at);
    l->why = why;
}

/* ---- between tags ---- */

/* The byte behind a tag that ended at l->at, whose end was `sign` and then the two characters. */
static void after_tag(jlexer *l, char sign, int newline)
{
    if (sign == '-')
        while (l->at < l->n && space(l->s[l->at]))
            l->at++;
    else if (sign != '+' && newline && peek(l, 0) == '\n')
        l->at++;
    l->line_start = l->at > 0 && l->s[l->at - 1] == '\n';
}

/* End of the text s[from..to) before a tag that begins at `to` with `sign`. */
static size_t text_end(const jlexer *l, size_t from, size_t to, char sign, int block)
{
    size_t end = to, line;

    if (sign == '-') {
        while (end > from && space(l->s[end - 1]))
            end--;
        return end;
    }
    if (sign == '+' || !block)
        return to;
    for (line = to; line > from && space(l->s[line - 1]) && l->s[line - 1] != '\n';)
        line--;
    int begins = line > from ? l->s[line - 1] == '\n' : l->line_start;
    return begins ? line : to;
}

/* Returns 1 if s[at..] goes on, after white space, with a word and then with an end of a block; *end is behind it,
 * *sign the sign of that end. */
static int tag_is(const jlexer *l, size_t at, const char *name, size_t *end, char *sign)
{
    size_t n = strlen(name);

    if (at < l->n && (l->s[at] == '-' || l->s[at] == '+'))
        at++;
    while (at < l->n && space(l->s[at]))
        at++;
    if (l->n - at < n || memcmp(l->s + at, name, n) != 0)
        return 0;
    for (at += n; at < l->n && space(l->s[at]);)
        at++;
    *sign = 0;
    if (at < l->n && (l->s[at] == '-' || l->s[at] == '+'))
        *sign = l->s[at++];
    if (l->n - at < 2 || l->s[at] != '%' || l->s[at + 1] != '}')
        return 0;
    *end = at + 2;
    return 1;
}

/* {% raw %}: what follows up to {% endraw %} is text. l->at is behind the first tag. */
static void raw(jlexer *l, char sign)
{
    size_t from, end;
    char close;

    after_tag(l, sign, 0);
    from = l->at;
    for (size_t at = from; at + 1 < l->n; at++) {
        if (l->s[at] != '{' || l->s[at + 1] != '%' || !tag_is(l, at + 2, "endraw", &end, &close))
            continue;
        size_t to = text_end(l, from, at, at + 2 < l->n ? l->s[at + 2] : 0, 1);
        l->at = end;
        after_tag(l, close, 1);
        token(l, JT_TEXT, from, to);
        return;
    }
    fail(l, from, "no {% endraw %} for this {% raw %}");
}

static void comment(jlexer *l, size_t at)
{
    for (size_t i = at + 2; i + 1 < l->n; i++)
        if (l->s[i] == '#' && l->s[i + 1] == '}') {
            l->at = i + 2;
            after_tag(l, i > at + 2 ? l->s[i - 1] : 0, 1);
            return;
        }
    fail(l, at, "no #} for this {#");
}

static int opens(const jlexer *l, size_t at)
{
    return at + 1 < l->n && l->s[at] == '{' && (l->s[at + 1] == '{' || l->s[at + 1] == '%' || l->s[at + 1] == '#');
}

/* The tag at l->at, which opens. */
static void open_tag(jlexer *l)
{
    size_t at = l->at, end;
    char kind = l->s[at + 1], sign = 0;

    if (kind == '#') {
        comment(l, at);
        return;
    }
    if (kind == '%' && tag_is(l, at + 2, "raw", &end, &sign)) {
        l->at = end;
        raw(l, sign);
        return;
    }
    l->in = kind == '%' ? '%' : '}';
    l->brackets = 0;
    l->at = at + 2;
    if (peek(l, 0) == '-' || peek(l, 0) == '+')
        l->at++;
    token(l, kind == '%' ? JT_TAG : JT_PRINT, at, l->at);
}

static void next_outside(jlexer *l)
{
    l->kind = JT_END; /* a comment leaves no token */
    while (l->kind == JT_END) {
        size_t from = l->at, to = from;
        while (to < l->n && !opens(l, to))
            to++;
        l->at = to;
        if (to < l->n) {
            char sign = to + 2 < l->n ? l->s[to + 2] : 0;
            size_t end = text_end(l, from, to, sign, l->s[to + 1] != '{');
            if (end > from) {
                token(l, JT_TEXT, from, end);
                l->line_start = 0; /* what was left before the tag has been cut already */
                return;
            }
            open_tag(l);
        } else if (to > from) {
            token(l, JT_TEXT, from, to);
        } else {
            token(l, JT_EOF, from, from);
        }
    }
}

/* ---- in tags ---- */

static size_t digits(const jlexer *l, size_t at)
{
    while (at < l->n && (digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->n && digit(l->s[at + 1]))))
        at++;
    return at;
}

static void number(jlexer *l)
{
    size_t from = l->at, at = digits(l, from);
    enum jtoken kind = JT_INT;

    if (l->s[from] == '0' && at == from + 1 && at < l->n && memchr("xXoObB", l->s[at], 6)) {
        for (at++; at < l->n && word(l->s[at]);)
            at++;
    } else {
        if (at + 1 < l->n && l->s[at] == '.' && digit(l->s[at + 1])) {
            kind = JT_FLOAT;
            at = digits(l, at + 1);
        }
        size_t e = at + 1 < l->n && (l->s[at + 1] == '-' || l->s[at + 1] == '+') ? at + 2 : at + 1;
        if (at < l->n && (l->s[at] == 'e' || l->s[at] == 'E') && e < l->n && digit(l->s[e])) {
            kind = JT_FLOAT;
            at = digits(l, e);
        }
    }
    l->at = at;
    token(l, kind, from, at);
}

static void string(jlexer *l)
{
    const size_t from = l->at;
    const char quote = l->s[from];

    for (size_t at = from + 1; at < l->n; at++) {
        if (l->s[at] == quote) {
            l->at = at + 1;
            token(l, JT_STRING, from + 1, at);
            return;
        }
        if (l->s[at] == '\\')
            at++;
    }
    fail(l, from, "this string has no end");
}

static int ends_tag(const jlexer *l)
{
    size_t i = peek(l, 0) == '-' || (l->in == '%' && peek(l, 0) == '+');

    return !l->brackets && peek(l, i) == l->in && peek(l, i + 1) == '}';
}

static void end_tag(jlexer *l)
{
    size_t from = l->at;
    char sign = peek(l, 0) == l->in ? 0 : peek(l, 0);

    l->at += 2 + (sign != 0);
    int block = l->in == '%';
    l->in = 0;
    after_tag(l, sign, block);
    token(l, JT_END, from, l->at);
}

static void operator(jlexer *l)
{
    static const char *const two[] = { "**", "//", "==", "!=", "<=", ">=", NULL };
    size_t from = l->at;

    for (int i = 0; two[i]; i++)
        if (peek(l, 0) == two[i][0] && peek(l, 1) == two[i][1]) {
            l->op = two[i][0] << 8 | two[i][1];
            l->at += 2;
            token(l, JT_OP, from, l->at);
            return;
        }
    if (!peek(l, 0) || !strchr("+-*/%~[](){}<>=.:,|;", peek(l, 0))) {
        fail(l, from, "this character is not of the language");
        return;
    }
    l->op = peek(l, 0);
    if (strchr("([{", l->op))
        l->brackets++;
    if (strchr(")]}", l->op) && l->brackets)
        l->brackets--;
    l->at++;
    token(l, JT_OP, from, l->at);
}

static void next_inside(jlexer *l)
{
    while (l->at < l->n && space(l->s[l->at]))
        l->at++;
    if (l->at >= l->n)
        fail(l, l->n, "the template ends inside of a tag");
    else if (ends_tag(l))
        end_tag(l);
    else if (digit(peek(l, 0)))
        number(l);
    else if (peek(l, 0) == '\'' || peek(l, 0) == '"')
        string(l);
    else if (word(peek(l, 0))) {
        size_t from = l->at;
        while (l->at < l->n && word(l->s[l->at]))
            l->at++;
        token(l, JT_NAME, from, l->at);
    } else
        operator(l);
}

void jlex_next(jlexer *l)
{
    if (l->in)
        next_inside(l);
    else
        next_outside(l);
}
