/* model/gguf/gguf.h: the GGUF reader: parse and refuse.  Nothing outside gguf.c touches raw offsets.
 *
 * gguf_open maps the file (and its other shards) and checks everything before it returns: counts, lengths, offsets and
 * sizes against the file, types, duplicates, overlaps.  A gguf is read-only and may be shared by threads. */
#ifndef KVANT_MODEL_GGUF_H
#define KVANT_MODEL_GGUF_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

typedef struct gguf gguf;

typedef struct gguf_str {
    const char *s;
    size_t n;
} gguf_str; /* not NUL-terminated; points into the map */

typedef struct gguf_tensor {
    gguf_str name;
    int n_dims, type; /* ggml type number */
    int64_t ne[4];    /* ne[0] fastest; unused dims 1 */
    const uint8_t *data;
    size_t bytes;
    int shard;
} gguf_tensor;

typedef struct gguf_kv {
    gguf_str key;
    int type;             /* enum gguf_type */
    int elem;             /* element type of an array */
    uint64_t count;       /* array elements */
    const uint8_t *value; /* raw little-endian; strings: see gguf_kv_string */
    size_t bytes;
    int given; /* 1: by gguf_override */
} gguf_kv;

int gguf_open(const char *path, gguf **out, kvant_diag *diag);
/* From memory (fuzzing, tests): one shard; data must outlive the gguf. */
int gguf_open_mem(const uint8_t *data, size_t size, gguf **out, kvant_diag *diag);
/* The tensors of another file of the same architecture come behind those of g; keys are those of g alone.
 * KVANT_EFORMAT: another architecture, or a tensor that g has.  After an error g can only be closed. */
int gguf_add(gguf *g, const char *path, kvant_diag *diag);
void gguf_close(gguf *g);
int gguf_version(const gguf *g);
int64_t gguf_file_bytes(const gguf *g);
/* 1 when a mapped page vanished (truncated while mapped). */
int gguf_poisoned(const gguf *g);
/* 1 when path names one of the files that g has open (also through a link): do not write there. */
int gguf_is_part(const gguf *g, const char *path);

int gguf_kv_count(const gguf *g);
const gguf_kv *gguf_kv_at(const gguf *g, int i);
/* NULL: absent, also under the other names that writers have for the key (gguf_alias.c). */
const gguf_kv *gguf_find(const gguf *g, const char *key);
int gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, int i);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name);

/* Puts "KEY=TYPE:VALUE" (int, float, bool, str) in the place of the file's value, or beside its keys.  KVANT_EINVAL:
 * bad syntax, or a type that the file's value does not have.  Before anything is read. */
int gguf_override(gguf *g, const char *const *list, int n, kvant_diag *diag);
/* Tells if a key was asked for by gguf_find or a getter, or a tensor by gguf_tensor_find, in the thread that opened the
 * file and until gguf_seen_end. */
int gguf_kv_seen(const gguf *g, int i);
int gguf_tensor_seen(const gguf *g, int i);
void gguf_seen_end(gguf *g);

/* Typed getters.  Absent: *v untouched, returns 0 when `required` is 0, else KVANT_EFORMAT naming the key.
 * Wrong type or out of range: KVANT_EFORMAT.  A number of any type is taken where its value fits exactly (f32: rounded,
 * finite ones only; bool: 0 or 1), and an array whose elements are all one value for that value. */
int gguf_u32(const gguf *g, const char *key, int required, uint32_t *v, kvant_diag *diag);
int gguf_f32(const gguf *g, const char *key, int required, float *v, kvant_diag *diag);
int gguf_bool(const gguf *g, const char *key, int required, int *v, kvant_diag *diag);
int gguf_string(const gguf *g, const char *key, int required, gguf_str *v, kvant_diag *diag);
/* An array of integers of any type that fit into 32 bits, at most `cap` of them, or one integer -> v, *n. */
int gguf_i32s(const gguf *g, const char *key, int required, int32_t *v, int cap, int *n, kvant_diag *diag);
/* String arrays: *n elements, then the i-th in order through an iterator. */
typedef struct gguf_iter {
    const uint8_t *p, *end;
    uint64_t left;
} gguf_iter;
int gguf_strings(const gguf *g, const char *key, int required, gguf_iter *it, int *n, kvant_diag *diag);
int gguf_next(gguf_iter *it, gguf_str *v); /* 0 at the end */
/* Element i (0 of a value that is no array), exactly; returns 0: there is none, or it is no (integral) number. */
int gguf_integer_at(const gguf_kv *kv, uint64_t i, int64_t *v);
int gguf_real_at(const gguf_kv *kv, uint64_t i, double *v);
/* Raw array access: element type must be `elem`; *data points to count little-endian elements (maybe unaligned). */
int gguf_raw_array(const gguf *g, const char *key, int required, int elem, const uint8_t **data, int *n,
                   kvant_diag *diag);

#endif
