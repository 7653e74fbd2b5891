/* gdn_avx2.c: gdn_body.h and gdn_chunk_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/gdn/gdn_body.h"
#include "devices/cpu/gdn/gdn_chunk_body.h"
