/* q8_0_dotprod.c: the integer path of q8_0 with sdot. */
#include "formats/plain/q8_0_int_neon.h"

const kvant_format_kernels kvant_q8_0_kernels_dotprod = { INT_KERNELS };
