/* moe_avx2.c: moe_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/ops/moe_body.h"
