/* norm_avx512.c: norm_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/ops/norm_body.h"
