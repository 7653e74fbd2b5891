/* norm_neon.c: norm_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/ops/norm_body.h"
