/* tests/support/gguf_make.h: writes small GGUF files (keys only, version 3) in memory, good or deliberately broken.
 * Zero-initialise; free with gguf_make_free.  Aborts when out of memory: test code. */
#ifndef KVANT_TESTS_GGUF_MAKE_H
#define KVANT_TESTS_GGUF_MAKE_H

#include <stddef.h>
#include <stdint.h>

typedef struct gguf_make {
    uint8_t *data;
    size_t n, cap;
    uint64_t keys;
} gguf_make;

void gguf_make_bytes(gguf_make *m, const void *p, size_t n);
void gguf_make_text(gguf_make *m, const char *s, size_t n); /* u64 length, bytes */
/* Begins a key; the value follows through the calls above. */
void gguf_make_key(gguf_make *m, const char *key, int type);
void gguf_make_u32(gguf_make *m, const char *key, uint32_t v);
void gguf_make_bool(gguf_make *m, const char *key, int v);
void gguf_make_str(gguf_make *m, const char *key, const char *v);
/* NULL-terminated list of strings. */
void gguf_make_strs(gguf_make *m, const char *key, const char *const *v);
void gguf_make_i32s(gguf_make *m, const char *key, const int32_t *v, size_t n);
/* Begins an array of n elements. */
void gguf_make_array(gguf_make *m, const char *key, int elem, uint64_t n);
/* Writes the counts into the header; data[n] is the file. */
void gguf_make_finish(gguf_make *m);
void gguf_make_free(gguf_make *m);
/* A copy of a model file with another value of a key of 32 bits; 0: no such file or key, or it cannot be written. */
int gguf_copy_u32(const char *from, const char *to, const char *key, uint32_t v);

#endif
