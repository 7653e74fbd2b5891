/* grammar_parse.c: GBNF text -> rules over bytes.  Owns the parser's frames (one per open parenthesis, bounded)
 * and the table of names; no function here calls itself.
 *
 * Syntax, as llama.cpp's: name ::= alternatives, with "text", [classes], [^classes], ., groups, names, and * + ?
 * {m,n} after any of them; # begins a comment; a rule ends at the end of its line unless inside parentheses or
 * after |. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar_internal.h"

enum { MAX_NAME = 128, MAX_RANGES = 4096, CODE_MAX = 0x10FFFF };

typedef struct span {
    const char *s;
    int n;
} span;

typedef struct range {
    uint32_t lo, hi;
} range;

/* The elements of one rule while it is read. */
typedef struct frame {
    int rule;
    gram_elem *e;
    int n, cap;
    int item; /* where the last item begins: what * + ? {} repeat; -1: none */
} frame;

typedef struct parser {
    grammar *g;
    const char *s, *end;
    int line;
    span *names; /* [rule]; n == 0: made by the parser */
    int cap_names;
    int *hash, buckets; /* rule + 1, open addressing */
    frame frames[GRAMMAR_MAX_GROUPS + 1];
    int depth; /* index of the open frame */
    range ranges[MAX_RANGES];
    int n_ranges;
    kvant_diag *diag;
} parser;

static int bad(parser *p, const char *what)
{
    return kvant_fail(p->diag, KVANT_EINVAL, "grammar: line %d: %s", p->line, what);
}

/* Room for one more in a growing array; 0 when there is no memory. */
static int grow(void *array, int n, int *cap, size_t item)
{
    void **a = array;

    if (n < *cap)
        return 1;
    int more = *cap ? *cap * 2 : 64;
    void *p = kvant_realloc(*a, (size_t)*cap * item, (size_t)more * item);
    if (!p)
        return 0;
    *a = p;
    *cap = more;
    return 1;
}

static int no_memory(parser *p)
{
    return kvant_fail(p->diag, KVANT_ENOMEM, "grammar: out of memory");
}

/* ---- rules ---- */

static int new_rule(parser *p, span name, int *rule)
{
    grammar *g = p->g;

    if (g->n_rules >= GRAMMAR_MAX_RULES)
        return bad(p, "too many rules");
    if (!grow(&g->rules, g->n_rules, &g->cap_rules, sizeof *g->rules) ||
        !grow(&p->names, g->n_rules, &p->cap_names, sizeof *p->names))
        return no_memory(p);
    p->names[g->n_rules] = name;
    g->rules[g->n_rules] = -1;
    *rule = g->n_rules++;
    return KVANT_OK;
}

static uint32_t hash_name(span n)
{
    uint32_t h = 2166136261u;

    for (int i = 0; i < n.n; i++)
        h = (h ^ (unsigned char)n.s[i]) * 16777619u;
    return h;
}

/* The table has more buckets than a text of its length can have names. */
static int rule_named(parser *p, span name, int *rule)
{
    uint32_t at = hash_name(name) % (uint32_t)p->buckets;

    for (; p->hash[at]; at = (at + 1) % (uint32_t)p->buckets) {
        span known = p->names[p->hash[at] - 1];
        if (known.n == name.n && memcmp(known.s, name.s, (size_t)name.n) == 0) {
            *rule = p->hash[at] - 1;
            return KVANT_OK;
        }
    }
    KVANT_TRY(new_rule(p, name, rule));
    p->hash[at] = *rule + 1;
    return KVANT_OK;
}

static int put_rule(parser *p, int rule, const gram_elem *e, int n)
{
    grammar *g = p->g;

    if (g->n_elems + n + 1 > GRAMMAR_MAX_ELEMS)
        return bad(p, "too large when repetitions are written out");
    g->rules[rule] = g->n_elems;
    for (int i = 0; i <= n; i++) {
        if (!grow(&g->elems, g->n_elems, &g->cap_elems, sizeof *g->elems))
            return no_memory(p);
        g->elems[g->n_elems++] = i < n ? e[i] : (gram_elem){ ELEM_END, 0 };
    }
    return KVANT_OK;
}

static int put_elem(parser *p, int type, uint32_t value)
{
    frame *f = &p->frames[p->depth];

    if (f->n >= GRAMMAR_MAX_ELEMS)
        return bad(p, "rule too long");
    if (!grow(&f->e, f->n, &f->cap, sizeof *f->e))
        return no_memory(p);
    f->e[f->n++] = (gram_elem){ (unsigned)type & 3u, value & 0x3FFFFFFFu };
    return KVANT_OK;
}

static int put_set(parser *p, const byte_set *set, uint32_t *index)
{
    grammar *g = p->g;

    for (int i = 0; i < g->n_sets && i < 256; i++) /* the common ones are the first ones */
        if (memcmp(&g->sets[i], set, sizeof *set) == 0) {
            *index = (uint32_t)i;
            return KVANT_OK;
        }
    if (!grow(&g->sets, g->n_sets, &g->cap_sets, sizeof *g->sets))
        return no_memory(p);
    g->sets[g->n_sets] = *set;
    *index = (uint32_t)g->n_sets++;
    return KVANT_OK;
}

static int put_byte(parser *p, int lo, int hi)
{
    byte_set set = { { 0 } };
    uint32_t index;

    for (int b = lo; b <= hi; b++)
        set.bits[b >> 6] |= 1ull << (b & 63);
    KVANT_TRY(put_set(p, &set, &index));
    return put_elem(p, ELEM_SET, index);
}

/* ---- groups ---- */

static int open_frame(parser *p, int rule)
{
    frame *f = &p->frames[p->depth];

    f->rule = rule;
    f->n = 0;
    f->item = -1;
    return KVANT_OK;
}

static int open_group(parser *p)
{
    int rule;

    if (p->depth == GRAMMAR_MAX_GROUPS)
        return bad(p, "more than 64 nested groups");
    KVANT_TRY(new_rule(p, (span){ NULL, 0 }, &rule));
    p->depth++;
    return open_frame(p, rule);
}

/* Ends the open group; it becomes one item of the frame below. */
static int close_group(parser *p)
{
    frame *f = &p->frames[p->depth];
    int rule = f->rule;

    KVANT_TRY(put_rule(p, rule, f->e, f->n));
    p->depth--;
    p->frames[p->depth].item = p->frames[p->depth].n;
    return put_elem(p, ELEM_REF, (uint32_t)rule);
}

/* ---- characters ---- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static int read_hex(parser *p, int digits, uint32_t *code)
{
    uint32_t v = 0;

    if (p->end - p->s < digits)
        return bad(p, "escape cut short");
    for (int i = 0; i < digits; i++) {
        int h = hex_value(*p->s++);
        if (h < 0)
            return bad(p, "escape: found no hexadecimal digit");
        v = v * 16 + (uint32_t)h;
    }
    if (v > CODE_MAX || (v >= 0xD800 && v <= 0xDFFF))
        return bad(p, "escape: no Unicode character");
    *code = v;
    return KVANT_OK;
}

static int read_escape(parser *p, uint32_t *code)
{
    static const char pairs[] = "n\nr\rt\t\\\\\"\"[[]]--^^..//";

    if (p->s == p->end)
        return bad(p, "escape cut short");
    char c = *p->s++;
    if (c == 'x')
        return read_hex(p, 2, code);
    if (c == 'u')
        return read_hex(p, 4, code);
    if (c == 'U')
        return read_hex(p, 8, code);
    for (size_t i = 0; i + 1 < sizeof pairs; i += 2)
        if (pairs[i] == c) {
            *code = (unsigned char)pairs[i + 1];
            return KVANT_OK;
        }
    return bad(p, "unknown escape");
}

/* One character of the text, UTF-8. */
static int read_char(parser *p, uint32_t *code)
{
    unsigned char c = (unsigned char)*p->s++;
    int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
    static const uint32_t least[4] = { 0, 0x80, 0x800, 0x10000 };

    if (more < 0 || p->end - p->s < more)
        return bad(p, "not UTF-8");
    uint32_t v = more == 0 ? c : c & (0x3Fu >> more);
    for (int i = 0; i < more; i++, p->s++) {
        if (((unsigned char)*p->s & 0xC0) != 0x80)
            return bad(p, "not UTF-8");
        v = v << 6 | ((unsigned char)*p->s & 0x3Fu);
    }
    if (v < least[more] || v > CODE_MAX || (v >= 0xD800 && v <= 0xDFFF))
        return bad(p, "not UTF-8");
    *code = v;
    return KVANT_OK;
}

static int utf8_bytes(uint32_t c, unsigned char *out)
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };

    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)(lead[n] | c);
    return n;
}

static int put_literal(parser *p)
{
    unsigned char bytes[4];
    uint32_t code;

    p->frames[p->depth].item = p->frames[p->depth].n;
    while (p->s < p->end && *p->s != '"') {
        if (*p->s == '\n')
            return bad(p, "text in quotes is not closed on its line");
        if (*p->s == '\\') {
            p->s++;
            KVANT_TRY(read_escape(p, &code));
        } else {
            KVANT_TRY(read_char(p, &code));
        }
        int n = utf8_bytes(code, bytes);
        for (int i = 0; i < n; i++)
            KVANT_TRY(put_byte(p, bytes[i], bytes[i]));
    }
    if (p->s == p->end)
        return bad(p, "text in quotes is not closed");
    p->s++;
    return KVANT_OK;
}

/* ---- classes ---- */

static int add_range(parser *p, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return bad(p, "range: first character after the last");
    if (p->n_ranges == MAX_RANGES)
        return bad(p, "class with too many ranges");
    p->ranges[p->n_ranges++] = (range){ lo, hi };
    return KVANT_OK;
}

static void sort_ranges(parser *p)
{
    int n = 0;

    for (int gap = p->n_ranges / 2; gap > 0; gap /= 2) /* shell sort: in place, no recursion */
        for (int i = gap; i < p->n_ranges; i++) {
            range r = p->ranges[i];
            int j = i;
            for (; j >= gap && p->ranges[j - gap].lo > r.lo; j -= gap)
                p->ranges[j] = p->ranges[j - gap];
            p->ranges[j] = r;
        }
    for (int i = 0; i < p->n_ranges; i++) {
        if (n && p->ranges[i].lo <= p->ranges[n - 1].hi + 1) {
            if (p->ranges[i].hi > p->ranges[n - 1].hi)
                p->ranges[n - 1].hi = p->ranges[i].hi;
        } else {
            p->ranges[n++] = p->ranges[i];
        }
    }
    p->n_ranges = n;
}

/* Sorted ranges -> what they leave out.  One range more may come out: MAX_RANGES is checked against that by the
 * caller. */
static void complement_ranges(parser *p)
{
    uint32_t next = 0;
    int n = 0;

    for (int i = 0; i < p->n_ranges; i++) {
        range r = p->ranges[i];
        if (r.lo > next)
            p->ranges[n++] = (range){ next, r.lo - 1 };
        next = r.hi + 1;
    }
    if (next <= CODE_MAX)
        p->ranges[n++] = (range){ next, CODE_MAX };
    p->n_ranges = n;
}

/* One alternative per run of equal-shaped byte sequences of [lo, hi]; *first: no ALT before it yet. */
static int put_sequences(parser *p, uint32_t lo, uint32_t hi, int *first)
{
    range stack[64];
    int depth = 0;
    static const uint32_t edges[4] = { 0x7F, 0x7FF, 0xD7FF, 0xFFFF };

    stack[depth++] = (range){ lo, hi };
    while (depth) {
        range r = stack[--depth];
        int cut = 0;
        if (r.lo >= 0xD800 && r.lo <= 0xDFFF)
            r.lo = 0xE000; /* surrogates have no UTF-8 */
        if (r.lo > r.hi)
            continue;
        for (int i = 0; i < 4 && !cut; i++)
            if (r.lo <= edges[i] && r.hi > edges[i]) {
                stack[depth++] = (range){ edges[i] + 1, r.hi };
                stack[depth++] = (range){ r.lo, edges[i] };
                cut = 1;
            }
        for (int i = 1; i < 4 && !cut && r.lo > 0x7F; i++) {
            uint32_t m = (1u << (6 * i)) - 1;
            if ((r.lo & ~m) == (r.hi & ~m))
                continue;
            if (r.lo & m) {
                stack[depth++] = (range){ (r.lo | m) + 1, r.hi };
                stack[depth++] = (range){ r.lo, r.lo | m };
                cut = 1;
            } else if ((r.hi & m) != m) {
                stack[depth++] = (range){ r.hi & ~m, r.hi };
                stack[depth++] = (range){ r.lo, (r.hi & ~m) - 1 };
                cut = 1;
            }
        }
        if (cut)
            continue;
        unsigned char a[4], b[4];
        int n = utf8_bytes(r.lo, a);
        utf8_bytes(r.hi, b);
        if (!*first)
            KVANT_TRY(put_elem(p, ELEM_ALT, 0));
        *first = 0;
        for (int i = 0; i < n; i++)
            KVANT_TRY(put_byte(p, a[i], b[i]));
    }
    return KVANT_OK;
}

static int put_ascii(parser *p, int *first)
{
    byte_set set = { { 0 } };
    uint32_t index;

    for (int i = 0; i < p->n_ranges; i++)
        for (uint32_t c = p->ranges[i].lo; c <= p->ranges[i].hi && c < 0x80; c++)
            set.bits[c >> 6] |= 1ull << (c & 63);
    if (!(set.bits[0] | set.bits[1]))
        return KVANT_OK;
    *first = 0;
    KVANT_TRY(put_set(p, &set, &index));
    return put_elem(p, ELEM_SET, index);
}

/* The class in p->ranges as one item: a byte set where it is ASCII, else a rule of byte sequences. */
static int put_class(parser *p, int negated)
{
    int first = 1;

    sort_ranges(p);
    if (negated)
        complement_ranges(p);
    if (!p->n_ranges)
        return bad(p, "class that no character is in");
    if (p->ranges[p->n_ranges - 1].hi < 0x80) {
        p->frames[p->depth].item = p->frames[p->depth].n;
        return put_ascii(p, &first);
    }
    KVANT_TRY(open_group(p));
    KVANT_TRY(put_ascii(p, &first));
    for (int i = 0; i < p->n_ranges; i++)
        if (p->ranges[i].hi >= 0x80)
            KVANT_TRY(put_sequences(p, p->ranges[i].lo < 0x80 ? 0x80 : p->ranges[i].lo, p->ranges[i].hi, &first));
    return close_group(p);
}

static int class_char(parser *p, uint32_t *code)
{
    if (*p->s == '\n')
        return bad(p, "class is not closed on its line");
    if (*p->s != '\\')
        return read_char(p, code);
    p->s++;
    return read_escape(p, code);
}

static int read_class(parser *p)
{
    int negated = p->s < p->end && *p->s == '^';
    uint32_t lo, hi;

    p->n_ranges = 0;
    p->s += negated;
    while (p->s < p->end && *p->s != ']') {
        KVANT_TRY(class_char(p, &lo));
        hi = lo;
        if (p->end - p->s >= 2 && p->s[0] == '-' && p->s[1] != ']') {
            p->s++;
            KVANT_TRY(class_char(p, &hi));
        }
        if (p->n_ranges >= MAX_RANGES - 1)
            return bad(p, "class with too many ranges");
        KVANT_TRY(add_range(p, lo, hi));
    }
    if (p->s == p->end)
        return bad(p, "class is not closed");
    p->s++;
    return put_class(p, negated);
}

static int read_any(parser *p)
{
    p->n_ranges = 0;
    KVANT_TRY(add_range(p, 0, CODE_MAX));
    return put_class(p, 0);
}

/* ---- repetition ---- */

/* The last item as one element: more than one becomes a rule. */
static int take_item(parser *p, gram_elem *item)
{
    frame *f = &p->frames[p->depth];
    int rule;

    if (f->item < 0 || f->item == f->n)
        return bad(p, "repetition: nothing before it");
    if (f->n - f->item == 1) {
        *item = f->e[f->item];
        f->n = f->item;
        return KVANT_OK;
    }
    KVANT_TRY(new_rule(p, (span){ NULL, 0 }, &rule));
    KVANT_TRY(put_rule(p, rule, f->e + f->item, f->n - f->item));
    f->n = f->item;
    *item = (gram_elem){ ELEM_REF, (unsigned)rule & 0x3FFFFFFFu };
    return KVANT_OK;
}

/* rule -> item next | nothing, where next < 0 is the rule itself (for *) and next == rule is none. */
static int optional_rule(parser *p, gram_elem item, int next, int *rule)
{
    gram_elem e[3] = { item, { ELEM_ALT, 0 }, { ELEM_ALT, 0 } };
    int n = 1;

    KVANT_TRY(new_rule(p, (span){ NULL, 0 }, rule));
    if (next != -2)
        e[n++] = (gram_elem){ ELEM_REF, (unsigned)(next == -1 ? *rule : next) & 0x3FFFFFFFu };
    e[n++] = (gram_elem){ ELEM_ALT, 0 };
    return put_rule(p, *rule, e, n);
}

/* item{least,most}; most -1: no bound. */
static int repeat_item(parser *p, int least, int most)
{
    gram_elem item;
    int rule = -2;

    KVANT_TRY(take_item(p, &item));
    for (int i = 0; i < least; i++)
        KVANT_TRY(put_elem(p, (int)item.type, item.value));
    if (most < 0)
        KVANT_TRY(optional_rule(p, item, -1, &rule));
    for (int i = least; i < most; i++)
        KVANT_TRY(optional_rule(p, item, rule, &rule));
    if (rule >= 0)
        KVANT_TRY(put_elem(p, ELEM_REF, (uint32_t)rule));
    p->frames[p->depth].item = -1;
    return KVANT_OK;
}

static int read_count(parser *p, int *v)
{
    int n = 0, digits = 0;

    for (; p->s < p->end && *p->s >= '0' && *p->s <= '9'; p->s++, digits++) {
        n = n * 10 + (*p->s - '0');
        if (n > GRAMMAR_MAX_REPEAT)
            return bad(p, "repetition: more than 4096 times");
    }
    *v = digits ? n : -1;
    return KVANT_OK;
}

static void skip_blanks(parser *p)
{
    while (p->s < p->end && (*p->s == ' ' || *p->s == '\t'))
        p->s++;
}

static int read_braces(parser *p)
{
    int least, most;

    skip_blanks(p);
    KVANT_TRY(read_count(p, &least));
    most = least;
    skip_blanks(p);
    if (p->s < p->end && *p->s == ',') {
        p->s++;
        skip_blanks(p);
        KVANT_TRY(read_count(p, &most));
        skip_blanks(p);
        least = least < 0 ? 0 : least;
    }
    if (p->s == p->end || *p->s != '}' || least < 0 || (most >= 0 && most < least))
        return bad(p, "repetition: wanted {m}, {m,} or {m,n} with m <= n");
    p->s++;
    return repeat_item(p, least, most);
}

/* ---- rules of the text ---- */

/* Blanks and comments; line ends too where `lines`. */
static void skip_space(parser *p, int lines)
{
    while (p->s < p->end) {
        if (*p->s == '#')
            while (p->s < p->end && *p->s != '\n')
                p->s++;
        else if (*p->s == ' ' || *p->s == '\t' || *p->s == '\r' || (lines && *p->s == '\n'))
            p->line += *p->s++ == '\n';
        else
            return;
    }
}

static int name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int read_name(parser *p, span *name)
{
    name->s = p->s;
    while (p->s < p->end && name_char(*p->s))
        p->s++;
    name->n = (int)(p->s - name->s < MAX_NAME ? p->s - name->s : MAX_NAME);
    if (name->n == 0)
        return bad(p, "wanted a rule name");
    return name->n == MAX_NAME ? bad(p, "rule name too long") : KVANT_OK;
}

static int read_reference(parser *p)
{
    span name;
    int rule;

    KVANT_TRY(read_name(p, &name));
    KVANT_TRY(rule_named(p, name, &rule));
    p->frames[p->depth].item = p->frames[p->depth].n;
    return put_elem(p, ELEM_REF, (uint32_t)rule);
}

/* One item or operator of a rule's body; *more 0 when the rule ends here. */
static int read_element(parser *p, int *more)
{
    char c = *p->s;

    *more = 1;
    if (name_char(c))
        return read_reference(p);
    p->s++;
    switch (c) {
    case '"': return put_literal(p);
    case '[': return read_class(p);
    case '.': return read_any(p);
    case '(': return open_group(p);
    case '*': return repeat_item(p, 0, -1);
    case '+': return repeat_item(p, 1, -1);
    case '?': return repeat_item(p, 0, 1);
    case '{': return read_braces(p);
    case '|':
        p->frames[p->depth].item = -1;
        KVANT_TRY(put_elem(p, ELEM_ALT, 0));
        skip_space(p, 1);
        return KVANT_OK;
    case ')': return p->depth ? close_group(p) : bad(p, "closing parenthesis without an opening one");
    case '\n':
        p->s--;
        *more = 0;
        return KVANT_OK;
    default: return bad(p, "unexpected character");
    }
}

static int read_rule(parser *p)
{
    span name;
    int rule, more = 1;

    KVANT_TRY(read_name(p, &name));
    KVANT_TRY(rule_named(p, name, &rule));
    if (p->g->rules[rule] >= 0)
        return kvant_fail(p->diag, KVANT_EINVAL, "grammar: line %d: rule %.*s is defined twice", p->line, name.n,
                          name.s);
    skip_space(p, 0);
    if (p->end - p->s < 3 || memcmp(p->s, "::=", 3) != 0)
        return bad(p, "wanted ::= after the rule's name");
    p->s += 3;
    p->depth = 0;
    KVANT_TRY(open_frame(p, rule));
    skip_space(p, 1);
    while (p->s < p->end && more) {
        KVANT_TRY(read_element(p, &more));
        if (more)
            skip_space(p, p->depth > 0);
    }
    if (p->depth)
        return bad(p, "parenthesis is not closed");
    return put_rule(p, rule, p->frames[0].e, p->frames[0].n);
}

static const char *name_of(const void *user, int rule)
{
    static _Thread_local char text[MAX_NAME + 1];
    const parser *p = user;

    snprintf(text, sizeof text, "%.*s", p->names[rule].n, p->names[rule].n ? p->names[rule].s : "");
    return p->names[rule].n ? text : "(a group)";
}

static int parse(parser *p)
{
    KVANT_TRY(rule_named(p, (span){ "root", 4 }, &p->g->root));
    skip_space(p, 1);
    while (p->s < p->end) {
        KVANT_TRY(read_rule(p));
        skip_space(p, 1);
    }
    return grammar_check(p->g, name_of, p, p->diag);
}

int grammar_compile(const char *text, size_t len, grammar **out, kvant_diag *diag)
{
    parser *p = kvant_calloc(1, sizeof *p);
    grammar *g = kvant_calloc(1, sizeof *g);
    int code = p && g ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");

    if (code == KVANT_OK && len > GRAMMAR_MAX_SCHEMA)
        code = kvant_fail(diag, KVANT_EINVAL, "grammar: %zu bytes, want at most %d", len, GRAMMAR_MAX_SCHEMA);
    if (code == KVANT_OK) {
        *p = (parser){ .g = g, .s = text, .end = text + len, .line = 1, .buckets = (int)len / 2 + 17, .diag = diag };
        p->hash = kvant_calloc((size_t)p->buckets, sizeof *p->hash);
        code = p->hash ? parse(p) : no_memory(p);
    }
    if (p) {
        for (int i = 0; i <= GRAMMAR_MAX_GROUPS; i++)
            kvant_free(p->frames[i].e);
        kvant_free(p->names);
        kvant_free(p->hash);
    }
    kvant_free(p);
    if (g) {
        atomic_store(&g->refs, 1);
        pthread_mutex_init(&g->lock, NULL);
    }
    if (code == KVANT_OK)
        *out = g;
    else
        grammar_release(g);
    return code;
}
