/* cache/store_impl.h: the bytes of a snapshot file, shared by store.c (checking), store_save.c and store_load.c.
 *
 * Every number in a file is little-endian; kvant runs on little-endian machines only, and the header says so. */
#ifndef KVANT_CACHE_STORE_IMPL_H
#define KVANT_CACHE_STORE_IMPL_H

#include "cache/store.h"

enum {
    CHUNK_TOKENS = 1,
    CHUNK_PAGE = 2,
    CHUNK_TAIL = 3,
    CHUNK_STATE = 4,
    CHUNK_NODE = 5,
    CHUNK_WINDOW = 6,
    CHUNK_BLOCK = 7,
    CHUNK_END = 9
};

extern const char store_magic[8];

typedef struct store_header {
    char magic[8];
    uint32_t version, endian, kind, page_tokens;
    unsigned char fingerprint[STORE_FINGERPRINT], salt[PREFIX_SALT];
    uint32_t n_tokens, n_chunks; /* the end chunk not counted */
    uint64_t file_bytes, page_bytes, tail_bytes, state_bytes;
    uint32_t state_type, zero[2], crc; /* enum kvant_state_type; crc: of all before it */
} store_header;

_Static_assert(sizeof(store_header) == 128, "docs/snapshot.md");

typedef struct store_chunk {
    uint32_t type, index;
    uint64_t bytes;
    uint32_t crc, zero; /* of type, index, bytes and the payload */
} store_chunk;

_Static_assert(sizeof(store_chunk) == 24, "docs/snapshot.md");

typedef struct store_node {
    int32_t parent; /* number of an earlier node, -1: none */
    int32_t has_snap;
    unsigned char salt[PREFIX_SALT];
    int32_t tokens[KVANT_PAGE];
} store_node;

typedef struct store_block {
    unsigned char id[PREFIX_ID];
    int32_t what, zero;
} store_block;

size_t store_snap_bytes(const kv_cache *kv);       /* of windows, tails and state, in this order */
size_t store_windows_bytes(const kv_cache *kv);    /* the first of them */
uint32_t store_state_type(const kv_cache *kv);
uint32_t store_chunk_crc(const store_chunk *c, const void *payload);
size_t store_largest(const kv_cache *kv);          /* payload of any chunk */
int store_window_count(const kv_cache *kv, int len);
int store_chunk_count(const kv_cache *kv, int len); /* of a sequence's file, the end not counted */

/* Walks the chunks; next_chunk gives the payload of the next one if it is of the type and size wanted. */
typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    uint32_t n, crc;
} reader;

int store_next_chunk(reader *r, uint32_t type, size_t bytes, store_chunk *c, const uint8_t **payload, kvant_diag *diag);
int store_check_snap(const kv_cache *kv, const uint8_t *p, kvant_diag *diag); /* finite values */
store_header store_header_for(const kv_cache *kv, const store_key *key, int kind);
uint64_t store_whole_bytes(uint64_t payload, uint32_t n_chunks); /* with the header, the chunks' heads and the end */
int store_check_tokens(const uint8_t *payload, int n, int vocab, kvant_diag *diag);

#endif
