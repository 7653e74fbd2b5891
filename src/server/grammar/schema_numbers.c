/* schema_numbers.c: ranges and multiples of a JSON schema's numbers as alternatives of a grammar.  Bounds are texts of
 * decimal digits, so that none is too large or too fine; nothing recurses deeper than such a text is long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_schema.h"
#include "server/request/json_scan.h"

enum { DIGITS = 40, FRACTION = 15, LISTED = 1000, MOST_STEP = 200, MOST_LENGTH = 15 };

/* A number: digits before the point without zeros in front, digits behind it without zeros at the end. */
typedef struct decimal {
    int neg, ni, nf;
    char i[DIGITS + 2], f[DIGITS + 1];
} decimal;

typedef struct bound {
    int given, open;
    decimal d;
} bound;

/* ---- decimals ---- */

/* digits[n] with the point behind the first `point` of them; 0: too many digits. */
static int make(const char *digits, int n, long point, int neg, decimal *d)
{
    *d = (decimal){ .neg = neg };
    for (long k = 0; k < point; k++) {
        const char c = k < n ? digits[k] : '0';
        if (d->ni == DIGITS)
            return 0;
        if (d->ni || c != '0')
            d->i[d->ni++] = c;
    }
    for (long k = point; k < n; k++) {
        if (d->nf == DIGITS)
            return 0;
        d->f[d->nf++] = k < 0 ? '0' : digits[k];
    }
    while (d->nf && d->f[d->nf - 1] == '0')
        d->nf--;
    if (!d->ni)
        d->i[d->ni++] = '0';
    d->i[d->ni] = d->f[d->nf] = 0;
    d->neg &= d->ni > 1 || d->i[0] != '0' || d->nf;
    return 1;
}

static int parse(const char *s, decimal *d)
{
    char digits[64];
    int n = 0, neg = *s == '-';
    long point = -1;

    for (s += neg; *s && *s != 'e' && *s != 'E'; s++) {
        if (*s == '.')
            point = n;
        else if (n < (int)sizeof digits)
            digits[n++] = *s;
        else
            return 0;
    }
    point = point < 0 ? n : point;
    if (*s)
        point += strtol(s + 1, NULL, 10);
    return point > -DIGITS && point <= 1000 && make(digits, n, point, neg, d);
}

static int decimal_of(const json_t *x, decimal *d)
{
    char text[64];

    if (json_is_wide(x))
        return parse(json_string_value(x) + 1, d);
    if (json_is_integer(x))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(x));
    else
        for (int k = 1; k <= 17; k++) {
            snprintf(text, sizeof text, "%.*g", k, json_real_value(x));
            if (strtod(text, NULL) == json_real_value(x))
                break;
        }
    return parse(text, d);
}

static int compare_size(const decimal *a, const decimal *b)
{
    int c = a->ni != b->ni ? a->ni - b->ni : strcmp(a->i, b->i);

    return c ? c : strcmp(a->f, b->f);
}

static int compare(const decimal *a, const decimal *b)
{
    if (a->neg != b->neg)
        return a->neg ? -1 : 1;
    return a->neg ? -compare_size(a, b) : compare_size(a, b);
}

/* One away from 0, or (up 0) one towards it. */
static void add_one(decimal *d, int up)
{
    int k = d->ni - 1;

    while (k >= 0 && d->i[k] == (up ? '9' : '0'))
        d->i[k--] = up ? '0' : '9';
    if (k < 0) { /* 999 -> 1000 */
        memmove(d->i + 1, d->i, (size_t)d->ni + 1);
        d->i[0] = '1';
        d->ni++;
        return;
    }
    d->i[k] = (char)(d->i[k] + (up ? 1 : -1));
    if (d->i[0] == '0' && d->ni > 1)
        memmove(d->i, d->i + 1, (size_t)d->ni--);
    d->neg &= d->ni > 1 || d->i[0] != '0';
}

/* ---- whole numbers ---- */

static void put_digits(sbuf *b, int least, int most)
{
    if (most > 0)
        sbuf_printf(b, " [0-9]{%d,%d} ", least, most);
}

static int all(const char *s, int n, char c)
{
    while (n > 0 && s[n - 1] == c)
        n--;
    return n == 0;
}

/* n digits that are at least (most: at most) s. */
static void put_side(sbuf *b, const char *s, int n, int most)
{
    if (n == 0)
        return;
    if (all(s, n, most ? '9' : '0')) {
        put_digits(b, n, n);
        return;
    }
    sbuf_puts(b, "(");
    if (*s != (most ? '0' : '9')) {
        sbuf_printf(b, most ? "[0-%c]" : "[%c-9]", most ? *s - 1 : *s + 1);
        put_digits(b, n - 1, n - 1);
        sbuf_puts(b, " | ");
    }
    sbuf_printf(b, "\"%c\" ", *s);
    put_side(b, s + 1, n - 1, most);
    sbuf_puts(b, ")");
}

static void put_span(sbuf *b, const char *lo, const char *hi, int n)
{
    int k = 0;

    while (k < n && lo[k] == hi[k])
        k++;
    if (k)
        sbuf_printf(b, "\"%.*s\" ", k, lo);
    if (k == n)
        return;
    sbuf_printf(b, "(\"%c\" ", lo[k]);
    put_side(b, lo + k + 1, n - k - 1, 0);
    if (hi[k] - lo[k] > 1) {
        sbuf_printf(b, " | [%c-%c] ", lo[k] + 1, hi[k] - 1);
        put_digits(b, n - k - 1, n - k - 1);
    }
    sbuf_printf(b, " | \"%c\" ", hi[k]);
    put_side(b, hi + k + 1, n - k - 1, 1);
    sbuf_puts(b, ")");
}

/* Alternatives for the whole numbers lo..hi, neither with a sign. */
static void put_naturals(sbuf *b, const decimal *lo, const decimal *hi)
{
    char end[DIGITS + 3];

    if (lo->ni == hi->ni) {
        put_span(b, lo->i, hi->i, lo->ni);
        return;
    }
    memset(end, '9', sizeof end);
    put_span(b, lo->i, end, lo->ni);
    if (hi->ni - lo->ni > 1) {
        sbuf_puts(b, " | [1-9]");
        put_digits(b, lo->ni, hi->ni - 2);
    }
    memset(end, '0', sizeof end);
    end[0] = '1';
    sbuf_puts(b, " | ");
    put_span(b, end, hi->i, hi->ni);
}

static const decimal zero = { .ni = 1, .i = "0" }, one = { .ni = 1, .i = "1" };

static decimal size_of(const decimal *d)
{
    decimal x = *d;

    x.neg = 0;
    return x;
}

static void put_integers(sbuf *b, const decimal *lo, const decimal *hi)
{
    const decimal far = size_of(lo), near = size_of(hi);

    sbuf_puts(b, "(");
    if (lo->neg) {
        sbuf_puts(b, "\"-\" (");
        put_naturals(b, hi->neg ? &near : &one, &far);
        sbuf_puts(b, hi->neg ? ")" : ") | ");
    }
    if (!hi->neg)
        put_naturals(b, lo->neg ? &zero : lo, hi);
    sbuf_puts(b, ")");
}

/* ---- bounds ---- */

/* A bound that no number which is written reaches, as a double's largest. */
static int beyond(const json_t *x, int sign)
{
    return json_is_real(x) && sign * json_real_value(x) <= -1e40;
}

/* key's bound, or with `open` "exclusive..." = true beside it (OpenAPI 3.0). */
static int read_bound(const schema_maker *m, int at, const char *key, const char *exclusive, int sign, bound *b)
{
    const json_t *x = json_object_get(m->jobs[at].schema, key), *y = json_object_get(m->jobs[at].schema, exclusive);
    decimal d;

    *b = (bound){ .open = json_is_true(y) };
    if (x && !json_is_number(x) && !json_is_wide(x))
        return schema_fail(m, at, key, "wanted a number");
    if (y && !json_is_boolean(y) && !json_is_number(y) && !json_is_wide(y))
        return schema_fail(m, at, exclusive, "wanted a number");
    if (x && beyond(x, sign))
        x = NULL;
    if (y && !json_is_boolean(y) && beyond(y, sign))
        y = NULL;
    if (x) {
        b->given = 1;
        if (!decimal_of(x, &b->d))
            return schema_fail(m, at, key, "more than 40 digits");
    }
    if (!y || json_is_boolean(y))
        return KVANT_OK;
    if (!decimal_of(y, &d))
        return schema_fail(m, at, exclusive, "more than 40 digits");
    if (!b->given || sign * compare(&d, &b->d) >= 0)
        *b = (bound){ 1, 1, d };
    return KVANT_OK;
}

static int read_bounds(const schema_maker *m, int at, bound *lo, bound *hi)
{
    KVANT_TRY(read_bound(m, at, "minimum", "exclusiveMinimum", 1, lo));
    return read_bound(m, at, "maximum", "exclusiveMaximum", -1, hi);
}

/* The next whole number within: up for a lower bound. */
static void make_whole(bound *b, int up)
{
    decimal *d = &b->d;

    if (!b->given || (!d->nf && !b->open))
        return;
    const int away = up != d->neg; /* from 0 */
    if (!d->nf || away) {
        if (!d->nf && !away && d->ni == 1 && d->i[0] == '0') /* below 0, above it */
            *d = (decimal){ .neg = !up, .ni = 1, .i = "1" };
        else
            add_one(d, away);
    }
    d->f[d->nf = 0] = 0;
    d->neg &= d->ni > 1 || d->i[0] != '0';
    b->open = 0;
}

/* A bound that is not given is that of 64 bits, or of as many digits as the other bound and one more. */
static void make_far(bound *b, const bound *other, int neg)
{
    if (b->given)
        return;
    b->given = 1;
    parse(neg ? "-9223372036854775808" : "9223372036854775807", &b->d);
    if (!other->given || (neg ? compare(&other->d, &b->d) > 0 : compare(&other->d, &b->d) < 0))
        return;
    const int n = other->d.ni < DIGITS ? other->d.ni + 1 : DIGITS;
    memset(b->d.i, '9', (size_t)n);
    b->d.ni = n;
    b->d.i[n] = 0;
}

/* ---- fractions ---- */

/* Digits behind the point that go on above (or at) f[n]; none need come where f is at its end. */
static void put_above(sbuf *b, const char *f, int n, int open, int room)
{
    if (all(f, n, '0') && !open) {
        put_digits(b, 0, room);
    } else if (n == 0) {
        sbuf_puts(b, " \"0\"{0,2} [1-9] [0-9]{0,2} ");
    } else {
        sbuf_puts(b, "(");
        if (*f != '9') {
            sbuf_printf(b, "[%c-9]", *f + 1);
            put_digits(b, 0, room - 1);
            sbuf_puts(b, " | ");
        }
        sbuf_printf(b, "\"%c\" ", *f);
        put_above(b, f + 1, n - 1, open, room - 1);
        sbuf_puts(b, ")");
    }
}

/* At least one digit, below (or at) f[n], n > 0. */
static void put_below(sbuf *b, const char *f, int n, int open, int room)
{
    const int last = n == 1, equal = !last || !open;

    sbuf_puts(b, "(");
    if (*f != '0') {
        sbuf_printf(b, "[0-%c]", *f - 1);
        put_digits(b, 0, room - 1);
        sbuf_puts(b, equal ? " | " : "");
    }
    if (equal)
        sbuf_printf(b, "\"%c\" ", *f);
    if (last && equal && room > 1)
        sbuf_printf(b, "\"0\"{0,%d} ", room - 1 < 2 ? room - 1 : 2);
    if (!last) {
        put_below(b, f + 1, n - 1, open, room - 1);
        sbuf_puts(b, "?");
    }
    sbuf_puts(b, ")");
}

static void put_any_fraction(sbuf *b, int room)
{
    if (room)
        sbuf_printf(b, " (\".\" [0-9]{1,%d})? ", room);
}

static void put_fraction_above(sbuf *b, const bound *lo, int room)
{
    if (!lo->d.nf && !lo->open) {
        put_any_fraction(b, room);
        return;
    }
    sbuf_puts(b, " \".\" ");
    put_above(b, lo->d.f, lo->d.nf, lo->open, room);
}

static void put_fraction_below(sbuf *b, const bound *hi, int room)
{
    if (!hi->d.nf)
        return;
    sbuf_puts(b, " (\".\" ");
    put_below(b, hi->d.f, hi->d.nf, hi->open, room);
    sbuf_puts(b, ")? ");
}

/* Both have the same digits before the point.  0: there is none in between. */
static int put_fraction_between(sbuf *b, const bound *lo, const bound *hi, int room)
{
    const int n = lo->d.nf > hi->d.nf ? lo->d.nf : hi->d.nf;
    char from[DIGITS + 1], to[DIGITS + 1];
    int k = 0;

    memset(from, '0', sizeof from);
    memset(to, '0', sizeof to);
    memcpy(from, lo->d.f, (size_t)lo->d.nf);
    memcpy(to, hi->d.f, (size_t)hi->d.nf);
    while (k < n && from[k] == to[k])
        k++;
    if (k == n && (lo->open || hi->open))
        return 0;
    if (n == 0)
        return 1;
    if (!lo->d.nf && !lo->open) {
        put_fraction_below(b, hi, room);
        return 1;
    }
    sbuf_printf(b, " \".%.*s\" ", k, from);
    if (k == n)
        return 1;
    sbuf_printf(b, "(\"%c\" ", from[k]);
    put_above(b, from + k + 1, lo->d.nf > k + 1 ? lo->d.nf - k - 1 : 0, lo->open, room - k - 1);
    if (to[k] - from[k] > 1) {
        sbuf_printf(b, " | [%c-%c]", from[k] + 1, to[k] - 1);
        put_digits(b, 0, room - k - 1);
    }
    if (hi->d.nf > k + 1) {
        sbuf_printf(b, " | \"%c\" ", to[k]);
        put_below(b, to + k + 1, hi->d.nf - k - 1, hi->open, room - k - 1);
        sbuf_puts(b, "?");
    } else if (!hi->open) {
        sbuf_printf(b, " | \"%c\"", to[k]);
    }
    sbuf_puts(b, ")");
    return 1;
}

/* Numbers without a sign.  0: there is none. */
static int put_sizes(sbuf *b, const bound *lo, const bound *hi, int room)
{
    decimal from = lo->d, to = hi->d;

    if (lo->d.ni == hi->d.ni && strcmp(lo->d.i, hi->d.i) == 0) {
        const size_t at = b->n;
        sbuf_printf(b, "\"%s\" ", lo->d.i);
        if (put_fraction_between(b, lo, hi, room))
            return 1;
        b->n = at;
        return 0;
    }
    sbuf_printf(b, "\"%s\" ", lo->d.i);
    put_fraction_above(b, lo, room);
    from.f[from.nf = 0] = to.f[to.nf = 0] = 0;
    add_one(&from, 1);
    if (compare_size(&from, &to) < 0) {
        add_one(&to, 0);
        sbuf_puts(b, " | (");
        put_naturals(b, &from, &to);
        sbuf_puts(b, ") ");
        put_any_fraction(b, room);
    }
    if (hi->d.nf || !hi->open) {
        sbuf_printf(b, " | \"%s\" ", hi->d.i);
        put_fraction_below(b, hi, room);
    }
    return 1;
}

static bound size_bound(const bound *b)
{
    bound x = *b;

    x.d.neg = 0;
    return x;
}

/* room: digits behind the point. */
static int put_decimals(schema_maker *m, int at, const bound *lo, const bound *hi, int room)
{
    const bound nothing = { 1, 0, zero }, far = size_bound(lo), near = size_bound(hi);
    sbuf *b = &m->out;
    int some = 0;

    sbuf_puts(b, "(");
    if (lo->d.neg) {
        const size_t from = b->n;
        sbuf_puts(b, "\"-\" (");
        some = put_sizes(b, hi->d.neg ? &near : &nothing, &far, room);
        if (some)
            sbuf_puts(b, ")");
        else
            b->n = from;
    }
    if (!hi->d.neg && !(hi->open && compare(&hi->d, &zero) == 0)) {
        const size_t from = b->n;
        sbuf_puts(b, some ? " | " : "");
        const int more = put_sizes(b, lo->d.neg ? &nothing : lo, hi, room);
        if (!more)
            b->n = from;
        some |= more;
    }
    sbuf_puts(b, ")");
    return some ? KVANT_OK : schema_fail(m, at, "minimum", "no number is in the range");
}

/* ---- multiples ---- */

/* d times 10^k towards (up: above) it, as 64 bits that leave room for sums. */
static int64_t scaled(const decimal *d, int k, int up, int open)
{
    int64_t v = 0;
    int rest = 0;

    for (int i = 0; i < d->ni + k; i++) {
        const char c = i < d->ni ? d->i[i] : i - d->ni < d->nf ? d->f[i - d->ni] : '0';
        if (v > (int64_t)4e16)
            return d->neg ? -(int64_t)4e17 : (int64_t)4e17;
        v = 10 * v + (c - '0');
    }
    rest = d->nf > k;
    v = d->neg ? -v : v;
    if (rest && up == !d->neg)
        v += up ? 1 : -1;
    if (!rest && open)
        v += up ? 1 : -1;
    return v;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static void put_scaled(sbuf *b, int64_t v, int k)
{
    int64_t unit = 1;
    const int64_t size = v < 0 ? -v : v;

    for (int i = 0; i < k; i++)
        unit *= 10;
    sbuf_printf(b, "\"%s%lld", v < 0 ? "-" : "", (long long)(size / unit));
    if (size % unit)
        sbuf_printf(b, ".%0*lld", k, (long long)(size % unit));
    sbuf_puts(b, "\"");
}

/* Returns 1 if k more digits can make a multiple of step from a number with the remainder r. */
static int reaches(int r, int k, int step)
{
    int64_t unit = 1;

    for (int i = 0; i < k; i++)
        unit *= 10;
    return (step - r * (unit % step) % step) % step < unit;
}

/* Rules of exactly k digits that make a multiple of `step` of what has the remainder r so far. */
static void put_step_rules(sbuf *b, int step)
{
    for (int k = 1; k < MOST_LENGTH; k++)
        for (int r = 0; r < step; r++) {
            const char *bar = "";
            if (!reaches(r, k, step))
                continue;
            sbuf_printf(b, "mul%d-%d-%d ::= ", step, k, r);
            for (int c = 0; c < 10; c++) {
                const int next = (10 * r + c) % step;
                if (!reaches(next, k - 1, step))
                    continue;
                sbuf_printf(b, "%s\"%d\"", bar, c);
                if (k > 1)
                    sbuf_printf(b, " mul%d-%d-%d", step, k - 1, next);
                bar = " | ";
            }
            sbuf_puts(b, "\n");
        }
}

/* Multiples of step by their lengths; lengths that are within the range as a whole. */
static int put_steps(schema_maker *m, int step, int64_t lo, int64_t hi)
{
    char name[32];
    const char *bar = "";
    int64_t unit = 1;

    snprintf(name, sizeof name, "mul%d-1-0 ::=", step); /* 0 is always a multiple */
    if (!strstr(sbuf_text(&m->shared), name))
        put_step_rules(&m->shared, step);
    for (int sign = 0; sign < 2; sign++, unit = 1)
        for (int n = 1; n <= MOST_LENGTH; n++, unit *= 10) {
            const int64_t least = sign ? -(10 * unit - 1) : unit, most = sign ? -unit : 10 * unit - 1;
            for (int c = 1; c < 10 && least >= lo && most <= hi; c++) {
                if (!reaches(c % step, n - 1, step))
                    continue;
                sbuf_printf(&m->out, "%s\"%s%d\"", bar, sign ? "-" : "", c);
                if (n > 1)
                    sbuf_printf(&m->out, " mul%d-%d-%d", step, n - 1, c % step);
                bar = " | ";
            }
        }
    return *bar != 0;
}

/* k: digits behind the point; the multiples are n times p / 10^k. */
static int put_multiples(schema_maker *m, int at, const bound *lo, const bound *hi, int64_t p, int k)
{
    int64_t from = lo->given ? scaled(&lo->d, k, 1, lo->open) : -(int64_t)4e17;
    int64_t to = hi->given ? scaled(&hi->d, k, 0, hi->open) : (int64_t)4e17;
    int64_t first = -floor_div(-from, p), last = floor_div(to, p);
    const size_t start = m->out.n;

    if (first > last)
        return schema_fail(m, at, "multipleOf", "no multiple is in the range");
    sbuf_puts(&m->out, "(");
    if (last - first >= LISTED && !k && p <= MOST_STEP && put_steps(m, (int)p, from, to)) {
        sbuf_puts(&m->out, from <= 0 && to >= 0 ? " | \"0\")" : ")");
        return KVANT_OK;
    }
    m->out.n = start + 1;
    if (last - first >= LISTED) { /* those nearest to 0 */
        const int64_t middle = first > 0             ? first
                               : last < 0            ? last - LISTED + 1
                               : -LISTED / 2 > first ? -LISTED / 2
                                                     : first;
        first = middle;
        last = first + LISTED - 1 < last ? first + LISTED - 1 : last;
    }
    for (int64_t n = first; n <= last && !m->out.error; n++) {
        sbuf_puts(&m->out, n > first ? " | " : "");
        put_scaled(&m->out, n * p, k);
    }
    sbuf_puts(&m->out, ")");
    return KVANT_OK;
}

/* The step of multipleOf: *p / 10^*k; 0: there is none. */
static int read_step(const schema_maker *m, int at, int64_t *p, int *k, int *given)
{
    const json_t *x = json_object_get(m->jobs[at].schema, "multipleOf");
    decimal d;

    *given = x != NULL;
    if (!x)
        return KVANT_OK;
    if (!json_is_number(x) || !decimal_of(x, &d) || d.neg || (d.nf == 0 && strcmp(d.i, "0") == 0) || d.ni + d.nf > 16 ||
        d.nf > 9)
        return schema_fail(m, at, "multipleOf", "wanted a number above 0 of at most 16 digits, 9 behind the point");
    *p = scaled(&d, *k = d.nf, 0, 0);
    return KVANT_OK;
}

/* ---- the two types ---- */

void schema_put_int64(sbuf *b)
{
    const bound none = { 0 };
    bound lo = { 0 }, hi = { 0 };

    make_far(&lo, &none, 1);
    make_far(&hi, &none, 0);
    sbuf_puts(b, "integer ::= ");
    put_integers(b, &lo.d, &hi.d);
    sbuf_puts(b, "\n");
}

int schema_put_integer(schema_maker *m, int at)
{
    bound lo, hi;
    int64_t p = 1;
    int k = 0, step;

    KVANT_TRY(read_bounds(m, at, &lo, &hi));
    KVANT_TRY(read_step(m, at, &p, &k, &step));
    for (; k > 0 && p % 10 == 0; k--)
        p /= 10;
    if (step && k) { /* whole multiples of p / 10^k are those of p over what it has in common with 10^k */
        int64_t a = p, b = 1;
        for (int i = 0; i < k; i++)
            b *= 10;
        while (b) {
            const int64_t c = a % b;
            a = b;
            b = c;
        }
        p /= a;
    }
    if (step && p != 1)
        return put_multiples(m, at, &lo, &hi, p, 0);
    if (!lo.given && !hi.given) {
        sbuf_puts(&m->out, "integer");
        return KVANT_OK;
    }
    make_whole(&lo, 1);
    make_whole(&hi, 0);
    make_far(&lo, &hi, 1);
    make_far(&hi, &lo, 0);
    if (compare(&lo.d, &hi.d) > 0)
        return schema_fail(m, at, "minimum", "no integer is in the range");
    put_integers(&m->out, &lo.d, &hi.d);
    return KVANT_OK;
}

int schema_put_number(schema_maker *m, int at)
{
    bound lo, hi;
    int64_t p = 1;
    int k = 0, step, room = FRACTION;

    KVANT_TRY(read_bounds(m, at, &lo, &hi));
    KVANT_TRY(read_step(m, at, &p, &k, &step));
    if (step && p != 1)
        return put_multiples(m, at, &lo, &hi, p, k);
    if (step)
        room = k;
    if (!lo.given && !hi.given && !step) {
        sbuf_puts(&m->out, "number");
        return KVANT_OK;
    }
    if (step && (lo.d.nf > k || hi.d.nf > k || (k == 0 && (lo.open || hi.open))))
        return k ? put_multiples(m, at, &lo, &hi, p, k) : schema_put_integer(m, at);
    if (!step && lo.d.nf + 3 > room)
        room = lo.d.nf + 3;
    if (!step && hi.d.nf + 3 > room)
        room = hi.d.nf + 3;
    make_far(&lo, &hi, 1);
    make_far(&hi, &lo, 0);
    if (compare(&lo.d, &hi.d) > 0)
        return schema_fail(m, at, "minimum", "no number is in the range");
    if (step && k && (lo.open || hi.open))
        return put_multiples(m, at, &lo, &hi, p, k);
    return put_decimals(m, at, &lo, &hi, room);
}
