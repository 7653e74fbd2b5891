/* moe_neon.c: moe_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/ops/moe_body.h"
