/* base/thread/copy.h: copies of many megabytes by several threads: one thread maps a file's pages, and fresh ones,
 * slower than memory copies them. */
#ifndef KVANT_BASE_THREAD_COPY_H
#define KVANT_BASE_THREAD_COPY_H

#include <stddef.h>

typedef struct copy_piece { void *to; const void *from; size_t bytes; } copy_piece;

/* Copies pieces that do not overlap; threads take them one by one, so none should be much larger than COPY_PIECE.
 * The caller's thread copies all where no other can be had. */
enum { COPY_PIECE = 1 << 20 };
void copy_pieces(const copy_piece *list, int n);

#endif
