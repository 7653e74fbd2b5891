/* tcq.h: the encoder of turbo3_tcq around any implementation of its trellis search. */
#ifndef KVANT_FORMATS_TCQ_H
#define KVANT_FORMATS_TCQ_H

#include <stdint.h>

/* The states after each symbol, and the initial one. */
typedef struct tcq_path {
    uint16_t state[128];
    int start;
} tcq_path;

/* The least-error paths through n rows y, n = 1 or 2.  Costs in f32, each step (y - c)^2 rounded before it is added;
 * ties take the smallest predecessor, and the smallest final state. */
typedef void tcq_walk_fn(const float (*y)[128], int n, tcq_path *path);

/* One group: x f32[128] -> 52 bytes. */
void tcq_encode_group(tcq_walk_fn *walk, const float *x, uint8_t *bytes, int encoder);

tcq_walk_fn tcq_walk_avx512;               /* walk_avx512.c */

#endif
