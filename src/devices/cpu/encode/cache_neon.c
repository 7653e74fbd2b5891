/* cache_neon.c: cache_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/encode/cache_body.h"
