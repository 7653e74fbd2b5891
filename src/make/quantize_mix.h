/* make/quantize_mix.h: named mixtures of weight types for `kvant quantize` (Q4_K_M, ...): most matrices get the base
 * type, those that hurt more get another, by their names and the layer they are in.  The rules are the field's. */
#ifndef KVANT_MAKE_QUANTIZE_MIX_H
#define KVANT_MAKE_QUANTIZE_MIX_H

#include "kvant/wtype.h"

typedef struct quantize_mix quantize_mix;

/* NULL out of range; NULL if unknown (any case). */
const quantize_mix *quantize_mix_at(int i);
const quantize_mix *quantize_mix_find(const char *name);
const char *quantize_mix_name(const quantize_mix *mix);
const kvant_wtype *quantize_mix_base(const quantize_mix *mix);
int quantize_mix_file_type(const quantize_mix *mix);    /* general.file_type */
/* The type of the matrix `name` of a model of n_layer layers. */
const kvant_wtype *quantize_mix_type(const quantize_mix *mix, const char *name, int n_layer);

#endif
