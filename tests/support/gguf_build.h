/* tests/support/gguf_build.h: writes GGUF bytes one field at a time, right or wrong, for tests.
 * Nothing is checked: a test that wants a broken file asks for it.  Positions of 64-bit counts and lengths are
 * remembered in marks[], so that a test can spoil each in turn.  Out of memory aborts (test use). */
#ifndef KVANT_TESTS_GGUF_BUILD_H
#define KVANT_TESTS_GGUF_BUILD_H

#include <stddef.h>
#include <stdint.h>
#include "model/gguf/gguf.h"

enum { GB_MARKS = 512 };

typedef struct gb {
    uint8_t *data;
    size_t n, cap;
    size_t marks[GB_MARKS];
    int n_marks;
} gb;

void gb_free(gb *b);
void gb_bytes(gb *b, const void *p, size_t n);
void gb_u32(gb *b, uint32_t v);
void gb_u64(gb *b, uint64_t v);
void gb_str(gb *b, const char *s);
/* Header; version 2 or 3. */
void gb_begin(gb *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv);
/* Key, type number, n raw value bytes. */
void gb_kv(gb *b, const char *key, uint32_t type, const void *value, size_t n);
void gb_kv_u32(gb *b, const char *key, uint32_t v);
void gb_kv_u16(gb *b, const char *key, uint16_t v);
void gb_kv_f32(gb *b, const char *key, float v);
void gb_kv_bool(gb *b, const char *key, int v);
void gb_kv_str(gb *b, const char *key, const char *v);
/* Array of count elements of scalar type elem, n raw bytes. */
void gb_kv_array(gb *b, const char *key, uint32_t elem, uint64_t count, const void *value, size_t n);
void gb_kv_strings(gb *b, const char *key, const char *const *v, int count);
void gb_tensor(gb *b, const char *name, uint32_t n_dims, const int64_t *ne, uint32_t type, uint64_t offset);
void gb_pad(gb *b, size_t alignment);
/* n bytes from a seed. */
void gb_fill(gb *b, size_t n, uint64_t seed);
/* Overwrites 8 bytes at a mark. */
void gb_poke_u64(gb *b, size_t at, uint64_t v);
/* Writes the bytes to path; 0 on success. */
int gb_write(const gb *b, const char *path);

/* A correct model: every value type once, and four tensors "blk.0.a.weight" (F32 64x4, 1024 bytes),
 * "blk.0.b.weight" (Q4_K 256x2x3, 864), "c" (F32 7, 28) and "d" (Q5_K 256, 176: known, not multiplied).  "d" ends
 * the file, so every shorter file is a truncated one; extra bytes (rounded up to 32) lie before it. */
enum { GB_GOOD_KV = 17, GB_GOOD_TENSORS = 4, GB_GOOD_DATA = 1920 + 176 };
void gb_good_model(gb *b, uint32_t version, size_t extra);
/* Touches everything that a user of the reader can reach; a checksum. */
uint64_t gb_walk(const gguf *g);

#endif
