/* tbq4_0_dotprod.c: the integer path of tbq4_0 with sdot. */
#include "formats/tbq/tbq4_0_int_neon.h"

const kvant_format_kernels kvant_tbq4_0_kernels_dotprod = { INT_KERNELS };
