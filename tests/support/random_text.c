/* random_text.c: see random_text.h. */
#include "support/random_text.h"

#include <stdint.h>
#include <string.h>

/* clang-format off */
static const char *const bits[] = {
    "the", " of", "Marianne", " ", "  ", "\n", "\r\n", "\t", "48213", "7", "'s", "'LL", "<|im_end|>", "<|im_", "...",
    "=", "\xc3\xa9", "e\xcc\x81", "\xcc\x81", "\xcc\xa3", "\xe4\xb8\xad", "\xea\xb0\x80", "\xe2\x84\xab", "\xc2\xa0",
    "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xf0\x9f\x91\xa9\xe2\x80\x8d", "\xf0\x9f\x87\xa9", "\xe3\x80\x80",
    "\xe1\xa0\x8e", "\xd7\xa9",
    "\xff", "\xc3", "\xed\xa0\x80", "\xf0\x9f", "\x80",         /* the bad ones last */
};
/* clang-format on */
enum { N_BITS = sizeof bits / sizeof bits[0], N_BAD = 5 };

size_t random_text(rng *r, char *out, size_t cap, int bad)
{
    size_t n = 0;

    for (uint32_t i = 1 + rng_below(r, 12); i-- > 0;) {
        const char *b = bits[rng_below(r, bad ? N_BITS : N_BITS - N_BAD)];
        if (n + strlen(b) > cap)
            break;
        memcpy(out + n, b, strlen(b));
        n += strlen(b);
    }
    return n;
}
