/* cache_avx512.c: cache_body.h compiled for AVX512. */
#include "devices/cpu/vec_avx512.h"
#include "devices/cpu/encode/cache_body.h"
