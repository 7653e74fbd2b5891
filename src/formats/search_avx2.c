/* search_avx2.c: search_simd.h compiled for AVX2. */
#include "formats/simd_encode_avx2.h"
#include "formats/search_simd.h"
