/* make/gguf/gguf_write.h: writing a file that appears whole or not at all, and the few GGUF pieces that go into it.
 *
 * gguf_out_open creates a temporary file beside `path`; the put functions append and remember the first failure;
 * gguf_out_commit flushes, syncs and renames it over `path`; gguf_out_abort removes it.  One thread. */
#ifndef KVANT_MAKE_GGUF_WRITE_H
#define KVANT_MAKE_GGUF_WRITE_H

#include <stdio.h>
#include "model/gguf/gguf.h"

typedef struct gguf_out {
    FILE *file;
    char *path, *temp;
    uint64_t at; /* bytes put so far */
    int error;   /* errno of the first failure, 0: none */
} gguf_out;

int gguf_out_open(gguf_out *o, const char *path, kvant_diag *diag);
void gguf_out_put(gguf_out *o, const void *p, size_t n);
void gguf_out_u32(gguf_out *o, uint32_t v);
void gguf_out_u64(gguf_out *o, uint64_t v);
void gguf_out_str(gguf_out *o, gguf_str s);
void gguf_out_kv(gguf_out *o, const gguf_kv *kv); /* as it was read */
void gguf_out_kv_u32(gguf_out *o, const char *key, uint32_t v);
/* Zeroes up to a multiple of alignment (a power of two) of the file's length. */
void gguf_out_pad(gguf_out *o, uint64_t alignment);
/* KVANT_EIO with the reason when anything failed since the open; the temporary file stays until abort. */
int gguf_out_check(const gguf_out *o, kvant_diag *diag);
int gguf_out_commit(gguf_out *o, kvant_diag *diag);
/* Nothing to do after a commit; removes the temporary file otherwise. */
void gguf_out_abort(gguf_out *o);

#endif
