/* grammar_chars.c: the characters of a grammar's text: "literals", [classes] and . as sequences of UTF-8 bytes. */
#include <string.h>
#include "base/error.h"
#include "base/text/hex.h"
#include "server/grammar/grammar_parser.h"

enum { CODE_MAX = 0x10FFFF };

static int read_hex(parser *p, int digits, uint32_t *code)
{
    uint32_t v = 0;

    if (p->end - p->s < digits)
        return parse_bad(p, "escape cut short");
    for (int i = 0; i < digits; i++) {
        int h = hex_digit(*p->s++);
        if (h < 0)
            return parse_bad(p, "escape: found no hexadecimal digit");
        v = v * 16 + (uint32_t)h;
    }
    if (v > CODE_MAX || (v >= 0xD800 && v <= 0xDFFF))
        return parse_bad(p, "escape: no Unicode character");
    *code = v;
    return KVANT_OK;
}

static int read_escape(parser *p, uint32_t *code)
{
    static const char pairs[] = "n\nr\rt\t\\\\\"\"[[]]--^^..//";

    if (p->s == p->end)
        return parse_bad(p, "escape cut short");
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
    return parse_bad(p, "unknown escape");
}

/* One character of the text, UTF-8. */
static int read_char(parser *p, uint32_t *code)
{
    unsigned char c = (unsigned char)*p->s++;
    int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
    static const uint32_t least[4] = { 0, 0x80, 0x800, 0x10000 };

    if (more < 0 || p->end - p->s < more)
        return parse_bad(p, "not UTF-8");
    uint32_t v = more == 0 ? c : c & (0x3Fu >> more);
    for (int i = 0; i < more; i++, p->s++) {
        if (((unsigned char)*p->s & 0xC0) != 0x80)
            return parse_bad(p, "not UTF-8");
        v = v << 6 | ((unsigned char)*p->s & 0x3Fu);
    }
    if (v < least[more] || v > CODE_MAX || (v >= 0xD800 && v <= 0xDFFF))
        return parse_bad(p, "not UTF-8");
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

int parse_literal(parser *p)
{
    unsigned char bytes[4];
    uint32_t code;

    p->frames[p->depth].item = p->frames[p->depth].n;
    while (p->s < p->end && *p->s != '"') {
        if (*p->s == '\n')
            return parse_bad(p, "text in quotes is not closed on its line");
        if (*p->s == '\\') {
            p->s++;
            KVANT_TRY(read_escape(p, &code));
        } else {
            KVANT_TRY(read_char(p, &code));
        }
        int n = utf8_bytes(code, bytes);
        for (int i = 0; i < n; i++)
            KVANT_TRY(parse_put_byte(p, bytes[i], bytes[i]));
    }
    if (p->s == p->end)
        return parse_bad(p, "text in quotes is not closed");
    p->s++;
    return KVANT_OK;
}

/* ---- classes ---- */

static int add_range(parser *p, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return parse_bad(p, "range: first character after the last");
    if (p->n_ranges == MAX_RANGES)
        return parse_bad(p, "class with too many ranges");
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

/* Cuts a range where the length of its characters changes, or where its first or last one is not at the end of a block
 * of 64, 4096, ... characters: the upper half to half[0], the lower one to half[1].  0: no cut; each of its bytes takes
 * a range of values. */
static int cut_range(range r, range *half)
{
    static const uint32_t edges[4] = { 0x7F, 0x7FF, 0xD7FF, 0xFFFF };
    uint32_t at = 0; /* the upper half begins here */

    for (int i = 0; i < 4 && !at; i++)
        if (r.lo <= edges[i] && r.hi > edges[i])
            at = edges[i] + 1;
    for (int i = 1; i < 4 && !at && r.lo > 0x7F; i++) {
        uint32_t m = (1u << (6 * i)) - 1;
        if ((r.lo & ~m) == (r.hi & ~m))
            continue;
        if (r.lo & m)
            at = (r.lo | m) + 1;
        else if ((r.hi & m) != m)
            at = r.hi & ~m;
    }
    if (!at)
        return 0;
    half[0] = (range){ at, r.hi };
    half[1] = (range){ r.lo, at - 1 };
    return 1;
}

/* One alternative per run of equal-shaped byte sequences of [lo, hi]; *first: no ALT before it yet. */
static int put_sequences(parser *p, uint32_t lo, uint32_t hi, int *first)
{
    range stack[64];
    int depth = 0;

    stack[depth++] = (range){ lo, hi };
    while (depth) {
        range r = stack[--depth];
        if (r.lo >= 0xD800 && r.lo <= 0xDFFF)
            r.lo = 0xE000; /* surrogates have no UTF-8 */
        if (r.lo > r.hi)
            continue;
        if (cut_range(r, stack + depth)) {
            depth += 2;
            continue;
        }
        unsigned char a[4], b[4];
        int n = utf8_bytes(r.lo, a);
        utf8_bytes(r.hi, b);
        if (!*first)
            KVANT_TRY(parse_put_elem(p, ELEM_ALT, 0));
        *first = 0;
        for (int i = 0; i < n; i++)
            KVANT_TRY(parse_put_byte(p, a[i], b[i]));
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
    KVANT_TRY(parse_put_set(p, &set, &index));
    return parse_put_elem(p, ELEM_SET, index);
}

/* The class in p->ranges as one item: a byte set where it is ASCII, else a rule of byte sequences. */
static int put_class(parser *p, int negated)
{
    int first = 1;

    KVANT_TRY(parse_spend(p, 8 * p->n_ranges));
    sort_ranges(p);
    if (negated)
        complement_ranges(p);
    if (!p->n_ranges)
        return parse_bad(p, "class that no character is in");
    if (p->ranges[p->n_ranges - 1].hi < 0x80) {
        p->frames[p->depth].item = p->frames[p->depth].n;
        return put_ascii(p, &first);
    }
    KVANT_TRY(parse_open_group(p));
    KVANT_TRY(put_ascii(p, &first));
    for (int i = 0; i < p->n_ranges; i++)
        if (p->ranges[i].hi >= 0x80)
            KVANT_TRY(put_sequences(p, p->ranges[i].lo < 0x80 ? 0x80 : p->ranges[i].lo, p->ranges[i].hi, &first));
    return parse_close_group(p);
}

static int class_char(parser *p, uint32_t *code)
{
    if (*p->s == '\n')
        return parse_bad(p, "class is not closed on its line");
    if (*p->s != '\\')
        return read_char(p, code);
    p->s++;
    return read_escape(p, code);
}

int parse_class(parser *p)
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
            return parse_bad(p, "class with too many ranges");
        KVANT_TRY(add_range(p, lo, hi));
    }
    if (p->s == p->end)
        return parse_bad(p, "class is not closed");
    p->s++;
    return put_class(p, negated);
}

int parse_any(parser *p)
{
    p->n_ranges = 0;
    KVANT_TRY(add_range(p, 0, CODE_MAX));
    return put_class(p, 0);
}
