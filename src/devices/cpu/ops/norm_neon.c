/* norm_neon.c: norm_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/ops/norm_body.h"
