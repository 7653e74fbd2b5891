/* hub/hub.h: models from a hub of Hugging Face's kind into the cache that its own tools use, so that a file is
 * fetched once for all of them.  A file is taken only with the size and the SHA-256 that the hub names (model
 * files; one that git itself keeps has no SHA-256, and is taken by its size); a download that was cut goes on
 * where it stopped.  Environment: HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE. */
#ifndef KVANT_HUB_HUB_H
#define KVANT_HUB_HUB_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct hub_ask {
    const char *repo; /* "USER/NAME", or "USER/NAME:QUANT" with a word of the file's name, such as Q4_K_M */
    const char *file; /* a file's path in it; NULL: chosen by QUANT, else Q4_K_M, Q8_0 or the first one */
    const char *instead; /* a file that is taken where no other is asked for and the repository has it; NULL: none */
    int offline;      /* only what the cache has */
    /* NULL, or: so many bytes are to be fetched, and the disk has room for them; nonzero ends it */
    int (*begun)(void *user, int64_t bytes);
    int (*progress)(void *user, const char *file, int64_t done, int64_t total); /* bytes; nonzero ends it */
    int (*ended)(void *user); /* NULL, or: asked once a second and more, nonzero ends it */
    void *user;
} hub_ask;

enum { HUB_PATH = 4096 };
/* path: the file in the cache, of a model in shards the first one; all are there then.  KVANT_EINVAL: a name is wrong;
 * KVANT_ENOENT: no such repository or file, or it is not in the cache; KVANT_EIO: network, disk, a wrong checksum;
 * KVANT_ENOSPC: the disk has no room for it; KVANT_ECANCELED; KVANT_EUNSUPPORTED: this build has no libcurl and the
 * cache has no such file.  One thread at a time fetches; others may read the cache meanwhile. */
int hub_pull(const hub_ask *ask, char path[HUB_PATH], kvant_diag *diag);
/* The models of the cache, USER/NAME:TAG, where TAG is the last word of the file's name, and the path of each. */
typedef void (*hub_each)(void *user, const char *name, const char *path);
int hub_models(hub_each each, void *user, kvant_diag *diag);
/* Takes the model of that name away: its files in every snapshot, their bytes unless other files are made of them, and
 * what broken downloads of its repository left; parts: that alone.  KVANT_ENOENT: nothing was there; KVANT_EINVAL: the
 * name is none, or a link leads out of the cache; KVANT_EIO. */
int hub_remove(const char *name, int parts, kvant_diag *diag);

#endif
