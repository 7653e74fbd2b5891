/* gdn_avx512.c: gdn_body.h and gdn_chunk_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/gdn/gdn_body.h"
#include "devices/cpu/gdn/gdn_chunk_body.h"
