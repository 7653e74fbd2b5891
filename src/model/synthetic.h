/* model/synthetic.h: models without a file: the shape of a published model with random weights, to measure speed where
 * the weights cannot be had.  A GGUF header is made in memory; its data section is reserved address space that nobody
 * reads: weights come from synthetic_table and pick_block (base/pick.h), on the device where it can. */
#ifndef KVANT_MODEL_SYNTHETIC_H
#define KVANT_MODEL_SYNTHETIC_H

#include "kvant/wtype.h"
#include "model/gguf/gguf.h"

typedef struct synthetic synthetic;

/* spec "qwen3-8b:bf16": a name of synthetic.def and a weight type; "qwen3-8b:bf16+mtp": with a block behind the trunk
 * that predicts further tokens.  *file describes it and lives as long as *out.
 * KVANT_EINVAL names what is unknown and what is known. */
int synthetic_open(const char *spec, synthetic **out, gguf **file, kvant_diag *diag);
void synthetic_close(synthetic *s);                /* after gguf_close */

/* *n encoded blocks of `type`, values normal with deviation 0.02 (how these models are initialised): block i of the
 * matrix with seed s is table[pick_block(s, i, *n)].  Kept until close. */
int synthetic_table(synthetic *s, const kvant_wtype *type, const uint8_t **table, int *n, kvant_diag *diag);
/* Seed of matrix number `id`: matrices do not share blocks in order. */
uint64_t synthetic_seed(int id);
/* n_blocks blocks of a matrix to host memory. */
void synthetic_fill(const uint8_t *table, int n, size_t block_bytes, uint64_t seed, uint64_t n_blocks, uint8_t *dst);
/* Values of the vector `name`: norms 1, decay rates negative, small biases, conv taps that keep the scale. */
void synthetic_vector(const char *name, float *dst, int64_t n);

#endif
