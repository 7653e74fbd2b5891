/* decimal.c: see decimal.h. */
#include "server/grammar/numbers/decimal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/request/json_scan.h"

int decimal_is_zero(const decimal *d)
{
    return d->ni == 1 && d->i[0] == '0' && !d->nf;
}

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
    d->neg &= !decimal_is_zero(d);
    return 1;
}

int decimal_parse(const char *s, decimal *d)
{
    char digits[DIGITS];
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

int decimal_of(const json_t *x, decimal *d)
{
    char text[64];

    if (json_is_wide(x))
        return decimal_parse(json_string_value(x) + 1, d);
    if (json_is_integer(x))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(x));
    else
        for (int k = 1; k <= 17; k++) {
            snprintf(text, sizeof text, "%.*g", k, json_real_value(x));
            if (strtod(text, NULL) == json_real_value(x))
                break;
        }
    return decimal_parse(text, d);
}

int decimal_compare(const decimal *a, const decimal *b)
{
    int c = a->ni != b->ni ? a->ni - b->ni : strcmp(a->i, b->i);

    c = c ? c : strcmp(a->f, b->f);
    if (a->neg != b->neg)
        return a->neg ? -1 : 1;
    return a->neg ? -c : c;
}

void decimal_add_one(decimal *d, int up)
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
    d->neg &= !decimal_is_zero(d);
}
