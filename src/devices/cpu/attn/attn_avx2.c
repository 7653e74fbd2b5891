/* attn_avx2.c: attn_body.h and attn_score_body.h compiled for AVX2. */
#include "base/simd/vf_avx2.h"
#include "devices/cpu/attn/attn_body.h"
#include "devices/cpu/attn/attn_score_body.h"
