/* ssm_avx512.c: ssm_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/gdn/ssm_body.h"
