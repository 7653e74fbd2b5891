/* base/text/hex.h: a hexadecimal digit. */
#ifndef KVANT_HEX_H
#define KVANT_HEX_H

/* 0 to 15; -1: it is none. */
static inline int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

#endif
