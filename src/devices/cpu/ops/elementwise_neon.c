/* elementwise_neon.c: elementwise_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/ops/elementwise_body.h"
