/* error.c: texts of the error codes and the diagnostic writer.  Owns no state. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#define KVANT_ERROR_ROW(name, value, exitcode, text) { value, exitcode, "KVANT_" #name, text },
static const struct {
    int code, exitcode;
    const char *name, *text;
} error_rows[] = { KVANT_ERRORS(KVANT_ERROR_ROW) };

static int error_find(int code)
{
    for (int i = 0; i < (int)(sizeof error_rows / sizeof error_rows[0]); i++)
        if (error_rows[i].code == code)
            return i;
    return -1;
}

const char *kvant_error_text(int code)
{
    int i = error_find(code);
    return i < 0 ? "unknown error" : error_rows[i].text;
}

const char *kvant_error_name(int code)
{
    int i = error_find(code);
    return i < 0 ? "KVANT_E?" : error_rows[i].name;
}

int kvant_error_exit(int code)
{
    int i = error_find(code);
    return i < 0 ? 1 : error_rows[i].exitcode;
}

int kvant_fail(kvant_diag *diag, int code, const char *fmt, ...)
{
    if (diag) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(diag->text, sizeof diag->text, fmt, ap);
        va_end(ap);
    }
    return code;
}
