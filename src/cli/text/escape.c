/* escape.c: see escape.h. */
#include "cli/text/escape.h"

#include <stddef.h>
#include "base/text/hex.h"

void unescape(char *s)
{
    static const char names[] = "n\nr\rt\t''\"\"\\\\"; /* pairs: letter, meaning */
    char *out = s;

    while (*s) {
        if (*s != '\\' || !s[1]) {
            *out++ = *s++;
            continue;
        }
        int hit = 0;
        for (size_t i = 0; i + 1 < sizeof names && !hit; i += 2)
            if (s[1] == names[i]) {
                *out++ = names[i + 1];
                hit = 1;
            }
        if (!hit && s[1] == 'x' && hex_digit(s[2]) >= 0 && hex_digit(s[3]) >= 0) {
            *out++ = (char)(hex_digit(s[2]) * 16 + hex_digit(s[3]));
            s += 2;
        } else if (!hit) {
            *out++ = *s;
            *out++ = s[1];
        }
        s += 2;
    }
    *out = 0;
}
