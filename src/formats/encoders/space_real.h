/* space_real.h: rows are kept as they are: prep_q and finish_out of the reference serve. */
#define SPACE_KERNELS
