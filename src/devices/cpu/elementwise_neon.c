/* elementwise_neon.c: elementwise_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/elementwise_body.h"
