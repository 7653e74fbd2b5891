/* matmul_avx512.c: matmul with 16-lane vectors: 14 x 32 tiles (28 accumulators, 2 weights, broadcasts from memory).
 * The integer form is AVX2's: without VNNI, 512-bit byte products need the same instructions. */
#include "devices/cpu/matmul/matmul_int.h"
#include "devices/cpu/matmul/matmul_kernels.h"
#include "devices/cpu/matmul/matmul_wide_avx512.h"

TILES_512(TILE, F32)
TILES_512_BIG(TILE, F32)
TILES_512(TILE, F16)
TILES_512(TILE, BF16)

static const matmul_isa isa = {
    ISA_512_F32,
    .quantise = matmul_quantise_avx2,
    .unpack = matmul_unpack_avx2,
    .int_row = matmul_int_row_avx2,
    .int_rows = 6,
    .int_direct_rows = 4,
    .int_tile = matmul_int_tile_avx2,
};

MATMUL_KERNELS(avx512)
