/* make/gguf/gguf_keys.h: the keys of a new GGUF file, put together in memory: their number stands before them.
 * A key that begins with '.' belongs to the architecture ("qwen3" + ".block_count").  A failed allocation is sticky. */
#ifndef KVANT_MAKE_GGUF_KEYS_H
#define KVANT_MAKE_GGUF_KEYS_H

#include <stdint.h>
#include "base/text/sbuf.h"

typedef struct gguf_keys {
    sbuf bytes;
    uint64_t n;
    const char *arch;
} gguf_keys;

void gguf_keys_u32(gguf_keys *k, const char *key, uint32_t v);
void gguf_keys_i32(gguf_keys *k, const char *key, int32_t v);
void gguf_keys_f32(gguf_keys *k, const char *key, double v);
void gguf_keys_bool(gguf_keys *k, const char *key, int v);
void gguf_keys_str(gguf_keys *k, const char *key, const char *s, size_t n);
/* The head of an array of `count` elements of type `elem` (enum gguf_type); they follow by put or array_str. */
void gguf_keys_array(gguf_keys *k, const char *key, int elem, uint64_t count);
void gguf_keys_put(gguf_keys *k, const void *p, size_t n);
void gguf_keys_array_str(gguf_keys *k, const char *s, size_t n);
void gguf_keys_free(gguf_keys *k);

#endif
