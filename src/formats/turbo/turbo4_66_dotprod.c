/* turbo4_66_dotprod.c: the integer path of turbo4_66 with sdot. */
#include "formats/turbo/turbo4_66_int_neon.h"

const kvant_format_kernels kvant_turbo4_66_kernels_dotprod = { INT_KERNELS };
