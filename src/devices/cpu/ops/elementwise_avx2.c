/* elementwise_avx2.c: elementwise_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/ops/elementwise_body.h"
