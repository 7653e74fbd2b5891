/* matmul_neon.c: matmul on any 64-bit Arm.  Integer form: bytes multiplied to 16 bits, two products added there, then
 * widened: 16 products in three instructions, where f32 needs four. */
#include "devices/cpu/matmul/matmul_kernels.h"
#include "devices/cpu/matmul/matmul_f32_neon.h"
#include "devices/cpu/matmul/matmul_dot_neon.h"

static const matmul_int_row_fn int_rows[LAYOUT_COUNT] = { INT_LAYOUTS(INT_ROW_ENTRY) };

static const matmul_isa isa = {
    ISA_8_F32(matmul_expand_neon),
    .quantise = matmul_quantise_neon,
    .unpack = matmul_unpack_neon,
    .int_row = int_rows,
    .int_rows = DOT_ROWS,
    .int_direct_rows = DOT_DIRECT_ROWS,
    .int_tile = dot_tiles,
};

MATMUL_KERNELS(neon)
