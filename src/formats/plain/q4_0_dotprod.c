/* q4_0_dotprod.c: the integer path of q4_0 with sdot. */
#include "formats/plain/q4_0_int_neon.h"

const kvant_format_kernels kvant_q4_0_kernels_dotprod = { INT_KERNELS };
