/* search_neon.c: search_simd.h compiled for NEON. */
#include "formats/encoders/simd_encode_neon.h"
#include "formats/encoders/search_simd.h"
