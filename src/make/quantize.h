/* make/quantize.h: GGUF to GGUF with smaller weights.
 *
 * What becomes `type`: matrices (two or more dimensions) named *.weight, one row after the other.
 * These stay as they are, byte for byte: vectors, norms, everything not named *.weight, and the small matrices that
 * steer the model and cost nothing (router ffn_gate_inp, ssm_conv1d, ssm_alpha, ssm_beta, ssm_ba).
 * Fallbacks, each reported: a row that is no multiple of the type's block becomes Q8_0 if it is a multiple of 32, else
 * F16; under NVFP4 the embedding table becomes Q8_0, because the second-level scale exists for products only.
 * NVFP4 adds "<name without .weight>.scale" (F32, one per matrix or per expert): without it the 8-bit scales of
 * ordinary weights would lie in UE4M3's subnormal range.
 *
 * With an importance matrix the searches of the K-types, IQ4_NL and IQ4_XS weigh an error by the mean square of
 * what its column is multiplied with; tensors that it does not have, and other types, are written as without.  The
 * matrix's name, text, entries and chunks become quantize.imatrix.*.
 *
 * All keys are copied except split.*; general.file_type and general.quantization_version are set.  Shards become one
 * file.  The result is written beside `out` and renamed, so `out` is never half a model.  One thread. */
#ifndef KVANT_MAKE_QUANTIZE_H
#define KVANT_MAKE_QUANTIZE_H

#include <stddef.h>
#include "kvant/wtype.h"
#include "make/quantize_mix.h"

typedef struct quantize_params {
    const kvant_wtype *type;        /* wanted; its quant must not be NULL */
    const quantize_mix *mix;        /* NULL, or: instead of type */
    const kvant_wtype *embd_type;   /* token_embd.weight; NULL: type */
    const kvant_wtype *output_type; /* output.weight; NULL: type */
    int keep_embd, keep_output;     /* 1: that tensor stays as it is */
    const char *imatrix;            /* NULL, or: file of an importance matrix (make/imatrix.h) */
    int allow_requantize;           /* 0: matrices that are blocks already are an error (quality is lost twice) */
} quantize_params;

enum quantize_action { QUANTIZE_KEPT, QUANTIZE_CONVERTED, QUANTIZE_FALLBACK };

/* One tensor, before it is written. */
typedef struct quantize_event {
    int i, n; /* 0-based number of n tensors of the input */
    const char *name;
    const char *from, *to;      /* type names */
    int action;                 /* enum quantize_action */
    const char *note;           /* why it was kept or fell back; "" for a conversion */
    size_t in_bytes, out_bytes; /* of this tensor */
} quantize_event;

typedef struct quantize_result {
    int n_tensors, n_converted, n_fallback;
    int n_weighted; /* converted with an importance */
    size_t in_bytes, out_bytes; /* whole files */
} quantize_result;

/* Return non-zero to stop: model_quantize then returns KVANT_ECANCELED and leaves nothing behind. */
typedef int (*quantize_progress)(void *user, const quantize_event *event);

/* progress and result may be NULL.  Errors: those of gguf_open; KVANT_EINVAL (out is the input, or no type given);
 * KVANT_EUNSUPPORTED (a weight type that cannot be read, or blocks without allow_requantize); KVANT_ENUMERIC (a weight
 * that is not finite or too large for the type's scale, with its tensor); KVANT_EIO; KVANT_ENOMEM; KVANT_ECANCELED. */
int model_quantize(const char *in, const char *out, const quantize_params *params, quantize_progress progress,
                   void *user, quantize_result *result, kvant_diag *diag);

#endif
