/* schema_numbers.c: ranges and multiples of a JSON schema's numbers as alternatives of a grammar.  Nothing recurses
 * deeper than a bound has digits. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_schema.h"
#include "server/grammar/numbers/decimal.h"
#include "server/request/json_scan.h"

static const decimal zero = { .ni = 1, .i = "0" }, one = { .ni = 1, .i = "1" };

enum { FRACTION = 15, LISTED = 1000, MOST_STEP = 200, MOST_LENGTH = 15 };

typedef struct bound {
    int given, open;
    decimal d;
} bound;

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
    if (!b->given || sign * decimal_compare(&d, &b->d) >= 0)
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
        if (decimal_is_zero(d)) /* below 0, above it */
            *d = (decimal){ .neg = !up, .ni = 1, .i = "1" };
        else
            decimal_add_one(d, away);
    }
    d->f[d->nf = 0] = 0;
    d->neg &= !decimal_is_zero(d);
    b->open = 0;
}

/* A bound that is not given is that of 64 bits, or of as many digits as the other bound and one more. */
static void make_far(bound *b, const bound *other, int neg)
{
    if (b->given)
        return;
    b->given = 1;
    decimal_parse(neg ? "-9223372036854775808" : "9223372036854775807", &b->d);
    if (!other->given || (neg ? decimal_compare(&other->d, &b->d) > 0 : decimal_compare(&other->d, &b->d) < 0))
        return;
    const int n = other->d.ni < DIGITS ? other->d.ni + 1 : DIGITS;
    memset(b->d.i, '9', (size_t)n);
    b->d.ni = n;
    b->d.i[n] = 0;
}

/* ---- ranges ---- */

/* Numbers without signs between two texts of as many digits before the point, which each text has. */
typedef struct size_range {
    sbuf *b;
    int above; /* the lower one itself is not in it */
    int free;  /* any digits may stand behind those of the upper one */
} size_range;

static void put_digits(sbuf *b, int least, int most)
{
    if (most > 0)
        sbuf_printf(b, " [0-9]{%d,%d} ", least, most);
}

/* Any digits: `left` of them before the point; left -1: the point has come.  room: the most behind it. */
static void put_any(sbuf *b, int left, int room)
{
    put_digits(b, left < 0 ? 0 : left, left < 0 ? room : left);
    if (left >= 0 && room)
        sbuf_printf(b, " (\".\" [0-9]{1,%d})? ", room);
}

static void put_rest(const size_range *r, const char *lo, const char *hi, int left, int room);

/* The next digit and all that is behind it. */
static void put_digit(const size_range *r, const char *lo, const char *hi, int left, int room)
{
    const int a = lo && *lo ? *lo : '0', z = hi ? *hi : '9', from = a + (lo != NULL), to = z - (hi != NULL);
    const char *further = lo && *lo ? lo + 1 : lo, *bar = "";
    sbuf *b = r->b;

    if (lo && hi && a == z) {
        sbuf_printf(b, "\"%c\" ", a);
        put_rest(r, further, hi + 1, left, room);
        return;
    }
    sbuf_puts(b, "(");
    if (from <= to) {
        sbuf_printf(b, "[%c-%c]", from, to);
        put_any(b, left, room);
        bar = " | ";
    }
    if (lo) {
        sbuf_printf(b, "%s\"%c\" ", bar, a);
        put_rest(r, further, NULL, left, room);
        bar = " | ";
    }
    if (hi) {
        sbuf_printf(b, "%s\"%c\" ", bar, z);
        put_rest(r, NULL, hi + 1, left, room);
    }
    sbuf_puts(b, ")");
}

/* The rest of numbers that began with the digits of both bounds; NULL: they are above, or below, that one by now. */
static void put_rest(const size_range *r, const char *lo, const char *hi, int left, int room)
{
    sbuf *b = r->b;

    if (left == 0) {
        lo = lo && *lo == '.' ? lo + 1 : lo;
        hi = hi && *hi == '.' ? hi + 1 : hi;
    }
    if (lo && !r->above && !lo[strspn(lo, "0.")])
        lo = NULL;
    if (hi && (r->free || !room) && !hi[strspn(hi, "9.")])
        hi = NULL;
    if (!lo && !hi) {
        put_any(b, left, room);
    } else if (hi && !*hi) { /* equal to it */
        if (left < 0)
            sbuf_printf(b, "\"0\"{0,%d} ", room < 2 ? room : 2);
    } else if (left > 0) {
        put_digit(r, lo, hi, left - 1, room);
    } else if (lo && !*lo && !hi) { /* equal to it so far */
        const int most = room > 5 ? room - 3 : 2; /* a size near the bound may be tiny */
        sbuf_printf(b, "%s\"0\"{0,%d} [1-9] [0-9]{0,%d} ", left ? "" : "\".\" ", most, most);
    } else {
        sbuf_puts(b, left ? "" : "(\".\" ");
        put_digit(r, lo, hi, -1, room - 1);
        sbuf_puts(b, left ? "" : ")");
        sbuf_puts(b, lo ? "" : "? ");
    }
}

/* Numbers without a sign, at least one; room: the most digits behind the point. */
static void put_sizes(sbuf *b, const bound *lo, const bound *hi, int room)
{
    const size_range from = { b, lo->open, 0 }, to = { b, 0, hi->open }, both = { b, lo->open, hi->open };
    char least[2 * DIGITS + 3], most[2 * DIGITS + 3];
    decimal d = hi->d;

    if (hi->open && d.nf) /* below 2.75: 2.74 and any digits behind it */
        d.f[d.nf - 1]--;
    else if (hi->open)
        decimal_add_one(&d, 0);
    snprintf(least, sizeof least, "%s.%s", lo->d.i, lo->d.f);
    snprintf(most, sizeof most, "%s.%s", d.i, d.f);
    if (lo->d.ni == d.ni) {
        put_rest(&both, least, most, d.ni, room);
        return;
    }
    put_rest(&from, least, NULL, lo->d.ni, room);
    if (d.ni - lo->d.ni > 1) {
        sbuf_puts(b, " | [1-9]");
        put_digits(b, lo->d.ni, d.ni - 2);
        put_any(b, 0, room);
    }
    sbuf_puts(b, " | ");
    put_rest(&to, "1.", most, d.ni, room);
}

/* at_least: the smallest size of a number below 0. */
static void put_range(sbuf *b, const bound *lo, const bound *hi, const decimal *at_least, int room)
{
    const int zero_out = hi->open && decimal_is_zero(&hi->d);
    const bound nothing = { 1, 0, zero };
    bound far = *lo, near = { 1, zero_out, *at_least };

    near = hi->d.neg ? *hi : near;
    far.d.neg = near.d.neg = 0;
    sbuf_puts(b, "(");
    if (lo->d.neg) {
        sbuf_puts(b, "\"-\" (");
        put_sizes(b, &near, &far, room);
        sbuf_puts(b, hi->d.neg || zero_out ? ")" : ") | ");
    }
    if (!hi->d.neg && !zero_out)
        put_sizes(b, lo->d.neg ? &nothing : lo, hi, room);
    sbuf_puts(b, ")");
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

static int64_t power10(int k)
{
    return k ? 10 * power10(k - 1) : 1;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static void put_scaled(sbuf *b, int64_t v, int k)
{
    const int64_t size = v < 0 ? -v : v, unit = power10(k);

    sbuf_printf(b, "\"%s%lld", v < 0 ? "-" : "", (long long)(size / unit));
    if (size % unit)
        sbuf_printf(b, ".%0*lld", k, (long long)(size % unit));
    sbuf_puts(b, "\"");
}

/* Returns 1 if k more digits can make a multiple of step from a number with the remainder r. */
static int reaches(int r, int k, int step)
{
    const int64_t unit = power10(k);

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
    if (!json_is_number(x) || !decimal_of(x, &d) || d.neg || decimal_is_zero(&d) || d.ni + d.nf > 16 ||
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
    put_range(b, &lo, &hi, &one, 0);
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
        int64_t a = p;
        for (int64_t b = power10(k), c; b; a = b, b = c)
            c = a % b;
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
    if (decimal_compare(&lo.d, &hi.d) > 0)
        return schema_fail(m, at, "minimum", "no integer is in the range");
    put_range(&m->out, &lo, &hi, &one, 0);
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
    if (decimal_compare(&lo.d, &hi.d) + (lo.open || hi.open) > 0)
        return schema_fail(m, at, "minimum", "no number is in the range");
    if (step && k && (lo.open || hi.open))
        return put_multiples(m, at, &lo, &hi, p, k);
    put_range(&m->out, &lo, &hi, &zero, room);
    return KVANT_OK;
}
