/* tests/support/gguf_change.h: a copy of a model file with one key or one tensor more, or another value of a key. */
#ifndef KVANT_TESTS_GGUF_CHANGE_H
#define KVANT_TESTS_GGUF_CHANGE_H

#include "model/gguf/gguf.h"

typedef struct gguf_change {
    const char *key; /* NULL: none */
    int type;        /* of its value; GGUF_ARRAY: elem, count */
    int elem;
    uint64_t count;
    const void *value; /* as in a file, but of a text: with its end; NULL: the key is left out */
    size_t bytes;
    const char *tensor; /* NULL: none; F32, n values of 0.25 */
    int64_t n;
    const char *without; /* a tensor that is left out */
} gguf_change;

/* 0, or -1: the file cannot be written. */
int gguf_change_write(const gguf *g, const gguf_change *c, const char *to);

#endif
