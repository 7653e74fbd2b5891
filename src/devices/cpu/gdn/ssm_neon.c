/* ssm_neon.c: ssm_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/gdn/ssm_body.h"
