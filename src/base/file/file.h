/* base/file/file.h: read-only mapped files that survive truncation, and small whole-file reads.
 *
 * A mapped file that shrinks while mapped raises SIGBUS on access.  file_guard_install (once per process, done by
 * file_map) maps a zero page there instead and sets a poison flag: file_poisoned() then tells, and the engine checks it
 * before any token is emitted. */
#ifndef KVANT_BASE_FILE_H
#define KVANT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct mapped_file {
    const uint8_t *data;   /* NULL when size is 0 */
    size_t size;
    char *path;
    int slot;              /* index in the guard's table */
} mapped_file;

/* Maps a regular file read-only.  KVANT_ENOENT, KVANT_EFORMAT (directory, FIFO, device, empty), KVANT_EIO. */
int file_map(const char *path, mapped_file *out, kvant_diag *diag);
/* As file_map, for a file of a directory (base/file/folder.h); a name with '/' is refused, a symbolic link not
 * followed.  Errors show the name alone. */
int file_map_in(int dir, const char *name, mapped_file *out, kvant_diag *diag);
void file_unmap(mapped_file *f);
/* 1 when a page of f vanished under us (the file was truncated or its device failed). */
int file_poisoned(const mapped_file *f);

/* Reads a whole regular file of at most max_bytes; *data is NUL-terminated (not counted), freed with kvant_free. */
int file_read(const char *path, size_t max_bytes, char **data, size_t *size, kvant_diag *diag);

#endif
