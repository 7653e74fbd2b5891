/* matmul_dotprod.c: matmul with sdot: 16 products of bytes in one instruction.  The f32 form is that of NEON. */
#include "devices/cpu/matmul/matmul_kernels.h"
#include "devices/cpu/matmul/matmul_f32_neon.h"
#include "devices/cpu/matmul/matmul_dot_neon.h"

const matmul_int_row_fn matmul_int_row_dotprod[LAYOUT_COUNT] = { INT_LAYOUTS(INT_ROW_ENTRY) };

static const matmul_isa isa = {
    ISA_8_F32(matmul_expand_neon),
    .quantise = matmul_quantise_neon,
    .unpack = matmul_unpack_neon,
    .int_row = matmul_int_row_dotprod,
    .int_rows = DOT_ROWS,
    .int_direct_rows = DOT_DIRECT_ROWS,
    .int_tile = dot_tiles,
};

MATMUL_KERNELS(dotprod)
