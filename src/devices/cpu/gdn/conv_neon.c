/* conv_neon.c: conv_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/gdn/conv_body.h"
