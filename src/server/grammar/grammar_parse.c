/* grammar_parse.c: GBNF text -> rules over bytes.  Owns the parser's frames (one per open parenthesis, bounded)
 * and the table of names; no function here calls itself.  Characters are in grammar_chars.c.
 *
 * Syntax, as llama.cpp's: name ::= alternatives, with "text", [classes], [^classes], ., groups, names, and * + ?
 * {m,n} after any of them; # begins a comment; a rule ends at the end of its line unless inside parentheses or
 * after |. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_parser.h"

enum { MAX_NAME = 128 };

int parse_bad(parser *p, const char *what)
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

int parse_spend(parser *p, int64_t units)
{
    p->spent += units;
    if (p->spent <= GRAMMAR_FUEL_COMPILE)
        return KVANT_OK;
    return kvant_fail(p->diag, KVANT_EINVAL, "grammar: line %d: more than %d units of work to compile", p->line,
                      GRAMMAR_FUEL_COMPILE);
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
        return kvant_fail(p->diag, KVANT_EINVAL, "grammar: line %d: more than %d rules (groups and repetitions are some)",
                          p->line, GRAMMAR_MAX_RULES);
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
        KVANT_TRY(parse_spend(p, 2)); /* names may be chosen to collide */
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
        return kvant_fail(p->diag, KVANT_EINVAL,
                          "grammar: line %d: too large: %d elements when repetitions are written out, want at most %d",
                          p->line, g->n_elems + n + 1, GRAMMAR_MAX_ELEMS);
    KVANT_TRY(parse_spend(p, n + 1));
    g->rules[rule] = g->n_elems;
    for (int i = 0; i <= n; i++) {
        if (!grow(&g->elems, g->n_elems, &g->cap_elems, sizeof *g->elems))
            return no_memory(p);
        g->elems[g->n_elems++] = i < n ? e[i] : (gram_elem){ ELEM_END, 0 };
    }
    return KVANT_OK;
}

int parse_put_elem(parser *p, int type, uint32_t value)
{
    frame *f = &p->frames[p->depth];

    if (f->n >= GRAMMAR_MAX_ELEMS)
        return kvant_fail(p->diag, KVANT_EINVAL, "grammar: line %d: rule too long: more than %d elements", p->line,
                          GRAMMAR_MAX_ELEMS);
    KVANT_TRY(parse_spend(p, 1));
    if (!grow(&f->e, f->n, &f->cap, sizeof *f->e))
        return no_memory(p);
    f->e[f->n++] = (gram_elem){ (unsigned)type & 3u, value & 0x3FFFFFFFu };
    return KVANT_OK;
}

static unsigned hash_set(const byte_set *set)
{
    uint64_t h = 0;

    for (int i = 0; i < 4; i++)
        h = (h ^ set->bits[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(h >> 32) % SET_BUCKETS;
}

/* Looks at one set that was put before: one that is put again and again is found, and no text makes this slow. */
int parse_put_set(parser *p, const byte_set *set, uint32_t *index)
{
    grammar *g = p->g;
    int *known = &p->set_hash[hash_set(set)];

    if (*known && memcmp(&g->sets[*known - 1], set, sizeof *set) == 0) {
        *index = (uint32_t)*known - 1;
        return KVANT_OK;
    }
    if (!grow(&g->sets, g->n_sets, &g->cap_sets, sizeof *g->sets))
        return no_memory(p);
    g->sets[g->n_sets] = *set;
    *index = (uint32_t)g->n_sets++;
    *known = g->n_sets;
    return KVANT_OK;
}

int parse_put_byte(parser *p, int lo, int hi)
{
    byte_set set = { { 0 } };
    uint32_t index;

    for (int b = lo; b <= hi; b++)
        set.bits[b >> 6] |= 1ull << (b & 63);
    KVANT_TRY(parse_put_set(p, &set, &index));
    return parse_put_elem(p, ELEM_SET, index);
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

int parse_open_group(parser *p)
{
    int rule;

    if (p->depth == GRAMMAR_MAX_GROUPS)
        return parse_bad(p, "more than 64 nested groups");
    KVANT_TRY(new_rule(p, (span){ NULL, 0 }, &rule));
    p->depth++;
    return open_frame(p, rule);
}

/* Ends the open group; it becomes one item of the frame below. */
int parse_close_group(parser *p)
{
    frame *f = &p->frames[p->depth];
    int rule = f->rule;

    KVANT_TRY(put_rule(p, rule, f->e, f->n));
    p->depth--;
    p->frames[p->depth].item = p->frames[p->depth].n;
    return parse_put_elem(p, ELEM_REF, (uint32_t)rule);
}

/* ---- repetition ---- */

/* The last item as one element: more than one becomes a rule. */
static int take_item(parser *p, gram_elem *item)
{
    frame *f = &p->frames[p->depth];
    int rule;

    if (f->item < 0 || f->item == f->n)
        return parse_bad(p, "repetition: nothing before it");
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
        KVANT_TRY(parse_put_elem(p, (int)item.type, item.value));
    if (most < 0)
        KVANT_TRY(optional_rule(p, item, -1, &rule));
    for (int i = least; i < most; i++)
        KVANT_TRY(optional_rule(p, item, rule, &rule));
    if (rule >= 0)
        KVANT_TRY(parse_put_elem(p, ELEM_REF, (uint32_t)rule));
    p->frames[p->depth].item = -1;
    return KVANT_OK;
}

static int read_count(parser *p, int *v)
{
    int n = 0, digits = 0;

    for (; p->s < p->end && *p->s >= '0' && *p->s <= '9'; p->s++, digits++) {
        n = n * 10 + (*p->s - '0');
        if (n > GRAMMAR_MAX_REPEAT)
            return parse_bad(p, "repetition: more than 4096 times");
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
        return parse_bad(p, "repetition: wanted {m}, {m,} or {m,n} with m <= n");
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
        return parse_bad(p, "wanted a rule name");
    return name->n == MAX_NAME ? parse_bad(p, "rule name too long") : KVANT_OK;
}

static int read_reference(parser *p)
{
    span name;
    int rule;

    KVANT_TRY(read_name(p, &name));
    KVANT_TRY(rule_named(p, name, &rule));
    p->frames[p->depth].item = p->frames[p->depth].n;
    return parse_put_elem(p, ELEM_REF, (uint32_t)rule);
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
    case '"': return parse_literal(p);
    case '[': return parse_class(p);
    case '.': return parse_any(p);
    case '(': return parse_open_group(p);
    case '*': return repeat_item(p, 0, -1);
    case '+': return repeat_item(p, 1, -1);
    case '?': return repeat_item(p, 0, 1);
    case '{': return read_braces(p);
    case '|':
        p->frames[p->depth].item = -1;
        KVANT_TRY(parse_put_elem(p, ELEM_ALT, 0));
        skip_space(p, 1);
        return KVANT_OK;
    case ')': return p->depth ? parse_close_group(p) : parse_bad(p, "closing parenthesis without an opening one");
    case '\n':
        p->s--;
        *more = 0;
        return KVANT_OK;
    default: return parse_bad(p, "unexpected character");
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
        return parse_bad(p, "wanted ::= after the rule's name");
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
        return parse_bad(p, "parenthesis is not closed");
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
