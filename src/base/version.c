/* version.c: the version of the library.  Owns the text and nothing else. */
#include "kvant/kvant.h"

#ifndef KVANT_VERSION_TEXT
#define KVANT_VERSION_TEXT "0.1.0"
#endif

const char *kvant_version(void)
{
#ifdef KVANT_COMMIT_TEXT
    return KVANT_VERSION_TEXT " (" KVANT_COMMIT_TEXT ")";
#else
    return KVANT_VERSION_TEXT;
#endif
}
