/* turbo3_dotprod.c: the integer path of turbo3 with sdot. */
#include "formats/turbo/turbo3_int_neon.h"

const kvant_format_kernels kvant_turbo3_kernels_dotprod = { INT_KERNELS };
