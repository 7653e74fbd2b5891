/* ssm_avx512.c: ssm_body.h compiled for AVX512. */
#include "devices/cpu/vec_avx512.h"
#include "devices/cpu/gdn/ssm_body.h"
