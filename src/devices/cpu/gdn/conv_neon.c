/* conv_neon.c: conv_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/gdn/conv_body.h"
