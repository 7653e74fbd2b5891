/* wtype.h: weight block types (GGUF tensor types that kvant can multiply with).
 *
 * Blocks of `block` values are `bytes` long; a row of n_in values is n_in/block blocks.  Layouts:
 * docs/formats/weights.md.
 * Threads: pure functions over constant tables. */
#ifndef KVANT_WTYPE_H
#define KVANT_WTYPE_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

typedef struct kvant_wtype {
    const char *name;      /* "F32" "BF16" "Q4_K" ... as GGUF's tools spell them */
    int ggml_id;           /* number in GGUF files */
    int block;             /* values per block */
    int bytes;             /* bytes per block */
    int file_type;         /* general.file_type of a file mostly of this type */
    /* n values (a multiple of block) from src bytes; the reference, exact as written in the spec */
    void (*dequant)(const uint8_t *src, float *dst, int64_t n);
    /* n values to bytes; NULL where kvant cannot write the type */
    void (*quant)(const float *src, uint8_t *dst, int64_t n);
} kvant_wtype;

/* The types in the order of the table; at: NULL out of range. */
int kvant_wtype_count(void);
const kvant_wtype *kvant_wtype_at(int i);
const kvant_wtype *kvant_wtype_by_id(int ggml_id);       /* NULL: unknown or unsupported */
const kvant_wtype *kvant_wtype_find(const char *name);   /* case-insensitive; NULL if unknown */
/* As t->quant, where an error of value i counts importance[i] >= 0 times: the mean square of what it is multiplied
 * with.  0, and nothing written: the search of this type has no weights. */
int kvant_wtype_quant_weighted(const kvant_wtype *t, const float *src, const float *importance, uint8_t *dst,
                               int64_t n);
/* The names of all of them, a space between. */
const char *kvant_wtype_names(void);
/* Name, block and bytes of any ggml type number, also those kvant cannot multiply ("Q8_K"); 0 if unknown. */
int kvant_ggml_type_info(int ggml_id, const char **name, int *block, int *bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
