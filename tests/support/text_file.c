/* text_file.c: see text_file.h. */
#include "support/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *text_file_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        printf("cannot open %s (run from the repository root)\n", path);
        exit(2);
    }
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    if (!p || fread(p, 1, *n, f) != *n)
        exit(2);
    fclose(f);
    p[*n] = 0;
    return p;
}

int text_from_hex(const char *s, size_t digits, char *out)
{
    static const char alphabet[] = "0123456789abcdef";
    for (size_t i = 0; i + 1 < digits; i += 2) {
        const char *hi = strchr(alphabet, s[i]), *lo = strchr(alphabet, s[i + 1]);
        if (!hi || !lo)
            return -1;
        out[i / 2] = (char)((hi - alphabet) << 4 | (lo - alphabet));
    }
    return (int)(digits / 2);
}
