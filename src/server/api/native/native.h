/* server/api/native/native.h: llama.cpp's /completion and /infill: what an answer tells of its request. */
#ifndef KVANT_SERVER_API_NATIVE_H
#define KVANT_SERVER_API_NATIVE_H

#include "base/text/jsonw.h"
#include "kvant/session.h"
#include "server/request/request.h"

typedef struct job job;
typedef struct choice choice;

typedef struct native_answer {
    int max_tokens, ignore_eos, has_seed, slot, n_keep, n_discard; /* as asked for */
    kvant_sampler_params sampler; /* its bias stands beside it */
    int32_t *bias_ids;
    float *bias;
    int n_bias;
    char **fields; /* response_fields */
    int n_fields;
} native_answer;

void native_put(const job *j, choice *c, jsonw *w); /* a choice that is done; under job->lock */
void native_take(native_answer *a, api_request *r); /* fields become the answer's */
int native_take_bias(native_answer *a, const api_request *r); /* KVANT_ENOMEM */
void native_free(native_answer *a);

#endif
