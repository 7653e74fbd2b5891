/* moe_neon.c: moe_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/ops/moe_body.h"
