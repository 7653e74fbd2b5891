/* moe_avx512.c: moe_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/ops/moe_body.h"
