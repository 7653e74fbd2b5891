/* matmul_avx2.c: matmul with 8-lane vectors (matmul_tiles8.h). */
#include "devices/cpu/matmul/matmul_int.h"
#include "devices/cpu/matmul/matmul_kernels.h"
#include "base/simd/vf_avx2.h"

/* BF16 pairs: lane i holds W[k] in the low and W[k+1] in the high half of output i. */
typedef __m256i vpair;

static inline vpair vpair_load(const uint8_t *p)
{
    return load256(p);
}

static inline vf vpair_lo(vpair v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

static inline vf vpair_hi(vpair v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}

#include "devices/cpu/matmul/matmul_tiles8.h"

static const matmul_isa isa = {
    ISA_8_F32(matmul_expand_avx2),
    .quantise = matmul_quantise_avx2,
    .unpack = matmul_unpack_avx2,
    .int_row = matmul_int_row_avx2,
    .int_rows = 6,
    .int_direct_rows = 4,
    .int_tile = matmul_int_tile_avx2,
};

MATMUL_KERNELS(avx2)
