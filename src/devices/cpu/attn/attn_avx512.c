/* attn_avx512.c: attn_body.h and attn_score_body.h compiled for AVX512. */
#include "base/simd/vf_avx512.h"
#include "devices/cpu/attn/attn_body.h"
#include "devices/cpu/attn/attn_score_body.h"
