/* base/file/folder.h: a folder held open by descriptor, so that what stands under its name later (a link, another
 * folder) changes nothing.  Files in it are named without '/'. */
#ifndef KVANT_BASE_FOLDER_H
#define KVANT_BASE_FOLDER_H

#include <stdint.h>
#include "base/error.h"

/* Follows links in path: it is the operator's word.  KVANT_ENOENT (no such folder), KVANT_EIO. */
int folder_open(const char *path, int *fd, kvant_diag *diag);
/* Calls each for the names in it; returns how often, or KVANT_EIO. */
int folder_each(int fd, void (*each)(void *user, int fd, const char *name), void *user);
/* Bytes of the regular files whose names begin with `begins`, but for `except` (NULL: none). */
int folder_bytes(int fd, const char *begins, const char *except, int64_t *bytes, kvant_diag *diag);

#endif
