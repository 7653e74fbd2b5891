/* turbo4_dotprod.c: the integer path of turbo4 with sdot. */
#include "formats/turbo/turbo4_int_neon.h"

const kvant_format_kernels kvant_turbo4_kernels_dotprod = { INT_KERNELS };
