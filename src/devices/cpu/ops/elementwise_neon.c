/* elementwise_neon.c: elementwise_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/ops/elementwise_body.h"
