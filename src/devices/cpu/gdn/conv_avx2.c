/* conv_avx2.c: conv_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/gdn/conv_body.h"
