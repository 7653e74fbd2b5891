/* cache_avx2.c: cache_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/encode/cache_body.h"
