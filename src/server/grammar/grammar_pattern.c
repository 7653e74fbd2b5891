/* grammar_pattern.c: see grammar_pattern.h.  One pass over the pattern; the grammar's own groups and repetitions do the
 * rest, so nothing here nests. */
#include "server/grammar/grammar_pattern.h"

#include <stdint.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPANS = 512, LAST = 0x10FFFF, FAR = 1 << 20, MAX_DEPTH = 64 };

/* Lengths of texts: what has come of this alternative, of the others of its group, of its last item; -1: none yet. */
typedef struct level {
    int least, most, other_least, other_most;
} level;

typedef struct spans {
    uint32_t lo[MAX_SPANS], hi[MAX_SPANS];
    int n;
} spans;

typedef struct pattern_reader {
    const char *s;
    int depth, item;     /* item: something stands before that may be repeated */
    int begin, end;      /* the pattern's alternative, outside of groups, has ^, $ */
    int whole;           /* nothing comes before or behind, anchors or not */
    sbuf *out;
    kvant_diag *diag;
    spans set;
    int raw;
    int more, cap;   /* of repetitions without end */
    int least, most; /* of the item before */
    level levels[MAX_DEPTH + 1];
} pattern_reader;

static int bad(pattern_reader *r, const char *what)
{
    return kvant_fail(r->diag, KVANT_EINVAL, "pattern: %s", what);
}

static int sum(int a, int b)
{
    return a + b < FAR ? a + b : FAR;
}

/* The item before is part of its alternative now. */
static void close_item(pattern_reader *r)
{
    level *l = &r->levels[r->depth];

    l->least = sum(l->least, r->least);
    l->most = sum(l->most, r->most);
    r->least = r->most = 0;
}

static void close_alternative(pattern_reader *r)
{
    level *l = &r->levels[r->depth];

    close_item(r);
    l->other_least = l->other_least < 0 || l->least < l->other_least ? l->least : l->other_least;
    l->other_most = l->most > l->other_most ? l->most : l->other_most;
    l->least = l->most = 0;
}

static void one_character(pattern_reader *r)
{
    close_item(r);
    r->least = r->most = 1;
    r->item = 1;
}

static int add(spans *s, uint32_t lo, uint32_t hi)
{
    if (s->n == MAX_SPANS)
        return 0;
    s->lo[s->n] = lo;
    s->hi[s->n++] = hi;
    return 1;
}

static void sort_spans(spans *s)
{
    for (int i = 1; i < s->n; i++)
        for (int j = i; j > 0 && s->lo[j - 1] > s->lo[j]; j--) {
            uint32_t a = s->lo[j], b = s->hi[j];
            s->lo[j] = s->lo[j - 1];
            s->hi[j] = s->hi[j - 1];
            s->lo[j - 1] = a;
            s->hi[j - 1] = b;
        }
}

static int complement(spans *s)
{
    spans c = { .n = 0 };
    uint32_t next = 0;

    sort_spans(s);
    for (int i = 0; i < s->n; i++) {
        if (s->lo[i] > next && !add(&c, next, s->lo[i] - 1))
            return 0;
        if (s->hi[i] + 1 > next)
            next = s->hi[i] + 1;
    }
    if (next <= LAST && !add(&c, next, LAST))
        return 0;
    *s = c;
    return 1;
}

/* The set without controls, " and \: what may stand in a JSON string as it is. */
static int plain_only(spans *s, int raw)
{
    if (raw)
        return complement(s) && add(s, 0, 8) && add(s, 0xD800, 0xDFFF) && complement(s);
    return complement(s) && add(s, 0, 0x1F) && add(s, 0x22, 0x22) && add(s, 0x5C, 0x5C) && add(s, 0x7F, 0x7F) &&
           add(s, 0xD800, 0xDFFF) && complement(s);
}

static int put_set(pattern_reader *r)
{
    if (!plain_only(&r->set, r->raw))
        return bad(r, "class with too many ranges");
    if (!r->set.n)
        return bad(r, "class of characters that JSON escapes");
    sbuf_puts(r->out, "[");
    for (int i = 0; i < r->set.n; i++)
        sbuf_printf(r->out, "\\U%08X-\\U%08X", r->set.lo[i], r->set.hi[i]);
    sbuf_puts(r->out, "] ");
    one_character(r);
    return KVANT_OK;
}

/* \d \w \s and their complements into the set; 0 when c is none of them. */
static int named_class(spans *s, char c)
{
    spans t = { .n = 0 };
    char low = (char)(c | 32);

    if (low == 'd') {
        add(&t, '0', '9');
    } else if (low == 'w') {
        add(&t, '0', '9');
        add(&t, 'A', 'Z');
        add(&t, '_', '_');
        add(&t, 'a', 'z');
    } else if (low == 's') {
        add(&t, ' ', ' ');
        add(&t, 0xA0, 0xA0);
        add(&t, 9, 13);
    } else {
        return 0;
    }
    if (c != low) {
        if (low == 's') { /* not a blank: neither the ones above nor controls */
            add(&t, 9, 13);
        }
        complement(&t);
    }
    for (int i = 0; i < t.n; i++)
        add(s, t.lo[i], t.hi[i]);
    return 1;
}

/* One UTF-8 character; the pattern came from a JSON parser and is well-formed. */
static uint32_t take_char(pattern_reader *r)
{
    unsigned char c = (unsigned char)*r->s++;
    uint32_t v = c < 0x80 ? c : c < 0xE0 ? c & 0x1Fu : c < 0xF0 ? c & 0x0Fu : c & 0x07u;

    while (((unsigned char)*r->s & 0xC0) == 0x80)
        v = v << 6 | ((unsigned char)*r->s++ & 0x3Fu);
    return v;
}

/* The character of an escape that stands for one. */
static int escaped_char(pattern_reader *r, uint32_t *v)
{
    static const char pairs[] = "n\nr\rt\tf\fv\v";
    char c = *r->s;

    if (c == 'x' || c == 'u') {
        const size_t digits = c == 'x' ? 2 : 4;
        char hex[5] = "";
        if (strspn(r->s + 1, "0123456789abcdefABCDEF") < digits) /* no sign and no blank, as strtoul has them */
            return bad(r, "escape cut short");
        memcpy(hex, r->s + 1, digits);
        r->s += 1 + digits;
        *v = (uint32_t)strtoul(hex, NULL, 16);
        return KVANT_OK;
    }
    for (size_t i = 0; i + 1 < sizeof pairs; i += 2)
        if (pairs[i] == c) {
            r->s++;
            *v = (unsigned char)pairs[i + 1];
            return KVANT_OK;
        }
    if (!c || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return bad(r, "escape not supported");
    *v = take_char(r);
    return KVANT_OK;
}

static int put_char(pattern_reader *r, uint32_t v)
{
    one_character(r);
    if (r->raw && (v < 0xD800 || v > 0xDFFF))
        sbuf_printf(r->out, "[\\U%08X] ", v);
    else if (v == '"' || v == '\\')
        sbuf_printf(r->out, "\"\\\\\\%c\" ", (int)v);
    else if (v < 0x20 || v == 0x7F)
        sbuf_printf(r->out, "\"\\\\u%04x\" ", v);
    else if (v >= 0xD800 && v <= 0xDFFF)
        return bad(r, "surrogate");
    else
        sbuf_printf(r->out, "[\\U%08X] ", v);
    return KVANT_OK;
}

static int class_item(pattern_reader *r, uint32_t *v, int *is_set)
{
    *is_set = 0;
    if (*r->s != '\\') {
        *v = take_char(r);
        return KVANT_OK;
    }
    r->s++;
    if (named_class(&r->set, *r->s)) {
        r->s++;
        *is_set = 1;
        return KVANT_OK;
    }
    return escaped_char(r, v);
}

static int put_class(pattern_reader *r)
{
    int negated = *r->s == '^', is_set;
    uint32_t lo, hi;

    r->set.n = 0;
    r->s += negated;
    while (*r->s && *r->s != ']') {
        KVANT_TRY(class_item(r, &lo, &is_set));
        if (is_set)
            continue;
        hi = lo;
        if (r->s[0] == '-' && r->s[1] && r->s[1] != ']') {
            r->s++;
            KVANT_TRY(class_item(r, &hi, &is_set));
            if (is_set || hi < lo)
                return bad(r, "range in a class");
        }
        if (!add(&r->set, lo, hi))
            return bad(r, "class with too many ranges");
    }
    if (!*r->s)
        return bad(r, "class is not closed");
    r->s++;
    if (negated && !complement(&r->set))
        return bad(r, "class with too many ranges");
    return put_set(r);
}

static int put_escape(pattern_reader *r)
{
    uint32_t v;

    r->set.n = 0;
    if (named_class(&r->set, *r->s)) {
        r->s++;
        return put_set(r);
    }
    KVANT_TRY(escaped_char(r, &v));
    return put_char(r, v);
}

static int times(int n, int count)
{
    return n && count > FAR / n ? FAR : n * count;
}

/* {least,most} of the item before; most -1: without end, or as often as the lengths allow. */
static void put_times(pattern_reader *r, int least, int most)
{
    if (most < 0) {
        least = sum(least, r->more);
        most = r->cap < 0 ? -1 : sum(least, r->cap);
    }
    r->least = times(r->least, least);
    r->most = most < 0 ? (r->most ? FAR : 0) : times(r->most, most);
    if (most < 0 && least < 2)
        sbuf_puts(r->out, least ? "+ " : "* ");
    else if (most == 1 && least == 0)
        sbuf_puts(r->out, "? ");
    else if (most < 0)
        sbuf_printf(r->out, "{%d,} ", least);
    else
        sbuf_printf(r->out, "{%d,%d} ", least, most);
}

static int put_repeat(pattern_reader *r, char c)
{
    int least = c == '+', most = c == '?' ? 1 : -1, used = 0;

    if (!r->item)
        return bad(r, "repetition of nothing");
    r->item = 0;
    if (c == '{') {
        if (sscanf(r->s, "%4d}%n", &least, &used) == 1 && used)
            most = least;
        else if (!(sscanf(r->s, "%4d,%4d}%n", &least, &most, &used) == 2 && used) &&
                 !(most = -1, sscanf(r->s, "%4d,}%n", &least, &used) == 1 && used))
            return bad(r, "repetition: wanted {m}, {m,} or {m,n}, at most 4096");
        if (memchr(r->s, '-', (size_t)used) || memchr(r->s, '+', (size_t)used) || memchr(r->s, ' ', (size_t)used))
            return bad(r, "repetition: wanted counts");
        r->s += used;
    }
    put_times(r, least, most);
    if (*r->s == '+')
        return bad(r, "possessive repetitions are not supported");
    r->s += *r->s == '?'; /* lazy: the same texts */
    return KVANT_OK;
}

/* "?:", "?<NAME>", "?P<NAME>" behind '(': bytes; 0: another. */
static size_t group_head(const char *s)
{
    const size_t at = s[1] == 'P' ? 3 : 2;
    size_t n = 0;

    if (s[1] == ':')
        return 2;
    if (s[at - 1] != '<')
        return 0;
    while (s[at + n] == '_' || isalnum((unsigned char)s[at + n]))
        n++;
    return n && s[at + n] == '>' ? at + n + 1 : 0;
}

static int put_group(pattern_reader *r)
{
    const size_t head = r->s[0] == '?' ? group_head(r->s) : 0;

    if (r->s[0] == '?' && !head)
        return bad(r, "groups that look around or set flags are not supported");
    r->s += head;
    if (r->depth == MAX_DEPTH)
        return bad(r, "groups nest too deeply");
    close_item(r);
    sbuf_puts(r->out, "(");
    r->levels[++r->depth] = (level){ 0, 0, -1, -1 };
    r->item = 0;
    return KVANT_OK;
}

/* ---- alternatives of the whole pattern: each has anchors of its own ---- */

static void open_alternative(pattern_reader *r)
{
    r->begin = *r->s == '^';
    r->s += r->begin;
    r->end = r->item = 0;
    sbuf_puts(r->out, r->begin || r->whole ? "(" : "char* (");
}

static void end_alternative(pattern_reader *r)
{
    sbuf_puts(r->out, r->end || r->whole ? ") " : ") char* ");
    if (!(r->begin && r->end) && !r->whole)
        r->levels[0].most = FAR;
    close_alternative(r);
}

static int put_bar(pattern_reader *r)
{
    if (r->depth == 0)
        end_alternative(r);
    else
        close_alternative(r);
    r->item = 0;
    sbuf_puts(r->out, "| ");
    if (r->depth == 0)
        open_alternative(r);
    return KVANT_OK;
}

static int put_next(pattern_reader *r)
{
    char c = *r->s;

    if (c == '\\' || c == '[' || c == '(' || c == ')' || c == '|' || c == '.' || c == '*' || c == '+' || c == '?' ||
        c == '{')
        r->s++;
    switch (c) {
    case '\\': return put_escape(r);
    case '[': return put_class(r);
    case '(': return put_group(r);
    case ')':
        if (!r->depth)
            return bad(r, "closing parenthesis without an opening one");
        close_alternative(r);
        r->least = r->levels[r->depth].other_least;
        r->most = r->levels[r->depth--].other_most;
        sbuf_puts(r->out, ") ");
        r->item = 1;
        return KVANT_OK;
    case '|': return put_bar(r);
    case '.':
        r->set.n = 0;
        add(&r->set, 0, 9);
        add(&r->set, 11, 12);
        add(&r->set, 14, LAST);
        return put_set(r);
    case '*':
    case '+':
    case '?':
    case '{': return put_repeat(r, c);
    case '^': return bad(r, "^ is supported at the beginning of the pattern's alternatives only");
    case '$':
        if (r->depth || (r->s[1] && r->s[1] != '|'))
            return bad(r, "$ is supported at the end of the pattern's alternatives only");
        r->s++;
        r->end = 1;
        return KVANT_OK;
    default: return put_char(r, take_char(r));
    }
}

/* Pydantic's Decimal: what is not signs and dots only has a digit, and needs no look ahead to say so. */
static const char *known_pattern(const char *pattern)
{
    return strcmp(pattern, "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$") == 0 ? "^[+-]?(\\d+\\.?\\d*|\\.\\d+)$" : pattern;
}

int grammar_from_pattern(const char *pattern, pattern_lengths *n, sbuf *out, kvant_diag *diag)
{
    pattern = known_pattern(pattern);
    pattern_reader r = { .s = pattern, .out = out, .diag = diag, .more = n->more, .cap = n->cap, .raw = n->raw,
                         .whole = n->whole };
    const char *quote = n->raw ? "" : "\"\\\"\" ";

    r.levels[0] = (level){ 0, 0, -1, -1 };
    sbuf_printf(out, "%s(", quote);
    open_alternative(&r);
    while (*r.s && !out->error) /* full: the caller says so, and nothing more is worth its work */
        KVANT_TRY(put_next(&r));
    if (out->error)
        return KVANT_OK;
    if (r.depth)
        return bad(&r, "group is not closed");
    end_alternative(&r);
    sbuf_printf(out, ") %s", quote);
    n->least = r.levels[0].other_least;
    n->most = r.levels[0].other_most >= FAR ? -1 : r.levels[0].other_most;
    return KVANT_OK;
}
