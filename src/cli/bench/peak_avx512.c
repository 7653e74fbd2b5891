/* peak_avx512.c: peak_body.h compiled for this instruction set. */
#include "base/simd/vf_avx512.h"
#include "cli/bench/peak_body.h"

extern const peak_kernels kvant_peak_avx512;
const peak_kernels kvant_peak_avx512 = { .flops = 2 * 8 * VF_LANES, .read = peak_read, .fma = peak_fma };
