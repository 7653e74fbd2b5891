/* search_neon.c: search_simd.h compiled for NEON. */
#include "formats/simd_encode_neon.h"
#include "formats/search_simd.h"
