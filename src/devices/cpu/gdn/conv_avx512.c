/* conv_avx512.c: conv_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/gdn/conv_body.h"
