/* turbo3_tcq_dotprod.c: the integer path of turbo3_tcq with sdot. */
#include "formats/tcq/turbo3_tcq_int_neon.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_dotprod = { INT_KERNELS };
