/* attn_neon.c: attn_body.h and attn_score_body.h compiled for NEON. */
#include "base/simd/vf_neon.h"
#include "devices/cpu/attn/attn_body.h"
#include "devices/cpu/attn/attn_score_body.h"
