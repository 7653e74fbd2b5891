/* cache_neon.c: cache_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/encode/cache_body.h"
