/* elementwise_avx512.c: elementwise_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/ops/elementwise_body.h"
