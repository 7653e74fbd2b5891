/* text/utf8.h: the one UTF-8 decoder of the text code (RFC 3629: no overlong forms, no surrogates, at most
 * U+10FFFF). Owns no state; every caller decides what to do with ill-formed bytes. */
#ifndef KVANT_TEXT_UTF8_H
#define KVANT_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Range of the second byte for a lead byte; 0 bytes follow when *len is 0 (not a lead byte). */
static inline void utf8_lead(uint8_t b, int *len, uint8_t *lo, uint8_t *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (b < 0x80)
        *len = 1;
    else if (b < 0xC2 || b > 0xF4)
        *len = 0;
    else
        *len = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    if (b == 0xE0)
        *lo = 0xA0; /* overlong */
    else if (b == 0xED)
        *hi = 0x9F; /* surrogates */
    else if (b == 0xF0)
        *lo = 0x90; /* overlong */
    else if (b == 0xF4)
        *hi = 0x8F; /* above U+10FFFF */
}

/* Decodes the character at s[0..n), n >= 1.
 *   1..4   its length; *cp is the code point
 *   0      all n bytes begin a character whose end is missing
 *   -k     ill-formed: the maximal subpart (Unicode 15, section 3.9, table 3-8) has k bytes */
static inline int utf8_decode(const uint8_t *s, size_t n, uint32_t *cp)
{
    int len;
    uint8_t lo, hi;

    utf8_lead(s[0], &len, &lo, &hi);
    if (len == 0)
        return -1;
    if (len == 1) {
        *cp = s[0];
        return 1;
    }
    uint32_t c = s[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return 0;
        if (s[i] < lo || s[i] > hi)
            return -i;
        c = c << 6 | (s[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = c;
    return len;
}

/* Writes cp (a valid scalar value) to out[4]; returns 1..4. */
static inline int utf8_encode(uint32_t cp, uint8_t *out)
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)((0xF00u >> len) | cp);
    return len;
}

/* Bytes of the longest valid prefix of s[0..n). */
static inline size_t utf8_valid_prefix(const uint8_t *s, size_t n)
{
    size_t i = 0;
    uint32_t cp;

    while (i < n) {
        if (s[i] < 0x80) {
            i++;
            continue;
        }
        int k = utf8_decode(s + i, n - i, &cp);
        if (k <= 0)
            break;
        i += (size_t)k;
    }
    return i;
}

/* White_Space. */
static inline int utf8_is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The character that ends at s[n): its length, 0 if none that is valid does. */
static inline size_t utf8_before(const char *s, size_t n, uint32_t *c)
{
    size_t k = 1;

    while (k < 4 && k < n && ((uint8_t)s[n - k] & 0xC0) == 0x80)
        k++;
    return n && utf8_decode((const uint8_t *)s + n - k, k, c) == (int)k ? k : 0;
}

/* Bytes of the blank that s[n] begins (ends) with; 0: none. */
static inline size_t utf8_blank_at(const char *s, size_t n)
{
    uint32_t c = 0;
    const int k = n ? utf8_decode((const uint8_t *)s, n, &c) : 0;

    return k > 0 && utf8_is_blank(c) ? (size_t)k : 0;
}

static inline size_t utf8_blank_before(const char *s, size_t n)
{
    uint32_t c = 0;
    const size_t k = utf8_before(s, n, &c);

    return k && utf8_is_blank(c) ? k : 0;
}

#endif
