/* weights/wtype_sample.h: rows of a weight type for tests, benchmarks and made-up models, of read-only types too. */
#ifndef KVANT_FORMATS_WTYPE_SAMPLE_H
#define KVANT_FORMATS_WTYPE_SAMPLE_H

#include "kvant/wtype.h"

/* x[n] encoded; of a type without an encoder: any codes, the same for the same n, under scales that give a block the
 * largest magnitude of its part of x.  Exported: libkvant calls it. */
__attribute__((visibility("default")))
void kvant_wtype_sample(const kvant_wtype *t, const float *x, uint8_t *to, int64_t n);
/* Sets the f16 scale and minimum of a block, where the type has them. */
__attribute__((visibility("default")))
void kvant_wtype_set_halves(const kvant_wtype *t, uint8_t *block, float scale, float least);

#endif
