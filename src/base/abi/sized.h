/* base/abi/sized.h: parameter structs that begin with their size (docs/decisions/0011-abi.md): a program may have been
 * built with an older or a newer header than this library, whose struct ends earlier or later.  Any thread. */
#ifndef KVANT_BASE_ABI_SIZED_H
#define KVANT_BASE_ABI_SIZED_H

#include <stddef.h>

#include "kvant/error.h"

/* A caller's struct of `size` bytes gets the defaults, and 0 in all fields that this library does not know.  defaults:
 * own_size bytes; the first field of both is a size_t, which becomes `size`. */
void params_give(void *theirs, size_t size, const void *defaults, size_t own_size);
/* own[own_size], which has the defaults already, gets the fields that the caller has.  KVANT_EINVAL: the size is no
 * struct's; KVANT_EUNSUPPORTED: a field that this library does not know is set.  name: of the struct, for diag. */
int params_take(void *own, size_t own_size, const void *theirs, const char *name, kvant_diag *diag);


#endif
