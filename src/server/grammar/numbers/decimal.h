/* server/grammar/numbers/decimal.h: numbers as the digits that they are written with: none is too large or too fine for
 * binary ones. */
#ifndef KVANT_SERVER_GRAMMAR_NUMBERS_DECIMAL_H
#define KVANT_SERVER_GRAMMAR_NUMBERS_DECIMAL_H

#include <jansson.h>

enum { DIGITS = 40 };

/* Digits before the point without zeros in front, and behind it without zeros at the end; 0 has no sign. */
typedef struct decimal {
    int neg, ni, nf;
    char i[DIGITS + 2], f[DIGITS + 1];
} decimal;

/* A number of JSON, as its text or its value; 0: it has too many digits. */
int decimal_parse(const char *s, decimal *d);
int decimal_of(const json_t *x, decimal *d);
int decimal_is_zero(const decimal *d);
int decimal_compare(const decimal *a, const decimal *b);
/* One away from 0, or (up 0) one towards it. */
void decimal_add_one(decimal *d, int up);

#endif
