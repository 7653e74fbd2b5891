/* error.h: error codes and the diagnostic text that goes with them.
 *
 * Every kvant function that can fail returns 0 (KVANT_OK) or one of the negative KVANT_E* codes and, where it
 * takes a kvant_diag, leaves one sentence there: the thing, the value found, the value wanted.  Results come
 * back through pointers and are written only on success.  Any thread; no global state. */
#ifndef KVANT_ERROR_H
#define KVANT_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

/* X(NAME, value, exit code of the program, text).  The one list; everything else is generated from it. */
#define KVANT_ERRORS(X)                                                                          \
    X(OK, 0, 0, "ok")                                                                            \
    X(EINVAL, -1, 2, "invalid argument")                                                         \
    X(ENOMEM, -2, 4, "out of memory")                                                            \
    X(EIO, -3, 1, "input/output error")                                                          \
    X(EFORMAT, -4, 3, "malformed or unsupported file")                                           \
    X(ENOENT, -5, 3, "no such file")                                                             \
    X(EUNSUPPORTED, -6, 2, "not supported")                                                      \
    X(ENOSPC, -7, 4, "does not fit")                                                             \
    X(EDEVICE, -8, 5, "device unavailable")                                                      \
    X(ECANCELED, -9, 1, "cancelled")                                                             \
    X(EBUSY, -10, 1, "busy")                                                                     \
    X(ENUMERIC, -11, 1, "not a finite number")                                                   \
    X(EGATE, -12, 6, "a verification gate failed")                                               \
    X(EINTERNAL, -13, 1, "internal error")

enum kvant_error {
#define KVANT_ERROR_ENUM(name, value, exitcode, text) KVANT_##name = value,
    KVANT_ERRORS(KVANT_ERROR_ENUM)
#undef KVANT_ERROR_ENUM
};

/* A diagnostic: NUL-terminated text, at most 255 bytes.  The caller owns it; NULL is accepted everywhere. */
typedef struct kvant_diag {
    char text[256];
} kvant_diag;

/* Fixed text for a code ("out of memory"); never NULL. */
const char *kvant_error_text(int code);
/* Name of a code ("KVANT_ENOMEM"); never NULL. */
const char *kvant_error_name(int code);
/* Exit code of the kvant program for a code: the third column above; codes that are not in the list: 1. */
int kvant_error_exit(int code);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
