/* engine/blocks/store_folder.h: blocks as files of a folder that several workers share (docs/snapshot.md): named by the
 * block's id, written by a thread of its own, each whole or not at all.
 *
 * Beyond store_bytes those go that were used longest ago, whoever wrote them.  A damaged file is told, and removed. */
#ifndef KVANT_ENGINE_STORE_FOLDER_H
#define KVANT_ENGINE_STORE_FOLDER_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/host_tier.h"
#include "cache/store.h"

/* An image that waits to be written. */
typedef struct store_item {
    struct store_item *next;
    unsigned char id[PREFIX_ID];
    int what;
    int gone; /* forgotten while it waited, or is being written (lock) */
    uint8_t image[];
} store_item;

typedef struct store_folder {
    const kv_cache *kv;
    store_key key; /* block and what: of each call */
    int dir, is_open, runs;
    int64_t most; /* bytes of all files; 0: any */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the next six */
    pthread_cond_t news;
    store_item *first, *last; /* the first may be being written */
    int64_t waiting; /* bytes */
    int stop;
    int64_t stop_ns; /* when the thread drops what waits still */
    int64_t close_ns; /* so long store_folder_close goes on writing, and the file that is being written then */
    int64_t used; /* the thread's: bytes of all files, as far as it knows */
    int since;    /* files that it wrote since it counted */
    _Atomic uint64_t written, dropped, damaged;
} store_folder;

/* Opens the folder and starts the thread.  KVANT_ENOENT, KVANT_EIO, KVANT_ENOMEM. */
int store_folder_open(store_folder *f, const kv_cache *kv, const store_key *key, const char *path, int64_t most,
                      kvant_diag *diag);
/* After what waits is written, or close_ns is over: the rest is dropped, with a note. */
void store_folder_close(store_folder *f);
int store_folder_has(store_folder *f, const unsigned char *id, int what);
/* Reads page or snapshot `number` and leaves it to the thread; not where there is a file already. */
void store_folder_put(store_folder *f, const unsigned char *id, int what, int number);
/* 1: image[store_image_bytes] is the block's. */
int store_folder_get(store_folder *f, const unsigned char *id, int what, uint8_t *image);
/* The file goes, and what waits to become it. */
void store_folder_remove(store_folder *f, const unsigned char *id, int what);

#endif
