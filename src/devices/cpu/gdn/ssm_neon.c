/* ssm_neon.c: ssm_body.h compiled for NEON. */
#include "devices/cpu/vec_neon.h"
#include "devices/cpu/gdn/ssm_body.h"
