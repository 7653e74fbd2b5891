/* base/error.h: how kvant code raises errors.  Public codes: kvant/error.h. */
#ifndef KVANT_BASE_ERROR_H
#define KVANT_BASE_ERROR_H

#include "kvant/error.h"

#define KVANT_TRY(expr)                  \
    do {                                 \
        int kvant_try_ = (expr);         \
        if (kvant_try_ < 0)              \
            return kvant_try_;           \
    } while (0)

/* Writes the formatted text into diag (if not NULL) and returns code: `return kvant_fail(d, KVANT_EINVAL, ...)`.
 * Visible because libkvant calls it in libkvant-formats; no public API. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), visibility("default")))
#endif
int kvant_fail(kvant_diag *diag, int code, const char *fmt, ...);

#endif
