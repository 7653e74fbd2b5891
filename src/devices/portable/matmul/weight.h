/* weight.h: values of a weight row by the generated decoders.  The host defines WT (wt_<type>), and WT_ONE for types
 * without blocks, of whose rows the last n_in % 8 values are read one by one. */
#ifndef KVANT_PORTABLE_WEIGHT_H
#define KVANT_PORTABLE_WEIGHT_H

#include "cards/decode.h"

#ifndef WT
#define WT wt_f32
#define WT_ONE wt_f32_one
#endif

#endif
