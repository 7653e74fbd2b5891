/* search_avx2.c: search_simd.h compiled for AVX2. */
#include "formats/encoders/simd_encode_avx2.h"
#include "formats/encoders/search_simd.h"
