/* model/gguf/gguf_internal.h: what gguf.c (open, shards, lookup), gguf_parse.c (bytes of one file) and gguf_get.c
 * (typed getters) share.  Nobody else includes it. */
#ifndef KVANT_MODEL_GGUF_INTERNAL_H
#define KVANT_MODEL_GGUF_INTERNAL_H

#include "base/file/file.h"
#include "model/gguf/gguf.h"

/* Caps.  All arbitrary, far above any published model, and low enough that a hostile header cannot make the reader
 * allocate more than about three times its own file: every count is also bounded by the bytes that are left. */
enum {
    GGUF_MAX_KV = 65536,
    GGUF_MAX_TENSORS = 1 << 20, /* over all shards */
    GGUF_MAX_KEY = 65535,       /* bytes; the limit of the GGUF specification */
    GGUF_MAX_NAME = 63,         /* tensor name; the reference's buffer is 64 with the NUL */
    GGUF_MAX_ALIGN = 1 << 20,
    GGUF_DATA_ALIGN = 8, /* kernels read f32 and f16 in place */
    GGUF_MAX_SHARDS = 1024,
};
#define GGUF_MAX_LENGTH ((uint64_t)1 << 30) /* string bytes or array elements, as the reference has it */

typedef struct gguf_shard {
    mapped_file file; /* file.data NULL for gguf_open_mem */
    const uint8_t *data;
    size_t size;
    char name[64]; /* last part of the path, for messages */
    int version;
    uint32_t alignment;
    size_t data_start; /* of the data section, from the start of the file */
    gguf_kv *kv;
    gguf_tensor *tensors; /* moved into the gguf after all shards are read */
    int n_kv, n_tensors;
    uint32_t *kv_order; /* kv sorted by key */
} gguf_shard;

struct gguf {
    gguf_shard *shards;
    int n_shards;
    gguf_tensor *tensors;
    int n_tensors;
    uint32_t *tensor_order; /* tensors sorted by name */
    uint8_t *seen;          /* of the keys, then of the tensors; NULL: nothing is noted any more */
    uint8_t **given;        /* values of overrides, n_given */
    int n_given;
};

/* Makes `seen` anew: all unseen. */
int gguf_seen_begin(gguf *g, kvant_diag *diag);
int gguf_kv_sort(gguf_shard *s, kvant_diag *diag); /* kv_order; KVANT_EFORMAT: a key twice */
/* Other names of a key, the i-th -> buf; 0: there is none. */
int gguf_alias(const char *key, int i, char *buf, size_t cap);

/* Parses and checks the file in s->data (s->name set).  On failure s holds what gguf_shard_clear must free. */
int gguf_parse(gguf_shard *s, kvant_diag *diag);
void gguf_shard_clear(gguf_shard *s);

/* Sorted lookup.  Sorting instead of hashing: names come from the file, and no choice of names can make it quadratic.
 * gguf_sort is a heap sort of idx by less(ctx, a, b): no allocation, n log n for every input. */
typedef int (*gguf_less)(const void *ctx, uint32_t a, uint32_t b);
void gguf_sort(uint32_t *idx, int n, gguf_less less, const void *ctx);
int gguf_str_cmp(gguf_str a, gguf_str b);
const gguf_kv *gguf_shard_find(const gguf_shard *s, const char *key);

/* Name for a message: at most 63 bytes, printable ASCII, everything else '?'. */
typedef struct gguf_text {
    char s[64];
} gguf_text;
gguf_text gguf_printable(gguf_str s);

/* Size of a scalar value type, 0 for string, array and unknown numbers. */
size_t gguf_type_size(int type);
const char *gguf_type_name(int type);
/* Integer value of kv as int64; KVANT_EFORMAT when it is no integer type or above INT64_MAX. */
int gguf_integer(const gguf_kv *kv, int64_t *v, kvant_diag *diag);
/* u32 of one shard (for split.*): absent gives `absent`. */
int gguf_shard_u32(const gguf_shard *s, const char *key, uint32_t absent, uint32_t *v, kvant_diag *diag);

#endif
