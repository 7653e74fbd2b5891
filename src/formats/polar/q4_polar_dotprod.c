/* q4_polar_dotprod.c: the integer path of q4_polar with sdot. */
#include "formats/polar/q4_polar_int_neon.h"

const kvant_format_kernels kvant_q4_polar_kernels_dotprod = { INT_KERNELS };
