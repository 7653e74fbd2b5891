/* cli/sampling.h: options -> what a sampler is made with: the defaults of requests (serve), the whole of it (run). */
#ifndef KVANT_CLI_SAMPLING_H
#define KVANT_CLI_SAMPLING_H

#include "cli/common.h"

/* The numbers: what `run` and `serve` share. */
void sampling_numbers(const opts *o, kvant_sampler_params *p);

/* The sampler of `run`; p points into the arrays.  sampling_free also after an error. */
typedef struct sampling {
    kvant_sampler_params p;
    int32_t *bias_ids, *breakers;
    float *bias;
} sampling;
int sampling_open(const opts *o, const kvant_model *m, sampling *s, kvant_diag *diag);
void sampling_free(sampling *s);

#endif
