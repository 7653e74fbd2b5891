/* base/thread/copy.h: copies of many megabytes by several threads: one thread maps a file's pages, and fresh ones,
 * slower than memory copies them. */
#ifndef KVANT_BASE_THREAD_COPY_H
#define KVANT_BASE_THREAD_COPY_H

#include <stddef.h>
#include <stdint.h>

typedef struct copy_piece { void *to; const void *from; size_t bytes; } copy_piece;

/* Returns the first piece that does not lie in [0, bytes) with its `to` as a number, or is larger than `most`; -1: none
 * does.  Pure. */
static inline int copy_pieces_beyond(const copy_piece *list, int n, size_t bytes, size_t most)
{
    for (int i = 0; i < n; i++)
        if (list[i].bytes > most || list[i].bytes > bytes || (uintptr_t)list[i].to > bytes - list[i].bytes)
            return i;
    return -1;
}

/* Copies pieces that do not overlap; threads take them one by one, so none should be much larger than COPY_PIECE.
 * The caller's thread copies all where no other can be had. */
enum { COPY_PIECE = 1 << 20 };
void copy_pieces(const copy_piece *list, int n);

#endif
