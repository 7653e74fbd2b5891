/* norm_avx2.c: norm_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/ops/norm_body.h"
