/* tbq3_0_dotprod.c: the integer path of tbq3_0 with sdot. */
#include "formats/tbq/tbq3_0_int_neon.h"

const kvant_format_kernels kvant_tbq3_0_kernels_dotprod = { INT_KERNELS };
