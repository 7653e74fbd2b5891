/* version.c: the version of the library, as a number and as a text.  Owns the text. */
#include "kvant/kvant.h"

#ifndef KVANT_VERSION_TEXT
#define KVANT_VERSION_TEXT "0.1.0"
#endif

int kvant_version(void)
{
    return KVANT_VERSION;
}

const char *kvant_version_text(void)
{
#ifdef KVANT_COMMIT_TEXT
    return KVANT_VERSION_TEXT " (" KVANT_COMMIT_TEXT ")";
#else
    return KVANT_VERSION_TEXT;
#endif
}
