/* sized.c: the copying of parameter structs between versions.  Owns nothing. */
#include "base/abi/sized.h"

#include <string.h>

#include "base/error.h"

enum { PARAMS_MOST = 65536 };      /* a larger size is no struct's but a pointer or a number */

void params_give(void *theirs, size_t size, const void *defaults, size_t own_size)
{
    const size_t common = size < own_size ? size : own_size;

    memset(theirs, 0, size);
    memcpy(theirs, defaults, common);
    memcpy(theirs, &size, sizeof size < size ? sizeof size : size);
}

int params_take(void *own, size_t own_size, const void *theirs, const char *name, kvant_diag *diag)
{
    const unsigned char *p = theirs;
    size_t size;

    memcpy(&size, theirs, sizeof size);
    if (size < 2 * sizeof size || size > PARAMS_MOST)
        return kvant_fail(diag, KVANT_EINVAL, "%s.size: %zu, wanted its sizeof, here %zu (%s_init writes it)", name,
                          size, own_size, name);
    for (size_t i = own_size; i < size; i++)
        if (p[i])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: byte %zu is set, this library knows %zu bytes: it is "
                              "older than the header", name, i, own_size);
    memcpy(own, theirs, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return KVANT_OK;
}
