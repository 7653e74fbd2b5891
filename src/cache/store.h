/* cache/store.h: sequences and the prefix index on disk.  The bytes: docs/snapshot.md.
 *
 * A file is a header, chunks (each with its own checksum and number) and an end chunk over all of them.  It is written
 * whole or not at all (base/file/file_out.h).  Reading is in two passes: store_open checks every byte before
 * anything is touched; loading checks each chunk again in the copy that is used, because somebody may write to the
 * mapped file. Checksums find damage, they do not prove who wrote a file: shapes, ids and links are checked as
 * hostile input, states must be finite, and sequences get pages of their own.
 *
 * Only a file with the same fingerprint (weights, hyperparameters, cache formats, arithmetic) and salt is taken.
 * Owner thread only. */
#ifndef KVANT_CACHE_STORE_H
#define KVANT_CACHE_STORE_H

#include "base/file/file.h"
#include "cache/prefix.h"

enum { STORE_VERSION = 2, STORE_FINGERPRINT = 32, STORE_SEQUENCE = 1, STORE_PREFIX = 2, STORE_BLOCK = 3 };

/* The fingerprint: parts of 8 bytes, each a hash of one thing that the numbers depend on. */
enum { STORE_WEIGHTS, STORE_HPARAMS, STORE_FORMATS, STORE_COMPUTE, STORE_PARTS };

/* A file must match this key.  vocab: token ids are below it. */
typedef struct store_key {
    unsigned char fingerprint[STORE_FINGERPRINT], salt[PREFIX_SALT];
    int vocab;
    const unsigned char *block; /* STORE_BLOCK: its id, */
    int what;                   /* and BLOCK_PAGE or BLOCK_STATE */
} store_key;

/* A checked file. */
typedef struct store_file {
    mapped_file map;
    const uint8_t *data;
    size_t size;
    int kind, n_tokens, n_chunks;
} store_file;

/* Writes name in the folder dir (base/file/folder.h).  tokens[n]: those of the sequence, n its length.  *bytes:
 * size of the file. */
int store_save_sequence(const kv_cache *kv, const store_key *key, int seq, const int32_t *tokens, int dir,
                        const char *name, int64_t *bytes, kvant_diag *diag);
int store_save_prefix(const prefix_index *ix, const store_key *key, int dir, const char *name, int64_t *bytes,
                      kvant_diag *diag);

/* Bytes of the files that the two would write. */
int64_t store_sequence_bytes(const kv_cache *kv, int seq);
int64_t store_prefix_bytes(const prefix_index *ix);

/* Maps and checks name in the folder dir.  KVANT_ENOENT, KVANT_EFORMAT (damaged, foreign, another version: the text
 * says which). */
int store_open(const kv_cache *kv, const store_key *key, int kind, int dir, const char *name, store_file *f,
               kvant_diag *diag);
/* As store_open, for bytes in memory, which must stay until store_close. */
int store_open_bytes(const kv_cache *kv, const store_key *key, int kind, const void *data, size_t size, store_file *f,
                     kvant_diag *diag);
void store_close(store_file *f);

/* Pages that loading a sequence takes. */
int store_pages(const kv_cache *kv, const store_file *f);
/* Into an empty sequence; the caller has made sure of the pages.  tokens[f->n_tokens] is written.  On error the
 * sequence is empty again. */
int store_load_sequence(kv_cache *kv, const store_key *key, const store_file *f, int seq, int32_t *tokens,
                        kvant_diag *diag);
/* As many blocks as there are free pages (and snapshots as there are free slots); what the index knows is kept.
 * *n_tokens: tokens entered. */
int store_load_prefix(prefix_index *ix, const store_key *key, const store_file *f, int *n_tokens, kvant_diag *diag);

/* ---- one block, found by its id ---- */

/* Bytes of the image of a page or of a snapshot (enum of cache/host_tier.h); and of its file. */
size_t store_image_bytes(const kv_cache *kv, int what);
int64_t store_block_bytes(const kv_cache *kv, int what);
/* The page, or the snapshot, of this number -> image[store_image_bytes]. */
int store_read_image(const kv_cache *kv, int what, int number, uint8_t *image, kvant_diag *diag);
/* image -> a page that the caller has taken; -> a snapshot of a free number, after depth + 1 pages (KVANT_ENOSPC). */
int store_write_page(kv_cache *kv, int page, const uint8_t *image, kvant_diag *diag);
int store_write_snap(kv_cache *kv, int depth, const uint8_t *image, int *snap, kvant_diag *diag);
/* Writes the image as a file of its own, key's block.  Any thread: of kv it reads sizes alone. */
int store_save_block(const kv_cache *kv, const store_key *key, const uint8_t *image, int dir, const char *name,
                     kvant_diag *diag);
/* A checked file's image, which is copied and checked again. */
int store_load_block(const kv_cache *kv, const store_file *f, int what, uint8_t *image, kvant_diag *diag);

#endif
