/* cache_avx512.c: cache_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/encode/cache_body.h"
