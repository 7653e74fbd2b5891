/* peak_neon.c: peak_body.h compiled for this instruction set. */
#include "base/simd/vf_neon.h"
#include "cli/bench/peak_body.h"

extern const peak_kernels kvant_peak_neon;
const peak_kernels kvant_peak_neon = { .flops = 2 * 8 * VF_LANES, .read = peak_read, .fma = peak_fma };
