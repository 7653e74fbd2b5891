/* ssm_avx2.c: ssm_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/gdn/ssm_body.h"
