/* tcq.h: the encoder of turbo3_tcq around any implementation of its trellis search. */
#ifndef KVANT_FORMATS_TCQ_H
#define KVANT_FORMATS_TCQ_H

#include <stdint.h>

/* States of the least-error path through y f32[128] -> state[128]; *start is the initial state.  Costs in f32, each
 * step (y - c)^2 rounded before it is added; ties take the smallest predecessor, and the smallest final state. */
typedef void (*tcq_viterbi_fn)(const float *y, uint16_t *state, int *start);

/* One group: x f32[128] -> 52 bytes. */
void tcq_encode_group(tcq_viterbi_fn viterbi, const float *x, uint8_t *bytes, int encoder);

#endif
