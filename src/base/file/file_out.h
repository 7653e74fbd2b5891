/* base/file/file_out.h: files that appear whole or not at all: written under a temporary name in the same directory,
 * synced, renamed, and the directory (base/file/folder.h) synced.  A failed sync discards the file; it is never
 * tried again (the kernel may have dropped the pages).  After KVANT_OK from commit the file survives a power cut.
 *
 * Names contain no '/'; symbolic links are not followed.  One thread per object. */
#ifndef KVANT_BASE_FILE_OUT_H
#define KVANT_BASE_FILE_OUT_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct file_out {
    int dir, fd; /* dir: the caller's */
    int64_t bytes;
    char name[96], temp[96];
} file_out;

/* KVANT_EINVAL (a name with '/'), KVANT_EIO.  The temporary file is locked while its writer lives. */
int file_out_begin(int dir, const char *name, file_out *f, kvant_diag *diag);
/* After an error only abort may follow. */
int file_out_write(file_out *f, const void *data, size_t n, kvant_diag *diag);
/* On error the file is gone and an older one of its name stays; only where what came after the rename failed (the sync
 * of the directory, the close) the new one stays, whole, but may be the old one again after a power cut. */
int file_out_commit(file_out *f, kvant_diag *diag);
void file_out_abort(file_out *f); /* also fine after commit, and twice */
/* Removes what crashed writers left in dir, and nothing that a living one (of any process) holds; returns how many. */
int file_out_sweep(int dir);

/* Fault tests: the n-th call to the system from now (once, or from then on) fails with errno `error`; with error 0 a
 * write comes up short.  `first`, if not NULL, is called before.  n < 0 switches off.  Returns how many calls were made
 * since the last switch.  Test use only. */
long file_out_fail_after(long n, int sticky, int error, void (*first)(void));

#endif
