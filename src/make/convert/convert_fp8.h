/* make/convert/convert_fp8.h: checkpoints with FP8 weights (quant_method fp8): a byte E4M3 a value, times a scale for
 * each block of weight_block_size, or one for the tensor, in NAME_scale_inv or NAME_scale; matrices of experts in one
 * tensor have blocks of their own each, or a scale each.  Internal to convert*.c. */
#ifndef KVANT_MAKE_CONVERT_FP8_H
#define KVANT_MAKE_CONVERT_FP8_H

#include "make/convert/convert_plan.h"

/* Returns 1 if a tensor of this name has the scales of another. */
int convert_fp8_is_scale(const char *name);

/* Sets plan->fp8 from config.json. */
int convert_fp8_open(convert_plan *plan, kvant_diag *diag);
/* *skip: t is no weight, but a scale of one that is there, or of activations. */
int convert_fp8_skips(const convert_plan *plan, const st_tensor *t, int *skip, kvant_diag *diag);
/* The piece's scales, where its source has FP8. */
int convert_fp8_piece(const convert_plan *plan, convert_piece *piece, kvant_diag *diag);
/* n values of the source from number `from` on, `step` apart, in f32. */
void convert_fp8_read(const convert_plan *plan, const convert_piece *piece, int64_t from, int64_t step, int64_t n,
                      float *out);

#endif
