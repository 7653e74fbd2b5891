/* gdn_neon.c: gdn_body.h and gdn_chunk_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/gdn/gdn_body.h"
#include "devices/cpu/gdn/gdn_chunk_body.h"
