/* base/text/names.h: names in one text, with commas between them. */
#ifndef KVANT_NAMES_H
#define KVANT_NAMES_H

#include <string.h>

/* The next name, name[n], without the blanks around it; empty ones are passed over.  *list moves behind it.  0: there
 * is no more. */
static inline int names_next(const char **list, const char **name, size_t *n)
{
    for (const char *p = *list; *p;) {
        const size_t part = strcspn(p, ",");
        size_t from = strspn(p, " \t"), to = part;
        from = from < to ? from : to;
        while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
            to--;
        *name = p + from;
        *n = to - from;
        p += part + (p[part] == ',');
        *list = p;
        if (*n)
            return 1;
    }
    return 0;
}

#endif
